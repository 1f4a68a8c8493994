#include "rubato/graph/schedule.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "rubato/base/check.h"
#include "rubato/base/text.h"

namespace rubato::graph {

// One simulated step.
class ScheduleRun {
 public:
  ScheduleRun(const Problem& problem, const Placement& placement, Schedule* record)
      : problem_(problem),
        placement_(placement),
        record_(record),
        missing_(problem.graph().operators.size()),
        ready_(problem.devices()),
        outgoing_(problem.devices()),
        computes_(problem.devices()),
        sends_(problem.devices()) {}

  double run() {
    const auto& operators = problem_.graph().operators;
    if (record_ != nullptr) {
      record_->start.assign(operators.size(), 0);
      record_->end.assign(operators.size(), 0);
    }
    for (std::size_t op = 0; op < operators.size(); ++op) {
      missing_[op] = operators[op].inputs.size();
      if (missing_[op] == 0) wake(op);
    }
    for (std::size_t d = 0; d < problem_.devices(); ++d) begin(d);
    std::size_t ended = 0;
    while (!events_.empty()) {
      now_ = std::get<0>(events_.top());
      touched_.clear();
      // Everything of one instant happens before anything new begins.
      for (; !events_.empty() && std::get<0>(events_.top()) == now_; events_.pop())
        ended += happen(std::get<2>(events_.top()));
      for (const std::size_t d : touched_) {
        begin(d);
        send(d);
      }
    }
    CHECK(ended == operators.size());
    return now_;
  }

 private:
  struct Sending {
    std::size_t place = 0;  // in the ranks, of the first that waits for it
    std::size_t from = 0, to = 0, tensor = 0;
    friend bool operator>(const Sending& a, const Sending& b) {
      return std::tie(a.place, a.from, a.to) > std::tie(b.place, b.from, b.to);
    }
  };
  struct Happening {
    bool computed = false;  // else sent
    std::size_t device = 0, op = 0;
    Sending sending;
  };
  using Event = std::tuple<double, std::size_t, Happening>;
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return std::tie(std::get<0>(a), std::get<1>(a)) > std::tie(std::get<0>(b), std::get<1>(b));
    }
  };
  template <class T>
  using Lowest = std::priority_queue<T, std::vector<T>, std::greater<>>;

  [[nodiscard]] std::size_t device_of(std::size_t op) const {
    return placement_[problem_.graph().operators[op].group];
  }
  void touch(std::size_t device) {
    if (std::find(touched_.begin(), touched_.end(), device) == touched_.end())
      touched_.push_back(device);
  }

  void wake(std::size_t op) {
    ready_[device_of(op)].push(problem_.place_in_rank_[op]);
    touch(device_of(op));
  }

  std::size_t happen(const Happening& what) {
    touch(what.device);
    if (!what.computed) {
      sends_[what.device] = false;
      arrive(what.sending);
      return 0;
    }
    computes_[what.device] = false;
    const auto& tensors = problem_.tensors_[what.op];
    for (std::size_t t = 0; t < tensors.size(); ++t) deliver(what.op, t);
    return 1;
  }

  // Takers on the same device have it at once; for each other device it is queued.
  void deliver(std::size_t op, std::size_t tensor) {
    const std::size_t here = device_of(op);
    std::uint64_t queued = 0;
    for (const std::size_t taker : problem_.tensors_[op][tensor].takers) {
      const std::size_t there = device_of(taker);
      if (there == here) {
        if (--missing_[taker] == 0) wake(taker);
      } else if ((queued >> there & 1U) == 0) {
        queued |= std::uint64_t{1} << there;
        outgoing_[here].push({problem_.place_in_rank_[taker], op, there, tensor});
      }
    }
  }

  void arrive(const Sending& sending) {
    for (const std::size_t taker : problem_.tensors_[sending.from][sending.tensor].takers) {
      if (device_of(taker) == sending.to && --missing_[taker] == 0) wake(taker);
    }
  }

  void begin(std::size_t device) {
    if (computes_[device] || ready_[device].empty()) return;
    const std::size_t op = problem_.by_rank_[ready_[device].top()];
    ready_[device].pop();
    computes_[device] = true;
    const double end = now_ + problem_.seconds(op, device);
    events_.emplace(end, sequence_++, Happening{true, device, op, {}});
    if (record_ == nullptr) return;
    record_->start[op] = now_;
    record_->end[op] = end;
  }

  void send(std::size_t device) {
    if (sends_[device] || outgoing_[device].empty()) return;
    const Sending sending = outgoing_[device].top();
    outgoing_[device].pop();
    sends_[device] = true;
    const double end = now_ + problem_.tensors_[sending.from][sending.tensor].transfer_s;
    events_.emplace(end, sequence_++, Happening{false, device, 0, sending});
    if (record_ != nullptr) record_->transfers.push_back({sending.from, sending.to, now_, end});
  }

  const Problem& problem_;
  const Placement& placement_;
  Schedule* record_;
  std::vector<std::size_t> missing_;  // inputs that are not there yet, by operator
  std::vector<Lowest<std::size_t>> ready_;
  std::vector<Lowest<Sending>> outgoing_;
  std::vector<char> computes_, sends_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  std::vector<std::size_t> touched_;
  std::size_t sequence_ = 0;
  double now_ = 0;
};

