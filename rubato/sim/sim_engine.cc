#include "rubato/sim/sim_engine.h"

#include <algorithm>
#include <map>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/model/goodput.h"
#include "rubato/model/guest.h"

namespace rubato::sim {

SimEngine::SimEngine(const Workload& workload, const Cluster& cluster, bool topology,
                     std::shared_ptr<const ContentionModel> contention, LinkOrder order)
    : workload_(workload),
      cluster_(cluster),
      topology_(topology),
      contention_(std::move(contention)),
      order_(order),
      runs_(workload.jobs.size()),
      trainings_(workload.jobs.size()),
      tenants_(cluster.nodes().size()),
      on_gpus_(workload.jobs.size()),
      in_use_(cluster.nodes().size()) {
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    const SimJob& job = workload.jobs[i];
    runs_[i].progress.work_left = job.work;
    if (!job.application) continue;
    const auto owners = job.spec->adaptive_batch ? std::nullopt : std::optional(job.spec->batch);
    trainings_[i] = std::make_unique<Training>(*job.application, owners);
  }
}

std::shared_ptr<const SpeedModel> SimEngine::estimate(JobId job) {
  Training* training = trainings_[job.index()].get();
  const SimJob& truth = workload_.jobs[job.index()];
  if (truth.phases != nullptr) return truth.phases->forecast(runs_[job.index()].phase);
  if (training == nullptr) return truth.speed;
  return training->agent.estimate();
}

void SimEngine::carry_out(Time now, std::span<const Command> commands) {
  for (const auto& command : commands) {
    if (const auto* start = std::get_if<Start>(&command))
      use(now, start->job, start->generation, start->gpus, start->batch);
    if (const auto* change = std::get_if<Resize>(&command)) resize(now, *change);
    if (const auto* halt = std::get_if<Stop>(&command)) stop(now, halt->job, halt->generation);
  }
  update_contention(now);
}

void SimEngine::collect(Time now, std::vector<Event>& facts) {
  for (auto& fact : facts_) facts.push_back(std::move(fact));
  facts_.clear();
  while (!ends_.empty() && ends_.top().key <= now) {
    const JobId id(ends_.top().member);
    const Time end = ends_.top().key;
    const BatchPhases* phases = workload_.jobs[id.index()].phases.get();
    if (trainings_[id.index()] != nullptr) {
      advance(end, id, facts);
    } else if (phases != nullptr && runs_[id.index()].phase + 1 < phases->phases.size()) {
      next_phase(end, id, facts);
    } else {
      finish(end, id, facts);
    }
  }
  update_contention(now);
}

void SimEngine::finish(Time now, JobId id, std::vector<Event>& facts) {
  ends_.erase(id.value());
  Run& run = runs_[id.index()];
  run.ended = true;
  facts.emplace_back(Finished{id, run.generation});
  set_gpus(now, id, Allocation());
  for (auto& fact : facts_) facts.push_back(std::move(fact));  // of the job that shared its GPUs
  facts_.clear();
}

void SimEngine::next_phase(Time now, JobId id, std::vector<Event>& facts) {
  Run& run = runs_[id.index()];
  const BatchPhases& phases = *workload_.jobs[id.index()].phases;
  const Work left = phases.left_after(run.phase++);
  run.progress = {left, now, true_rate(id)};
  schedule(id);
  facts.emplace_back(Running{id, run.generation, run.progress});
  facts.emplace_back(Estimated{id, phases.forecast(run.phase)});
  if (!run.partner) return;
  change_speed(now, *run.partner);
  for (auto& fact : facts_) facts.push_back(std::move(fact));
  facts_.clear();
}

// A job with a profile has reached the end of a restart or of an epoch.
void SimEngine::advance(Time now, JobId id, std::vector<Event>& facts) {
  Run& run = runs_[id.index()];
  Training& training = *trainings_[id.index()];
  if (training.measured) {
    run.progress.work_left = training.left_after_epoch();
    run.progress.at = now;
    if (++training.epoch == training.application.epochs()) return finish(now, id, facts);
    run.progress.rate = true_rate(id);
    facts.emplace_back(Running{id, run.generation, run.progress});
  }
  training.measured = true;
  const Footprint place{run.gpus.nodes(), run.gpus.gpus()};
  training.agent.observe(
      run.gpus.type(), place, training.batch, training.seconds,
      training.application.noise(training.batch.global(place.gpus), training.epoch));
  facts.emplace_back(Estimated{id, training.agent.estimate()});
  schedule(id);
}

std::optional<Time> SimEngine::next_fact() const {
  if (ends_.empty()) return std::nullopt;
  return ends_.top().key;
}

void SimEngine::schedule(JobId id) {
  const Run& run = runs_[id.index()];
  const Training* training = trainings_[id.index()].get();
  if (!(run.progress.rate > 0)) return ends_.erase(id.value());
  if (training != nullptr && !training->measured) return ends_.set(id.value(), run.progress.at);
  const BatchPhases* phases = workload_.jobs[id.index()].phases.get();
  const Work then = training != nullptr ? training->left_after_epoch()
                    : phases != nullptr ? phases->left_after(run.phase)
                                        : 0;
  const Work ahead = run.progress.work_left - then;
  ends_.set(id.value(), run.progress.at + from_seconds(std::max(ahead, 0.0) / run.progress.rate));
}

