#include "rubato/sim/workload.h"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/random.h"
#include "rubato/base/text.h"
#include "rubato/model/curve.h"
#include "rubato/model/goodput.h"
#include "rubato/sim/catalogue.h"

namespace rubato::sim {
namespace {

// A power law has no largest count, but numbers do.
constexpr int kMostPowerGpus = 1 << 20;
// The random stream for deadlines. Curves use the seed directly.
constexpr std::uint64_t kDeadlines = 0xDEAD11;
constexpr std::uint64_t kUtilities = 0x0A515;
constexpr std::uint64_t kClasses = 0xA47;

Utility draw_utility(Random random, Duration target) {
  const double slot = std::max(seconds(target), 1.0) / 8;
  const double value = random.uniform(1, 100);
  const double kind = random.uniform(0, 1);
  const double decay = random.uniform(0, 1);
  if (kind < 0.1) return {value, 0, target};
  return {value, (kind < 0.65 ? 0.01 + 0.99 * decay : 4 + 2 * decay) / slot, target};
}

// The mean speed of a job that changes its batch size: its whole work takes as long on any GPUs.
class PhasedSpeed final : public SpeedModel {
 public:
  explicit PhasedSpeed(std::shared_ptr<const BatchPhases> phases) : phases_(std::move(phases)) {}

  [[nodiscard]] WorkRate rate(const Shape& shape) const override {
    double seconds = 0;
    for (std::size_t i = 0; i < phases_->phases.size(); ++i) {
      const WorkRate now = phases_->speed(i).rate(shape);
      if (!(now > 0)) return 0;
      seconds += (phases_->work - phases_->left_after(i) - phases_->phases[i].from) / now;
    }
    return phases_->work / seconds;
  }
  [[nodiscard]] std::span<const int> measured() const override {
    return phases_->modes.front().steps->measured();
  }

 private:
  std::shared_ptr<const BatchPhases> phases_;
};

// The truth about one job.
struct Truth {
  std::shared_ptr<const SpeedModel> speed;
  Work work = 0;
  GpuLimits limits;
  std::shared_ptr<const Application> application = nullptr;
  std::shared_ptr<const BatchPhases> phases = nullptr;
};

// The restart cost of jobs with published profiles, unless the trace or the user gives one.
constexpr double kProfiledRestartSeconds = 30;

// Counts the jobs for each kind of warning, so that each warning is given once.
class Tally {
 public:
  using Key = std::pair<std::string, int>;  // model and batch size

  void add(std::string_view model, int batch) { ++count_[{std::string(model), batch}]; }

  // One warning per model and batch size. There can be very many, so the rest is only counted.
  void report(std::string_view trace, std::string_view what, std::vector<std::string>& out) const {
    constexpr std::size_t kShown = 20;
    std::size_t shown = 0;
    std::size_t rest = 0;
    for (const auto& [key, jobs] : count_) {
      if (++shown > kShown) {
        rest += jobs;
        continue;
      }
      const auto model = key.first.empty() ? "an unnamed model" : base::quoted(key.first);
      const auto batch =
          key.second == 0 ? "no batch size" : fmt::format("batch size {}", key.second);
      out.push_back(fmt::format("{}: {} with {} {} ({} jobs)", trace, model, batch, what, jobs));
    }
    if (rest > 0) {
      out.push_back(fmt::format("{}: {} more models and batch sizes like that ({} jobs)", trace,
                                count_.size() - kShown, rest));
    }
  }

 private:
  std::map<Key, std::size_t> count_;
};

class WorkloadMaker {
 public:
  WorkloadMaker(const Trace& trace, const WorkloadOptions& options)
      : trace_(trace), options_(options), seed_(options.seed) {}

  Workload make() {
    Workload workload;
    workload.name = trace_.name;
    workload.origin_s = trace_.jobs.front().submit_s;
    workload.warnings = trace_.warnings;
    workload.jobs.reserve(trace_.jobs.size());
    for (std::size_t i = 0; i < trace_.jobs.size(); ++i) {
      workload.jobs.push_back(sim_job(i, workload.origin_s));
      workload.jobs.back().trial = trial_of(trace_.jobs[i]);
    }
    workload.searches = searches_;
    report(workload.warnings);
    return workload;
  }

 private:
  // Trials of one user with the same name and settings are one search, until it has all its trials.
  std::optional<SimTrial> trial_of(const TraceJob& job) {
    if (!job.search) return std::nullopt;
    auto& [search, trials] = open_searches_[{job.user, to_text(*job.search)}];
    if (trials == 0) search = searches_++;
    trials = (trials + 1) % job.search->rule.trials;
    return SimTrial{search, job.search->rule, job.search->share, job.search->wait};
  }

