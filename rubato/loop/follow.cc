#include "rubato/loop/follow.h"

#include <utility>

namespace rubato::loop {
namespace {

void set_told(State& state, JobView& job, const Start& start) {
  job.generation = start.generation;
  job.phase = Phase::starting;
  job.release_due = 0;
  job.batch_told = start.batch;
  set_held(state, job, start.gpus);
}
void set_told(State& state, JobView& job, const Resize& resize) {
  job.generation = resize.generation;
  job.phase = Phase::resizing;
  job.batch_told = resize.batch;
  Allocation held = job.held;
  held.add(minus(resize.gpus, held));
  job.release_due = held.gpus() - resize.gpus.gpus();
  set_held(state, job, std::move(held));
}
void set_told(State& /*state*/, JobView& job, const Stop& stop) {
  job.generation = stop.generation;
  job.phase = Phase::stopping;
  job.release_due = job.held.gpus();
}

// The job keeps the GPUs that it has until the policy is asked again.
void set_untold(State& state, JobView& job, const std::optional<Command>& last) {
  const Allocation* gpus = last ? gpus_of(*last) : nullptr;
  job.generation =
      last ? std::visit([](const auto& c) { return c.generation; }, *last) : Generation();
  set_held(state, job, gpus != nullptr ? *gpus : Allocation());
  job.target = job.held;
  job.release_due = 0;
  job.phase = job.held.empty() ? Phase::pending : Phase::resizing;
}

}  // namespace

const Allocation* gpus_of(const Command& command) {
  if (const auto* start = std::get_if<Start>(&command)) return &start->gpus;
  if (const auto* resize = std::get_if<Resize>(&command)) return &resize->gpus;
  return nullptr;
}

void follow(State& state, const std::vector<Command>& told,
            const std::map<JobId, std::optional<Command>>& untold) {
  for (const auto& [id, last] : untold) {
    JobView* job = state.snapshot.jobs.find(id);
    if (job == nullptr) continue;
    set_untold(state, *job, last);
    state.snapshot.changed.push_back(id);
  }
  for (const Command& command : told) {
    std::visit(
        [&](const auto& one) {
          if (JobView* job = state.snapshot.jobs.find(one.job)) set_told(state, *job, one);
        },
        command);
  }
  recount_free(state);
  state.decision_due = true;
}

}  // namespace rubato::loop
