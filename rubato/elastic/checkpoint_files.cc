#include "rubato/elastic/checkpoint_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <system_error>
#include <unistd.h>

#include "rubato/elastic/checkpoint_checksum.h"

namespace rubato::elastic {
namespace {

constexpr std::size_t kLargestWrite = std::size_t{1} << 30U;

}  // namespace

std::string inside(const std::string& directory, std::string_view name) {
  return fmt::format("{}/{}", directory, name);
}

Result<std::vector<std::string>> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error) return file_error(directory, "cannot be listed", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

Result<void> sync_directory(const std::string& directory) {
  const wire::Fd file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.valid()) return file_error(directory, "cannot be opened", errno);
  if (::fsync(file.get()) != 0) return file_error(directory, "cannot be made durable", errno);
  return {};
}

Result<void> make_directory(const std::string& directory) {
  std::error_code error;
  if (!std::filesystem::create_directories(directory, error) && !error) return {};
  if (error) return file_error(directory, "cannot be made", error.value());
  return sync_directory(inside(directory, ".."));
}

int write_all(const wire::Fd& file, const CheckpointImage& image) {
  for (const auto piece : image.pieces) {
    for (std::size_t done = 0; done < piece.size();) {
      const auto want = std::min(piece.size() - done, kLargestWrite);
      const auto wrote = ::write(file.get(), piece.data() + done, want);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return wrote < 0 ? errno : EIO;
      done += static_cast<std::size_t>(wrote);
    }
  }
  return ::fsync(file.get()) == 0 ? 0 : errno;
}

Error no_room(const std::string& path, std::uint64_t bytes, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return Error{fmt::format(
      "{}: the checkpoint of {} bytes cannot be written: {}; {}; earlier checkpoints are untouched",
      path, bytes, std::strerror(error),
      full ? "make room or choose another directory" : "look after the disk")};
}

std::int64_t digest_of(const std::string& job) {
  return static_cast<std::int64_t>(checksum_v1({std::as_bytes(std::span(job))}) >> 1U);
}

}  // namespace rubato::elastic
