// rubato: one policy for everything, a market for GPUs. docs/rubato-policy.md derives it and proves
// what can be proven.
//
//   market      every job bids for GPUs what they save: its own waiting, and that of all who come
//               after it (market.h). The price that balances the market is what one more GPU would
//               be worth: so many job-seconds a second
//   fairness    who is behind its fair share of the cluster, by the ratio rho, weighs rho^fairness
//               times as much; who would soon be too late for a fair end weighs more before that
//   promises    a deadline is promised or refused as by elasticflow, with plans that stand
//               (promise_books.h); the market trades what the plans leave
//   turns       who has had no GPUs for `patience` gets a turn on its smallest count, in the order
//               in which the waiting began. A turn lasts a 1440th of it, but ten restarts at
//               least; turns have half of the GPUs at most, and 0.5% of all GPU-time. So nobody
//               waits longer than
//                   patience + jobs x (turn x (1 + 200 k/K) + interval) + D
//               with k the largest of the jobs' smallest counts on K GPUs, and D the time until the
//               last promise that stood at the end of its patience ends
//   lengths     the work of a job is known if its owner told it. Else it is expected, from what is
//               done and from jobs of the same model and user that have ended (length_estimate.h).
//               For the simulator, the key `lengths` hides what jobs tell: `unknown` all of it,
//               `fraction` until a job has begun, as if it told then what share is done
//   shares      `jobs`: each job has its weight. `users`: a user has the largest weight of their
//               jobs, and it is divided among them, so a user gains nothing by more jobs
//
// Knows: speed by count and type (guesses where it was not tried), work left or done, deadline,
// weight, user, model, restart cost.
//
// Pure: decide() is const; what it remembers between calls is State.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rubato/policy/length_estimate.h"
#include "rubato/policy/market.h"
#include "rubato/policy/menu.h"
#include "rubato/policy/policy.h"
#include "rubato/policy/promise_books.h"

namespace rubato::policy {

struct Rubato {
  enum class Lengths : std::uint8_t { told, fraction, unknown };
  struct Config {
    double fairness = 0.5;  // 0: only the mean completion time counts
    bool promises = true;
    Duration patience = std::chrono::hours(72);
    Lengths lengths = Lengths::told;
    bool by_user = false;  // users have weights, not jobs
  };
  struct Record {
    JobId job;
    double crowd_before = 0;   // State::crowd when it came
    Time turn_until = kStart;  // it has a turn until then
    LengthEstimate::Seen progress;
    Standing standing;
    // Not saved: made of what follows.
    Menu menu;
    std::shared_ptr<const JobSpec> spec;
    std::shared_ptr<const SpeedModel> speed;
  };
  struct State {
    std::vector<Record> records;  // by job
    std::vector<double> prices;   // by GPU type
    std::vector<int> usable;      // GPUs by type at the last decision with promises
    double crowd = 0;             // jobs present, summed up over seconds
    double turn_debt = 0;         // GPU-seconds of turns that are not yet paid off
    Time at = kStart;             // of the last decision
    LengthEstimate lengths;
    std::shared_ptr<const Quotes> quotes;  // of the last decision; not saved
    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const;
  [[nodiscard]] std::vector<double> prices(const State& state) const { return state.prices; }
  [[nodiscard]] std::shared_ptr<const Quotes> quotes(const State& state) const {
    return state.quotes;
  }
};

[[nodiscard]] std::vector<PolicyEntry> rubato_rows();

}  // namespace rubato::policy
