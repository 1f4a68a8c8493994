// heSRPT (Berg, Vesilo, Harchol-Balter 2020): for jobs with speed k^q on k GPUs that are all
// present at time 0, these shares provably minimise the mean completion time. Of n jobs in
// descending size, job i gets  (i/n)^(1/(1-q)) - ((i-1)/n)^(1/(1-q))  of the GPUs.
//
// Knows: work left, and q: by default the mean exponent of the jobs' speed curves, by least squares
// on their logarithms. Cluster of one GPU type.
//
// Deviates: a cluster gives out whole GPUs, and jobs have legal counts. A share is rounded down to
// a legal count. The remaining GPUs go to the largest remainders, then to jobs without GPUs,
// shortest first. So with more jobs than GPUs it is closer to SRPT. A job never gets a count at
// which it would be slower. On a cluster with many GPUs per job the rounding vanishes;
// sim/bound_test.cc compares with the closed form there. Jobs may arrive later; then the shares
// are a heuristic.
//
// Pure: decide() is const, and there is no state.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Hesrpt {
  struct Config {
    double q = 0;  // 0: from the curves
  };
  struct State {
    [[nodiscard]] Json save() const { return Json::object(); }
    [[nodiscard]] static Result<State> load(const Json& /*json*/) { return State(); }
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.limits.smallest();
  }

  // The share of the i-th of n jobs in descending size, i from 1.
  [[nodiscard]] static double share(std::size_t i, std::size_t n, double q);

  // The sum of all completion times under these shares on `gpus` GPUs: sizes in seconds on one GPU.
  // From the paper: sum_i x_i (i s(1 + w_i) - (i-1) s(w_i)) / s(gpus), x descending, s(k) = k^q,
  // w_1 = 0, w_i = 1 / ((i/(i-1))^(1/(1-q)) - 1).
  [[nodiscard]] static double closed_form(std::vector<double> sizes, double gpus, double q);

 private:
  [[nodiscard]] double exponent(const Snapshot& snapshot) const;
};

[[nodiscard]] std::vector<PolicyEntry> hesrpt_rows();

}  // namespace rubato::policy
