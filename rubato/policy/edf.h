// Earliest deadline first, preemptive; with admission control as a variant (edf-admission).
//
// Where a job has a scaling curve its size follows ElasticFlow's baseline (Gu et al., ASPLOS'23):
//   count=largest  asks for its largest measured count <= min(64, batch size, cluster) and
//                  takes the largest measured count that fits
//   count=peak     takes the fastest of those instead (the fair baseline)
//   count=trace    the count the owner asked for, as for jobs without a curve
// A job none of whose measured counts is legal and within those limits has one size only: its
// least measured count, or the one asked for. Jobs without a deadline come last: those that go
// first (as runs that measure a speed do), then the others, in order of submission.
//
// edf-admission runs the EDF schedule of all admitted jobs and the new one forward, with no further
// arrivals; a job is admitted only if it is in time and makes nobody late who is not (by a fault)
// late anyway. A refusal names the earliest deadline from the wish on that would have been
// admitted. A job without a deadline delays nobody, so it is admitted. Who was taken in before, by
// another policy or until it was held, is never refused: if it does not fit, it comes behind those
// that are admitted and before those that have no deadline.
//
// Knows: deadlines; the curve where count is not `trace`; edf-admission also the work left.
// Pure: decide() is const; what it remembers between calls is State.
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
    std::set<std::pair<Time, JobId>> due;  // admitted jobs with a deadline; ended ones linger
    [[nodiscard]] Json save() const;
    [[nodiscard]] Json save_due() const;  // all but the queue
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

}  // namespace rubato::policy
