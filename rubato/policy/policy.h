// The interface between the loop and the policies. A policy is a struct with a Config, a State and
//     Decision decide(const Snapshot&, State&) const;
// A small adapter erases its type. decide() is pure: State is all that it remembers between calls.
// save() writes the State as JSON, and load() reads it back. Indexes that can be rebuilt from the
// snapshot are not saved. Some jobs are not the policy's to decide about; it does not see them
// (staying.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/core/decision.h"
#include "rubato/core/snapshot.h"
#include "rubato/model/contention.h"
#include "rubato/policy/cell_use.h"
#include "rubato/policy/keys.h"
#include "rubato/policy/quote.h"
#include "rubato/policy/staying.h"

namespace rubato::policy {

class Policy {
 public:
  Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;
  virtual ~Policy() = default;

  [[nodiscard]] virtual Result<Decision> decide(const Snapshot& snapshot) = 0;

  // The fewest GPUs on which this policy would run the job. If the cluster has fewer, the job is
  // refused before the policy sees it.
  [[nodiscard]] virtual int least_gpus(const JobSpec& spec, const SpeedModel& speed) const = 0;

  // Whether the policy itself fits the speed and convergence that jobs show. Then it sees only
  // these, whatever other policies see.
  [[nodiscard]] virtual bool learns() const { return false; }

  // Whether it is an oracle: it sees the truth where others see what the jobs' agents have fitted.
  [[nodiscard]] virtual bool knows_truth() const { return false; }

  // Whether the policy has admitted the job and will keep its deadline. If the policy makes
  // Promises, the Promise counts instead.
  [[nodiscard]] virtual bool keeps_deadline(JobId /*job*/) const { return false; }

  // Of a policy that trades GPUs: by type, how many job-seconds one more GPU would save a second;
  // empty for all others. And what it says of its jobs; nullptr: nothing. Both are of its last
  // decision.
  [[nodiscard]] virtual std::vector<double> prices() const { return {}; }
  [[nodiscard]] virtual std::shared_ptr<const Quotes> quotes() const { return nullptr; }
  [[nodiscard]] std::optional<Quote> quote(JobId job) const {
    const auto all = quotes();
    return all != nullptr ? all->of(job) : std::nullopt;
  }

  // Who has which GPUs as of the last decision, where tenants have cells; else nullptr.
  [[nodiscard]] virtual std::shared_ptr<const CellUse> cell_use() const { return nullptr; }

  [[nodiscard]] virtual Json save() const = 0;
  // canonical_json(save()). It is called after every decision and may be long, so a policy may have
  // a faster version.
  [[nodiscard]] virtual Result<std::string> save_text() const { return canonical_json(save()); }
  [[nodiscard]] virtual Result<void> load(const Json& state) = 0;
};

template <class P>
class ErasedPolicy final : public Policy {
 public:
  explicit ErasedPolicy(P policy) : policy_(std::move(policy)) {}

  Result<Decision> decide(const Snapshot& snapshot) override {
    Decision decision = policy_.decide(staying_.rest_of(snapshot, !keeps_unpreemptible()), state_);
    staying_.add_to(decision);
    return stamped(std::move(decision), snapshot);
  }
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const override {
    return policy_.least_gpus(spec, speed);
  }
  [[nodiscard]] bool learns() const override {
    if constexpr (requires { policy_.learns(); }) {
      return policy_.learns();
    } else {
      return false;
    }
  }
  [[nodiscard]] bool knows_truth() const override {
    if constexpr (requires { policy_.knows_truth(); }) {
      return policy_.knows_truth();
    } else {
      return false;
    }
  }
  [[nodiscard]] bool keeps_deadline(JobId job) const override {
    if constexpr (requires { policy_.keeps_deadline(job, state_); }) {
      return policy_.keeps_deadline(job, state_);
    } else {
      return false;
    }
  }
  [[nodiscard]] std::vector<double> prices() const override {
    if constexpr (requires { policy_.prices(state_); }) {
      return policy_.prices(state_);
    } else {
      return {};
    }
  }
  [[nodiscard]] std::shared_ptr<const Quotes> quotes() const override {
    if constexpr (requires { policy_.quotes(state_); }) {
      return policy_.quotes(state_);
    } else {
      return nullptr;
    }
  }
  [[nodiscard]] Json save() const override { return state_.save(); }
  [[nodiscard]] Result<std::string> save_text() const override {
    if constexpr (requires { state_.save_text(); }) {
      return state_.save_text();
    } else {
      return canonical_json(state_.save());
    }
  }
  Result<void> load(const Json& state) override {
    auto read = P::State::load(state);
    if (!read) return read.error();
    state_ = std::move(*read);
    return {};
  }

 private:
  [[nodiscard]] bool keeps_unpreemptible() const {
    if constexpr (requires { policy_.keeps_unpreemptible(); }) {
      return policy_.keeps_unpreemptible();
    } else {
      return false;
    }
  }
  [[nodiscard]] static Decision stamped(Decision decision, const Snapshot& snapshot) {
    decision.as_of = snapshot.as_of;
    return decision;
  }

  P policy_;
  typename P::State state_;
  Staying staying_;
};

template <class P>
std::unique_ptr<Policy> erase(P policy) {
  return std::make_unique<ErasedPolicy<P>>(std::move(policy));
}

// What a policy may need from files. The caller reads it, because policies do no I/O.
struct PolicyInputs {
  std::function<Result<std::vector<double>>(const std::string& path)> numbers;
  std::function<Result<std::string>(const std::string& path)> text = nullptr;
  // What jobs on the same nodes lose to each other, for a policy that is told (an oracle).
  std::shared_ptr<const ContentionModel> contention = nullptr;
};

using MadePolicy = Result<std::unique_ptr<Policy>>;

// One row of the table of policies. It stands beside the policy; all.cc collects the rows.
struct PolicyEntry {
  std::string name;
  std::string paper;
  std::string summary;
  std::string knows;            // what it must know about a job
  std::string group;            // in all.h; "": by the flags below
  std::string not_live;         // why it cannot run on a live cluster; "": it can
  bool elastic = false;         // chooses GPU counts itself, so jobs need a scaling curve
  bool one_type = false;        // defined only on a cluster with one GPU type
  bool work_conserving = true;  // leaves no GPU idle that a waiting job could use
  bool admits = false;          // does admission control by deadline
  std::string admission_key;    // the key that switches admission control off, if there is one
  bool tunes_batches = false;   // wants goodput where batch sizes may change (GoodputEstimate)
  bool quick = false;           // decides for thousands of jobs in less time than a thread needs
  bool explores = false;        // tries counts that were not measured, and guesses their speed
  std::vector<Key> keys;
  std::function<MadePolicy(const KeyValues&, const PolicyInputs&)> make;
};

}  // namespace rubato::policy
