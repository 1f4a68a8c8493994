// Chooses exact GPUs for a number of GPUs. Each placement grows a job next to its present GPUs and
// shrinks it where that helps most, so that a resize moves as little as possible.
//
//   count     any free GPUs, lowest node first; speed does not depend on the nodes
//   pack      fewest nodes: fill the job's own nodes, then the node with the tightest fit
//   emptiest  the emptiest node first, filled before the next
//   spread    the emptiest node for each GPU
//   even      fewest nodes, and on these as evenly as their free GPUs allow (Optimus, EuroSys'18)
//   buddy     aligned blocks of powers of two; jobs move if a block is missing (place/buddy.h)
//   netpack   network packing: the same within nodes; elastic jobs get a divisor or a multiple of a
//             node's GPUs, so that at most one job on a node uses the network
//   quiet     fewest nodes where nobody loses much speed to a neighbour, else the job waits or
//             keeps the GPUs that it has (place/quiet.h)
//   gaps      the GPUs that others have left over: the nodes with the fewest free GPUs first
//   skew      pack for jobs whose largest tensor is a large part of the model, gaps for others
//
// skew is the placement of Tiresias (Gu et al., NSDI'19). Sure: what counts is the skew of a
// model's tensor sizes; a job of high skew is consolidated on as few nodes as possible, and a job
// of low skew may run on GPUs anywhere, because workers that exchange a large tensor send it in one
// piece and so wait for one link. Readings: the skew is the share of the largest tensor in all
// parameters; the limit is 0.3 (of the nine networks in Tiresias's public simulator, three VGG and
// AlexNet have 0.61 to 0.77, all others at most 0.14, so any limit between is the same to them); a
// job of low skew takes what is left over, so that whole nodes stay free for others; a job of which
// nothing is known is consolidated; jobs to be consolidated are placed before others; and if there
// is no room on the fewest nodes, a job runs on more of them instead of waiting.
//
// buddy and netpack place all jobs of a decision together; Differ does this. For them, grow() and
// choose_to_drop() are used only for wishes that name nodes, and work as for pack. The placement
// skew is never asked itself: Differ asks pack or gaps for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/core/decision.h"
#include "rubato/place/free_gpus.h"

namespace rubato::place {

enum class Placement { count, pack, spread, emptiest, even, buddy, netpack, quiet, gaps, skew };

// The largest share of a tensor with which the placement skew lets a job spread.
inline constexpr double kSkewLimit = 0.3;

[[nodiscard]] constexpr bool in_blocks(Placement placement) {
  return placement == Placement::buddy || placement == Placement::netpack;
}

[[nodiscard]] Result<Placement> parse_placement(std::string_view name);
[[nodiscard]] std::string_view name_of(Placement placement);

// Takes `more` GPUs of the type from `free` and adds them to `gpus`. Enough must be free.
void grow(Placement placement, FreeGpus& free, Allocation& gpus, int more);

// Which `fewer` GPUs of `gpus` to give up.
[[nodiscard]] Allocation choose_to_drop(Placement placement, const Allocation& gpus, int fewer);

}  // namespace rubato::place
