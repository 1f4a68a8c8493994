#include "rubato/daemon/trial.h"

#include <fmt/format.h>
#include <string>
#include <utility>

#include "rubato/daemon/job_entry.h"
#include "rubato/daemon/phrases.h"

namespace rubato::daemon {

std::optional<Answer> Trial::answer() {
  if (answer_) return answer_;
  std::optional<Verdict> found;
  if (!task_) {
    job_.id = state().next_job();  // others may have come in the same turn
    found = begin();
  }
  if (!found && !task_->done()) return std::nullopt;
  if (!found) found = verdict();
  Json body = show_job(core_.view(), job_);
  body["id"] = nullptr;
  body["verdict"] = to_json(state(), *found);
  body["dry_run"] = true;
  answer_ = Answer{200, std::move(body)};
  return answer_;
}

std::optional<Verdict> Trial::begin() {
  if (const auto ending = refuse_at_once(job_, state(), core_.options))
    return refused(state(), ending->why, std::nullopt);
  Verdict verdict;
  if (must_be_measured(job_, state())) {
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
  copies_ =
      std::make_shared<Copies>(Copies{Scheduler(State(state().loop().state()), state().placement()),
                                      std::move(*policy), std::nullopt});
  Reaction reaction;
  copies_->loop.on(core_.time, submitted_event(job_, state(), core_.options), reaction);
  static_cast<void>(copies_->loop.ask(core_.time));
  task_ = core_.options.background->start(Background::Length::unknown, [copies = copies_] {
    copies->decision = copies->policy->decide(copies->loop.snapshot());
  });
  return std::nullopt;
}

Verdict Trial::verdict() {
  Verdict verdict;
  Result<Decision>& decision = *copies_->decision;
  if (!decision) {
    verdict.text = decision.error().message;
    return verdict;
  }
  for (const Promise& promise : decision->promise) {
    if (promise.job == job_.id) return promised(state(), job_, promise);
  }
  for (const Reject& reject : decision->reject) {
    if (reject.job == job_.id) return refused(state(), reject.reason, reject.earliest);
  }
  if (job_.deadline && state().policy().admits()) verdict.admitted = true;
  Scheduler& loop = copies_->loop;
  Reaction reaction;
  loop.on(loop.snapshot().now, Decided{std::move(*decision), std::nullopt}, reaction);
  foresee(loop.snapshot(), verdict);
  return verdict;
}

void Trial::foresee(const Snapshot& snapshot, Verdict& verdict) const {
  const std::string would = verdict.admitted ? "would be admitted and " : "would ";
  const int gpus = snapshot.jobs.find(job_.id)->target.gpus();
  if (gpus > 0) {
    verdict.start = snapshot.now;
    verdict.text = fmt::format("{}start now on {} GPU{}", would, gpus, gpus == 1 ? "" : "s");
    return;
  }
  const Outlook outlook = forecast(state(), snapshot, job_).at(job_.id);
  verdict.position = outlook.position;
  verdict.start = outlook.start;
  verdict.text =
      fmt::format("{}wait, position {}, estimated start {}", would, outlook.position,
                  outlook.start ? clock_text(state().wall(*outlook.start), state().wall(core_.time))
                                : std::string("unknown"));
}

}  // namespace rubato::daemon
