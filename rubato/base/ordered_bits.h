// A set of small integers with "first member at or after i" in O(log64 n): a tree of 64-bit words
// in which a bit says that the word below is not empty. Iterates in ascending order, so code that
// uses it is deterministic by construction.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::base {

class OrderedBits {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  explicit OrderedBits(std::size_t size = 0) {
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size == 0 ? 1 : size, 0);
    } while (size > 1);
  }

  void insert(std::size_t i) {
    for (auto& level : levels_) {
      level[i / 64] |= bit(i);
      i /= 64;
    }
  }

  void erase(std::size_t i) {
    for (auto& level : levels_) {
      level[i / 64] &= ~bit(i);
      if (level[i / 64] != 0) return;
      i /= 64;
    }
  }

  [[nodiscard]] bool contains(std::size_t i) const { return (levels_[0][i / 64] & bit(i)) != 0; }
  [[nodiscard]] bool empty() const { return levels_.back()[0] == 0; }
  [[nodiscard]] std::size_t first() const { return at_or_after(0); }

  // The smallest member >= i, or kNone.
  [[nodiscard]] std::size_t at_or_after(std::size_t i) const {
    for (std::size_t depth = 0; depth < levels_.size(); ++depth) {
      if (i / 64 >= levels_[depth].size()) return kNone;
      const std::uint64_t rest = levels_[depth][i / 64] & (~std::uint64_t{0} << (i % 64));
      if (rest != 0)
        return descend(depth, i / 64 * 64 + static_cast<std::size_t>(std::countr_zero(rest)));
      i = i / 64 + 1;
    }
    return kNone;
  }

 private:
  static std::uint64_t bit(std::size_t i) { return std::uint64_t{1} << (i % 64); }

  [[nodiscard]] std::size_t descend(std::size_t depth, std::size_t i) const {
    while (depth > 0) {
      --depth;
      i = i * 64 + static_cast<std::size_t>(std::countr_zero(levels_[depth][i]));
    }
    return i;
  }

  std::vector<std::vector<std::uint64_t>> levels_;  // levels_[0] holds the members themselves
};

}  // namespace rubato::base
