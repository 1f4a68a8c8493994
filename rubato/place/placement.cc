#include "rubato/place/placement.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

#include "rubato/base/check.h"
#include "rubato/base/text.h"

namespace rubato::place {
namespace {

void grow_anywhere(FreeGpus& free, Allocation& gpus, int more) {
  while (more > 0) {
    const auto node = free.first_with_any(gpus.type());
    CHECK(node.has_value());
    const int taken = std::min(more, free.free_on(*node));
    gpus.add(free.take(*node, taken));
    more -= taken;
  }
}

int grow_on_own_nodes(FreeGpus& free, Allocation& gpus, int more) {
  std::vector<NodeId> own;
  for (const auto& slice : gpus.slices()) own.push_back(slice.node);
  for (const NodeId node : own) {
    const int taken = std::min(more, free.free_on(node));
    if (taken > 0) gpus.add(free.take(node, taken));
    more -= taken;
  }
  return more;
}

void grow_on_fewest(FreeGpus& free, Allocation& gpus, int more) {
  if (!gpus.empty()) more = grow_on_own_nodes(free, gpus, more);
  while (more > 0) {
    auto node = free.fewest_at_least(gpus.type(), more);
    if (!node) node = free.most(gpus.type());
    CHECK(node.has_value());
    const int taken = std::min(more, free.free_on(*node));
    gpus.add(free.take(*node, taken));
    more -= taken;
  }
}

void grow_in_gaps(FreeGpus& free, Allocation& gpus, int more) {
  while (more > 0) {
    const auto node = free.fewest_at_least(gpus.type(), 1);
    CHECK(node.has_value());
    const int taken = std::min(more, free.free_on(*node));
    gpus.add(free.take(*node, taken));
    more -= taken;
  }
}

void grow_by_nodes(FreeGpus& free, Allocation& gpus, int more) {
  while (more > 0) {
    const auto node = free.most(gpus.type());
    CHECK(node.has_value());
    const int taken = std::min(more, free.free_on(*node));
    gpus.add(free.take(*node, taken));
    more -= taken;
  }
}

void grow_on_emptiest(FreeGpus& free, Allocation& gpus, int more) {
  for (; more > 0; --more) {
    const auto node = free.most(gpus.type());
    CHECK(node.has_value());
    gpus.add(free.take(*node, 1));
  }
}

// First on the job's own nodes, where it has fewest GPUs; then on as few other nodes as possible.
void grow_evenly(FreeGpus& free, Allocation& gpus, int more) {
  std::vector<std::pair<NodeId, int>> nodes;  // with the number of the job's GPUs there
  for (const auto& slice : gpus.slices()) nodes.emplace_back(slice.node, slice.gpus());
  const auto level = [&] {
    for (; more > 0; --more) {
      std::pair<NodeId, int>* least = nullptr;
      for (auto& node : nodes) {
        if (free.free_on(node.first) > 0 && (least == nullptr || node.second < least->second))
          least = &node;
      }
      if (least == nullptr) return;
      gpus.add(free.take(least->first, 1));
      ++least->second;
    }
  };
  level();
  std::vector<Slice> emptiest;
  for (int found = 0; found < more;) {
    const auto node = free.most(gpus.type());
    CHECK(node.has_value());
    emptiest.push_back(free.take(*node, free.free_on(*node)));
    found += emptiest.back().gpus();
    nodes.emplace_back(*node, 0);
  }
  for (const Slice slice : emptiest) free.give(slice);
  level();
}

std::uint64_t highest(std::uint64_t mask, int gpus) {
  std::uint64_t top = 0;
  for (int i = 0; i < gpus; ++i) top |= std::bit_floor(mask & ~top);
  return top;
}

// Slices in the order in which a placement gives them up.
std::vector<Slice> drop_order(Placement placement, const Allocation& gpus) {
  std::vector<Slice> order(gpus.slices().rbegin(), gpus.slices().rend());
  if (placement != Placement::count) {  // first the nodes where it has fewest GPUs
    std::stable_sort(order.begin(), order.end(),
                     [](const Slice& a, const Slice& b) { return a.gpus() < b.gpus(); });
  }
  return order;
}

Allocation drop_from_fullest(const Allocation& gpus, int fewer) {
  Allocation rest = gpus;
  Allocation dropped(gpus.type());
  for (; fewer > 0; --fewer) {
    const auto fullest =
        std::max_element(rest.slices().begin(), rest.slices().end(),
                         [](const Slice& a, const Slice& b) { return a.gpus() < b.gpus(); });
    const Slice one{fullest->node, highest(fullest->mask, 1)};
    dropped.add(one);
    rest.remove(one);
  }
  return dropped;
}

}  // namespace

Result<Placement> parse_placement(std::string_view name) {
  for (const Placement placement :
       {Placement::count, Placement::pack, Placement::emptiest, Placement::spread, Placement::even,
        Placement::buddy, Placement::netpack, Placement::quiet, Placement::gaps, Placement::skew}) {
    if (name == name_of(placement)) return placement;
  }
  return Error{fmt::format(
      "unknown placement {}: use count, pack, emptiest, spread, even, buddy, netpack, quiet, gaps "
      "or skew",
      base::quoted(name))};
}

std::string_view name_of(Placement placement) {
  switch (placement) {
    case Placement::count:
      return "count";
    case Placement::pack:
      return "pack";
    case Placement::emptiest:
      return "emptiest";
    case Placement::spread:
      return "spread";
    case Placement::even:
      return "even";
    case Placement::buddy:
      return "buddy";
    case Placement::netpack:
      return "netpack";
    case Placement::quiet:
      return "quiet";
    case Placement::gaps:
      return "gaps";
    case Placement::skew:
      return "skew";
  }
  return "";
}

void grow(Placement placement, FreeGpus& free, Allocation& gpus, int more) {
  switch (placement) {
    case Placement::count:
      return grow_anywhere(free, gpus, more);
    case Placement::pack:
    case Placement::buddy:
    case Placement::netpack:
    case Placement::quiet:
    case Placement::skew:
      return grow_on_fewest(free, gpus, more);
    case Placement::gaps:
      return grow_in_gaps(free, gpus, more);
    case Placement::emptiest:
      return grow_by_nodes(free, gpus, more);
    case Placement::spread:
      return grow_on_emptiest(free, gpus, more);
    case Placement::even:
      return grow_evenly(free, gpus, more);
  }
}

Allocation choose_to_drop(Placement placement, const Allocation& gpus, int fewer) {
  if (placement == Placement::spread || placement == Placement::even)
    return drop_from_fullest(gpus, fewer);
  Allocation dropped(gpus.type());
  for (const auto& slice : drop_order(placement, gpus)) {
    const int taken = std::min(fewer, slice.gpus());
    if (taken == 0) break;
    dropped.add({slice.node, highest(slice.mask, taken)});
    fewer -= taken;
  }
  return dropped;
}

}  // namespace rubato::place
