// A file of lines that never grows beyond a limit. At the limit it drops its older half, and a line
// at the top says so.
//
// Lines wait in memory until flush(), so that a program that prints much costs few writes. If the
// disk is full, lines are lost and counted, and nothing else happens. The newer half is written to
// a new file, which replaces the old one, so a program that follows the file sees a new file there.
// Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rubato/base/result.h"
#include "rubato/wire/socket.h"

namespace rubato::node {

class LimitedLog {
 public:
  // Appends to what is there, 0600; a symbolic link is not followed.
  [[nodiscard]] static Result<LimitedLog> open(std::string path, std::int64_t limit);

  void line(std::string_view text);
  void flush();

 private:
  LimitedLog(std::string path, std::int64_t limit, wire::Fd fd, std::int64_t size)
      : path_(std::move(path)), limit_(limit), fd_(std::move(fd)), size_(size) {}

  void make_room();
  [[nodiscard]] std::string newest(std::int64_t bytes) const;
  [[nodiscard]] bool write_all(const wire::Fd& fd, std::string_view text) const;

  std::string path_;
  std::int64_t limit_;
  wire::Fd fd_;
  std::int64_t size_;
  std::string pending_;
  std::int64_t lost_ = 0;  // lines that could not be written
};

}  // namespace rubato::node
