#include "rubato/launch/console.h"

#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <vector>

#include "rubato/wire/socket.h"

namespace rubato::launch {
namespace {

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    in = wire::Fd(ends[0]);
    out = wire::Fd(ends[1]);
    fcntl(in.get(), F_SETFL, O_NONBLOCK);
  }
  std::string read_all() const {
    std::string all;
    char buffer[4096];
    for (ssize_t size = 0; (size = read(in.get(), buffer, sizeof(buffer))) > 0;) {
      all.append(buffer, static_cast<std::size_t>(size));
    }
    return all;
  }
  wire::Fd in, out;
};

TEST(Console, PrintsLinesToTheirStreams) {
  const Pipe out, err;
  Console console(out.out.get(), err.out.get(), false);
  console.out("one");
  console.err("two");
  console.status("never seen");
  console.flush();
  EXPECT_EQ(out.read_all(), "one\n");
  EXPECT_EQ(err.read_all(), "two\n");
}

TEST(Console, KeepsTheOrderWhereBothAreOneFile) {
  const Pipe both;
  Console console(both.out.get(), both.out.get(), false);
  console.out("one");
  console.err("two");
  console.out("three");
  console.flush();
  EXPECT_EQ(both.read_all(), "one\ntwo\nthree\n");
}

TEST(Console, PaintsTheStatusAroundLines) {
  const Pipe out, err;
  Console console(out.out.get(), err.out.get(), true);
  console.status("step 1");
  console.err("news");
  console.status("");
  console.err("more");
  EXPECT_EQ(err.read_all(), "\r\x1b[Kstep 1\r\x1b[Knews\nstep 1\r\x1b[Kmore\n");
}

TEST(Console, NeverWaitsForTheReaderAndSaysWhatItLeftOut) {
  const Pipe out, err;
  Console console(out.out.get(), err.out.get(), false);
  const std::string line(999, 'x');
  for (int i = 0; i < 6000; ++i) console.out(line);
  EXPECT_TRUE(console.unwritten());
  std::string all;
  for (int i = 0; i < 1000 && console.unwritten(); ++i) {
    all += out.read_all();
    console.flush();
  }
  all += out.read_all();
  console.out("late");
  console.flush();
  all += out.read_all();
  EXPECT_FALSE(console.unwritten());
  EXPECT_LT(all.size(), 5'000'000U);
  const auto note = all.find("lines left out");
  ASSERT_NE(note, std::string::npos);
  EXPECT_EQ(all.substr(all.size() - 5), "late\n");
}

TEST(Console, AReaderThatLeftIsNoError) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe out;
  const Pipe err;
  out.in.close();
  Console console(out.out.get(), err.out.get(), false);
  console.out("nobody");
  console.flush();
  EXPECT_FALSE(console.unwritten());
  console.finish(std::chrono::seconds(1));
}

TEST(LineCutter, CutsAsATerminalShows) {
  struct Case {
    std::vector<std::string> pieces;
    std::vector<std::string> lines;
  };
  const std::vector<Case> cases = {
      {{"a\nb\n"}, {"a", "b"}},
      {{"a", "b\n", "\n"}, {"ab", ""}},
      {{"no end"}, {"no end"}},
      {{"dos\r\n"}, {"dos"}},
      {{"10%\r50%\r", "100%\n"}, {"100%"}},
      {{std::string(70000, 'x')}, {std::string(65536, 'x'), std::string(4464, 'x')}},
      {{}, {}},
  };
  for (const Case& one : cases) {
    LineCutter cutter;
    std::vector<std::string> lines;
    const auto keep = [&](std::string_view line) { lines.emplace_back(line); };
    for (const std::string& piece : one.pieces) cutter.feed(piece, keep);
    cutter.finish(keep);
    EXPECT_EQ(lines, one.lines);
  }
}

}  // namespace
}  // namespace rubato::launch
