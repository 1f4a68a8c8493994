// Messages over a link. Each is a JSON object after its length (4 bytes, little-endian).
//
// For one thread. Never blocks. After an error, or when the other side has closed, it stays closed.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/wire/link.h"

namespace rubato::wire {

// A larger length is an error.
constexpr std::size_t kLargestFrame = std::size_t{4} << 20U;

// Cuts a byte stream into messages. Separate from the socket so that it can be fuzzed.
class FrameReader {
 public:
  // The messages that are complete now. After an error the stream is over.
  [[nodiscard]] Result<std::vector<Json>> feed(std::string_view bytes);

 private:
  std::string pending_;
};
[[nodiscard]] std::string to_frame(const Json& message);

class FrameStream {
 public:
  FrameStream() = default;
  explicit FrameStream(Fd fd) : link_(std::move(fd)) {}
  explicit FrameStream(Link link) : link_(std::move(link)) {}

  [[nodiscard]] int fd() const { return link_.fd(); }
  [[nodiscard]] bool open() const { return link_.open(); }
  [[nodiscard]] bool unsent() const { return !out_.empty(); }
  [[nodiscard]] std::size_t unsent_bytes() const { return out_.size(); }
  // Whether flush() should be called when the socket takes bytes again. Ask after every call here.
  [[nodiscard]] bool wants_out() const { return link_.wants_out(unsent()); }
  [[nodiscard]] const Link& link() const { return link_; }
  void close() { link_.close(); }

  // Sends as much as the link takes. The next flush() sends the rest.
  void send(const Json& message);
  void flush();
  // All messages that have arrived. Closes itself at the end of the stream or at a bad frame.
  [[nodiscard]] std::vector<Json> receive();

 private:
  Link link_;
  std::string out_;
  FrameReader reader_;
};

}  // namespace rubato::wire
