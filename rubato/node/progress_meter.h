// What the reports of a job's workers say about its progress: how far, how fast, and for how long
// each change of its workers kept it waiting.
//
// A report is about one step (wire/worker_messages.h). The speed is that of the last seconds;
// without reports it falls, unless the training is done. The pause of a change is how much longer
// its first step took than the steps before it, by the workers' clock. If all workers start again,
// the pause lasts from the last step to the next. Pure.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "rubato/base/time.h"
#include "rubato/launch/master_messages.h"
#include "rubato/wire/worker_messages.h"

namespace rubato::node {

class ProgressMeter {
 public:
  // `round` counts how often all workers have started together; steps may be repeated after such a
  // start. False if the step was reported before, by a leader that died.
  bool report(Time now, int round, const wire::StepReport& report);
  // A worker has done the last step. What the program does afterwards does not count as silence.
  void finished() { finished_ = true; }
  // The members train in a new composition from this step on.
  void members_changed(std::int64_t first_step);
  // A resize was requested. Its pauses add up until it is settled.
  void resize_asked(Time now);
  void resize_settled(Time now);

  [[nodiscard]] JobProgress progress(Time now) const;
  [[nodiscard]] const std::vector<double>& pauses() const { return pauses_; }
  // When the newest step was applied, by the workers' clock.
  [[nodiscard]] std::optional<double> applied_at() const { return applied_at_; }

 private:
  struct Told {
    Time at;
    std::int64_t step = 0;
    double samples = 0;
  };

  void measure_pause(Time now, const wire::StepReport& report);

  JobProgress newest_;
  std::deque<Told> told_;  // those of the last seconds, and the one before
  int round_ = 0;
  bool any_ = false;
  bool finished_ = false;
  std::optional<double> applied_at_;  // of the newest step, by the workers' clock
  Time reported_at_;
  double step_seconds_ = 0;  // typical, while the members stay the same
  std::optional<std::int64_t> changes_at_;
  bool started_again_ = false;
  std::optional<Time> asked_at_;
  double pause_ = 0;  // of the resize that is going on
  std::vector<double> pauses_;
};

}  // namespace rubato::node
