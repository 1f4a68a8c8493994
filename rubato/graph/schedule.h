// What a step takes if the operators of a graph are placed on devices: a simulation of operators,
// transfers and memory.
//
// A device that is free begins the waiting operator with the highest rank, and finishes it. A
// result is sent to each other device that needs it, once. A device sends one tensor at a time, the
// one for the operator with the highest rank first; it computes meanwhile. The rank of an operator
// is the upward rank of HEFT: the mean seconds on the longest way from it to the end of the graph.
// It does not depend on the placement. The memory of all operators of a device is held during the
// whole step.
//
// Deterministic, and no clock.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "rubato/graph/graph.h"

namespace rubato::graph {

using Placement = std::vector<std::uint8_t>;  // device, by group

struct Transfer {
  std::size_t from = 0;  // operator
  std::size_t to = 0;    // device
  double start = 0, end = 0;
};

struct Schedule {
  std::vector<double> start, end;  // by operator
  std::vector<Transfer> transfers;
  double seconds = 0;
};

// A graph on a machine, with everything that does not depend on the placement.
class Problem {
 public:
  // Fails if an operator runs on none of the devices.
  [[nodiscard]] static Result<Problem> make(const Graph& graph, const Machine& machine);

  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const Machine& machine() const { return machine_; }
  [[nodiscard]] std::size_t devices() const { return machine_.devices.size(); }
  [[nodiscard]] std::size_t groups() const { return graph_.groups.size(); }

  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // kNever if it does not run there.
  [[nodiscard]] double seconds(std::size_t op, std::size_t device) const {
    return seconds_[op * devices() + device];
  }
  [[nodiscard]] double group_seconds(std::size_t group, std::size_t device) const {
    return group_seconds_[group * devices() + device];
  }
  [[nodiscard]] double group_memory(std::size_t group) const { return group_memory_[group]; }
  [[nodiscard]] double rank(std::size_t op) const { return rank_[op]; }
  // All operators, the highest rank first. Each comes after its inputs.
  [[nodiscard]] const std::vector<std::size_t>& by_rank() const { return by_rank_; }
  // All groups, in the order of their first operator in by_rank().
  [[nodiscard]] const std::vector<std::size_t>& stages() const { return stages_; }

  // Whether all operators run on their devices, and all memory fits.
  [[nodiscard]] bool feasible(const Placement& placement) const;
  // The seconds of a step; kNever if the placement is not feasible.
  [[nodiscard]] double step_seconds(const Placement& placement) const;
  // The placement must be feasible.
  [[nodiscard]] Schedule schedule(const Placement& placement) const;

 private:
  friend class ScheduleRun;

  // Operators that take the same tensor: it is sent to each of their devices once.
  struct Tensor {
    double transfer_s = 0;
    std::vector<std::size_t> takers;  // by rank
  };

  Graph graph_;
  Machine machine_;
  std::vector<double> seconds_, group_seconds_, group_memory_, rank_;
  std::vector<std::size_t> by_rank_, stages_;
  std::vector<std::size_t> place_in_rank_;    // by operator
  std::vector<std::vector<Tensor>> tensors_;  // by operator
};

}  // namespace rubato::graph
