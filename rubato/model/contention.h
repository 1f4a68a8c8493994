// How much jobs slow each other down that share nodes, and so links. A model answers one question:
// which share of its speed does a job keep beside these others? docs/contention.md describes the
// models and how well they predict measurements.
//
//   FixedLoss       a share that every job on several nodes loses to any other such job
//   PairLoss        two numbers per model of neural network: how sensitive it is, and how much
//                   pressure it puts on others
//   SeenContention  PairLoss with numbers that are fitted to what running jobs report. It sees only
//                   what an agent can measure: a job's own speed beside its neighbours
//
// Deterministic; no clock, no randomness.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/core/snapshot.h"

namespace rubato::model {

// A job and its GPUs. The allocation must outlive it.
struct Tenant {
  std::string_view model;
  const Allocation* gpus = nullptr;
  int turn = 0;  // on links with priorities: lower ones send first, equal ones share
};

class ContentionModel {
 public:
  ContentionModel() = default;
  ContentionModel(const ContentionModel&) = default;
  ContentionModel& operator=(const ContentionModel&) = default;
  virtual ~ContentionModel() = default;

  // The share of its speed that a job keeps, above 0 and at most 1. `others` are all other jobs
  // with GPUs on its nodes.
  [[nodiscard]] virtual double kept(const Tenant& job, std::span<const Tenant> others) const = 0;

  // Whether it says anything about this neural network.
  [[nodiscard]] virtual bool knows(std::string_view /*model*/) const { return true; }
};

// Whether both use the network, so that they share the interface of a node on which they meet.
[[nodiscard]] inline bool both_span(const Tenant& a, const Tenant& b) {
  return a.gpus->nodes() > 1 && b.gpus->nodes() > 1;
}

class FixedLoss final : public ContentionModel {
 public:
  explicit FixedLoss(double share) : share_(share) {}
  [[nodiscard]] double kept(const Tenant& job, std::span<const Tenant> others) const override;

 private:
  double share_;
};

// Beside another job that spans nodes, a step takes 1 + sensitivity x the other's pressure times as
// long. Of several others only the one with the highest pressure counts, because that is how the
// measured table that it is fitted to is read (sim/contention.h).
struct PairNumbers {
  double sensitivity = 0;
  double pressure = 0;
  friend bool operator==(const PairNumbers&, const PairNumbers&) = default;
};

class PairLoss : public ContentionModel {
 public:
  using Numbers = std::map<std::string, PairNumbers, std::less<>>;

  // `unseen`: the numbers of a network that is not in the list. By default it neither suffers nor
  // hurts.
  explicit PairLoss(Numbers numbers, PairNumbers unseen = {})
      : numbers_(std::move(numbers)), unseen_(unseen) {}
  [[nodiscard]] double kept(const Tenant& job, std::span<const Tenant> others) const override;
  [[nodiscard]] bool knows(std::string_view model) const override {
    return numbers_.contains(model);
  }
  [[nodiscard]] const Numbers& numbers() const { return numbers_; }
  [[nodiscard]] PairNumbers of(std::string_view model) const;

 protected:
  Numbers numbers_;

 private:
  PairNumbers unseen_;
};

// Who is on which node.
class NodeTenants {
 public:
  explicit NodeTenants(std::size_t nodes) : on_(nodes) {}

  void put(std::size_t job, const Allocation& gpus);
  void take(std::size_t job, const Allocation& gpus);
  [[nodiscard]] const std::vector<std::size_t>& on(NodeId node) const { return on_[node.index()]; }

  // The others on these nodes, ascending, each once.
  [[nodiscard]] std::vector<std::size_t> neighbours(std::size_t job, const Allocation& gpus) const;

 private:
  std::vector<std::vector<std::size_t>> on_;  // by node; each ascending
};

class SeenContention final : public PairLoss {
 public:
  // What it assumes of a network that it has not seen: two such networks lose a tenth.
  static constexpr PairNumbers kUnseen{1.0 / 3, 1.0 / 3};

  explicit SeenContention(Numbers numbers = {}) : PairLoss(std::move(numbers), kUnseen) {}

  // Looks at every running job that shares a node with others, and corrects the numbers of it and
  // of its strongest neighbour a little towards the speed that it reports.
  void observe(const Snapshot& snapshot);

 private:
  void correct(std::string_view job, std::string_view other, double slowdown);
};

// The share of its undisturbed speed at which a job runs, by its own report; 1 if it restarts, if
// it shares its GPUs, or if its speed is not known.
[[nodiscard]] double reported_share(const JobView& job, const Cluster& cluster, Time now);

}  // namespace rubato::model
