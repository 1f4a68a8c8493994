// Optimus (Peng et al., EuroSys'18): each job gets one GPU. Then each further GPU goes to the job
// whose time left falls most, until no job gains.
//
//   convergence  the losses that a job has shown are fitted (model/convergence.h); the fit says how
//                much work is left until an epoch no longer lowers the loss enough
//   speed        the step times that it has shown are fitted (model/scaling.h)
//   gain         (time left now - time left with one more) / GPUs of the step
//   placement    fewest nodes, evenly spread: the placement `even` (place/), not decided here
//
// Knows: what jobs have shown so far (the counts on which they ran, and the losses at the ends of
// their epochs), and nothing about the future (learns()). `oracle=on` knows the true work left and
// the true speeds instead (knows_truth()), as in the comparison of Pollux (Qiao et al., OSDI'21).
//
// Deviates: there are only workers and no parameter servers (all-reduce). The paper does not say
// who gets the first GPU if there are more jobs than GPUs: here it is the earlier submission. If
// only some counts are legal, a step goes to the next legal one, and gains are per GPU. A job with
// too few losses for a fit is expected to need as long again as it has run, plus a prior.
//
// Pure: decide() is const. State remembers the fits, but they can be computed again and are not
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
    std::optional<Work> end;              // where it converges; nullopt: not known yet
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

[[nodiscard]] std::vector<PolicyEntry> optimus_rows();

}  // namespace rubato::policy
