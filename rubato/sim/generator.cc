#include "rubato/sim/generator.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fmt/format.h>
#include <numbers>
#include <numeric>
#include <string>
#include <utility>

#include "rubato/base/random.h"
#include "rubato/base/text.h"
#include "rubato/base/time.h"
#include "rubato/sim/catalogue.h"

namespace rubato::sim {
namespace {

constexpr int kMostJobs = 100'000'000;
constexpr int kMostUsers = 1'000'000;
constexpr double kDefaultLoad = 0.8;
constexpr double kDefaultJobsPerHour = 30;
constexpr double kDaySeconds = 86400;
constexpr double kSwing = 0.6;  // a diurnal rate is 0.4 to 1.6 times its mean

// Random streams derived from the seed: one for arrivals, then one per job.
constexpr std::uint64_t kArrivals = 0;
constexpr std::uint64_t kFirstJob = 1;
constexpr std::uint64_t kSearchStream = 0x5EA2C;

// Rounds times so that files are easy to read.
double to_milliseconds(double s) { return std::round(s * 1e3) / 1e3; }

// Draws an index with given weights.
class WeightedChoice {
 public:
  explicit WeightedChoice(std::vector<double> weights) : sums_(std::move(weights)) {
    std::partial_sum(sums_.begin(), sums_.end(), sums_.begin());
  }
  std::size_t draw(Random& random) const {
    const double at = random.uniform() * sums_.back();
    const auto found = std::upper_bound(sums_.begin(), sums_.end(), at);
    return static_cast<std::size_t>(std::min(found, sums_.end() - 1) - sums_.begin());
  }

 private:
  std::vector<double> sums_;
};

bool positive(double value) { return std::isfinite(value) && value > 0; }

Result<void> check_rate(const GeneratorOptions& options) {
  if (options.load && options.jobs_per_hour) {
    return Error{"generate: give the load or the jobs per hour, not both"};
  }
  if (options.load && !options.cluster_gpus) {
    return Error{"generate: a load needs the size of the cluster it is a share of"};
  }
  if (options.load && !positive(*options.load)) return Error{"generate: the load must be above 0"};
  if (options.jobs_per_hour && !positive(*options.jobs_per_hour)) {
    return Error{"generate: the jobs per hour must be above 0"};
  }
  if (options.cluster_gpus && *options.cluster_gpus < 1) {
    return Error{"generate: the cluster has no GPUs"};
  }
  return {};
}

Result<void> check_mix(const std::vector<GpuShare>& mix) {
  for (const auto& share : mix) {
    if (share.gpus < 1 || share.gpus > 10'000'000) {
      return Error{fmt::format("generate: {} GPUs is not a count a job can ask for", share.gpus)};
    }
    if (!std::isfinite(share.weight) || share.weight < 0) {
      return Error{fmt::format("generate: the weight of {} GPUs must be 0 or more", share.gpus)};
    }
  }
  return {};
}

Result<void> check(const GeneratorOptions& options) {
  if (options.jobs < 1 || options.jobs > kMostJobs) {
    return Error{fmt::format("generate: {} jobs is not from 1 to {}", options.jobs, kMostJobs)};
  }
  if (!positive(options.shortest_s) || !(options.longest_s >= options.shortest_s) ||
      options.longest_s > kLongestSeconds) {
    return Error{fmt::format("generate: durations from {} to {} s are not a range above 0",
                             options.shortest_s, options.longest_s)};
  }
  if (!(options.deadline_share >= 0 && options.deadline_share <= 1)) {
    return Error{"generate: the share of jobs with deadlines must be from 0 to 1"};
  }
  if (!positive(options.tightness_low) || !std::isfinite(options.tightness_high) ||
      options.tightness_high < options.tightness_low) {
    return Error{fmt::format("generate: tightness from {} to {} is not a range above 0",
                             options.tightness_low, options.tightness_high)};
  }
  if (options.users < 1 || options.users > kMostUsers) {
    return Error{fmt::format("generate: {} users is not from 1 to {}", options.users, kMostUsers)};
  }
  if (options.power && !(*options.power > 0 && *options.power <= 1)) {
    return Error{"generate: the power of the speed must be above 0 and at most 1"};
  }
  if (!(options.search_share >= 0 && options.search_share <= 1)) {
    return Error{"generate: the share of jobs in searches must be from 0 to 1"};
  }
  if (auto bad = check_rate(options); !bad) return bad;
  return check_mix(options.gpu_mix);
}

// How often a job that comes alone or first is the first of a search, so that this share of all
// jobs are trials.
double chance_of_search(const GeneratorOptions& options) {
  const double share = options.search_share;
  return share / (share + options.search.rule.trials * (1 - share));
}

// How many jobs come at once, on average.
double jobs_at_once(const GeneratorOptions& options) {
  if (options.search_share == 0) return 1;
  return 1 + chance_of_search(options) * (options.search.rule.trials - 1);
}

// The mean of the log-uniform distribution.
double mean_duration(const GeneratorOptions& options) {
  const double ratio = options.longest_s / options.shortest_s;
  if (ratio == 1) return options.shortest_s;
  return (options.longest_s - options.shortest_s) / std::log(ratio);
}

double mean_gpus(const std::vector<GpuShare>& mix) {
  double gpus = 0;
  double weights = 0;
  for (const auto& share : mix) {
    gpus += share.gpus * share.weight;
    weights += share.weight;
  }
  return gpus / weights;
}

double jobs_per_second(const GeneratorOptions& options, const std::vector<GpuShare>& mix) {
  if (options.jobs_per_hour) return *options.jobs_per_hour / 3600;
  if (!options.cluster_gpus) return kDefaultJobsPerHour / 3600;
  const double gpu_seconds_per_job = mean_gpus(mix) * mean_duration(options);
  return options.load.value_or(kDefaultLoad) * *options.cluster_gpus / gpu_seconds_per_job;
}

// A Poisson process. The daily wave is made by thinning a faster process.
class Arrivals {
 public:
  Arrivals(double rate, bool diurnal, Random random)
      : fastest_(diurnal ? rate * (1 + kSwing) : rate), diurnal_(diurnal), random_(random) {}

