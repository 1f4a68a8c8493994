// Which GPUs are not assigned, with an index by the number of free GPUs of a node. Only usable GPUs
// are offered. GPUs that are returned while their node is not up, or while they are reserved, wait
// until they are usable again.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rubato/base/ordered_bits.h"
#include "rubato/core/allocation.h"
#include "rubato/core/cluster.h"
#include "rubato/core/snapshot.h"

namespace rubato::place {

class FreeGpus {
 public:
  explicit FreeGpus(const Cluster& cluster);

  [[nodiscard]] int free_on(NodeId node) const;
  [[nodiscard]] bool is_up(NodeId node) const { return places_[node.index()].up; }
  // The GPUs that can be taken there.
  [[nodiscard]] std::uint64_t offered(NodeId node) const {
    const Place& place = places_[node.index()];
    return place.up ? place.free & ~place.reserved : 0;
  }
  [[nodiscard]] int free_of(GpuType type) const { return free_of_[type.index()]; }
  [[nodiscard]] bool is_free(Slice slice) const {
    return is_up(slice.node) && (offered(slice.node) & slice.mask) == slice.mask;
  }
  [[nodiscard]] GpuType type_of(NodeId node) const { return places_[node.index()].type; }

  // Nodes of the type that are up and have ...
  [[nodiscard]] std::optional<NodeId> first_with_any(GpuType type) const;
  [[nodiscard]] std::optional<NodeId> fewest_at_least(GpuType type, int gpus) const;
  [[nodiscard]] std::optional<NodeId> most(GpuType type) const;

  // The `gpus` lowest free GPUs of the node; it must have that many.
  Slice take(NodeId node, int gpus);
  void take(Slice slice);
  void give(Slice slice);
  void give(const Allocation& gpus);

  void set_up(NodeId node, bool up);
  void set_reserved(NodeId node, std::uint64_t gpus);

 private:
  struct Place {
    GpuType type;
    std::uint64_t free = 0;
    std::uint64_t reserved = 0;
    bool up = true;
  };
  struct TypeIndex {
    std::vector<OrderedBits> nodes_with;  // [n]: nodes with exactly n free GPUs
    OrderedBits any;                      // nodes with at least one
    std::uint64_t sizes = 0;              // bit n-1: some node has exactly n free
    std::vector<int> how_many;            // nodes in nodes_with[n]
  };

  void change(NodeId node, const Place& place);
  void enter(NodeId node);
  void leave(NodeId node);

  std::vector<Place> places_;
  std::vector<TypeIndex> index_;
  std::vector<int> free_of_;
};

// The GPUs of the cluster that are in no job's target.
[[nodiscard]] FreeGpus free_beside(const JobTable& jobs, const Cluster& cluster);

}  // namespace rubato::place
