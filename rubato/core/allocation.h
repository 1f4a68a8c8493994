// Exact GPUs: for each node, a word whose bits are the GPUs held. All GPUs are of one type.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "rubato/core/ids.h"

namespace rubato::core {

struct Slice {
  NodeId node;
  std::uint64_t mask = 0;
  [[nodiscard]] int gpus() const { return std::popcount(mask); }
  friend bool operator==(const Slice&, const Slice&) = default;
};

class Allocation {
 public:
  Allocation() = default;
  explicit Allocation(GpuType type) : type_(type) {}

  [[nodiscard]] GpuType type() const { return type_; }
  [[nodiscard]] const std::vector<Slice>& slices() const { return slices_; }  // by node, none empty
  [[nodiscard]] int gpus() const { return gpus_; }
  [[nodiscard]] int nodes() const { return static_cast<int>(slices_.size()); }
  [[nodiscard]] bool empty() const { return slices_.empty(); }

  void add(Slice slice);
  void remove(Slice slice);
  void add(const Allocation& other);
  void remove(const Allocation& other);

  [[nodiscard]] std::uint64_t mask_on(NodeId node) const;

  friend bool operator==(const Allocation& a, const Allocation& b) {
    return a.slices_ == b.slices_;  // the nodes determine the type
  }

 private:
  GpuType type_;
  int gpus_ = 0;
  std::vector<Slice> slices_;
};

[[nodiscard]] Allocation minus(Allocation a, const Allocation& b);
[[nodiscard]] Allocation common(const Allocation& a, const Allocation& b);

}  // namespace rubato::core
