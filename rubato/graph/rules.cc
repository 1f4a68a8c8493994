#include "rubato/graph/rules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace rubato::graph {
namespace {

// Allowed difference of a half from its share of the computation.
constexpr double kImbalance = 0.1;
constexpr int kMostPasses = 10;

std::size_t fastest_device(const Problem& problem, std::size_t group) {
  std::size_t best = 0;
  for (std::size_t d = 1; d < problem.devices(); ++d) {
    if (problem.group_seconds(group, d) < problem.group_seconds(group, best)) best = d;
  }
  return best;
}

// The devices of the type that can compute most: their number / the mean seconds of a group.
std::vector<std::size_t> strongest_type(const Problem& problem) {
  std::vector<std::size_t> best;
  double best_rate = -1;
  for (std::size_t d = 0; d < problem.devices(); ++d) {
    const auto& devices = problem.machine().devices;
    std::vector<std::size_t> same;
    for (std::size_t other = 0; other < problem.devices(); ++other) {
      if (devices[other].type == devices[d].type) same.push_back(other);
    }
    double seconds = 1e-12, runs = 0;
    for (std::size_t g = 0; g < problem.groups(); ++g) {
      if (problem.group_seconds(g, d) == Problem::kNever) continue;
      seconds += problem.group_seconds(g, d);
      ++runs;
    }
    const double rate = static_cast<double>(same.size()) * runs / seconds;
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = std::move(same);
  }
  return best;
}

// Splits groups in two parts with few bytes between them.
class Bisection {
 public:
  using Edges = std::vector<std::map<std::size_t, double>>;  // bytes to other groups, by group

  Bisection(const Edges& edges, const std::vector<double>& weight, std::vector<std::size_t> groups,
            double share)
      : edges_(edges), weight_(weight), groups_(std::move(groups)), side_(edges.size(), kOutside) {
    double total = 0, largest = 0;
    for (const std::size_t g : groups_) {
      total += weight_[g];
      largest = std::max(largest, weight_[g]);
    }
    wanted_ = share * total;
    allowed_ = std::max(kImbalance * total / 2, largest);
    for (const std::size_t g : groups_) {  // in the order of stages: first the first part
      side_[g] = first_ + weight_[g] / 2 < wanted_ ? 0 : 1;
      if (side_[g] == 0) first_ += weight_[g];
    }
  }

  std::vector<std::size_t> part(int side) const {
    std::vector<std::size_t> part;
    std::copy_if(groups_.begin(), groups_.end(), std::back_inserter(part),
                 [&](std::size_t g) { return side_[g] == side; });
    return part;
  }

  void refine() {
    for (int pass = 0; pass < kMostPasses && improve(); ++pass) {
    }
  }

 private:
  static constexpr int kOutside = 2;

  [[nodiscard]] double gain(std::size_t group) const {
    double gain = 0;
    for (const auto& [other, bytes] : edges_[group]) {
      if (side_[other] != kOutside) gain += side_[other] == side_[group] ? -bytes : bytes;
    }
    return gain;
  }
  [[nodiscard]] bool may_move(std::size_t group) const {
    const double after = first_ + (side_[group] == 0 ? -1 : 1) * weight_[group];
    return std::abs(after - wanted_) <= std::max(allowed_, std::abs(first_ - wanted_));
  }
  void move(std::size_t group) {
    first_ += (side_[group] == 0 ? -1 : 1) * weight_[group];
    side_[group] = 1 - side_[group];
  }

  // Moves every group once, the best first, and then takes back the moves after the best moment.
  bool improve() {
    std::set<std::pair<double, std::size_t>> free;  // by -gain
    for (const std::size_t g : groups_) free.emplace(-gain(g), g);
    std::vector<std::size_t> moved;
    std::size_t best_moves = 0;
    double gained = 0, most = 0;
    while (!free.empty()) {
      const auto next = std::find_if(free.begin(), free.end(),
                                     [&](const auto& one) { return may_move(one.second); });
      if (next == free.end()) break;
      const std::size_t group = next->second;
      gained -= next->first;
      free.erase(next);
      std::vector<std::size_t> near;
      for (const auto& [other, bytes] : edges_[group]) {
        if (side_[other] != kOutside && free.erase({-gain(other), other}) > 0)
          near.push_back(other);
      }
      move(group);
      for (const std::size_t other : near) free.emplace(-gain(other), other);
      moved.push_back(group);
      if (gained > most * (1 + 1e-12) + 1e-12) {
        most = gained;
        best_moves = moved.size();
      }
    }
    for (; moved.size() > best_moves; moved.pop_back()) move(moved.back());
    return best_moves > 0;
  }

