#include "rubato/daemon/trial.h"

#include <fmt/format.h>
#include <string>
#include <utility>

#include "rubato/daemon/job_entry.h"

namespace rubato::daemon {

Verdict Trial::run(const JobRecord& job) const {
  if (const auto ending = refuse_at_once(job, state(), core_.options))
    return refused(state(), ending->why, std::nullopt);
  Verdict verdict;
  if (must_be_measured(job, state())) {
    verdict.by = core_.time + core_.options.verdict_within;
    verdict.text = "would be measured first; the verdict would come by " +
                   clock_text(state().wall(*verdict.by), state().wall(core_.time));
    return verdict;
  }
  auto policy = state().another_policy();
  if (!policy) {
    verdict.text = policy.error().message;
    return verdict;
  }
  Scheduler loop(State(state().loop().state()), state().placement());
  Reaction reaction;
  loop.on(core_.time, submitted_event(job, state(), core_.options), reaction);
  auto decision = (*policy)->decide(loop.ask(core_.time));
  if (!decision) {
    verdict.text = decision.error().message;
    return verdict;
  }
  for (const Promise& promise : decision->promise) {
    if (promise.job == job.id) return promised(state(), job, promise);
  }
  for (const Reject& reject : decision->reject) {
    if (reject.job == job.id) return refused(state(), reject.reason, reject.earliest);
  }
  if (job.deadline && state().policy().admits()) verdict.admitted = true;
  loop.on(core_.time, Decided{std::move(*decision), std::nullopt}, reaction);
  foresee(loop.snapshot(), job, verdict);
  return verdict;
}

// When it would start, once the decision on it was carried out.
void Trial::foresee(const Snapshot& snapshot, const JobRecord& job, Verdict& verdict) const {
  const std::string would = verdict.admitted ? "would be admitted and " : "would ";
  const int gpus = snapshot.jobs.find(job.id)->target.gpus();
  if (gpus > 0) {
    verdict.start = core_.time;
    verdict.text = fmt::format("{}start now on {} GPU{}", would, gpus, gpus == 1 ? "" : "s");
    return;
  }
  const Outlook outlook = forecast(state(), snapshot, job).at(job.id);
  verdict.position = outlook.position;
  verdict.start = outlook.start;
  verdict.text =
      fmt::format("{}wait, position {}, estimated start {}", would, outlook.position,
                  outlook.start ? clock_text(state().wall(*outlook.start), state().wall(core_.time))
                                : std::string("unknown"));
}

}  // namespace rubato::daemon
