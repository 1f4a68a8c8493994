#include "rubato/launch/slots.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <limits>
#include <numeric>

#include "rubato/base/text.h"

namespace rubato::launch {

Slot to_slot(SlotPlace place) { return fmt::format("{}.{}", place.node.value(), place.gpu); }

std::optional<int> device_of(SlotPlace place, const std::vector<int>& node_gpus, int machine_gpus) {
  if (machine_gpus <= 0) return std::nullopt;
  const std::size_t before = std::min(place.node.index(), node_gpus.size());
  const auto end = node_gpus.begin() + static_cast<std::ptrdiff_t>(before);
  const std::int64_t number = std::accumulate(node_gpus.begin(), end, std::int64_t{0}) + place.gpu;
  return static_cast<int>(number % machine_gpus);
}

std::optional<SlotPlace> parse_slot(std::string_view slot) {
  const auto dot = slot.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto node = parse_integer(slot.substr(0, dot));
  const auto gpu = parse_integer(slot.substr(dot + 1));
  if (!node || !gpu || *node < 0 || *node > std::numeric_limits<NodeId::rep>::max() || *gpu < 0 ||
      *gpu >= kMaxGpusPerNode) {
    return std::nullopt;
  }
  const SlotPlace place{NodeId(static_cast<NodeId::rep>(*node)), static_cast<int>(*gpu)};
  return to_slot(place) == slot ? std::optional(place) : std::nullopt;
}

std::vector<Slot> slots_of(const Allocation& gpus) {
  std::vector<Slot> slots;
  slots.reserve(static_cast<std::size_t>(gpus.gpus()));
  for (const Slice& slice : gpus.slices()) {
    for (int gpu = 0; gpu < kMaxGpusPerNode; ++gpu) {
      if ((slice.mask >> static_cast<unsigned>(gpu) & 1U) != 0) {
        slots.push_back(to_slot({slice.node, gpu}));
      }
    }
  }
  return slots;
}

Result<Allocation> allocation_of(const std::vector<Slot>& slots, const Cluster& cluster) {
  Allocation gpus;
  for (const Slot& slot : slots) {
    const auto place = parse_slot(slot);
    if (!place || place->node.index() >= cluster.nodes().size() ||
        place->gpu >= cluster.node(place->node).gpus) {
      return Error{fmt::format("the cluster has no slot {}", base::quoted(slot))};
    }
    const GpuType type = cluster.node(place->node).type;
    if (gpus.empty()) gpus = Allocation(type);
    if (gpus.type() != type) {
      return Error{fmt::format("the slot {} is of another type than {}", slot, slots.front())};
    }
    const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(place->gpu);
    if ((gpus.mask_on(place->node) & bit) != 0) {
      return Error{fmt::format("the slot {} is named twice", slot)};
    }
    gpus.add({place->node, bit});
  }
  return gpus;
}

}  // namespace rubato::launch