  SimJob sim_job(std::size_t index, double origin_s) {
    const TraceJob& job = trace_.jobs[index];
    Truth truth = truth_of(index);
    auto spec = std::make_shared<JobSpec>();
    spec->name = job.name;
    spec->user = job.user;
    spec->model = job.model;
    spec->requested = job.gpus;
    spec->limits = std::move(truth.limits);
    spec->weight = job.weight;
    spec->batch = job.batch;
    if (job.deadline_s) {
      spec->deadline = time_at(*job.deadline_s - origin_s);
    } else if (options_.tightness) {
      const auto& [low, high] = *options_.tightness;
      const double at_requested = truth.work / truth.speed->on(GpuType(), job.gpus);
      const double tightness = seed_.split(kDeadlines).split(index).uniform(low, high);
      spec->deadline = time_at(job.submit_s - origin_s + tightness * at_requested);
    }
    spec->utility = job.utility;
    spec->skew = job.skew;
    if (options_.utilities && spec->deadline && !spec->utility) {
      spec->utility = draw_utility(seed_.split(kUtilities).split(index),
                                   *spec->deadline - time_at(job.submit_s - origin_s));
    }
    spec->opportunistic = job.opportunistic ||
                          (options_.opportunistic > 0 && seed_.split(kClasses).split(index).uniform(
                                                             0, 1) < options_.opportunistic);
    const double usual_restart_s = truth.application ? kProfiledRestartSeconds : 0;
    spec->restart_cost =
        from_seconds(options_.restart_cost_s.value_or(job.restart_s.value_or(usual_restart_s)));
    if (truth.application) {
      spec->adaptive_batch = truth.application->adaptive();
      if (spec->batch == 0) spec->batch = truth.application->limits().initial;
    }
    return {.spec = std::move(spec),
            .submit = time_at(job.submit_s - origin_s),
            .work = truth.work,
            .speed = std::move(truth.speed),
            .application = std::move(truth.application),
            .phases = std::move(truth.phases)};
  }

  Truth truth_of(std::size_t index) {
    const TraceJob& job = trace_.jobs[index];
    if (auto application = profile_of(job)) return profiled(job, std::move(application));
    if (job.batch_changes != BatchChanges::none && !options_.adapt_batches) ++unadapted_;
    if (auto speed = typed_speed(job)) return typed(index, std::move(speed));
    if (auto curve = measured_curve(job)) return measured(index, std::move(curve));
    if (!options_.assign_curves) return rigid(index);
    if (job.gpus <= CatalogueCurves::kMostGpus) return assigned(index);
    ++too_large_;
    return rigid(index);
  }

  std::shared_ptr<const Application> profile_of(const TraceJob& job) {
    if (!options_.profiles) return nullptr;
    auto application = options_.profiles->find(job.model);
    if (!application) {
      unprofiled_.add(job.model, 0);
      return nullptr;
    }
    const BatchLimits& limits = application->limits();
    if (!spread_batch(limits, job.gpus, job.batch == 0 ? limits.initial : job.batch)) {
      unsplittable_.add(job.model, job.batch);
      return nullptr;
    }
    return application;
  }

  static Truth profiled(const TraceJob& job, std::shared_ptr<const Application> application) {
    const int batch = job.batch == 0 ? application->limits().initial : job.batch;
    auto speed = std::make_shared<ApplicationSpeed>(application, batch);
    const Work work = application->work();
    auto range = limits(job, 1, application->most_gpus());
    return {std::move(speed), work, std::move(range), std::move(application)};
  }

  // The fastest rate on any type; 0 if no type runs it.
  static WorkRate best_rate(const SpeedModel& speed, int gpus) {
    WorkRate best = 0;
    for (int t = 0; t <= std::numeric_limits<GpuType::rep>::max(); ++t)
      best = std::max(best, speed.on(GpuType(static_cast<GpuType::rep>(t)), gpus));
    return best;
  }

  std::shared_ptr<const TypedSpeed> typed_speed(const TraceJob& job) {
    if (!options_.throughputs) return nullptr;
    auto speed = options_.throughputs->find(job.model, job.batch);
    if (speed && best_rate(*speed, job.gpus) > 0) return speed;
    (speed ? unmeasured_count_ : unmeasured_).add(job.model, job.batch);
    return nullptr;
  }

