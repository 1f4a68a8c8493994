#include "rubato/sim/text_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <zlib.h>

#include "rubato/base/json.h"

namespace rubato::sim {
namespace {

constexpr std::size_t kChunk = std::size_t{256} << 10U;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// "4096 bytes", "256 MiB": limits are powers of two.
std::string size_name(std::uint64_t bytes) {
  if (bytes >= std::uint64_t{1} << 30U) return fmt::format("{} GiB", bytes >> 30U);
  if (bytes >= std::uint64_t{1} << 20U) return fmt::format("{} MiB", bytes >> 20U);
  return fmt::format("{} bytes", bytes);
}

// Collects the text and checks the limits as it grows, so that reading stops early.
class Collector {
 public:
  Collector(const std::string& path, TextLimits limits) : path_(path), limits_(limits) {}

  [[nodiscard]] std::optional<Error> append(std::string_view piece) {
    text_.append(piece);
    if (!json_) recognise();
    if (text_.size() > limits_.bytes) {
      return Error{fmt::format("{}: larger than the {} allowed for {}", path_,
                               size_name(limits_.bytes),
                               json_.value_or(false) ? "JSON" : "a file")};
    }
    if (json_.value_or(false)) return std::nullopt;
    return watch_lines();
  }

  std::string take() { return std::move(text_); }

 private:
  void recognise() {
    const auto first = text_.find_first_not_of("\xEF\xBB\xBF \t\r\n");
    if (first == std::string::npos) return;
    json_ = text_[first] == '{';
    if (*json_) limits_.bytes = std::min<std::uint64_t>(limits_.bytes, JsonLimits{}.bytes);
  }

  [[nodiscard]] std::optional<Error> watch_lines() {
    for (;;) {
      const auto end = text_.find('\n', std::max(line_start_, searched_));
      searched_ = end == std::string::npos ? text_.size() : end + 1;
      const auto length = (end == std::string::npos ? text_.size() : end) - line_start_;
      if (length > limits_.line) {
        return Error{
            fmt::format("{}:{}: line longer than {}", path_, line_, size_name(limits_.line))};
      }
      if (end == std::string::npos) return std::nullopt;
      line_start_ = end + 1;
      ++line_;
    }
  }

  const std::string& path_;
  TextLimits limits_;
  std::string text_;
  std::optional<bool> json_;  // unknown while all bytes so far are blank
  std::size_t line_start_ = 0;
  std::size_t searched_ = 0;
  std::size_t line_ = 1;
};

class Inflater {
 public:
  explicit Inflater(const std::string& path) : path_(path) {
    // 16 selects the gzip format in zlib.
    ready_ = inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK;
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() {
    if (ready_) inflateEnd(&stream_);
  }

  [[nodiscard]] std::optional<Error> feed(std::string_view packed, Collector& text) {
    if (!ready_) return Error{fmt::format("{}: no memory to decompress", path_)};
    // zlib's interface is not const-correct; it does not write to its input.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));  // NOLINT
    stream_.avail_in = static_cast<uInt>(packed.size());
    do {
      if (member_ended_ && stream_.avail_in > 0) {  // several gzip members make one file
        inflateReset(&stream_);
        member_ended_ = false;
      }
      stream_.next_out = buffer_.data();
      stream_.avail_out = static_cast<uInt>(buffer_.size());
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
        return Error{fmt::format("{}: corrupt gzip data", path_)};
      }
      member_ended_ = status == Z_STREAM_END;
      const std::size_t made = buffer_.size() - stream_.avail_out;
      if (auto bad = text.append({reinterpret_cast<const char*>(buffer_.data()), made})) return bad;
    } while (stream_.avail_in > 0 || stream_.avail_out == 0);
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Error> end() const {
    if (member_ended_) return std::nullopt;
    return Error{fmt::format("{}: truncated gzip data", path_)};
  }

 private:
  const std::string& path_;
  z_stream stream_{};
  bool ready_ = false;
  bool member_ended_ = false;
  std::array<Bytef, kChunk> buffer_{};
};

Result<std::string> read_open_file(std::FILE* file, const std::string& path, TextLimits limits) {
  Collector text(path, limits);
  std::unique_ptr<Inflater> inflater;
  std::string chunk(kChunk, '\0');
  for (bool first = true;; first = false) {
    const auto got = std::fread(chunk.data(), 1, chunk.size(), file);
    if (got == 0 && std::ferror(file) != 0) {
      return Error{fmt::format("{}: cannot be read: {}", path, std::strerror(errno))};
    }
    if (got == 0) break;
    const std::string_view piece(chunk.data(), got);
    if (first && piece.substr(0, 2) == "\x1F\x8B") inflater = std::make_unique<Inflater>(path);
    if (auto bad = inflater ? inflater->feed(piece, text) : text.append(piece)) return *bad;
  }
  if (inflater) {
    if (auto bad = inflater->end()) return *bad;
  }
  return text.take();
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, TextLimits limits) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Error{fmt::format("{}: is a directory, not a file", path)};
  }
  const File file(std::fopen(path.c_str(), "rbe"));
  if (!file) return Error{fmt::format("{}: cannot be opened: {}", path, std::strerror(errno))};
  try {
    return read_open_file(file.get(), path, limits);
  } catch (const std::bad_alloc&) {
    return Error{fmt::format("{}: no memory to read it", path)};
  }
}

std::string file_name(const std::string& path) {
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace rubato::sim
