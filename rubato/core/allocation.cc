#include "rubato/core/allocation.h"

#include <algorithm>

namespace rubato::core {
namespace {

auto slot_of(auto& slices, NodeId node) {
  return std::lower_bound(slices.begin(), slices.end(), node,
                          [](const Slice& s, NodeId id) { return s.node < id; });
}

}  // namespace

void Allocation::add(Slice slice) {
  if (slice.mask == 0) return;
  // Appending in node order is the common case and needs no search.
  if (slices_.empty() || slices_.back().node < slice.node) {
    slices_.push_back(slice);
    gpus_ += slice.gpus();
    return;
  }
  const auto at = slot_of(slices_, slice.node);
  if (at->node == slice.node) {
    gpus_ += std::popcount(slice.mask & ~at->mask);
    at->mask |= slice.mask;
  } else {
    gpus_ += slice.gpus();
    slices_.insert(at, slice);
  }
}

void Allocation::remove(Slice slice) {
  const auto at = slot_of(slices_, slice.node);
  if (at == slices_.end() || at->node != slice.node) return;
  gpus_ -= std::popcount(at->mask & slice.mask);
  at->mask &= ~slice.mask;
  if (at->mask == 0) slices_.erase(at);
}

void Allocation::add(const Allocation& other) {
  if (other.empty()) return;  // an empty allocation has no type
  if (slices_.empty()) {
    *this = other;
    return;
  }
  for (const auto& slice : other.slices_) add(slice);
}

void Allocation::remove(const Allocation& other) {
  for (const auto& slice : other.slices_) remove(slice);
}

std::uint64_t Allocation::mask_on(NodeId node) const {
  const auto at = slot_of(slices_, node);
  return at != slices_.end() && at->node == node ? at->mask : 0;
}

Allocation minus(Allocation a, const Allocation& b) {
  a.remove(b);
  return a;
}

Allocation common(const Allocation& a, const Allocation& b) {
  Allocation both(a.type());
  for (const auto& slice : a.slices()) both.add({slice.node, slice.mask & b.mask_on(slice.node)});
  return both;
}

}  // namespace rubato::core
