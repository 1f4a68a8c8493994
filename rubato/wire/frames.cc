#include "rubato/wire/frames.h"

#include <array>
#include <cstdint>
#include <fmt/format.h>
#include <span>

namespace rubato::wire {

namespace {

constexpr std::size_t kLengthBytes = 4;

std::size_t length_at(std::string_view bytes) {
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << (8U * i);
  }
  return length;
}

}  // namespace

std::string to_frame(const Json& message) {
  // A text from outside (a loss message, a path) may not be UTF-8. It must not throw here.
  const std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string frame;
  frame.reserve(kLengthBytes + text.size());
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    frame.push_back(static_cast<char>((text.size() >> (8U * i)) & 0xFFU));
  }
  return frame + text;
}

Result<std::vector<Json>> FrameReader::feed(std::string_view bytes) {
  pending_.append(bytes);
  std::vector<Json> messages;
  std::size_t at = 0;
  while (pending_.size() - at >= kLengthBytes) {
    std::string_view rest = pending_;
    rest.remove_prefix(at);
    const std::size_t length = length_at(rest);
    if (length > kLargestFrame) {
      return Error{fmt::format("message of {} bytes; the limit is {}", length, kLargestFrame)};
    }
    if (rest.size() < kLengthBytes + length) break;
    Result<Json> message = parse_json(rest.substr(kLengthBytes, length), "message");
    if (!message) return message.error();
    if (!message->is_object()) return Error{"message is not a JSON object"};
    messages.push_back(std::move(*message));
    at += kLengthBytes + length;
  }
  pending_.erase(0, at);
  return messages;
}

void FrameStream::send(const Json& message) {
  if (!open()) return;
  out_ += to_frame(message);
  flush();
}

void FrameStream::flush() {
  while (open()) {
    const Link::Moved moved = link_.write(std::as_bytes(std::span(out_)));
    out_.erase(0, moved.bytes);
    // Messages that the other side sent before it ended are still to be read. receive() closes.
    if (moved.over) out_.clear();
    if (moved.bytes == 0 || out_.empty()) return;
  }
}

std::vector<Json> FrameStream::receive() {
  std::vector<Json> all;
  std::array<char, 65536> buffer;  // NOLINT: filled by read
  while (open()) {
    const Link::Moved moved = link_.read(std::as_writable_bytes(std::span(buffer)));
    if (moved.over) {
      close();
      break;
    }
    if (moved.bytes == 0) break;
    auto messages = reader_.feed({buffer.data(), moved.bytes});
    if (!messages) {
      close();
      break;
    }
    for (Json& message : *messages) all.push_back(std::move(message));
  }
  // Reading may have completed the exchange of keys that unsent messages wait for.
  if (!out_.empty()) flush();
  return all;
}

}  // namespace rubato::wire