Result<Problem> Problem::make(const Graph& graph, const Machine& machine) {
  Problem problem;
  problem.graph_ = graph;
  problem.machine_ = machine;
  const std::size_t ops = graph.operators.size(), devices = machine.devices.size();
  CHECK(devices > 0 && devices <= kMostDevices);
  problem.group_memory_.resize(graph.groups.size());
  problem.group_seconds_.resize(graph.groups.size() * devices);
  std::vector<double> mean(ops);
  for (std::size_t i = 0; i < ops; ++i) {
    const Operator& op = graph.operators[i];
    int runs_on = 0;
    problem.group_memory_[op.group] += op.memory;
    for (std::size_t d = 0; d < devices; ++d) {
      const double seconds = op.seconds_on(machine.devices[d].type);
      problem.seconds_.push_back(seconds < 0 ? kNever : seconds);
      problem.group_seconds_[op.group * devices + d] += problem.seconds_.back();
      if (seconds < 0) continue;
      mean[i] += seconds;
      ++runs_on;
    }
    if (runs_on == 0) {
      return Error{
          fmt::format("the operator {} runs on none of the devices", base::quoted(op.name))};
    }
    mean[i] /= runs_on;
  }
  problem.rank_ = mean;
  problem.tensors_.resize(ops);
  for (std::size_t i = ops; i-- > 0;) {
    for (const Input& input : graph.operators[i].inputs) {
      const double transfer = devices > 1 ? machine.transfer_s(input.bytes) : 0;
      problem.rank_[input.from] =
          std::max(problem.rank_[input.from], mean[input.from] + transfer + problem.rank_[i]);
    }
  }
  problem.by_rank_.resize(ops);
  std::iota(problem.by_rank_.begin(), problem.by_rank_.end(), std::size_t{0});
  std::stable_sort(
      problem.by_rank_.begin(), problem.by_rank_.end(),
      [&](std::size_t a, std::size_t b) { return problem.rank_[a] > problem.rank_[b]; });
  problem.place_in_rank_.resize(ops);
  std::vector<char> staged(graph.groups.size());
  for (std::size_t place = 0; place < ops; ++place) {
    const std::size_t op = problem.by_rank_[place];
    problem.place_in_rank_[op] = place;
    const std::size_t group = graph.operators[op].group;
    if (staged[group] == 0) problem.stages_.push_back(group);
    staged[group] = 1;
    for (const Input& input : graph.operators[op].inputs) {
      auto& tensors = problem.tensors_[input.from];
      const double transfer = machine.transfer_s(input.bytes);
      auto same = std::find_if(tensors.begin(), tensors.end(),
                               [&](const Tensor& t) { return t.transfer_s == transfer; });
      if (same == tensors.end()) same = tensors.insert(tensors.end(), Tensor{transfer, {}});
      same->takers.push_back(op);
    }
  }
  return problem;
}

bool Problem::feasible(const Placement& placement) const {
  std::vector<double> memory(devices());
  for (std::size_t g = 0; g < groups(); ++g) {
    if (placement[g] >= devices() || group_seconds(g, placement[g]) == kNever) return false;
    memory[placement[g]] += group_memory_[g];
  }
  for (std::size_t d = 0; d < devices(); ++d) {
    if (memory[d] > machine_.devices[d].memory) return false;
  }
  return true;
}

double Problem::step_seconds(const Placement& placement) const {
  return feasible(placement) ? ScheduleRun(*this, placement, nullptr).run() : kNever;
}

Schedule Problem::schedule(const Placement& placement) const {
  CHECK(feasible(placement));
  Schedule schedule;
  schedule.seconds = ScheduleRun(*this, placement, &schedule).run();
  return schedule;
}

}  // namespace rubato::graph