  // The job is rigid, as its owner asked, unless some policy of the comparison chooses counts.
  Truth typed(std::size_t index, std::shared_ptr<const TypedSpeed> speed) {
    const TraceJob& job = trace_.jobs[index];
    const Work work = job.steps ? *job.steps : duration(index) * best_rate(*speed, job.gpus);
    const auto counts = speed->measured();
    GpuLimits counts_allowed{job.gpus, job.gpus, {}};
    if (options_.assign_curves)
      counts_allowed = limits(job, std::min(counts.front(), job.gpus), counts.back());
    if (auto phases = phases_of(job, speed, work)) {
      auto mean = std::make_shared<PhasedSpeed>(phases);
      if (best_rate(*mean, job.gpus) > 0)
        return {std::move(mean), work, std::move(counts_allowed), nullptr, std::move(phases)};
    }
    return {std::move(speed), work, std::move(counts_allowed), nullptr};
  }

  // nullptr if the job keeps its batch. A batch that was not measured on its GPUs is left out.
  std::shared_ptr<const BatchPhases> phases_of(const TraceJob& job,
                                               const std::shared_ptr<const TypedSpeed>& first,
                                               Work work) const {
    if (!options_.adapt_batches || job.batch_changes == BatchChanges::none) return nullptr;
    const BatchSchedule schedule =
        batch_schedule(job.batch_changes, job.model, job.batch, job.gpus, work);
    if (schedule.from.size() == 1) return nullptr;
    auto phases = std::make_shared<BatchPhases>();
    phases->work = work;
    phases->epoch = schedule.steps;
    for (const auto& [epoch, batch] : schedule.from) {
      const auto steps = batch == job.batch ? first : options_.throughputs->find(job.model, batch);
      if (!steps || !(best_rate(*steps, job.gpus) > 0)) continue;
      const BatchSpeed speed{steps, static_cast<double>(batch) / job.batch};
      const auto mode = std::find(phases->modes.begin(), phases->modes.end(), speed);
      const auto index = static_cast<std::size_t>(mode - phases->modes.begin());
      if (mode == phases->modes.end()) phases->modes.push_back(speed);
      phases->phases.push_back({static_cast<double>(epoch) * schedule.steps, index});
    }
    return phases;
  }

  std::shared_ptr<const CurveSpeed> measured_curve(const TraceJob& job) {
    if (!options_.curves) return nullptr;
    auto curve = options_.curves->find(job.model, job.batch);
    if (!curve) {
      unmeasured_.add(job.model, job.batch);
    } else if (job.gpus > curve->measured().back()) {
      beyond_.add(job.model, job.batch);
      return nullptr;
    }
    return curve;
  }

  Truth measured(std::size_t index, std::shared_ptr<const CurveSpeed> curve) {
    const TraceJob& job = trace_.jobs[index];
    const Work work = job.steps ? *job.steps : duration(index) * curve->on(GpuType(), job.gpus);
    const auto counts = curve->measured();
    // Below its first measurement, a curve is only a guess. It is used if the owner asks for it.
    return {std::move(curve), work, limits(job, std::min(counts.front(), job.gpus), counts.back())};
  }

  // Rates are steps per second, so all jobs of a profile share one curve. The work of a job is
  // chosen so that it takes its duration at the count it asks for.
  Truth assigned(std::size_t index) {
    const TraceJob& job = trace_.jobs[index];
    if (const auto q = power_exponent(job.model)) return power_law(index, *q);
    auto curve = curves_.curve(profile(index), job.gpus);
    const bool steps_only = job.steps && !job.duration_s;
    if (steps_only) ++from_steps_;
    const Work work = steps_only ? *job.steps : duration(index) * curve->on(GpuType(), job.gpus);
    const int most = curve->measured().back();
    return {std::move(curve), work, limits(job, 1, most)};
  }

  Truth power_law(std::size_t index, double q) {
    const TraceJob& job = trace_.jobs[index];
    auto& speed = power_speeds_[q];
    if (!speed) speed = std::make_shared<PowerSpeed>(q, kMostPowerGpus);
    const Work work = job.steps && !job.duration_s
                          ? *job.steps
                          : duration(index) * speed->on(GpuType(), job.gpus);
    return {speed, work, limits(job, 1, kMostPowerGpus)};
  }

  Truth rigid(std::size_t index) {
    const int gpus = trace_.jobs[index].gpus;
    return {second_per_second_, duration(index), GpuLimits{gpus, gpus, {}}};
  }

  // The range of the curve, narrowed by the limits in the trace.
  static GpuLimits limits(const TraceJob& job, int least, int most) {
    GpuLimits limits{std::max(least, job.min_gpus.value_or(least)),
                     std::min(most, job.max_gpus.value_or(most)),
                     {}};
    for (const int gpus : job.allowed_gpus) {
      if (gpus >= limits.min && gpus <= limits.max) limits.allowed.push_back(gpus);
    }
    return limits;
  }

