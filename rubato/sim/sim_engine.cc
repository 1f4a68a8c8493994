#include "rubato/sim/sim_engine.h"

#include <algorithm>
#include <utility>

namespace rubato {

SimEngine::SimEngine(const Workload& workload, const Cluster& cluster, bool topology)
    : workload_(workload),
      cluster_(cluster),
      topology_(topology),
      runs_(workload.jobs.size()),
      on_gpus_(workload.jobs.size()) {
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
    ends_.pop();
    Run& run = runs_[id.index()];
    run.gpus = Allocation();
    run.ended = true;
    on_gpus_.erase(id.index());
    facts.emplace_back(Finished{id, run.generation});
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
  return workload_.jobs[id.index()].speed->rate(shape);
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
  run.gpus = gpus;
  on_gpus_.insert(id.index());
  run.progress = {run.progress.left(now), now + workload_.jobs[id.index()].spec->restart_cost,
                  true_rate(id, gpus)};
  if (run.progress.rate > 0) {
    ends_.set(id.value(),
              run.progress.at + from_seconds(run.progress.work_left / run.progress.rate));
  } else {
    ends_.erase(id.value());
  }
  if (!released.empty())
    facts_.emplace_back(Released{id, generation, std::move(released), run.progress, false});
  facts_.emplace_back(Running{id, generation, run.progress});
}

void SimEngine::stop(Time now, JobId id, Generation generation) {
  Run* run = accept(id, generation);
  if (run == nullptr) return;
  run->progress = {run->progress.left(now), now, 0};
  ends_.erase(id.value());
  on_gpus_.erase(id.index());
  facts_.emplace_back(
      Released{id, generation, std::exchange(run->gpus, Allocation()), run->progress, true});
}

void SimEngine::change_node(Time now, NodeId node, NodeState state) {
  facts_.emplace_back(NodeChanged{node, state});
  if (state == NodeState::up) return;
  for (std::size_t i = on_gpus_.first(); i != OrderedBits::kNone; i = on_gpus_.at_or_after(i + 1)) {
    Run& run = runs_[i];
    if (run.gpus.mask_on(node) == 0) continue;
    const JobId id(static_cast<JobId::rep>(i));
    run.progress = {run.progress.left(now), now, 0};
    run.gpus = Allocation();
    ends_.erase(id.value());
    on_gpus_.erase(i);
    facts_.emplace_back(Failed{id, run.generation, run.progress});
  }
}

}  // namespace rubato
