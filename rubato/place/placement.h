// From "so many GPUs" to exact ones. Each placement grows a job next to what it has and shrinks it
// where that helps most, so that a resize moves as little as possible.
//
//   count     any free GPUs, lowest node first; speed does not depend on the nodes
//   pack      fewest nodes: fill the job's own nodes, then the node it fits most tightly
//   emptiest  the emptiest node first, filled before the next
//   spread    the emptiest node for each GPU
//   even      fewest nodes, and on these as evenly as their free GPUs allow (Optimus, EuroSys'18)
//   buddy     aligned blocks of powers of two; jobs move where a block is missing (place/buddy.h)
//   netpack   network packing: the same within nodes, and elastic jobs get a divisor or a multiple
//             of a node's GPUs, so that at most one job on a node uses the network
//
// buddy and netpack place all jobs of a decision together, which Differ does; grow() and
// choose_to_drop() serve them only for wishes that name nodes, and then as pack does.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/core/decision.h"
#include "rubato/place/free_gpus.h"

namespace rubato::place {

enum class Placement { count, pack, spread, emptiest, even, buddy, netpack };

[[nodiscard]] constexpr bool in_blocks(Placement placement) {
  return placement == Placement::buddy || placement == Placement::netpack;
}

[[nodiscard]] Result<Placement> parse_placement(std::string_view name);
[[nodiscard]] std::string_view name_of(Placement placement);

// Takes `more` GPUs of the type out of `free` and adds them to `gpus`; there must be enough.
void grow(Placement placement, FreeGpus& free, Allocation& gpus, int more);

// The part of `gpus` to give up so that `fewer` less remain.
[[nodiscard]] Allocation choose_to_drop(Placement placement, const Allocation& gpus, int fewer);

}  // namespace rubato::place
