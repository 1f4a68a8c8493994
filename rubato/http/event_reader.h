// Turns the bytes of an event stream (text/event-stream) into events.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace rubato::http {

// An event as the server sends it. `id` and `event` may be empty.
struct ServerEvent {
  std::string id;
  std::string event;
  std::string data;
};

// The bytes may be cut anywhere.
class EventReader {
 public:
  // Calls `each` with every event that is complete. Returns false as soon as `each` does.
  bool take(std::string_view bytes, const std::function<bool(const ServerEvent&)>& each);
  // Bytes of the event that is not complete yet. The caller should limit them.
  [[nodiscard]] std::size_t buffered() const { return line_.size() + event_.data.size(); }

 private:
  bool take_line(const std::function<bool(const ServerEvent&)>& each);

  std::string line_;
  bool after_return_ = false;
  bool has_data_ = false;
  ServerEvent event_;
};

}  // namespace rubato::http
