#include "rubato/daemon/text_delta.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rubato {
namespace {

constexpr int kDeepest = 2;  // of the elements that are pieces

// Pieces end behind a comma or an opening bracket, so that an element is the same piece wherever it
// stands, but for the last of a list.
std::vector<std::string_view> pieces_of(std::string_view text) {
  std::vector<std::string_view> pieces;
  std::size_t from = 0;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        quoted = false;
      }
      continue;
    }
    bool ends = false;
    if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      ends = ++depth <= kDeepest;
    } else if (c == ']' || c == '}') {
      // The bracket itself begins the next piece.
      if (depth-- <= kDeepest && i > from) {
        pieces.push_back(text.substr(from, i - from));
        from = i;
      }
    } else if (c == ',') {
      ends = depth <= kDeepest;
    }
    if (!ends) continue;
    pieces.push_back(text.substr(from, i + 1 - from));
    from = i + 1;
  }
  if (from < text.size()) pieces.push_back(text.substr(from));
  return pieces;
}

}  // namespace

Json delta_of(std::string_view before, std::string_view after) {
  const auto old_pieces = pieces_of(before);
  std::unordered_map<std::string_view, std::size_t> where;  // looked up only, never walked over
  where.reserve(old_pieces.size());
  for (std::size_t i = 0; i < old_pieces.size(); ++i) where.try_emplace(old_pieces[i], i);
  Json delta = Json::array();
  std::string literal;
  std::size_t first = 0;
  std::size_t count = 0;
  const auto flush_run = [&] {
    if (count > 0) delta.push_back(Json::array({first, count}));
    count = 0;
  };
  const auto flush_literal = [&] {
    if (!literal.empty()) delta.push_back(std::exchange(literal, {}));
  };
  for (const std::string_view piece : pieces_of(after)) {
    if (count > 0 && first + count < old_pieces.size() && old_pieces[first + count] == piece) {
      ++count;
      continue;
    }
    const auto found = where.find(piece);
    if (found == where.end()) {
      flush_run();
      literal += piece;
      continue;
    }
    flush_run();
    flush_literal();
    first = found->second;
    count = 1;
  }
  flush_run();
  flush_literal();
  return delta;
}

Result<std::string> apply_delta(std::string_view before, const Json& delta) {
  const auto pieces = pieces_of(before);
  if (!delta.is_array()) return Error{"a difference must be a list"};
  std::string after;
  for (const Json& part : delta) {
    if (part.is_string()) {
      after += part.get_ref<const std::string&>();
      continue;
    }
    const bool run = part.is_array() && part.size() == 2 && part[0].is_number_unsigned() &&
                     part[1].is_number_unsigned();
    if (!run) return Error{"a difference must have texts and runs of old pieces"};
    const auto first = part[0].get<std::uint64_t>();
    const auto count = part[1].get<std::uint64_t>();
    if (first > pieces.size() || count > pieces.size() - first)
      return Error{"a difference refers to what was not there"};
    for (std::uint64_t i = 0; i < count; ++i) after += pieces[first + i];
  }
  return after;
}

}  // namespace rubato