BatchSpeed SimEngine::speed_now(JobId id) const {
  const SimJob& job = workload_.jobs[id.index()];
  if (job.phases != nullptr) return job.phases->speed(runs_[id.index()].phase);
  return {job.speed, 1};
}

WorkRate SimEngine::undisturbed_rate(JobId id) const {
  const Allocation& gpus = runs_[id.index()].gpus;
  if (const Training* training = trainings_[id.index()].get()) {
    if (training->batch.per_gpu == 0) return 0;
    return training->application.rate(training->seconds, gpus.gpus(), training->batch,
                                      training->epoch);
  }
  Shape shape{gpus.type(), gpus.gpus(), 0, 0};
  if (topology_) {
    const int node = cluster_.node_size(gpus.type());
    shape.nodes = gpus.nodes();
    shape.least_nodes = (gpus.gpus() + node - 1) / node;
  }
  const auto partner = runs_[id.index()].partner;
  return partner ? rate_beside(id, *partner, shape) : speed_now(id).rate(shape);
}

WorkRate SimEngine::rate_beside(JobId id, JobId other, const Shape& shape) const {
  const BatchSpeed own = speed_now(id);
  const BatchSpeed others = speed_now(other);
  const bool guest = workload_.jobs[id.index()].spec->opportunistic;
  if (guest == workload_.jobs[other.index()].spec->opportunistic) return own.beside(shape, others);
  return guest ? guest_pair(others, own, shape).guest : guest_pair(own, others, shape).host;
}

WorkRate SimEngine::true_rate(JobId id) const {
  return undisturbed_rate(id) * runs_[id.index()].kept;
}

void SimEngine::set_gpus(Time now, JobId id, Allocation gpus) {
  Run& run = runs_[id.index()];
  if (run.partner) pair_off(now, id);
  if (contention_ != nullptr) {
    tenants_.take(id.index(), run.gpus);
    tenants_.put(id.index(), gpus);
    for (const auto& slice : run.gpus.slices()) disturbed_.push_back(slice.node);
    for (const auto& slice : gpus.slices()) disturbed_.push_back(slice.node);
  }
  in_use_.give(run.gpus);
  const bool shares = in_use_.any_used(gpus);
  in_use_.take(gpus);
  gpus.empty() ? on_gpus_.erase(id.index()) : on_gpus_.insert(id.index());
  run.kept = 1;  // until update_contention() has looked
  run.gpus = std::move(gpus);
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
  run.progress = {run.progress.left(now), std::max(now, run.progress.at), true_rate(id)};
  schedule(id);
  facts_.emplace_back(Running{id, run.generation, run.progress});
}

Tenant SimEngine::tenant(std::size_t job) const {
  return {workload_.jobs[job].spec->model, &runs_[job].gpus, runs_[job].turn};
}

void SimEngine::set_stage(JobId job, Work left_at_end) {
  Work& known = runs_[job.index()].left_after_stage;
  if (std::exchange(known, left_at_end) != left_at_end)
    order_changed_ = order_changed_ || order_ == LinkOrder::grouper;
}

double SimEngine::kept_beside_others(std::size_t job) const {
  std::vector<Tenant> others;
  for (const std::size_t other : tenants_.neighbours(job, runs_[job].gpus))
    others.push_back(tenant(other));
  return others.empty() ? 1 : contention_->kept(tenant(job), others);
}

// The trials of one search are one stage.
void SimEngine::order_stages(Time now, const LinkContention& links) {
  std::map<std::pair<bool, std::size_t>, std::size_t> number;  // of a search, or of a job
  std::vector<LinkDemand> stages;
  std::vector<std::pair<std::size_t, std::size_t>> stage_of;  // of each job
  for (std::size_t i = on_gpus_.first(); i != OrderedBits::kNone; i = on_gpus_.at_or_after(i + 1)) {
    const auto& trial = workload_.jobs[i].trial;
    const auto key = std::pair(trial.has_value(), trial ? trial->search : i);
    const std::size_t stage = number.emplace(key, stages.size()).first->second;
    if (stage == stages.size()) stages.emplace_back();
    stage_of.emplace_back(i, stage);
    const JobId id(static_cast<JobId::rep>(i));
    const WorkRate alone = undisturbed_rate(id);
    const Work left = runs_[i].progress.left(now) - runs_[i].left_after_stage;
    if (!(alone > 0) || !(left > 0)) continue;
    for (const auto& [link, share] : links.demand(tenant(i)))
      stages[stage][link] += share * left / alone;
  }
  const auto place = order_of_stages(stages);
  for (const auto& [job, stage] : stage_of) runs_[job].turn = place[stage];
}

