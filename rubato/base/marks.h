// Marks on small integers that are all taken back at once: a new round costs nothing, and no memory
// is allocated once the largest number has been seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::base {

class Marks {
 public:
  void new_round() { ++round_; }

  // True if this is the number's first mark of the round.
  bool mark(std::size_t i) {
    if (i >= marked_in_.size()) marked_in_.resize(i + 1, 0);
    return std::exchange(marked_in_[i], round_) != round_;
  }
  [[nodiscard]] bool marked(std::size_t i) const {
    return i < marked_in_.size() && marked_in_[i] == round_;
  }

 private:
  std::vector<std::uint64_t> marked_in_;
  std::uint64_t round_ = 1;
};

}  // namespace rubato::base
