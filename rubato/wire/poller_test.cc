#include "rubato/wire/poller.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace rubato::wire {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience(60'000);

struct FdPair {
  FdPair() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    near = Fd(ends[0]);
    far = Fd(ends[1]);
  }
  void say(char byte) const { EXPECT_EQ(write(far.get(), &byte, 1), 1); }
  [[nodiscard]] char hear() const {
    char byte = 0;
    return read(near.get(), &byte, 1) == 1 ? byte : '\0';
  }
  Fd near, far;
};

TEST(Poller, CallsWhenReady) {
  Poller poller;
  const FdPair pair;
  std::string heard;
  poller.add(pair.near.get(), [&](Poller::Ready ready) {
    EXPECT_TRUE(ready.in);
    heard += pair.hear();
  });
  poller.wait(milliseconds(0));
  EXPECT_EQ(heard, "");
  pair.say('a');
  poller.wait(kPatience);
  EXPECT_EQ(heard, "a");
}

TEST(Poller, WaitsNoLongerThanAsked) {
  Poller poller;
  const auto begun = std::chrono::steady_clock::now();
  poller.wait(milliseconds(20));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(15));
}

TEST(Poller, WantsOnlyWhatItIsTold) {
  Poller poller;
  const FdPair pair;
  int ins = 0;
  int outs = 0;
  poller.add(pair.near.get(), [&](Poller::Ready ready) {
    ins += ready.in ? 1 : 0;
    outs += ready.out ? 1 : 0;
  });
  poller.want_out(pair.near.get(), true);
  poller.wait(milliseconds(0));
  EXPECT_EQ(outs, 1);
  poller.want_out(pair.near.get(), false);
  pair.say('a');
  poller.wait(milliseconds(0));
  EXPECT_EQ(ins, 1);
  EXPECT_EQ(outs, 1);
  poller.want_in(pair.near.get(), false);
  poller.wait(milliseconds(0));
  EXPECT_EQ(ins, 1);
  poller.want_in(pair.near.get(), true);
  poller.wait(milliseconds(0));
  EXPECT_EQ(ins, 2);
  poller.want_in(12345, true);
  poller.want_out(12345, true);
  poller.remove(12345);
}

TEST(Poller, TellsTheEndOfAStream) {
  Poller poller;
  FdPair pair;
  bool told = false;
  poller.add(pair.near.get(), [&](Poller::Ready ready) { told = ready.in; });
  pair.far.close();
  poller.wait(kPatience);
  EXPECT_TRUE(told);
}

TEST(Poller, ACallbackMayRemoveItselfAndOthers) {
  Poller poller;
  const FdPair first, second;
  int calls = 0;
  const auto remove_both = [&](Poller::Ready) {
    ++calls;
    poller.remove(first.near.get());
    poller.remove(second.near.get());
  };
  poller.add(first.near.get(), remove_both);
  poller.add(second.near.get(), remove_both);
  first.say('a');
  second.say('b');
  poller.wait(kPatience);
  poller.wait(milliseconds(0));
  EXPECT_EQ(calls, 1);
  poller.add(first.near.get(), [&](Poller::Ready) { calls = 10; });
  poller.wait(kPatience);
  EXPECT_EQ(calls, 10);
}

TEST(Poller, RunsWhatOtherThreadsPost) {
  Poller poller;
  const auto here = std::this_thread::get_id();
  int runs = 0;
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) {
      poller.post([&] {
        EXPECT_EQ(std::this_thread::get_id(), here);
        ++runs;
      });
    }
  });
  for (int i = 0; i < 1000 && runs < 100; ++i) poller.wait(milliseconds(100));
  other.join();
  EXPECT_EQ(runs, 100);
}

}  // namespace
}  // namespace rubato::wire
