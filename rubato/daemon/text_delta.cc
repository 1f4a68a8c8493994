#include "rubato/daemon/text_delta.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

namespace rubato::daemon {
namespace {

constexpr int kDeepest = 2;  // of the elements that are pieces
// Up to this many pieces are searched one by one; for more, an index of all pieces is built.
constexpr int kLookedFor = 8;

std::size_t shared_front(std::string_view a, std::string_view b) {
  constexpr std::size_t kBlock = 256;
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t at = 0;
  while (at + kBlock <= most && std::memcmp(a.data() + at, b.data() + at, kBlock) == 0)
    at += kBlock;
  while (at < most && a[at] == b[at]) ++at;
  return at;
}

std::size_t shared_back(std::string_view a, std::string_view b) {
  constexpr std::size_t kBlock = 256;
  const std::size_t most = std::min(a.size(), b.size());
  const char* a_end = a.data() + a.size();
  const char* b_end = b.data() + b.size();
  std::size_t at = 0;
  while (at + kBlock <= most && std::memcmp(a_end - at - kBlock, b_end - at - kBlock, kBlock) == 0)
    at += kBlock;
  while (at < most && *(a_end - at - 1) == *(b_end - at - 1)) ++at;
  return at;
}

}  // namespace

DeltaText::DeltaText(std::string text) : text_(std::move(text)) {
  std::size_t none = 0;
  cut_until(*this, 0, none);
}

std::string_view DeltaText::piece(std::size_t i) const {
  const std::size_t from = i == 0 ? 0 : cuts_[i - 1].end;
  return std::string_view{text_}.substr(from, cuts_[i].end - from);
}

// Whether there is a cut, and which piece begins there.
bool DeltaText::stops_at(std::size_t end, int depth, std::size_t& piece) const {
  const auto found = std::lower_bound(cuts_.begin(), cuts_.end(), end,
                                      [](const Cut& cut, std::size_t e) { return cut.end < e; });
  if (found == cuts_.end() || found->end != end || found->depth != depth) return false;
  piece = static_cast<std::size_t>(found - cuts_.begin()) + 1;
  return true;
}

// Pieces end behind a comma or an opening bracket, so that an element is the same piece wherever it
// stands, but for the last of a list. A closing bracket begins the next piece.
bool DeltaText::cut_until(const DeltaText& before, std::size_t shared_tail, std::size_t& rest) {
  std::size_t from = cuts_.empty() ? 0 : cuts_.back().end;
  int depth = cuts_.empty() ? 0 : cuts_.back().depth;
  bool quoted = false;
  const auto cut = [&](std::size_t end) {
    cuts_.push_back({static_cast<std::uint32_t>(end), depth});
    from = end;
    const std::size_t left = text_.size() - end;
    return left <= shared_tail && before.stops_at(before.text_.size() - left, depth, rest);
  };
  for (std::size_t i = from; i < text_.size(); ++i) {
    const char c = text_[i];
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
      if (depth <= kDeepest && i > from && cut(i)) return true;
      --depth;
    } else if (c == ',') {
      ends = depth <= kDeepest;
    }
    if (ends && cut(i + 1)) return true;
  }
  if (from < text_.size()) cuts_.push_back({static_cast<std::uint32_t>(text_.size()), depth});
  return false;
}

DeltaText::DeltaText(std::string text, const DeltaText& before, Shared& shared)
    : text_(std::move(text)) {
  // Cuts before the first difference are the same. The character behind a cut may decide it.
  const std::size_t front = shared_front(before.text_, text_);
  const auto differs = std::lower_bound(before.cuts_.begin(), before.cuts_.end(), front,
                                        [](const Cut& cut, std::size_t e) { return cut.end < e; });
  cuts_.assign(before.cuts_.begin(), differs);
  shared.front = cuts_.size();
  std::size_t rest = 0;
  if (!cut_until(before, shared_back(before.text_, text_), rest)) return;
  shared.back = before.cuts_.size() - rest;
  cuts_.reserve(cuts_.size() + shared.back);
  for (std::size_t i = rest; i < before.cuts_.size(); ++i) {
    const std::size_t left = before.text_.size() - before.cuts_[i].end;
    cuts_.push_back({static_cast<std::uint32_t>(text_.size() - left), before.cuts_[i].depth});
  }
}

Json DeltaText::advance(std::string text) {
  const DeltaText before = std::exchange(*this, DeltaText());
  Shared shared;
  *this = DeltaText(std::move(text), before, shared);

  // The first old piece that is the same.
  std::unordered_map<std::string_view, std::size_t> index;  // looked up only, never walked over
  int looked_for = 0;
  const auto find = [&](std::string_view wanted) {
    if (++looked_for <= kLookedFor) {
      std::size_t i = 0;
      while (i < before.cuts_.size() && before.piece(i) != wanted) ++i;
      return i;
    }
    if (index.empty()) {
      index.reserve(before.cuts_.size());
      for (std::size_t i = 0; i < before.cuts_.size(); ++i) index.try_emplace(before.piece(i), i);
    }
    const auto found = index.find(wanted);
    return found == index.end() ? before.cuts_.size() : found->second;
  };
  Json delta = Json::array();
  std::string literal;
  std::size_t first = 0;
  std::size_t count = shared.front;  // the first piece of all is where it is found first
  const auto flush_run = [&] {
    if (count > 0) delta.push_back(Json::array({first, count}));
    count = 0;
  };
  const auto flush_literal = [&] {
    if (!literal.empty()) delta.push_back(std::exchange(literal, {}));
  };
  for (std::size_t i = shared.front; i < cuts_.size(); ++i) {
    const std::size_t left = cuts_.size() - i;
    if (count > 0 && left <= shared.back && first + count + left == before.cuts_.size()) {
      count += left;
      break;
    }
    const std::string_view now = piece(i);
    if (count > 0 && first + count < before.cuts_.size() && before.piece(first + count) == now) {
      ++count;
      continue;
    }
    const std::size_t found = find(now);
    flush_run();
    if (found == before.cuts_.size()) {
      literal += now;
      continue;
    }
    flush_literal();
    first = found;
    count = 1;
  }
  flush_run();
  flush_literal();
  return delta;
}

Result<void> DeltaText::apply(const Json& delta) {
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
    if (first > cuts_.size() || count > cuts_.size() - first)
      return Error{"a difference refers to what was not there"};
    if (count == 0) continue;
    const std::size_t from = first == 0 ? 0 : cuts_[first - 1].end;
    after += std::string_view{text_}.substr(from, cuts_[first + count - 1].end - from);
    if (after.size() > JsonLimits().bytes) return Error{"a difference makes too long a text"};
  }
  Shared shared;
  *this = DeltaText(std::move(after), *this, shared);
  return {};
}

}  // namespace rubato::daemon
