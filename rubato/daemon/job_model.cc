#include "rubato/daemon/job_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "rubato/base/text.h"
#include "rubato/journal/digest.h"
#include "rubato/model/curve.h"
#include "rubato/model/fit.h"
#include "rubato/model/goodput_estimate.h"
#include "rubato/model/measured_speed.h"

namespace rubato::daemon {
namespace {

// Curves end there (model/curve.h).
constexpr int kMostOnACurve = 4096;
// The policy is told if the goodput differs by this share.
constexpr double kMaterialGoodput = 0.05;
// The default of the training library (elastic/options.h).
constexpr std::int64_t kLargestOverInitial = 16;

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

// The limits that the program reports; before its first report, those of the file.
std::optional<BatchLimits> batch_limits(const JobRecord& job) {
  BatchLimits limits;
  if (const auto& tuning = job.rates.tuning) {
    limits.initial = tuning->initial;
    limits.largest = tuning->largest;
    limits.per_gpu_max = tuning->largest_per_gpu;
    return limits;
  }
  const BatchWish& wish = job.file.batch;
  if (wish.min == 0) return std::nullopt;
  limits.initial = limits.per_gpu_max = wish.min;
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  limits.largest =
      wish.max > 0 ? wish.max : static_cast<int>(std::min(kMost, kLargestOverInitial * wish.min));
  return limits;
}

Result<StepTime> fit_on(const Tuning& tuning, std::optional<GpuType> type) {
  std::vector<StepMeasurement> steps;
  for (const MeasuredStep& measured : tuning.steps) {
    if (!type || measured.type == *type) steps.push_back(measured.step);
  }
  return fit_step_time(steps);
}

// What was measured on each GPU type, if on several. Speeds on one GPU are relative to the type on
// which it ran on most GPUs. How fast it is on a type on which it never ran is not known here, so
// it counts as equally fast there.
std::vector<GoodputEstimate::OnType> by_type(const Tuning& tuning, const BatchLimits& limits) {
  std::size_t types = 0;
  bool several = false;
  for (const MeasuredStep& measured : tuning.steps) {
    types = std::max<std::size_t>(types, measured.type.index() + 1);
    several = several || measured.type != tuning.steps.front().type;
  }
  std::vector<GoodputEstimate::OnType> known;
  if (!several) return known;
  known.resize(types);
  for (const MeasuredStep& measured : tuning.steps) {
    auto& here = known[measured.type.index()];
    here.most_gpus = std::max(here.most_gpus, measured.step.place.gpus);
  }
  for (std::size_t t = 0; t < types; ++t) {
    if (known[t].most_gpus == 0) continue;
    const auto fitted = fit_on(tuning, GpuType(static_cast<GpuType::rep>(t)));
    if (!fitted) continue;
    known[t].time = *fitted;
  }
  const auto best = std::max_element(known.begin(), known.end(), [](const auto& a, const auto& b) {
    return (a.time ? a.most_gpus : 0) < (b.time ? b.most_gpus : 0);
  });
  if (!best->time) return {};
  const auto one_gpu = [&](const StepTime& time) {
    return time.throughput({1, 1}, {limits.initial, 0});
  };
  for (auto& type : known) {
    if (type.time) type.one_gpu = one_gpu(*type.time) / one_gpu(*best->time);
  }
  return known;
}

std::shared_ptr<const GoodputEstimate> goodput_of(const JobRecord& job) {
  const auto limits = batch_limits(job);
  if (!limits) return nullptr;
  std::optional<GoodputEstimate::Seen> seen;
  std::vector<GoodputEstimate::OnType> types;
  const auto& tuning = job.rates.tuning;
  if (tuning && !tuning->steps.empty()) {
    if (const auto fitted = fit_on(*tuning, std::nullopt)) {
      GoodputEstimate::Seen known;
      known.time = *fitted;
      // Only the ratio of the two is known, and only it matters.
      if (tuning->noise) known.noise = {1, *tuning->noise / limits->initial};
      for (const MeasuredStep& measured : tuning->steps)
        known.most_gpus = std::max(known.most_gpus, measured.step.place.gpus);
      seen = known;
      types = by_type(*tuning, *limits);
    }
  }
  return std::make_shared<GoodputEstimate>(*limits, std::nullopt, seen, std::move(types));
}

std::map<int, WorkRate> known_rates(const JobRecord& job, const GpuLimits& limits) {
  std::map<int, WorkRate> rates = job.rates.by_gpus;
  std::erase_if(rates, [&](const auto& rate) { return rate.first > limits.max; });
  if (rates.empty()) rates[limits.smallest()] = job.work / kGuessedSeconds;
  return rates;
}

bool differ(double a, double b) {
  return std::abs(a - b) > kMaterialGoodput * std::max(std::abs(a), std::abs(b));
}

}  // namespace

GpuLimits limits_on(const Cluster& cluster, GpuLimits limits) {
  if (limits.max == 0) limits.max = std::max(limits.min, cluster.largest_type());
  if (!limits.allowed.empty()) limits.max = std::min(limits.max, limits.allowed.back());
  return limits;
}

GpuLimits limits_now(const JobRecord& job, const DaemonState& state) {
  const JobView* view = job.gone() ? nullptr : state.view(job.id);
  if (view != nullptr) return view->spec->limits;
  return job.limits.value_or(limits_on(state.now().cluster, job.file.gpus));
}

bool speed_known(const JobRecord& job, const GpuLimits& limits) {
  return std::any_of(job.rates.by_gpus.begin(), job.rates.by_gpus.end(),
                     [&](const auto& rate) { return limits.legal(rate.first); });
}

Work work_of(const JobFile& file) { return file.work ? file.work->amount : kGuessedSeconds; }

std::shared_ptr<const JobSpec> spec_of(const JobRecord& job, const DaemonState& state,
                                       Duration restart_cost, bool pairs) {
  auto spec = std::make_shared<JobSpec>();
  spec->name = job.name;
  spec->user = job.user;
  spec->model = job.file.profile.empty() ? job.name : job.file.profile;
  spec->limits = limits_on(state.now().cluster, job.file.gpus);
  spec->requested = spec->limits.smallest();
  tell_scheduler(job.file, *spec);
  if (job.deadline) spec->deadline = state.loop_time(*job.deadline);
  spec->restart_cost = job.rates.pause > 0 ? from_seconds(job.rates.pause) : restart_cost;
  spec->goes_first = job.measures_for.has_value();
  spec->skew = job.rates.skew;
  spec->work_guessed = !job.file.work;
  // A program without the library reports no steps, so nobody could see what sharing costs it.
  spec->tries_pairs = pairs && job.file.elastic;
  const auto user = state.users().find(job.user);
  if (user != state.users().end()) spec->quota = user->second.guaranteed;
  return spec;
}

std::shared_ptr<const SpeedModel> estimate_of(const JobRecord& job, const GpuLimits& limits,
                                              const PolicyInForce& policy) {
  if (policy.tunes_batches() && job.file.batch.mode == BatchMode::adaptive) {
    if (auto goodput = goodput_of(job)) return goodput;
  }
  const std::map<int, WorkRate> rates = known_rates(job, limits);
  auto measured = std::make_shared<MeasuredSpeed>(rates, limits.max);
  const bool tries_counts = policy.measuring > Duration(0) || policy.explores();
  if (tries_counts || (policy.admits() && job.deadline)) return measured;
  const auto counts = worth_trying(limits, rates);
  if (counts.empty()) return measured;
  std::vector<CurvePoint> points;
  points.reserve(counts.size());
  for (const int gpus : counts) points.push_back({gpus, measured->on(GpuType(), gpus)});
  return std::make_shared<CurveSpeed>(points);
}

WorkRate rate_held(const JobRecord& job, const JobView& view) {
  const int gpus = view.held.gpus();
  if (!is_goodput(*view.speed)) return view.speed->on(view.held.type(), gpus);
  const GpuLimits& limits = view.spec->limits;
  return MeasuredSpeed(known_rates(job, limits), limits.max).on(view.held.type(), gpus);
}

bool is_goodput(const SpeedModel& speed) {
  return dynamic_cast<const GoodputEstimate*>(&speed) != nullptr;
}

double efficiency_of(const JobRecord& job, const JobProgress& progress) {
  const auto limits = batch_limits(job);
  if (job.file.batch.mode != BatchMode::adaptive || !limits || !progress.noise) return 1;
  const GradientNoise noise{1, *progress.noise / limits->initial};
  return Goodput{StepTime(), noise, *limits}.efficiency(progress.batch);
}

std::map<std::string, std::string> batch_environment(const JobFile& file) {
  std::map<std::string, std::string> variables;
  if (file.batch.mode != BatchMode::adaptive) return variables;
  variables["RUBATO_BATCH_MODE"] = "adaptive";
  if (file.batch.min > 0) variables["RUBATO_BATCH_MIN"] = fmt::format("{}", file.batch.min);
  if (file.batch.max > 0) variables["RUBATO_BATCH_MAX"] = fmt::format("{}", file.batch.max);
  variables["RUBATO_LEARNING_RATE"] = to_text(file.learning_rate);
  return variables;
}

bool tells_more(const SpeedModel& told, const SpeedModel& now, const GpuLimits& limits) {
  const auto* before = dynamic_cast<const GoodputEstimate*>(&told);
  const auto* after = dynamic_cast<const GoodputEstimate*>(&now);
  if (before == nullptr || after == nullptr) return true;
  if (before->seen().has_value() != after->seen().has_value()) return true;
  if (before->limits().initial != after->limits().initial) return true;
  if (!after->seen()) return false;
  if (before->seen()->most_gpus != after->seen()->most_gpus) return true;
  const std::size_t types = std::max<std::size_t>(after->types().size(), 1);
  if (before->types().size() != after->types().size()) return true;
  const int most = std::min(limits.max, kMostOnACurve);
  for (int gpus = limits.smallest(); gpus <= most; gpus *= 2) {
    for (const int nodes : {1, 2}) {
      for (std::size_t t = 0; t < types; ++t) {
        const Shape shape{GpuType(static_cast<GpuType::rep>(t)), gpus, std::min(nodes, gpus), 1};
        if (differ(before->rate(shape), after->rate(shape))) return true;
      }
    }
  }
  return false;
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

std::optional<std::string> nonce_of_run(const JobRecord& job, JobId run) {
  if (!job.nonce) return std::nullopt;
  const Digest digest = Digester().add(*job.nonce).add(run.value()).finish();
  constexpr std::size_t kBytes = 16;
  return hex({reinterpret_cast<const char*>(digest.data()), kBytes});  // NOLINT(*-reinterpret-cast)
}

std::string name_of(const JobFile& file) {
  return file.name.empty() ? name_after(file.command.front()) : file.name;
}

}  // namespace rubato::daemon
