#include "rubato/policy/sorted.h"

#include <algorithm>
#include <cmath>

namespace rubato::policy {

double remaining_micros(const JobView& job, Time now) {
  // Not at the speed of its present placement. Otherwise a badly placed job would rank lower, and
  // higher again when it waits, so it would swap with its successor at every event.
  const WorkRate rate = job.speed->on(GpuType(), job.spec->requested);
  return std::round(job.progress.left(now) / rate * 1e6);
}

double share_done(const JobView& job, Time now) {
  if (job.spec->work_guessed || job.work <= 0) return 0;
  return std::clamp(1 - job.progress.left(now) / job.work, 0.0, 1.0);
}

namespace {

// What the progress of a job makes of its service. A job that has not run has none.
double corrected_service(const JobView& job, Time now, bool by_rest) {
  const auto attained = static_cast<double>(job.attained(now).gpu_micros());
  const double done = share_done(job, now);
  if (done == 0) return attained;
  return std::round(by_rest ? attained * (1 - done) : attained * (1 - done) / done);
}

}  // namespace

double Sorted::key(const JobView& job, Time now) const {
  switch (config.order) {
    case Order::submission:
      return 0;
    case Order::gpus:
      return job.spec->requested;
    case Order::remaining_time:
      return remaining_micros(job, now);
    case Order::remaining_service:
      return remaining_micros(job, now) * job.spec->requested;
    case Order::service_left:
      return corrected_service(job, now, false);
    case Order::service_by_rest:
      return corrected_service(job, now, true);
  }
  return 0;
}

Precedence Sorted::precedence(const JobView& job, Time now) const {
  const double place = key(job, now);
  const int gpus = job.spec->requested;
  const double micros = seconds(job.spec->restart_cost) * 1e6;
  if (config.order == Order::gpus) return {place, place, {-place, micros / gpus}};
  // The key of remaining_time is time, the others are GPU-time.
  const double loss = config.order == Order::remaining_time ? micros : micros * gpus;
  return {place, place - loss, {micros / gpus, -place}};
}

Decision Sorted::decide(const Snapshot& snapshot, State& state) const {
  if (config.cheapest_victims) {
    return decide_with_victims(snapshot,
                               [&](const JobView& job) { return precedence(job, snapshot.now); });
  }
  GangQueue& queue = state.queue;
  if (!config.preempts) queue.return_thrown_off(snapshot);
  std::int64_t ahead = queue.front_stamp(queue.running().size());
  queue.rerank_running(snapshot, [&](Gang& gang, const JobView& job) {
    // If the key is unchanged, the job keeps its place. If the key fell, the job goes after the
    // jobs that had this key before. If it rose (lost work, a new estimate), it goes before them.
    const double now = key(job, snapshot.now);
    if (now < gang.rank.key) {
      gang.rank = {0, now, queue.next_stamp()};
    } else if (now > gang.rank.key) {
      gang.rank = {0, now, ahead};
    }
    ++ahead;
    // Jobs that may not be preempted come before all waiting jobs.
    if (!config.preempts) gang.rank.level = -1;
  });
  const auto to_rank = [&](const JobView& job) {
    const int level = !config.preempts && !job.target.empty() ? -1 : 0;
    return std::pair(Rank{level, key(job, snapshot.now), queue.next_stamp()}, job.spec->requested);
  };
  queue.sync(snapshot, to_rank,
             [](Gang& gang, const JobView& job) { gang.gpus = job.spec->requested; });
  const auto outcome = queue.fill(
      snapshot, config.head_blocks ? GangQueue::Blocking::head_blocks : GangQueue::Blocking::skip);
  queue.settle(outcome);
  return to_decision(outcome);
}

Result<Sorted::State> Sorted::State::load(const Json& json) {
  auto queue = GangQueue::load(json);
  if (!queue) return queue.error();
  return State{std::move(*queue)};
}

namespace {

PolicyEntry sorted_row(std::string name, std::string summary, std::string knows,
                       Sorted::Config config) {
  PolicyEntry entry;
  entry.name = std::move(name);
  entry.summary = std::move(summary);
  entry.knows = std::move(knows);
  entry.work_conserving = !config.head_blocks;
  entry.quick = true;
  if (config.preempts) entry.keys = {victims_key()};
  entry.make = [config](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    Sorted sorted{config};
    sorted.config.cheapest_victims = config.preempts && wants_cheapest_victims(values);
    return erase(sorted);
  };
  return entry;
}

}  // namespace

std::vector<PolicyEntry> sorted_rows() {
  using Order = Sorted::Order;
  return {
      sorted_row("fifo", "in order of submission; the head of the line blocks", "GPUs asked for",
                 {Order::submission, false, true}),
      sorted_row("fifo-backfill", "in order of submission; whatever fits runs", "GPUs asked for",
                 {Order::submission, false, false}),
      sorted_row("sjf", "fewest GPUs first, preemptive", "GPUs asked for",
                 {Order::gpus, true, false}),
      sorted_row("srtf", "least remaining time first, preemptive", "GPUs asked for, work left",
                 {Order::remaining_time, true, false}),
      sorted_row("srsf", "least remaining time x GPUs first, preemptive",
                 "GPUs asked for, work left", {Order::remaining_service, true, false}),
  };
}

}  // namespace rubato::policy