void SimEngine::order_by_intensity(const LinkContention& links) {
  std::vector<std::size_t> jobs;
  std::vector<double> intensities;
  for (std::size_t i = on_gpus_.first(); i != OrderedBits::kNone; i = on_gpus_.at_or_after(i + 1)) {
    double sends = 0;  // share of a step
    for (const auto& [link, share] : links.demand(tenant(i))) sends = std::max(sends, share);
    jobs.push_back(i);
    intensities.push_back(sends > 0 ? runs_[i].gpus.gpus() * (1 - sends) / sends : 0);
  }
  const auto place = sim::order_by_intensity(intensities);
  for (std::size_t n = 0; n < jobs.size(); ++n) runs_[jobs[n]].turn = place[n];
}

// Gives all jobs their turns, if links have an order.
void SimEngine::order_links(Time now) {
  const auto* links = dynamic_cast<const LinkContention*>(contention_.get());
  if (order_ == LinkOrder::fair || links == nullptr) return;
  order_ == LinkOrder::grouper ? order_stages(now, *links) : order_by_intensity(*links);
  for (std::size_t i = on_gpus_.first(); i != OrderedBits::kNone; i = on_gpus_.at_or_after(i + 1)) {
    for (const Slice& slice : runs_[i].gpus.slices()) disturbed_.push_back(slice.node);
  }
}

// A job that came or went may have changed the speed of others.
void SimEngine::update_contention(Time now) {
  if (disturbed_.empty() && !std::exchange(order_changed_, false)) return;
  order_links(now);
  std::vector<std::size_t> jobs;
  for (const NodeId node : std::exchange(disturbed_, {}))
    jobs.insert(jobs.end(), tenants_.on(node).begin(), tenants_.on(node).end());
  std::sort(jobs.begin(), jobs.end());
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  for (const std::size_t i : jobs) {
    Run& run = runs_[i];
    const double kept = kept_beside_others(i);
    if (kept == run.kept) continue;
    run.kept = kept;
    change_speed(now, JobId(static_cast<JobId::rep>(i)));
  }
}

// Spreads the batch over the job's GPUs. If that is impossible, the job makes no progress.
void SimEngine::choose_batch(JobId id, const std::optional<Batch>& granted) {
  Training* training = trainings_[id.index()].get();
  if (training == nullptr) return;
  const Allocation& gpus = runs_[id.index()].gpus;
  const int owners = workload_.jobs[id.index()].spec->batch;
  const auto spread = spread_batch(training->application.limits(), gpus.gpus(), owners);
  training->granted = granted;
  training->batch = granted ? *granted : spread.value_or(Batch{0, 0});
  training->measured = false;
  if (training->batch.per_gpu > 0)
    training->seconds = training->application.step_seconds(gpus, training->batch.per_gpu);
}

SimEngine::Run* SimEngine::accept(JobId id, Generation generation) {
  Run& run = runs_[id.index()];
  if (run.ended || generation <= run.generation) return nullptr;
  run.generation = generation;
  return &run;
}

void SimEngine::resize(Time now, const Resize& command) {
  Run& run = runs_[command.job.index()];
  if (!run.gpus.empty())
    return use(now, command.job, command.generation, command.gpus, command.batch);
  // The job lost its GPUs while the command was on its way.
  if (accept(command.job, command.generation) == nullptr) return;
  facts_.emplace_back(Failed{command.job, command.generation, run.progress});
}

void SimEngine::use(Time now, JobId id, Generation generation, const Allocation& gpus,
                    const std::optional<Batch>& batch) {
  Run* found = accept(id, generation);
  if (found == nullptr) return;
  Run& run = *found;
  const Training* training = trainings_[id.index()].get();
  const bool same_gpus = run.gpus == gpus;
  if (same_gpus && (training == nullptr || training->granted == batch)) return;
  Allocation released = minus(run.gpus, gpus);
  if (!same_gpus) set_gpus(now, id, gpus);
  choose_batch(id, batch);
  const Time at = same_gpus ? std::max(now, run.progress.at)
                            : now + workload_.jobs[id.index()].spec->restart_cost;
  run.progress = {run.progress.left(now), at, true_rate(id)};
  schedule(id);
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
  set_gpus(now, id, Allocation());
  facts_.emplace_back(Released{id, generation, std::move(released), run->progress, true});
}

void SimEngine::change_node(Time now, NodeId node, NodeState state) {
  facts_.emplace_back(NodeChanged{node, state});
  if (state == NodeState::up) return;
  for (std::size_t i = on_gpus_.first(); i != OrderedBits::kNone; i = on_gpus_.at_or_after(i + 1)) {
    Run& run = runs_[i];
    if (run.gpus.mask_on(node) == 0) continue;
    const JobId id(static_cast<JobId::rep>(i));
    set_gpus(now, id, Allocation());
    run.progress = {run.progress.left(now), now, 0};
    ends_.erase(id.value());
    facts_.emplace_back(Failed{id, run.generation, run.progress});
  }
  update_contention(now);
}

}  // namespace rubato::sim
