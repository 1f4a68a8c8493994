#include "rubato/client/log_filter.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "rubato/base/unicode.h"

namespace rubato::client {
namespace {

constexpr std::size_t kLongestColour = 32;

// The length of a colour sequence at the front (ESC [ digits and semicolons m). 0 if there is none,
// -1 if the text may become one.
int colour_sequence(std::string_view text) {
  std::size_t at = 1;
  if (text.size() == 1) return -1;
  if (text[at++] != '[') return 0;
  while (at < text.size() && at < kLongestColour &&
         std::string_view("0123456789;:").find(text[at]) != std::string_view::npos) {
    ++at;
  }
  if (at >= kLongestColour) return 0;
  if (at == text.size()) return -1;
  return text[at] == 'm' ? static_cast<int>(at) + 1 : 0;
}

// Whether the text begins with an incomplete character.
bool unfinished(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  return text.size() < bytes && std::all_of(text.begin() + 1, text.end(), [](char c) {
           return (static_cast<unsigned char>(c) & 0xC0U) == 0x80;
         });
}

}  // namespace

std::string LogFilter::pass(std::string_view bytes) {
  rest_ += bytes;
  std::string out;
  out.reserve(rest_.size());
  std::string_view rest = rest_;
  while (!rest.empty()) {
    std::size_t take = 1;
    if (rest[0] == '\n' || rest[0] == '\t' || rest[0] == '\r') {
      out += rest[0];
    } else if (const int colour = rest[0] == '\x1b' ? colour_sequence(rest) : 0; colour != 0) {
      if (colour < 0) break;
      take = static_cast<std::size_t>(colour);
      out += rest.substr(0, take);
    } else {
      if (unfinished(rest)) break;
      const auto c = first_code_point(rest);
      take = c ? c->bytes : 1;
      out += for_terminal(rest.substr(0, take));
    }
    rest.remove_prefix(take);
  }
  rest_ = std::string(rest);
  return out;
}

std::string LogFilter::finish() { return for_terminal(std::exchange(rest_, {})); }

}  // namespace rubato::client
