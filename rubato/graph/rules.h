// Placements by rules. All of them are measured by the one simulation of graph/schedule.h.
//
//   single_device  everything on one device: the best on which it fits
//   min_cut        few bytes between devices that compute about equally long: recursive bisection,
//                  each half refined by moves of single groups (Fiduccia and Mattheyses 1982). Only
//                  the type of device is used that can compute most. It does not look at memory
//   heft           Heterogeneous Earliest Finish Time (Topcuoglu, Hariri, Wu 2002): operators by
//                  upward rank, each on the device where it ends first, also in gaps. Added: the
//                  first operator of a group decides for all, and a device that has no memory left
//                  for a group is not considered. HEFT plans with links that are never busy, so its
//                  own plan may be shorter than the simulation
//   brute_force    the best of all placements, for small graphs
#pragma once

#include <atomic>
#include <optional>

#include "rubato/graph/schedule.h"

namespace rubato::graph {

struct HeftPlan {
  Placement placement;
  std::vector<double> start, end;  // by operator, as it planned
  double seconds = 0;
};

[[nodiscard]] Placement single_device(const Problem& problem);
[[nodiscard]] Placement min_cut(const Problem& problem);
[[nodiscard]] HeftPlan heft(const Problem& problem);

// The number of placements; nullopt if there are more than this.
[[nodiscard]] std::optional<std::size_t> placement_count(const Problem& problem, std::size_t most);
// `done` counts placements.
[[nodiscard]] Placement brute_force(const Problem& problem,
                                    std::atomic<std::size_t>* done = nullptr);

}  // namespace rubato::graph