  const Edges& edges_;
  const std::vector<double>& weight_;
  std::vector<std::size_t> groups_;
  std::vector<int> side_;
  double wanted_ = 0, allowed_ = 0, first_ = 0;
};

void bisect(const Bisection::Edges& edges, const std::vector<double>& weight,
            const std::vector<std::size_t>& groups, const std::vector<std::size_t>& devices,
            Placement& placement) {
  if (devices.size() == 1 || groups.size() < 2) {
    for (const std::size_t g : groups) placement[g] = static_cast<std::uint8_t>(devices.front());
    return;
  }
  const std::size_t half = devices.size() / 2;
  const auto middle = devices.begin() + static_cast<std::ptrdiff_t>(half);
  Bisection halves(edges, weight, groups,
                   static_cast<double>(half) / static_cast<double>(devices.size()));
  halves.refine();
  bisect(edges, weight, halves.part(0), {devices.begin(), middle}, placement);
  bisect(edges, weight, halves.part(1), {middle, devices.end()}, placement);
}

// HEFT in the making.
class Heft {
 public:
  explicit Heft(const Problem& problem)
      : problem_(problem),
        busy_(problem.devices()),
        memory_(problem.devices()),
        placed_(problem.groups()) {
    plan_.placement.resize(problem.groups());
    plan_.start.resize(problem.graph().operators.size());
    plan_.end = plan_.start;
  }

  HeftPlan run() {
    for (const std::size_t op : problem_.by_rank()) place(op);
    return std::move(plan_);
  }

 private:
  [[nodiscard]] bool may_take(std::size_t group, std::size_t device) const {
    return problem_.group_seconds(group, device) != Problem::kNever &&
           memory_[device] + problem_.group_memory(group) <=
               problem_.machine().devices[device].memory;
  }

  void place(std::size_t op) {
    const std::size_t group = problem_.graph().operators[op].group;
    std::size_t device = plan_.placement[group];
    if (placed_[group] == 0) {
      // If it fits nowhere, the plan is not feasible; the fastest device stands for that.
      device = fastest_device(problem_, group);
      double first_end = Problem::kNever;
      for (std::size_t d = 0; d < problem_.devices(); ++d) {
        if (!may_take(group, d)) continue;
        const double end = earliest(op, d) + problem_.seconds(op, d);
        if (end < first_end) {
          first_end = end;
          device = d;
        }
      }
      placed_[group] = 1;
      plan_.placement[group] = static_cast<std::uint8_t>(device);
      memory_[device] += problem_.group_memory(group);
    }
    plan_.start[op] = earliest(op, device);
    plan_.end[op] = plan_.start[op] + problem_.seconds(op, device);
    plan_.seconds = std::max(plan_.seconds, plan_.end[op]);
    busy_[device].emplace(plan_.start[op], plan_.end[op]);
  }

  // The first gap of the device that is long enough, after all inputs have arrived.
  [[nodiscard]] double earliest(std::size_t op, std::size_t device) const {
    double start = 0;
    for (const Input& input : problem_.graph().operators[op].inputs) {
      const std::size_t from = plan_.placement[problem_.graph().operators[input.from].group];
      start =
          std::max(start, plan_.end[input.from] +
                              (from == device ? 0 : problem_.machine().transfer_s(input.bytes)));
    }
    const double seconds = problem_.seconds(op, device);
    for (const auto& [begin, end] : busy_[device]) {
      if (start + seconds <= begin) break;
      start = std::max(start, end);
    }
    return start;
  }

  const Problem& problem_;
  HeftPlan plan_;
  std::vector<std::multimap<double, double>> busy_;  // start and end, by device
  std::vector<double> memory_;
  std::vector<char> placed_;
};

}  // namespace

Placement single_device(const Problem& problem) {
  Placement best;
  double least = Problem::kNever;
  for (std::size_t d = 0; d < problem.devices(); ++d) {
    Placement all(problem.groups(), static_cast<std::uint8_t>(d));
    const double seconds = problem.step_seconds(all);
    if (!best.empty() && !(seconds < least)) continue;
    best = std::move(all);
    least = seconds;
  }
  return best;
}

Placement min_cut(const Problem& problem) {
  const auto devices = strongest_type(problem);
  Placement placement(problem.groups());
  Bisection::Edges edges(problem.groups());
  for (const Operator& op : problem.graph().operators) {
    for (const Input& input : op.inputs) {
      const std::size_t from = problem.graph().operators[input.from].group;
      if (from == op.group) continue;
      edges[from][op.group] += input.bytes;
      edges[op.group][from] += input.bytes;
    }
  }
  std::vector<std::size_t> movable;
  std::vector<double> weight(problem.groups());
  for (const std::size_t g : problem.stages()) {
    weight[g] = problem.group_seconds(g, devices.front());
    if (weight[g] != Problem::kNever) {
      movable.push_back(g);
    } else {
      placement[g] = static_cast<std::uint8_t>(fastest_device(problem, g));
    }
  }
  bisect(edges, weight, movable, devices, placement);
  return placement;
}

HeftPlan heft(const Problem& problem) { return Heft(problem).run(); }

std::optional<std::size_t> placement_count(const Problem& problem, std::size_t most) {
  std::size_t count = 1;
  for (std::size_t g = 0; g < problem.groups(); ++g) {
    if (count > most / problem.devices()) return std::nullopt;
    count *= problem.devices();
  }
  return count;
}

Placement brute_force(const Problem& problem, std::atomic<std::size_t>* done) {
  Placement now(problem.groups()), best = now;
  double least = Problem::kNever;
  while (true) {
    const double seconds = problem.step_seconds(now);
    if (seconds < least) {
      least = seconds;
      best = now;
    }
    if (done != nullptr) done->fetch_add(1, std::memory_order_relaxed);
    std::size_t g = 0;
    for (; g < now.size() && ++now[g] == problem.devices(); ++g) now[g] = 0;
    if (g == now.size()) return best;
  }
}

}  // namespace rubato::graph
