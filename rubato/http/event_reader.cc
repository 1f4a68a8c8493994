#include "rubato/http/event_reader.h"

#include <utility>

namespace rubato::http {

bool EventReader::take(std::string_view bytes,
                       const std::function<bool(const ServerEvent&)>& each) {
  for (const char c : bytes) {
    const bool second_half = after_return_ && c == '\n';
    after_return_ = c == '\r';
    if (second_half) continue;
    if (c != '\n' && c != '\r') {
      line_ += c;
    } else if (!take_line(each)) {
      return false;
    }
  }
  return true;
}

bool EventReader::take_line(const std::function<bool(const ServerEvent&)>& each) {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    const ServerEvent event = std::exchange(event_, {});
    return !std::exchange(has_data_, false) || each(event);
  }
  const auto colon = line.find(':');
  const std::string_view name = std::string_view{line}.substr(0, colon);
  std::string_view value =
      colon == std::string::npos ? std::string_view() : std::string_view{line}.substr(colon + 1);
  if (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  if (name == "id") event_.id = value;
  if (name == "event") event_.event = value;
  if (name == "data") {
    if (has_data_) event_.data += '\n';
    event_.data += value;
    has_data_ = true;
  }
  return true;
}

}  // namespace rubato::http
