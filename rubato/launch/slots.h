// Slots: places for workers, one for each GPU of a job. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/core/allocation.h"
#include "rubato/core/cluster.h"
#include "rubato/core/ids.h"

namespace rubato::launch {

// A place for one worker: "1.3" is the fourth GPU of the second node.
using Slot = std::string;

struct SlotPlace {
  NodeId node;
  int gpu = 0;
  friend auto operator<=>(const SlotPlace&, const SlotPlace&) = default;
};
[[nodiscard]] Slot to_slot(SlotPlace place);
// nullopt unless it is spelled exactly as to_slot() spells it.
[[nodiscard]] std::optional<SlotPlace> parse_slot(std::string_view slot);
// By node, then GPU.
[[nodiscard]] std::vector<Slot> slots_of(const Allocation& gpus);
// An error if the cluster has no such slot, if one is named twice, or if they are of two GPU types.
[[nodiscard]] Result<Allocation> allocation_of(const std::vector<Slot>& slots,
                                               const Cluster& cluster);

// The number of the machine's GPU that belongs to a slot. The nodes of a cluster on one machine
// share its GPUs: those of the first node come first, then those of the second. If there are fewer
// GPUs than slots, the numbers start again from the first one. nullopt if the machine has no GPU.
[[nodiscard]] std::optional<int> device_of(SlotPlace place, const std::vector<int>& node_gpus,
                                           int machine_gpus);

}  // namespace rubato::launch
