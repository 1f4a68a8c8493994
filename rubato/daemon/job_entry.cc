#include "rubato/daemon/job_entry.h"

#include <memory>
#include <utility>

#include "rubato/daemon/job_model.h"

namespace rubato::daemon {

Submitted submitted_event(const JobRecord& job, const DaemonState& state,
                          const CoreOptions& options) {
  // A cluster manager gives a GPU to one job only.
  const bool pairs = !options.managed.value_or(false);
  auto spec = spec_of(job, state, options.restart_cost, pairs);
  auto speed = estimate_of(job, spec->limits, state.policy());
  return {job.id, std::move(spec), std::move(speed), job.work};
}

std::optional<JobEnding> refuse_at_once(const JobRecord& job, const DaemonState& state,
                                        const CoreOptions& options) {
  const auto because = [](std::string why) {
    return JobEnding{Ending::refused, std::move(why), std::nullopt, std::nullopt};
  };
  if (job.deadline && !job.file.work) {
    return because(
        "a deadline without work: nobody can say whether it will be in time; add "
        "`work` (epochs, steps or samples)");
  }
  if (job.deadline && *job.deadline <= job.submitted) return because("its deadline has passed");
  if (must_be_measured(job, state) && !job.file.elastic) {
    return because(
        "its program does not report its speed (elastic: false), so nothing can be promised; "
        "submit it without a deadline, or name a profile that was measured on a GPU count that it "
        "may have");
  }
  if (const auto never = state.never_fits(submitted_event(job, state, options)))
    return because(never->reason);
  return std::nullopt;
}

bool must_be_measured(const JobRecord& job, const DaemonState& state) {
  if (!job.deadline || !state.policy().admits()) return false;
  const JobView* view = state.view(job.id);
  if (view != nullptr && view->has_run()) return false;  // it reports its speed itself
  return !speed_known(job, limits_now(job, state));
}

void enter(Transaction& tx, JobRecord job, const CoreOptions& options) {
  const bool measured_first = must_be_measured(job, tx.state());
  if (measured_first) {
    job.measured_by = job.id.next();
    job.verdict_by = tx.now() + options.verdict_within;
  }
  tx.put_job(job);
  tx.post(submitted_event(job, tx.state(), options));
  if (measured_first) set_aside(tx, job.id, options);
}

void enter_again(Transaction& tx, JobId id, const CoreOptions& options) {
  const JobRecord& job = *tx.state().job(id);
  if (const auto ending = refuse_at_once(job, tx.state(), options)) return tx.end_job(id, *ending);
  tx.post(submitted_event(job, tx.state(), options));
}

void set_aside(Transaction& tx, JobId id, const CoreOptions& options) {
  const DaemonState& state = tx.state();
  const JobRecord& job = *state.job(id);
  JobRecord run;
  run.id = state.next_job();
  run.user = job.user;
  run.digest = job.digest;
  run.text_bytes = job.text_bytes;
  run.file = job.file;
  run.file.gpus = limits_now(job, state);
  run.file.deadline.reset();
  run.file.deadline_after.reset();
  run.name = job.name;
  run.nonce = nonce_of_run(job, run.id);
  run.work = job.work;
  run.measures_for = id;
  run.verdict_by = tx.now() + options.verdict_within;
  tx.put_job(run);
  if (!state.view(id)->on_hold) tx.post(HoldChanged{id, true});
  Submitted event = submitted_event(run, state, options);
  JobSpec spec = *event.spec;
  const int first = spec.limits.smallest();
  spec.limits = {first, first, {}};
  event.speed = estimate_of(run, spec.limits, state.policy());
  event.spec = std::make_shared<const JobSpec>(std::move(spec));
  tx.post(event);
}

void measure_if_unknown(Transaction& tx, JobId id, const CoreOptions& options) {
  const JobRecord* job = tx.state().job(id);
  if (job == nullptr || job->gone() || job->leaves_as || job->measured_by) return;
  // A job on hold is measured when it is released. A program that reports nothing cannot be
  // measured.
  if (tx.state().view(id)->on_hold || !job->file.elastic) return;
  if (must_be_measured(*job, tx.state())) set_aside(tx, id, options);
}

}  // namespace rubato::daemon
