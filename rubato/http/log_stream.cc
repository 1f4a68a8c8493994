#include "rubato/http/log_stream.h"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>

namespace rubato::http {
namespace {

constexpr std::size_t kLogPiece = std::size_t{64} << 10U;
constexpr std::chrono::milliseconds kAskIfEnded{1000};

std::string chunk(std::string_view bytes) {
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

}  // namespace

Result<std::string> LogStream::read() {
  std::size_t most = kLogPiece;
  if (!options_.follow) {
    most = static_cast<std::size_t>(
        std::clamp<std::int64_t>(left_, 0, static_cast<std::int64_t>(kLogPiece)));
  }
  if (most == 0) return std::string();
  auto bytes = file_.read(most);
  if (bytes) left_ -= static_cast<std::int64_t>(bytes->size());
  return bytes;
}

Result<std::optional<LogStream::Piece>> LogStream::next(std::string before) {
  waiting_ = false;
  const auto bytes = read();
  if (!bytes) return bytes.error();
  if (!bytes->empty()) before += options_.chunked ? chunk(*bytes) : *bytes;
  if (!before.empty()) return std::optional(Piece{std::move(before), false});
  if (!options_.follow || options_.ended)
    return std::optional(Piece{options_.chunked ? "0\r\n\r\n" : "", true});
  waiting_ = true;
  return std::optional<Piece>();
}

bool LogStream::ask_now(Time now) {
  if (now - asked_ < kAskIfEnded) return false;
  asked_ = now;
  return true;
}

}  // namespace rubato::http
