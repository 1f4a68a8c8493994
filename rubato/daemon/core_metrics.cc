#include "rubato/daemon/core_metrics.h"

#include <algorithm>
#include <cstddef>
#include <variant>

#include "rubato/daemon/job_model.h"

namespace rubato::daemon {

void observe_pauses(const std::vector<double>& before, const std::vector<double>& after,
                    Histogram& histogram) {
  std::size_t known = std::min(before.size(), after.size());
  while (known > 0 && !std::equal(before.end() - static_cast<std::ptrdiff_t>(known), before.end(),
                                  after.begin()))
    --known;
  for (std::size_t i = known; i < after.size(); ++i) histogram.observe(after[i]);
}

void count_end(Metrics& metrics, const JobRecord& job) {
  switch (job.ending->how) {
    case Ending::completed:
      ++metrics.completed;
      break;
    case Ending::failed:
      ++metrics.failed;
      break;
    case Ending::cancelled:
      ++metrics.cancelled;
      break;
    case Ending::refused:
      ++metrics.refused;
      break;
  }
  if (!job.deadline || job.ending->how != Ending::completed) return;
  ++(*job.ended <= *job.deadline ? metrics.deadlines_met : metrics.deadlines_missed);
}

void count_starts(Metrics& metrics, const std::vector<Command>& commands, const DaemonState& state,
                  Time now) {
  for (const Command& command : commands) {
    const auto* start = std::get_if<Start>(&command);
    const JobRecord* job = start != nullptr ? state.job(start->job) : nullptr;
    if (job == nullptr || !job->started) continue;
    if (*job->started == state.wall(now)) {
      metrics.waiting.observe(seconds(Duration{*job->started - job->submitted}));
    } else {
      ++metrics.restarts;
    }
  }
}

std::string metrics_for(const Caller& caller, const CoreParts& core) {
  const DaemonState& state = *core.state;
  Metrics metrics = core.metrics;
  const Snapshot& now = state.now();
  for (const auto& [id, job] : state.jobs()) {
    if (job.measures_for) continue;
    ++metrics.jobs[state_of(state, job)];
    Metrics::Share& share = metrics.shares[job.user];
    const JobView* view = job.gone() ? nullptr : state.view(id);
    share.gpu_seconds += (view != nullptr ? view->attained(core.time) : job.attained).gpu_seconds();
    if (view == nullptr) continue;
    share.gpus += static_cast<std::uint64_t>(view->held.gpus());
    // GPUs that two jobs share are in use once.
    if (!view->shares_with || id < *view->shares_with)
      metrics.gpus_in_use += static_cast<std::uint64_t>(view->held.gpus());
    const JobStatus* reported = core.reports.of(id);
    if (reported != nullptr && view->phase == Phase::running) {
      metrics.samples_per_second += reported->progress.rate;
      metrics.goodput += reported->progress.rate * efficiency_of(job, reported->progress);
    }
    const auto end = expected_end(job, *view, core.time);
    if (!job.deadline || !end) continue;
    const double slack = seconds(Duration(*job.deadline - state.wall(*end)));
    metrics.least_slack_seconds = std::min(metrics.least_slack_seconds.value_or(slack), slack);
    ++(slack >= 0 ? metrics.deadlines_ahead : metrics.deadlines_behind);
  }
  for (const auto& [name, used] : state.used_by_forgotten())
    metrics.shares[name].gpu_seconds += used.gpu_seconds();
  for (auto& [name, share] : metrics.shares) {
    const auto user = state.users().find(name);
    share.weight =
        user != state.users().end() ? user->second.most_weight : core.options.most_weight;
  }
  for (std::size_t t = 0; t < state.prices().size(); ++t)
    metrics.prices[now.cluster.type_name(GpuType(static_cast<GpuType::rep>(t)))] =
        state.prices()[t];
  for (const Node& node : now.cluster.nodes()) ++metrics.nodes[node.state];
  metrics.gpus_installed = static_cast<std::uint64_t>(now.cluster.installed());
  metrics.gpus_usable = static_cast<std::uint64_t>(now.cluster.usable());
  return metrics_text(metrics, caller);
}

}  // namespace rubato::daemon
