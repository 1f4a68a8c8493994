#include "rubato/wire/socket.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rubato::wire {
namespace {

constexpr int kSocketPatience = 60'000;  // milliseconds

bool readable(const Fd& fd, int milliseconds) {
  pollfd asked{fd.get(), POLLIN, 0};
  return poll(&asked, 1, milliseconds) == 1;
}

void expect_conversation(const Fd& listener, const std::string& address) {
  EXPECT_FALSE(accept_from(listener).valid());
  const auto client = connect_to(address);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE(readable(listener, kSocketPatience));
  const Fd server = accept_from(listener);
  ASSERT_TRUE(server.valid());
  ASSERT_EQ(write(client->get(), "hi", 2), 2);
  ASSERT_TRUE(readable(server, kSocketPatience));
  char buffer[8] = {};
  EXPECT_EQ(read(server.get(), buffer, sizeof(buffer)), 2);
  EXPECT_EQ(read(server.get(), buffer, sizeof(buffer)), -1) << "it must not block";
}

TEST(Socket, SpeaksOverTcp) {
  const auto listener = listen_on("tcp:127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  const auto address = address_of(*listener);
  ASSERT_TRUE(address.ok());
  EXPECT_TRUE(address->starts_with("tcp:127.0.0.1:"));
  EXPECT_NE(*address, "tcp:127.0.0.1:0");
  expect_conversation(*listener, *address);
}

TEST(Socket, SpeaksOverIpv6) {
  const auto listener = listen_on("tcp:[::1]:0");
  if (!listener) GTEST_SKIP() << "this machine has no IPv6: " << listener.error().message;
  const auto address = address_of(*listener);
  ASSERT_TRUE(address.ok());
  EXPECT_TRUE(address->starts_with("tcp:[::1]:")) << *address;
  expect_conversation(*listener, *address);
}

TEST(Socket, SpeaksOverUnixSockets) {
  std::string pattern = (std::filesystem::temp_directory_path() / "rubato-XXXXXX").string();
  const std::string root = mkdtemp(pattern.data());
  const std::string address = "unix:" + root + "/s";
  {
    const auto listener = listen_on(address);
    ASSERT_TRUE(listener.ok());
    EXPECT_EQ(*address_of(*listener), address);
    expect_conversation(*listener, address);
    EXPECT_EQ(user_at(*connect_to(address)), geteuid());
    EXPECT_FALSE(listen_on(address).ok()) << "taken";
  }
  EXPECT_FALSE(connect_to(address).ok()) << "nobody listens any more";
  std::filesystem::remove_all(root);
}

TEST(Socket, RefusesWhatIsNoAddress) {
  const std::string long_path = "unix:/" + std::string(200, 'x');
  for (const std::string& address :
       {std::string(), std::string("unix:"), std::string("127.0.0.1:80"), std::string("tcp:"),
        std::string("tcp:127.0.0.1"), std::string("tcp:localhost:80"), std::string("tcp:::1:80"),
        std::string("tcp:[]:80"), std::string("tcp:[::1]"), std::string("tcp:[127.0.0.1]:80"),
        std::string("tcp:127.0.0.1:99999"), std::string("tcp:127.0.0.1:8x"), long_path}) {
    EXPECT_FALSE(listen_on(address).ok()) << address;
    EXPECT_FALSE(connect_to(address).ok()) << address;
  }
}

TEST(Socket, AnFdClosesItself) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  const Fd reader(ends[0]);
  {
    Fd writer(ends[1]);
    Fd moved(std::move(writer));
    EXPECT_FALSE(writer.valid());  // NOLINT: tests the state after the move on purpose
    writer = std::move(moved);
    EXPECT_TRUE(writer.valid());
    EXPECT_FALSE(readable(reader, 0));
  }
  EXPECT_TRUE(readable(reader, 0)) << "the end of the stream";
}

TEST(Socket, WatchesAProcessToItsEnd) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(ends[1]);
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
  }
  const Fd watch = watch_process(child);
  ASSERT_TRUE(watch.valid());
  EXPECT_FALSE(readable(watch, 0));
  const long long started = start_time_of(child);
  EXPECT_GT(started, 0);
  EXPECT_FALSE(look_at_process(child)->ended);
  EXPECT_EQ(start_time_of(child), started);
  EXPECT_LE(start_time_of(getpid()), started);
  close(ends[1]);
  EXPECT_TRUE(readable(watch, kSocketPatience));
  EXPECT_TRUE(look_at_process(child)->ended) << "though nobody has collected it";
  waitpid(child, nullptr, 0);
  close(ends[0]);
  EXPECT_EQ(start_time_of(child), 0);
  EXPECT_FALSE(watch_process(child).valid());
}

}  // namespace
}  // namespace rubato::wire
