#include "rubato/daemon/intake.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "rubato/model/curve.h"
#include "rubato/model/measured_speed.h"

namespace rubato {
namespace {

// Curves end there (model/curve.h).
constexpr int kMostOnACurve = 4096;

std::vector<int> worth_trying(const GpuLimits& limits, const std::map<int, WorkRate>& rates) {
  std::set<int> counts;
  if (!limits.allowed.empty()) {
    counts.insert(limits.allowed.begin(), limits.allowed.end());
  } else {
    counts = {limits.min, limits.max};
    for (int gpus = 1; gpus < limits.max; gpus *= 2) {
      if (gpus > limits.min) counts.insert(gpus);
    }
  }
  for (const auto& [gpus, rate] : rates) counts.insert(gpus);
  std::vector<int> usable;
  usable.reserve(counts.size());
  for (const int gpus : counts) {
    if (gpus <= std::min(limits.max, kMostOnACurve)) usable.push_back(gpus);
  }
  return usable;
}

}  // namespace

GpuLimits limits_on(const Cluster& cluster, GpuLimits limits) {
  if (limits.max == 0) limits.max = std::max(limits.min, cluster.largest_type());
  if (!limits.allowed.empty()) limits.max = std::min(limits.max, limits.allowed.back());
  return limits;
}

Work work_of(const JobFile& file) { return file.work ? file.work->amount : kGuessedSeconds; }

std::shared_ptr<const JobSpec> spec_of(const JobRecord& job, const Ledger& ledger,
                                       Duration restart_cost) {
  auto spec = std::make_shared<JobSpec>();
  spec->name = job.name;
  spec->user = job.user;
  spec->model = job.file.profile.empty() ? job.name : job.file.profile;
  spec->limits = limits_on(ledger.now().cluster, job.file.gpus);
  spec->requested = spec->limits.smallest();
  spec->weight = job.file.weight;
  spec->batch = job.file.batch.min;
  spec->adaptive_batch = job.file.batch.mode == BatchMode::adaptive;
  if (job.deadline) spec->deadline = ledger.loop_time(*job.deadline);
  spec->restart_cost = job.rates.pause > 0 ? from_seconds(job.rates.pause) : restart_cost;
  return spec;
}

std::shared_ptr<const SpeedModel> estimate_of(const JobRecord& job, const GpuLimits& limits,
                                              const PolicyInForce& policy) {
  std::map<int, WorkRate> rates = job.rates.by_gpus;
  std::erase_if(rates, [&](const auto& rate) { return rate.first > limits.max; });
  if (rates.empty()) rates[limits.smallest()] = job.work / kGuessedSeconds;
  auto measured = std::make_shared<MeasuredSpeed>(rates, limits.max);
  if (policy.measuring > Duration(0) || (policy.admits() && job.deadline)) return measured;
  const auto counts = worth_trying(limits, rates);
  if (counts.empty()) return measured;
  std::vector<CurvePoint> points;
  points.reserve(counts.size());
  for (const int gpus : counts) points.push_back({gpus, measured->on(GpuType(), gpus)});
  return std::make_shared<CurveSpeed>(points);
}

namespace {

double in_unit(WorkUnit unit, double steps, double samples, double epochs) {
  switch (unit) {
    case WorkUnit::steps:
      return steps;
    case WorkUnit::samples:
      return samples;
    case WorkUnit::epochs:
      return epochs;
  }
  return 0;
}

}  // namespace

double done_by(const JobRecord& job, const JobProgress& progress) {
  const auto steps = static_cast<double>(progress.step);
  if (job.file.work) return in_unit(job.unit(), steps, progress.samples, progress.epoch);
  return (progress.samples > 0 ? progress.samples : steps) * job.scale;
}

double rate_by(const JobRecord& job, const JobProgress& progress) {
  const double epochs =
      progress.samples > 0 ? progress.rate * progress.epoch / progress.samples : 0;
  if (job.file.work) return in_unit(job.unit(), progress.step_rate, progress.rate, epochs);
  return (progress.samples > 0 ? progress.rate : progress.step_rate) * job.scale;
}

std::map<std::string, std::string> batch_environment(const JobFile& file) {
  if (file.batch.mode == BatchMode::fixed) return {};
  std::map<std::string, std::string> variables{
      {"RUBATO_BATCH_MODE", "adaptive"},
      {"RUBATO_LEARNING_RATE", std::string(to_text(file.learning_rate))}};
  if (file.batch.min > 0) variables["RUBATO_BATCH_MIN"] = std::to_string(file.batch.min);
  if (file.batch.max > 0) variables["RUBATO_BATCH_MAX"] = std::to_string(file.batch.max);
  return variables;
}

std::string name_of(const JobFile& file) {
  if (!file.name.empty()) return file.name;
  const std::string& program = file.command.front();
  std::string name = program.substr(program.find_last_of('/') + 1);
  const bool a_number =
      std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  return a_number ? "job-" + name : name;
}

}  // namespace rubato
