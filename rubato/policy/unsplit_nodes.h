// The free GPUs of each node, for policies that place jobs themselves and do not split parts of a
// node (Sia, SOSP'23): a count takes whole nodes, and its rest is on one node.
#pragma once

#include <utility>
#include <vector>

#include "rubato/core/cluster.h"
#include "rubato/core/decision.h"

namespace rubato::policy {

using NodeShares = std::vector<std::pair<NodeId, int>>;  // ascending, as in Spread

[[nodiscard]] NodeShares shares_of(const Allocation& gpus);

class UnsplitNodes {
 public:
  explicit UnsplitNodes(const Cluster& cluster);

  [[nodiscard]] int free_of(GpuType type) const;
  [[nodiscard]] bool has(const NodeShares& shares) const;
  void take(const NodeShares& shares);
  void give(const NodeShares& shares);
  [[nodiscard]] int free_on(NodeId node) const { return room_of(node)->free; }
  [[nodiscard]] std::vector<NodeId> nodes_of(GpuType type) const;
  // If place() finds nothing: what one more node must have free for it.
  [[nodiscard]] int needed_on_one(const Count& want) const;

  // Whole free nodes of the type's largest size, and the rest on the node with the least room that
  // is enough. Nodes that the job `had` are preferred. Empty if there is no such place.
  [[nodiscard]] NodeShares place(const Count& want, const NodeShares& had) const;
  // On any free GPUs, the emptiest nodes first; empty if there are too few.
  [[nodiscard]] NodeShares split(const Count& want) const;

 private:
  struct Room {
    NodeId node;
    int free = 0;
  };
  struct OfType {
    int size = 0;             // GPUs of the largest node
    std::vector<Room> rooms;  // by node
  };
  [[nodiscard]] const Room* room_of(NodeId node) const;

  std::vector<OfType> types_;
  std::vector<std::pair<std::size_t, std::size_t>> where_;  // by node: type and place in rooms
};

}  // namespace rubato::policy
