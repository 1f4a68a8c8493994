// Optimus (Peng et al., EuroSys'18): one GPU for each job, then GPU by GPU to the job whose time
// left falls most by it, until nobody gains.
//
//   convergence  the losses a job has shown are fitted (model/convergence.h) and say how much work
//   is
//                left until an epoch no longer lowers the loss enough
//   speed        the step times it has shown are fitted (model/scaling.h)
//   gain         (time left now - time left with one more) / GPUs of the step
//   placement    fewest nodes, evenly spread: the placement `even` (place/), not decided here
//
// Knows: what jobs have shown so far, counts they have run on and losses at the ends of their
// epochs, and of the future nothing (learns()). `oracle=on` knows the true work left and the true
// speeds instead (knows_truth()), as in the comparison of Pollux (Qiao et al., OSDI'21).
// Deviates: workers only, no parameter servers (all-reduce). The paper does not say who gets the
// first GPU when there are fewer than jobs: the earlier submission. If only some counts are legal,
// a step goes to the next legal one and gains are per GPU. A job with too few losses for a fit is
// expected to need as long again as it has run, plus a prior.
//
// Pure: decide() is const; what it fitted is remembered in State, but can be made again and is not
// saved.
#pragma once

#include <map>
#include <memory>

#include "rubato/model/scaling.h"
#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Optimus {
  struct Config {
    bool oracle = false;
    double prior_seconds = 600;  // expected length of a job that has shown nothing, on fewest GPUs
  };
  // The fits of one job, with what they were made from.
  struct Fitted {
    std::shared_ptr<const SpeedModel> shown_speed;
    std::shared_ptr<const ShownLosses> shown_losses;
    std::optional<ScalingModel> scaling;  // nullopt: known at one count only
    std::optional<Work> end;              // where it converges; nullopt: cannot be told yet
  };
  struct State {
    std::map<JobId, Fitted> fits;
    [[nodiscard]] Json save() const { return Json::object(); }
    [[nodiscard]] static Result<State> load(const Json& /*json*/) { return State(); }
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.limits.smallest();
  }
  [[nodiscard]] bool learns() const { return !config.oracle; }
  [[nodiscard]] bool knows_truth() const { return config.oracle; }

 private:
  [[nodiscard]] const Fitted& fit(const JobView& job, State& state) const;
  [[nodiscard]] Work work_left(const JobView& job, const Fitted& fitted, Time now) const;
};

}  // namespace rubato::policy
