#include "rubato/base/glob.h"

#include <cstddef>

namespace rubato::base {
namespace {

// Bytes of the UTF-8 character at `at`; one for a byte that begins none.
std::size_t character(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) ++end;
  return end - at;
}

}  // namespace

bool matches_glob(std::string_view pattern, std::string_view text) {
  std::size_t at = 0;
  std::size_t p = 0;
  // After the last '*': where the pattern goes on, and up to where the star has taken the text.
  std::size_t star = std::string_view::npos;
  std::size_t taken = 0;
  while (at < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      taken = at;
    } else if (p < pattern.size() && pattern[p] == '?') {
      ++p;
      at += character(text, at);
    } else if (p < pattern.size() && pattern[p] == text[at]) {
      ++p;
      ++at;
    } else if (star != std::string_view::npos) {
      // Only the last star need take more: what stands before it matches as early as it can.
      p = star;
      taken += character(text, taken);
      at = taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace rubato::base
