// A job's log as it is read while the job still writes it: in pieces, from any place, across the
// moments where the writer drops its oldest half and goes on in a new file.
//
// The directory may belong to the job's user while the daemon is root, so nothing in it is trusted:
// links are not followed, and only a plain file with one name is opened, whose owner is that of the
// directory. Otherwise a job could put a link to any file of the system where its log should be and
// read it through the daemon.
//
// Does not wait; reads from the disk, which is local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "rubato/base/result.h"
#include "rubato/wire/socket.h"

namespace rubato::http {

class LogFile {
 public:
  // A log that is not there yet, nor its directory, is an empty one.
  [[nodiscard]] static Result<LogFile> open(const std::filesystem::path& directory);

  // A place in the file; negative = so many bytes before its end. Beyond the end is the end.
  void seek(std::int64_t from);
  // What comes next, at most `most` bytes; empty if there is nothing yet.
  [[nodiscard]] Result<std::string> read(std::size_t most);

  [[nodiscard]] std::int64_t position() const { return position_; }
  [[nodiscard]] std::int64_t size() const;

 private:
  explicit LogFile(std::filesystem::path path) : path_(std::move(path)) {}
  [[nodiscard]] Result<void> open_directory();
  [[nodiscard]] Result<wire::Fd> open_file() const;
  // Whether the name stands for another file by now, or the file has become shorter.
  [[nodiscard]] bool replaced() const;
  // Goes on in the new file behind what the old one ended with; from the beginning if that is not
  // in its last MiB.
  [[nodiscard]] Result<void> change_over();

  std::filesystem::path path_;  // of the directory
  wire::Fd directory_;          // invalid while there is none
  wire::Fd file_;               // the same
  std::int64_t position_ = 0;
};

}  // namespace rubato::http