  // In seconds at the requested count: from the trace, else from the catalogue.
  double duration(std::size_t index) {
    const TraceJob& job = trace_.jobs[index];
    if (job.duration_s) return *job.duration_s;
    const Profile& typical = profile(index);
    if (job.steps) {
      ++from_steps_;
      return *job.steps / typical.rate(job.gpus);
    }
    ++from_hours_;
    return typical.gpu_hours * 3600 / job.gpus;
  }

  const Profile& profile(std::size_t index) {
    const auto& model = trace_.jobs[index].model;
    auto known = known_.find(model);
    if (known == known_.end()) known = known_.emplace(model, find_profile(model)).first;
    return known->second != nullptr ? *known->second : draw_profile(seed_.split(index));
  }

  void report(std::vector<std::string>& out) const {
    const std::string fallback =
        options_.assign_curves ? "gets a curve of the catalogue" : "stays rigid";
    unprofiled_.report(trace_.name, "has no profile", out);
    unsplittable_.report(trace_.name, "cannot spread it over its GPUs: its profile is not used",
                         out);
    if (unadapted_ > 0) {
      out.push_back(fmt::format(
          "{}: {} jobs adapt their batch size (accordion, gns), which is not simulated: they keep "
          "it (--adapt-batches simulates it)",
          trace_.name, unadapted_));
    }
    const std::string what = options_.throughputs ? "throughput" : "curve";
    unmeasured_.report(trace_.name, "has no measured " + what + " and " + fallback, out);
    unmeasured_count_.report(
        trace_.name, "was not measured on as many GPUs as it asks for and " + fallback, out);
    beyond_.report(trace_.name, "asks for more GPUs than its curve has and " + fallback, out);
    if (too_large_ > 0) {
      out.push_back(
          fmt::format("{}: {} jobs ask for more than {} GPUs, where no curve reaches: they "
                      "stay rigid",
                      trace_.name, too_large_, CatalogueCurves::kMostGpus));
    }
    if (from_steps_ > 0) {
      out.push_back(
          fmt::format("{}: {} jobs give steps but no duration: estimated from the built-in "
                      "catalogue's speeds; {}",
                      trace_.name, from_steps_, better_source()));
    }
    if (from_hours_ > 0) {
      out.push_back(
          fmt::format("{}: {} jobs give neither duration nor steps: the built-in catalogue's "
                      "typical GPU-hours are assumed; {}",
                      trace_.name, from_hours_, better_source()));
    }
  }

  [[nodiscard]] std::string_view better_source() const {
    switch (trace_.format) {
      case TraceFormat::pollux:
        return "--profiles DIR gives measured ones";
      case TraceFormat::gavel:
      case TraceFormat::shockwave:
        return "--throughputs FILE gives measured ones";
      default:
        return "--curves DIR gives measured ones";
    }
  }

  const Trace& trace_;
  const WorkloadOptions& options_;
  Random seed_;
  CatalogueCurves curves_;
  std::map<double, std::shared_ptr<const SpeedModel>> power_speeds_;  // by exponent
  std::shared_ptr<const SpeedModel> second_per_second_ = std::make_shared<ConstantSpeed>(1);
  std::map<std::string, const Profile*> known_;  // nullptr: the catalogue does not know the name

  Tally unprofiled_, unsplittable_, unmeasured_, unmeasured_count_, beyond_;
  // By user and settings: the number of the search, and how many trials it has.
  std::map<std::pair<std::string, std::string>, std::pair<std::size_t, int>> open_searches_;
  std::size_t searches_ = 0;
  std::size_t too_large_ = 0;
  std::size_t unadapted_ = 0;
  std::size_t from_steps_ = 0;
  std::size_t from_hours_ = 0;
};

}  // namespace

std::shared_ptr<const BatchForecast> BatchPhases::forecast(std::size_t phase) const {
  std::vector<BatchForecast::Mode> known;
  for (const BatchSpeed& mode : modes) known.push_back({mode, 0});
  for (std::size_t i = 0; i < phase; ++i)
    known[phases[i].mode].epochs_before += (phases[i + 1].from - phases[i].from) / epoch;
  return std::make_shared<BatchForecast>(std::move(known), phases[phase].mode, work, epoch);
}

Result<Workload> make_workload(const Trace& trace, const WorkloadOptions& options) {
  if (trace.jobs.empty()) return Error{fmt::format("{}: no jobs", trace.name)};
  const bool sorted =
      std::is_sorted(trace.jobs.begin(), trace.jobs.end(),
                     [](const TraceJob& a, const TraceJob& b) { return a.submit_s < b.submit_s; });
  CHECK(sorted);
  return WorkloadMaker(trace, options).make();
}

}  // namespace rubato::sim
