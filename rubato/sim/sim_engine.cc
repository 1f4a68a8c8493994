#include "rubato/sim/sim_engine.h"

#include <algorithm>
#include <utility>

namespace rubato {

SimEngine::SimEngine(const Workload& workload, const Cluster& cluster, bool topology)
    : workload_(workload),
      cluster_(cluster),
      topology_(topology),
      runs_(workload.jobs.size()),
      on_gpus_(workload.jobs.size()),
      in_use_(cluster.nodes().size()) {
  for (std::size_t i = 0; i < runs_.size(); ++i)
    runs_[i].progress.work_left = workload.jobs[i].work;
}

void SimEngine::carry_out(Time now, std::span<const Command> commands) {
  for (const auto& command : commands) {
    if (const auto* start = std::get_if<Start>(&command))
      use(now, start->job, start->generation, start->gpus);
    if (const auto* change = std::get_if<Resize>(&command)) resize(now, *change);
    if (const auto* halt = std::get_if<Stop>(&command)) stop(now, halt->job, halt->generation);
  }
}

void SimEngine::collect(Time now, std::vector<Event>& facts) {
  for (auto& fact : facts_) facts.push_back(std::move(fact));
  facts_.clear();
  while (!ends_.empty() && ends_.top().key <= now) {
    const JobId id(ends_.top().member);
    const Time end = ends_.top().key;
    ends_.pop();
    Run& run = runs_[id.index()];
    run.ended = true;
    facts.emplace_back(Finished{id, run.generation});
    occupy(end, id, Allocation());
    for (auto& fact : facts_) facts.push_back(std::move(fact));  // of the job it shared with
    facts_.clear();
  }
}

std::optional<Time> SimEngine::next_fact() const {
  if (ends_.empty()) return std::nullopt;
  return ends_.top().key;
}

WorkRate SimEngine::true_rate(JobId id, const Allocation& gpus) const {
  Shape shape{gpus.type(), gpus.gpus(), 0, 0};
  if (topology_) {
    const int node = cluster_.node_size(gpus.type());
    shape.nodes = gpus.nodes();
    shape.least_nodes = (gpus.gpus() + node - 1) / node;
  }
  const SpeedModel& speed = *workload_.jobs[id.index()].speed;
  const auto partner = runs_[id.index()].partner;
  return partner ? speed.beside(shape, *workload_.jobs[partner->index()].speed) : speed.rate(shape);
}

void SimEngine::occupy(Time now, JobId id, Allocation gpus) {
  Run& run = runs_[id.index()];
  if (run.partner) pair_off(now, id);
  in_use_.give(run.gpus);
  const bool shares = in_use_.any_used(gpus);
  in_use_.take(gpus);
  run.gpus = std::move(gpus);
  run.gpus.empty() ? on_gpus_.erase(id.index()) : on_gpus_.insert(id.index());
  if (shares) pair_up(now, id);
}

void SimEngine::pair_up(Time now, JobId id) {
  Run& run = runs_[id.index()];
  for (std::size_t i = on_gpus_.first(); i != OrderedBits::kNone; i = on_gpus_.at_or_after(i + 1)) {
    const JobId other(static_cast<JobId::rep>(i));
    if (other == id || common(runs_[i].gpus, run.gpus).empty()) continue;
    run.partner = other;
    runs_[i].partner = id;
    return change_speed(now, other);
  }
}

void SimEngine::pair_off(Time now, JobId id) {
  const JobId other = *std::exchange(runs_[id.index()].partner, std::nullopt);
  runs_[other.index()].partner.reset();
  change_speed(now, other);
}

void SimEngine::change_speed(Time now, JobId id) {
  Run& run = runs_[id.index()];
  set_rate(id, {run.progress.left(now), std::max(now, run.progress.at), true_rate(id, run.gpus)});
  facts_.emplace_back(Running{id, run.generation, run.progress});
}

void SimEngine::set_rate(JobId id, const Progress& progress) {
  runs_[id.index()].progress = progress;
  if (progress.rate > 0) {
    ends_.set(id.value(), progress.at + from_seconds(progress.work_left / progress.rate));
  } else {
    ends_.erase(id.value());
  }
}

SimEngine::Run* SimEngine::accept(JobId id, Generation generation) {
  Run& run = runs_[id.index()];
  if (run.ended || generation <= run.generation) return nullptr;
  run.generation = generation;
  return &run;
}

void SimEngine::resize(Time now, const Resize& command) {
  Run& run = runs_[command.job.index()];
  if (!run.gpus.empty()) return use(now, command.job, command.generation, command.gpus);
  // It was thrown off its GPUs while the command was on its way.
  if (accept(command.job, command.generation) == nullptr) return;
  facts_.emplace_back(Failed{command.job, command.generation, run.progress});
}

void SimEngine::use(Time now, JobId id, Generation generation, const Allocation& gpus) {
  Run* found = accept(id, generation);
  if (found == nullptr) return;
  Run& run = *found;
  if (run.gpus == gpus) return;
  Allocation released = minus(run.gpus, gpus);
  occupy(now, id, gpus);
  set_rate(id, {run.progress.left(now), now + workload_.jobs[id.index()].spec->restart_cost,
                true_rate(id, gpus)});
  if (!released.empty())
    facts_.emplace_back(Released{id, generation, std::move(released), run.progress, false});
  facts_.emplace_back(Running{id, generation, run.progress});
}

void SimEngine::stop(Time now, JobId id, Generation generation) {
  Run* run = accept(id, generation);
  if (run == nullptr) return;
  run->progress = {run->progress.left(now), now, 0};
  ends_.erase(id.value());
  Allocation released = run->gpus;
  occupy(now, id, Allocation());
  facts_.emplace_back(Released{id, generation, std::move(released), run->progress, true});
}

void SimEngine::change_node(Time now, NodeId node, NodeState state) {
  facts_.emplace_back(NodeChanged{node, state});
  if (state == NodeState::up) return;
  for (std::size_t i = on_gpus_.first(); i != OrderedBits::kNone; i = on_gpus_.at_or_after(i + 1)) {
    Run& run = runs_[i];
    if (run.gpus.mask_on(node) == 0) continue;
    const JobId id(static_cast<JobId::rep>(i));
    occupy(now, id, Allocation());
    run.progress = {run.progress.left(now), now, 0};
    ends_.erase(id.value());
    facts_.emplace_back(Failed{id, run.generation, run.progress});
  }
}

}  // namespace rubato