  double next() {
    do {
      now_ += random_.exponential(1 / fastest_);
    } while (diurnal_ && random_.uniform() * (1 + kSwing) > 1 + kSwing * wave());
    return now_;
  }

 private:
  // Day 0 begins at midnight; the wave is highest at three in the afternoon.
  [[nodiscard]] double wave() const {
    return std::cos(2 * std::numbers::pi * (now_ / kDaySeconds - 15.0 / 24));
  }

  double fastest_;
  bool diurnal_;
  Random random_;
  double now_ = 0;
};

std::vector<double> weights_of(const std::vector<GpuShare>& mix) {
  std::vector<double> weights;
  weights.reserve(mix.size());
  for (const auto& share : mix) weights.push_back(share.weight);
  return weights;
}

std::vector<double> zipf(int users) {
  std::vector<double> weights;
  for (int i = 1; i <= users; ++i) weights.push_back(1.0 / i);
  return weights;
}

}  // namespace

std::vector<GpuShare> public_gpu_mix() {
  return {{1, 85}, {2, 2.5}, {4, 3.5}, {8, 8}, {16, 0.5}, {32, 0.4}, {64, 0.1}};
}

Result<Trace> generate(const GeneratorOptions& options) {
  if (auto bad = check(options); !bad) return bad.error();
  auto mix = options.gpu_mix;
  if (options.cluster_gpus) {
    std::erase_if(mix, [&](const GpuShare& share) { return share.gpus > *options.cluster_gpus; });
  }
  const auto weights = weights_of(mix);
  if (!positive(std::accumulate(weights.begin(), weights.end(), 0.0))) {
    return Error{"generate: no GPU count with a weight above 0 fits the cluster"};
  }
  const WeightedChoice gpu_choice(weights);
  const WeightedChoice user_choice(zipf(options.users));
  const Random root(options.seed);
  Arrivals arrivals(jobs_per_second(options, mix) / jobs_at_once(options), options.diurnal,
                    root.split(kArrivals));

  Trace trace;
  trace.name = "generated";
  trace.format = TraceFormat::rubato_csv;
  trace.jobs.resize(static_cast<std::size_t>(options.jobs));
  int trials_left = 0;  // of the search that the job before this one is in
  int searches = 0;
  for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
    TraceJob& job = trace.jobs[i];
    if (trials_left > 0) {
      --trials_left;
      job = trace.jobs[i - 1];
      job.name = fmt::to_string(i);
      continue;
    }
    Random random = root.split(kFirstJob + i);
    job.name = fmt::to_string(i);
    job.submit_s = options.at_once ? 0 : to_milliseconds(arrivals.next());
    job.gpus = mix[gpu_choice.draw(random)].gpus;
    job.duration_s = to_milliseconds(random.log_uniform(options.shortest_s, options.longest_s));
    job.user = fmt::format("user{}", user_choice.draw(random));
    const double tightness = random.uniform(options.tightness_low, options.tightness_high);
    if (random.uniform() < options.deadline_share) {
      job.deadline_s = to_milliseconds(job.submit_s + tightness * *job.duration_s);
    }
    if (!options.model_names.empty()) {
      job.model = options.model_names[random.below(options.model_names.size())];
    } else if (options.models) {
      job.model = draw_profile(random).name;
    }
    if (options.power) job.model = fmt::format("power:{}", shortest(*options.power));
    if (options.search_share > 0 &&
        root.split(kSearchStream).split(i).uniform() < chance_of_search(options)) {
      job.search = options.search;
      job.search->name = fmt::format("search{}", searches++);
      trials_left = options.search.rule.trials - 1;
    }
    const double last = std::max(job.submit_s, job.deadline_s.value_or(0));
    if (last > kLongestSeconds)
      return Error{"generate: the trace would last more than 1,000 years"};
  }
  return trace;
}

}  // namespace rubato::sim
