// Reads a job's log while the job still writes it: in pieces, from any position, and across the
// moments when the writer drops its oldest half and continues in a new file.
//
// The directory may belong to the job's user while the daemon runs as root, so nothing in it is
// trusted. Links are not followed. Only a plain file with a single name, whose owner is that of the
// directory, is opened. Otherwise a job could replace its log by a link to any file of the system,
// and read that file through the daemon.
//
// Does not wait. Reads from the local disk.
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
  // If the log or its directory does not exist yet, the log is empty.
  [[nodiscard]] static Result<LogFile> open(const std::filesystem::path& directory);

  // A position in the file. Negative means so many bytes before the end. A position beyond the end
  // means the end.
  void seek(std::int64_t from);
  // The next bytes, at most `most`. Empty if there are none yet.
  [[nodiscard]] Result<std::string> read(std::size_t most);

  [[nodiscard]] std::int64_t position() const { return position_; }
  [[nodiscard]] std::int64_t size() const;

 private:
  explicit LogFile(std::filesystem::path path) : path_(std::move(path)) {}
  [[nodiscard]] Result<void> open_directory();
  [[nodiscard]] Result<wire::Fd> open_file() const;
  // Whether the name now belongs to another file, or the file has become shorter.
  [[nodiscard]] bool replaced() const;
  // Continues in the new file after the last bytes of the old one. If these are not in its last
  // MiB, it continues from the beginning.
  [[nodiscard]] Result<void> change_over();

  std::filesystem::path path_;  // of the directory
  wire::Fd directory_;          // invalid while it does not exist
  wire::Fd file_;               // likewise
  std::int64_t position_ = 0;
};

}  // namespace rubato::http
