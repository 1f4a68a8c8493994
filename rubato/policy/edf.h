// Earliest deadline first, preemptive. The variant edf-admission adds admission control.
//
// If a job has a scaling curve, its size follows ElasticFlow's baseline (Gu et al., ASPLOS'23):
//   count=largest  asks for its largest measured count <= min(64, batch size, cluster) and
//                  takes the largest measured count that fits
//   count=peak     takes the fastest of those instead (the fair baseline)
//   count=trace    the count that the owner asked for, as for jobs without a curve
// If no measured count of a job is legal and within those limits, the job has only one size: its
// smallest measured count, or the count asked for. Jobs without a deadline come last, in order of
// submission. Among them, jobs that measure a speed come first.
//
// edf-admission simulates the EDF schedule of all admitted jobs and the new one, without further
// arrivals. A job is admitted only if it meets its deadline and makes no other job late. (Jobs that
// are late anyway, because of a failure, do not count.) A refusal names the earliest deadline, not
// before the wish, that would have been admitted. A job without a deadline delays nobody, so it is
// always admitted. A job that was admitted before, by another policy or before a hold, is never
// refused. If it does not fit, it comes after the admitted jobs and before those without a
// deadline.
//
// Knows: deadlines; the curve, unless count is `trace`; edf-admission also the work left. Pure:
// decide() is const; State is what it remembers between calls.
#pragma once

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "rubato/policy/gangs.h"
#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Edf {
  enum class Sizing : std::uint8_t { largest, peak, trace };
  struct Config {
    Sizing count = Sizing::largest;
    bool admission = false;
  };
  struct State {
    GangQueue queue;
    std::set<std::pair<Time, JobId>> due;  // admitted jobs with a deadline; ended ones may remain
    [[nodiscard]] Json save() const;
    [[nodiscard]] Json save_due() const;  // everything except the queue
    [[nodiscard]] Result<std::string> save_text() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const;
  [[nodiscard]] bool keeps_deadline(JobId job, const State& state) const;

 private:
  void follow_deadline(const JobView& job, State& state) const;
  [[nodiscard]] double key_of(const JobView& job, const State& state) const;
  [[nodiscard]] bool sizes_itself(const SpeedModel& speed) const;
  [[nodiscard]] int size(const JobView& job, int cluster, int room) const;
  [[nodiscard]] std::optional<Reject> judge(const JobView& job, const Snapshot& snapshot,
                                            State& state) const;
};

[[nodiscard]] std::vector<PolicyEntry> edf_rows();

}  // namespace rubato::policy
