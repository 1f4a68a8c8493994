#include "rubato/daemon/policy_trial.h"

#include <set>
#include <string>
#include <utility>

#include "rubato/daemon/job_model.h"
#include "rubato/daemon/phrases.h"
#include "rubato/policy/measuring.h"

namespace rubato::daemon {

std::vector<JobId> promised_jobs(const DaemonState& state) {
  std::vector<JobId> promised;
  for (const JobView& view : state.now().jobs) {
    const JobRecord* job = state.job(view.id);
    if (job == nullptr) continue;
    if (job->promise || state.keeps_deadline(view.id)) promised.push_back(view.id);
  }
  return promised;
}

Json show_lost(const DaemonState& state, const std::vector<JobId>& promised,
               const std::function<bool(const JobRecord&)>& kept) {
  Json lost = Json::array();
  for (const JobId id : promised) {
    const JobRecord* job = state.job(id);
    if (job == nullptr || job->gone() || kept(*job)) continue;
    lost.push_back({{"job", id.value()}, {"name", job->name}, {"promised", iso(job->deadline)}});
  }
  return lost;
}

std::optional<Answer> PolicyTrial::answer() {
  if (!task_) {
    if (std::string problem = begin(); !problem.empty()) return refusal(400, std::move(problem));
  }
  if (!task_->done()) return std::nullopt;
  const Result<Decision>& decision = *copies_->decision;
  if (!decision) return refusal(409, decision.error().message);
  std::set<JobId> kept;
  for (const Promise& promise : decision->promise) kept.insert(promise.job);
  const DaemonState& state = *core_.state;
  Json body = show_policy(state, [](JobId) { return true; });
  body["dry_run"] = true;
  body["not_honoured"] = show_lost(state, promised_jobs(state), [&](const JobRecord& job) {
    return kept.contains(job.id) || copies_->policy->keeps_deadline(job.id);
  });
  return Answer{200, std::move(body)};
}

std::string PolicyTrial::begin() {
  const DaemonState& state = *core_.state;
  auto chosen = parse_policies(policy_.text);
  if (!chosen) return chosen.error().message;
  auto made = state.make(chosen->front(), policy_.measuring);
  if (!made) return made.error().message;
  copies_ = std::make_shared<Copies>(Copies{
      Scheduler(State(state.loop().state()), state.placement()), std::move(*made), std::nullopt});
  // As switch_policy() does it.
  for (const JobView& view : state.now().jobs) {
    const JobRecord* job = state.job(view.id);
    if (job == nullptr) continue;
    Reaction reaction;
    copies_->loop.on(core_.time, Estimated{view.id, estimate_of(*job, view.spec->limits, policy_)},
                     reaction);
  }
  static_cast<void>(copies_->loop.ask(core_.time));
  task_ = core_.options.background->start(Background::Length::unknown, [copies = copies_] {
    copies->decision = copies->policy->decide(copies->loop.snapshot());
  });
  return {};
}

}  // namespace rubato::daemon
