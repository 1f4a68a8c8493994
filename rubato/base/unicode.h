// UTF-8 for people: what may be shown on a terminal, and how many columns it takes.
//
// Names and lines come from anywhere. A control character, an escape sequence or a mark that turns
// the direction of writing would let one user's job repaint another user's screen, so nothing that
// cannot be seen reaches a terminal as it is.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "rubato/base/namespaces.h"

namespace rubato::base {

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 1;
};
// The first one of a text that is not empty; nullopt if its bytes are not UTF-8.
[[nodiscard]] std::optional<CodePoint> first_code_point(std::string_view text);
[[nodiscard]] bool is_utf8(std::string_view text);

// Takes columns and changes nothing else: no controls, no direction marks, nothing invisible.
[[nodiscard]] bool visible(char32_t c);
// Of a visible character: 0 (combining), 1, or 2 (East Asian and pictures).
[[nodiscard]] int columns(char32_t c);

// One line that is safe to print: whatever is not visible is spelled out as \x1b or \u{202e}.
[[nodiscard]] std::string for_terminal(std::string_view text);
// Of a text that is safe to print.
[[nodiscard]] int text_columns(std::string_view safe);
// Safe, and exactly this wide: filled with blanks, or cut, which a '~' at the end shows.
[[nodiscard]] std::string fitted(std::string_view text, int columns);

}  // namespace rubato::base
