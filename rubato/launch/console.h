// Prints lines for people without ever waiting for the reader. A terminal that is stopped with
// Ctrl-S, or a full pipe, must not stop the launcher, because the launcher must read the messages
// of its workers.
//
// Text that cannot be written at once waits in memory, up to a limit. Beyond the limit, lines are
// left out and counted. For one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace rubato::launch {

class Console {
 public:
  // With `terminal`, the status is one line that is overwritten. Otherwise there is no status line.
  Console(int out, int err, bool terminal);

  // On a terminal lines are written at once. Elsewhere they are written by the next flush(), or
  // when there are many.
  void out(std::string_view line) { print(one_stream_ ? err_ : out_, line); }
  void err(std::string_view line) { print(err_, line); }
  // Empty: removes the status line.
  void status(const std::string& text);
  [[nodiscard]] bool terminal() const { return terminal_; }

  [[nodiscard]] bool unwritten() const { return !out_.text.empty() || !err_.text.empty(); }
  void flush();
  // At the end: waits for the reader, but not without limit.
  void finish(std::chrono::milliseconds longest);

 private:
  struct Stream {
    int fd = -1;
    std::string text{};
    std::size_t left_out = 0;
  };
  void print(Stream& stream, std::string_view line);
  static void append(Stream& stream, std::string_view line);
  static void flush(Stream& stream);

  Stream out_, err_;
  bool terminal_;
  bool one_stream_;  // both are the same file, so the order of their lines is visible
  std::string status_;
};

// Cuts the output of a program into lines as a terminal would show them. Text that a carriage
// return overwrites is dropped.
class LineCutter {
 public:
  // Calls `line` for every complete line, without its end.
  template <class Line>
  void feed(std::string_view bytes, const Line& line) {
    for (const char byte : bytes) {
      if (byte == '\n' || pending_.size() >= kLongestLine) {
        line(pending_);
        pending_.clear();
        returned_ = false;
      }
      if (byte == '\n') continue;
      if (byte == '\r') {
        returned_ = true;
        continue;
      }
      if (returned_) pending_.clear();
      returned_ = false;
      pending_.push_back(byte);
    }
  }
  // The text after the last line break.
  template <class Line>
  void finish(const Line& line) {
    if (!pending_.empty()) line(pending_);
    pending_.clear();
  }

 private:
  static constexpr std::size_t kLongestLine = std::size_t{64} << 10U;
  std::string pending_;
  bool returned_ = false;
};

}  // namespace rubato::launch
