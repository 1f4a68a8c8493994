// Lines for people that never wait for the reader: a terminal held by Ctrl-S or a full pipe must
// not stop the launcher, because it would stop reading what its workers say.
//
// What cannot be written at once waits in memory up to a limit; beyond it lines are left out and
// counted. Belongs to one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace rubato::launch {

class Console {
 public:
  // With `terminal` the status is one line that is painted over; otherwise there is none.
  Console(int out, int err, bool terminal);

  // On a terminal lines are written at once, elsewhere with the next flush() or when they are many.
  void out(std::string_view line) { print(one_stream_ ? err_ : out_, line); }
  void err(std::string_view line) { print(err_, line); }
  // Empty: no status any more.
  void status(const std::string& text);
  [[nodiscard]] bool terminal() const { return terminal_; }

  [[nodiscard]] bool unwritten() const { return !out_.text.empty() || !err_.text.empty(); }
  void flush();
  // At the end: waits for the reader, but not for ever.
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
  bool one_stream_;  // both are one file, where the order of lines is seen
  std::string status_;
};

// Cuts the output of a program into lines, as a terminal would show them: what a carriage return
// paints over is dropped.
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
  // What stands there without an end.
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
