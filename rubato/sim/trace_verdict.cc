#include "rubato/sim/trace_verdict.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "rubato/sim/report.h"

namespace rubato::sim {
namespace {

// A gap is longer than a day, and many times longer than usual. Traces with few jobs have none.
constexpr double kShortestGapSeconds = 86400;
constexpr double kGapOverMean = 20;
// Below this load, hardly any job waits.
constexpr double kLittleLoad = 0.3;

// Seconds on the GPUs it asks for, of the type on which it is fastest.
double seconds_of(const SimJob& job, const Cluster& cluster) {
  WorkRate best = 0;
  for (int t = 0; t < cluster.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    best = std::max(best, job.speed->on(type, job.spec->requested));
  }
  return best > 0 ? job.work / best : 0;
}

void measure_jobs(const Trace& trace, const Workload& workload, const Cluster& cluster,
                  TraceVerdict& verdict) {
  verdict.jobs = workload.jobs.size();
  for (const auto& job : workload.jobs) {
    verdict.gpu_hours += seconds_of(job, cluster) * job.spec->requested / 3600;
    if (job.work == 0) ++verdict.zero;
    if (job.spec->requested > cluster.installed()) ++verdict.too_large;
  }
  for (const auto& job : trace.jobs) {
    if (!job.duration_s) ++verdict.estimated;
  }
}

void measure_times(const Trace& trace, const Cluster& cluster, TraceVerdict& verdict) {
  const auto& jobs = trace.jobs;
  verdict.span_s = jobs.back().submit_s - jobs.front().submit_s;
  if (verdict.span_s > 0)
    verdict.load = verdict.gpu_hours * 3600 / (cluster.installed() * verdict.span_s);
  const double mean = verdict.span_s / static_cast<double>(jobs.size());
  const double shortest = std::max(kShortestGapSeconds, kGapOverMean * mean);
  for (std::size_t i = 1; i < jobs.size(); ++i) {
    const double gap = jobs[i].submit_s - jobs[i - 1].submit_s;
    if (gap <= shortest) continue;
    ++verdict.gaps;
    if (gap <= verdict.longest_gap_s) continue;
    verdict.longest_gap_s = gap;
    verdict.longest_gap_at_s = jobs[i - 1].submit_s;
  }
}

void note_load(TraceVerdict& verdict) {
  auto& notes = verdict.notes;
  if (!verdict.load) {
    if (verdict.jobs > 1) notes.emplace_back("All jobs are submitted at the same time.");
  } else if (*verdict.load > 1) {
    notes.push_back(
        fmt::format("Load {:.2f}: more work than the cluster can do. The queue grows until the "
                    "last submission, so averages depend on the length of the trace.",
                    *verdict.load));
  } else if (*verdict.load < kLittleLoad) {
    notes.push_back(fmt::format(
        "Load {:.2f}: the cluster is mostly idle. Policies differ little, because hardly any job "
        "waits.",
        *verdict.load));
  }
}

void note_jobs(TraceVerdict& verdict) {
  const auto say = [&](std::size_t jobs, std::string_view what) {
    if (jobs == 0) return;
    verdict.notes.push_back(fmt::format("Jobs that {}: {} of {}.", what, jobs, verdict.jobs));
  };
  say(verdict.too_large, "ask for more GPUs than the cluster has");
  say(verdict.zero, "have a duration of zero");
  say(verdict.estimated, "have no duration in the trace");
  if (verdict.gaps == 0) return;
  verdict.notes.push_back(
      fmt::format("Long times without a submission: {}; the longest, {}, begins at {} s.",
                  verdict.gaps, human_duration(verdict.longest_gap_s), verdict.longest_gap_at_s));
}

// "COMPLETED 12, FAILED 3"
std::string states(const std::vector<const TraceRows*>& rows) {
  std::string list;
  for (const auto* each : rows) {
    list += fmt::format("{}{} {}", list.empty() ? "" : ", ",
                        each->state.empty() ? "no state" : each->state, each->rows);
  }
  return list;
}

void note_rows(TraceVerdict& verdict) {
  std::vector<std::pair<std::string, std::vector<const TraceRows*>>> by_reason;
  for (const auto& each : verdict.rows) {
    auto at = std::find_if(by_reason.begin(), by_reason.end(),
                           [&](const auto& reason) { return reason.first == each.why; });
    if (at == by_reason.end()) at = by_reason.insert(by_reason.end(), {each.why, {}});
    at->second.push_back(&each);
  }
  for (const auto& [why, rows] : by_reason) {
    std::size_t sum = 0;
    for (const auto* each : rows) sum += each->rows;
    const auto what = why.empty() ? "are kept as jobs" : "are dropped because they " + why;
    verdict.notes.push_back(
        fmt::format("Rows of the log that {}: {} ({}).", what, sum, states(rows)));
  }
}

}  // namespace

TraceVerdict judge(const Trace& trace, const Workload& workload, const Cluster& cluster) {
  TraceVerdict verdict;
  verdict.rows = trace.rows;
  measure_jobs(trace, workload, cluster, verdict);
  measure_times(trace, cluster, verdict);
  note_load(verdict);
  note_jobs(verdict);
  note_rows(verdict);
  return verdict;
}

Json to_json(const TraceVerdict& verdict) {
  Json kept = Json::object();
  Json dropped = Json::array();
  for (const auto& [state, why, rows] : verdict.rows) {
    if (why.empty()) {
      kept[state] = rows;
    } else {
      dropped.push_back({{"state", state}, {"why", why}, {"rows", rows}});
    }
  }
  Json json = {{"jobs", verdict.jobs},
               {"gpu_hours", verdict.gpu_hours},
               {"span_s", verdict.span_s},
               {"load", verdict.load ? Json(*verdict.load) : Json()},
               {"larger_than_cluster", verdict.too_large},
               {"zero_durations", verdict.zero},
               {"estimated_durations", verdict.estimated},
               {"gaps", verdict.gaps},
               {"longest_gap_s", verdict.longest_gap_s},
               {"longest_gap_at_s", verdict.longest_gap_at_s}};
  if (!verdict.rows.empty()) {
    json["rows_kept"] = std::move(kept);
    json["rows_dropped"] = std::move(dropped);
  }
  json["notes"] = verdict.notes;
  return json;
}

std::string to_text(const TraceVerdict& verdict) {
  std::string text =
      fmt::format("{:.{}f} GPU-hours", verdict.gpu_hours, verdict.gpu_hours < 10 ? 1 : 0);
  if (verdict.load) {
    text +=
        fmt::format(" submitted in {}: load {:.2f}", human_duration(verdict.span_s), *verdict.load);
  }
  text += '\n';
  for (const auto& note : verdict.notes) text += fmt::format("- {}\n", note);
  return text;
}

}  // namespace rubato::sim
