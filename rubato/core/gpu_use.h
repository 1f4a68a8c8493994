// Which GPUs are in use, and which by two jobs at once (space sharing is only for pairs).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/core/allocation.h"

namespace rubato::core {

class GpuUse {
 public:
  explicit GpuUse(std::size_t nodes) : nodes_(nodes) {}
  void add_node() { nodes_.emplace_back(); }

  // By bits, as in Slice.
  [[nodiscard]] std::uint64_t used(NodeId node) const { return nodes_[node.index()].used; }
  [[nodiscard]] std::uint64_t shared(NodeId node) const { return nodes_[node.index()].shared; }
  // GPUs with at least one user.
  [[nodiscard]] int gpus() const { return gpus_; }

  void take(const Allocation& gpus) {
    for (const auto& slice : gpus.slices()) {
      auto& [used, shared] = nodes_[slice.node.index()];
      CHECK((shared & slice.mask) == 0);  // a third user
      gpus_ += std::popcount(slice.mask & ~used);
      shared |= used & slice.mask;
      used |= slice.mask;
    }
  }
  void give(const Allocation& gpus) {
    for (const auto& slice : gpus.slices()) {
      auto& [used, shared] = nodes_[slice.node.index()];
      const std::uint64_t last = slice.mask & ~shared;
      gpus_ -= std::popcount(last & used);
      used &= ~last;
      shared &= ~slice.mask;
    }
  }

  [[nodiscard]] bool any_used(const Allocation& gpus) const {
    for (const auto& slice : gpus.slices())
      if ((used(slice.node) & slice.mask) != 0) return true;
    return false;
  }
  [[nodiscard]] bool any_shared(const Allocation& gpus) const {
    for (const auto& slice : gpus.slices())
      if ((shared(slice.node) & slice.mask) != 0) return true;
    return false;
  }

 private:
  struct OnNode {
    std::uint64_t used = 0;
    std::uint64_t shared = 0;
  };
  std::vector<OnNode> nodes_;
  int gpus_ = 0;
};

}  // namespace rubato::core
