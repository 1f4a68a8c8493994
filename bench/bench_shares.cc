// The cost of Gavel's linear programs and AlloX's matching, on one core. "Distinct" jobs have
// different rates, so none can be grouped. The others are of the 26 kinds x 4 sizes of a typical
// cluster. "Warm": one of 64 jobs has changed since the last solve. Compare rows of the same run;
// seconds depend on the machine.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <memory>
#include <utility>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/random.h"
#include "rubato/model/typed_speed.h"
#include "rubato/policy/allox.h"
#include "rubato/policy/gavel.h"
#include "rubato/policy/share_program.h"

namespace rubato::bench {
namespace {

constexpr std::size_t kTypes = 3;
constexpr std::size_t kKinds = 26;
constexpr int kSizes[] = {1, 2, 4, 8};

int draw_size(Random& random) {
  const double where = random.uniform();
  return where < 0.7 ? 1 : where < 0.8 ? 2 : where < 0.95 ? 4 : 8;
}

// Rates fall from type to type, by a different factor for each kind, as in measurements.
std::vector<double> draw_rates(Random& random) {
  std::vector<double> rates = {random.log_uniform(0.5, 50)};
  while (rates.size() < kTypes) rates.push_back(rates.back() / random.uniform(1.2, 4));
  return rates;
}

ShareProblem distinct_problem(std::size_t jobs, Random& random) {
  ShareProblem problem;
  problem.capacity.assign(kTypes, static_cast<double>(jobs) / 4);
  for (std::size_t i = 0; i < jobs; ++i)
    problem.groups.push_back({1, draw_size(random), draw_rates(random)});
  return problem;
}

std::vector<double> equal_scale(const ShareProblem& problem) {
  std::vector<double> scale;
  for (const auto& group : problem.groups) {
    double equal = 0;
    for (const double rate : group.rate) equal += rate / kTypes;
    scale.push_back(group.gpus / equal);
  }
  return scale;
}

// One program of max-min fairness, or a complete water filling, from the basis of a similar
// program. For water filling there are so many GPUs that some of the jobs (of weights 1 to 8) need
// no more. With too few GPUs, all jobs would be stuck at the first level, and there would be
// nothing to fill.
void max_min(benchmark::State& state, bool fill) {
  Random random(1);
  const auto jobs = static_cast<std::size_t>(state.range(0));
  ShareProblem problem = distinct_problem(jobs, random);
  std::vector<double> weight(jobs, 1);
  if (fill) {
    for (auto& w : weight) w = static_cast<double>(1 + random.below(8));
    for (auto& gpus : problem.capacity) gpus *= 2;
  }
  const auto fair_scale = [&](const ShareProblem& p) {
    std::vector<double> scale = equal_scale(p);
    for (std::size_t i = 0; i < jobs; ++i) scale[i] /= weight[i];
    return scale;
  };
  ShareProgram before(problem);
  CHECK(before.water_fill(fair_scale(problem), fill));
  const auto basis = before.basis();
  for (std::size_t i = 0; i < jobs; i += 64) problem.groups[i].rate = draw_rates(random);
  int solves = 0;
  for (auto _ : state) {
    ShareProgram program(problem);
    program.set_basis(basis);
    if (fill) program.set_guess(before.first_level());
    CHECK(program.water_fill(fair_scale(problem), fill));
    solves = program.solves();
  }
  state.counters["programs"] = solves;
}
void max_min_distinct_warm(benchmark::State& state) { max_min(state, false); }
void water_filling_distinct_warm(benchmark::State& state) { max_min(state, true); }
BENCHMARK(max_min_distinct_warm)
    ->ArgName("jobs")
    ->Arg(512)
    ->Arg(2048)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(water_filling_distinct_warm)
    ->ArgName("jobs")
    ->Arg(512)
    ->Arg(2048)
    ->Unit(benchmark::kMillisecond);

void max_min_distinct_cold(benchmark::State& state) {
  Random random(1);
  const ShareProblem problem = distinct_problem(static_cast<std::size_t>(state.range(0)), random);
  for (auto _ : state) {
    ShareProgram program(problem);
    CHECK(program.water_fill(equal_scale(problem), false));
  }
}
BENCHMARK(max_min_distinct_cold)
    ->ArgName("jobs")
    ->Arg(512)
    ->Arg(2048)
    ->Unit(benchmark::kMillisecond);

// Jobs of few kinds on three types, with pairs.
struct Scene {
  Snapshot snapshot;

  Scene(std::size_t jobs, int gpus_per_type, bool single) {
    Random random(2);
    auto table = std::make_shared<ThroughputTable>(kKinds, kTypes);
    std::vector<std::vector<double>> rates;
    for (std::size_t kind = 0; kind < kKinds; ++kind) rates.push_back(draw_rates(random));
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      for (std::size_t t = 0; t < kTypes; ++t) {
        const GpuType type(static_cast<GpuType::rep>(t));
        for (const int gpus : kSizes) {
          table->set_alone(kind, type, gpus, rates[kind][t] * gpus * 0.9);
          for (std::size_t other = 0; other < kKinds; ++other) {
            table->set_beside(kind, other, type, gpus,
                              rates[kind][t] * gpus * random.uniform(0.3, 0.9));
          }
        }
      }
    }
    std::vector<std::shared_ptr<const TypedSpeed>> speeds;
    for (std::size_t kind = 0; kind < kKinds; ++kind)
      speeds.push_back(std::make_shared<TypedSpeed>(table, kind));
    snapshot.cluster = Cluster({{gpus_per_type / 8, 8, GpuType(0)},
                                {gpus_per_type / 8, 8, GpuType(1)},
                                {gpus_per_type / 8, 8, GpuType(2)}},
                               {"a", "b", "c"});
    snapshot.now = time_at(1000);
    for (std::size_t i = 0; i < jobs; ++i) {
      auto spec = std::make_shared<JobSpec>();
      spec->requested = single ? 1 : draw_size(random);
      spec->limits = {spec->requested, spec->requested, {}};
      JobView job;
      job.id = JobId(static_cast<JobId::rep>(i));
      job.spec = std::move(spec);
      job.speed = speeds[random.below(kKinds)];
      job.submitted = time_at(random.uniform(0, 1000));
      job.work = random.log_uniform(1e3, 1e6);
      job.progress = {job.work, kStart, 0};
      snapshot.jobs.insert(std::move(job));
    }
  }
};

void solve(benchmark::State& state, Gavel::Objective objective, bool packing, std::size_t parts) {
  const auto jobs = static_cast<std::size_t>(state.range(0));
  const Scene scene(jobs, static_cast<int>(jobs / 4), false);
  Gavel policy;
  policy.config.objective = objective;
  policy.config.packing = packing;
  policy.config.parts = parts;
  for (auto _ : state) {
    Gavel::State fresh;
    auto shares = policy.shares(scene.snapshot, fresh);
    benchmark::DoNotOptimize(shares.data());
  }
}
void las_grouped(benchmark::State& state) { solve(state, Gavel::Objective::las, false, 1); }
void las_packed_grouped(benchmark::State& state) { solve(state, Gavel::Objective::las, true, 1); }
void finish_time_fairness(benchmark::State& state) {
  solve(state, Gavel::Objective::finish_time_fairness, false, 1);
}
void finish_time_fairness_in_8_parts(benchmark::State& state) {
  solve(state, Gavel::Objective::finish_time_fairness, false, 8);
}
BENCHMARK(las_grouped)->ArgName("jobs")->Arg(2048)->Unit(benchmark::kMillisecond);
BENCHMARK(las_packed_grouped)->ArgName("jobs")->Arg(512)->Unit(benchmark::kMillisecond);
BENCHMARK(finish_time_fairness)
    ->ArgName("jobs")
    ->Arg(256)
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(finish_time_fairness_in_8_parts)
    ->ArgName("jobs")
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);

// POP: what dividing jobs and GPUs into parts gains in time and loses in fairness. All jobs differ,
// and there are 0.75 GPUs per job. `worst` is the least value of a job (throughput x GPUs over the
// throughput on an equal share of every type), `mean` that of all; `below` is the share of jobs
// that get less than 95% of what they get in one part.
struct DistinctScene {
  Snapshot snapshot;

  // The jobs from `first` on; the ones before have ended.
  explicit DistinctScene(std::size_t jobs, std::size_t first = 0) {
    Random random(3);
    const auto nodes = static_cast<int>(jobs / 32);
    snapshot.cluster = Cluster(
        {{nodes, 8, GpuType(0)}, {nodes, 8, GpuType(1)}, {nodes, 8, GpuType(2)}}, {"a", "b", "c"});
    snapshot.now = time_at(1000);
    for (std::size_t i = 0; i < first + jobs; ++i) {
      auto spec = std::make_shared<JobSpec>();
      spec->requested = draw_size(random);
      spec->limits = {spec->requested, spec->requested, {}};
      auto table = std::make_shared<ThroughputTable>(1, kTypes);
      const std::vector<double> rates = draw_rates(random);
      for (std::size_t t = 0; t < kTypes; ++t) {
        table->set_alone(0, GpuType(static_cast<GpuType::rep>(t)), spec->requested,
                         rates[t] * spec->requested);
      }
      if (i < first) continue;
      JobView job;
      job.id = JobId(static_cast<JobId::rep>(i));
      job.spec = std::move(spec);
      job.speed = std::make_shared<TypedSpeed>(std::move(table), 0);
      job.work = 1e5;
      job.progress = {job.work, kStart, 0};
      snapshot.jobs.insert(std::move(job));
    }
  }

  [[nodiscard]] std::vector<double> values(const std::vector<TimeShare>& shares) const {
    std::vector<double> values(shares.size(), 0);
    for (const auto& share : shares) {
      const JobView& job = *snapshot.jobs.find(share.job);
      double equal = 0, reached = 0;
      for (std::size_t t = 0; t < kTypes; ++t) {
        const double rate =
            job.speed->on(GpuType(static_cast<GpuType::rep>(t)), job.spec->requested);
        equal += rate / kTypes;
        reached += share.of_type[t] * rate;
      }
      values[share.job.index()] = reached / equal * job.spec->requested;
    }
    return values;
  }
};

void las_in_parts(benchmark::State& state) {
  const DistinctScene scene(static_cast<std::size_t>(state.range(0)));
  Gavel policy;
  Gavel::State once;
  const std::vector<double> whole = scene.values(policy.shares(scene.snapshot, once));
  policy.config.parts = static_cast<std::size_t>(state.range(1));
  std::vector<double> values;
  for (auto _ : state) {
    Gavel::State fresh;
    values = scene.values(policy.shares(scene.snapshot, fresh));
  }
  double sum = 0, below = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
    below += values[i] < 0.95 * whole[i] ? 1 : 0;
  }
  state.counters["worst"] = *std::min_element(values.begin(), values.end());
  state.counters["mean"] = sum / static_cast<double>(values.size());
  state.counters["below"] = below / static_cast<double>(values.size());
}
// The cost of a solve between rounds: since the last one, one of 64 jobs has ended, and as many are
// new.
void between_rounds(benchmark::State& state, Gavel::Objective objective) {
  const auto jobs = static_cast<std::size_t>(state.range(0));
  const DistinctScene scene(jobs), later(jobs, jobs / 64);
  Gavel policy;
  policy.config.objective = objective;
  Gavel::State before;
  benchmark::DoNotOptimize(policy.shares(scene.snapshot, before).data());
  for (auto _ : state) {
    Gavel::State now = before;
    auto shares = policy.shares(later.snapshot, now);
    benchmark::DoNotOptimize(shares.data());
  }
}
void las_between_rounds(benchmark::State& state) { between_rounds(state, Gavel::Objective::las); }
void finish_time_fairness_between_rounds(benchmark::State& state) {
  between_rounds(state, Gavel::Objective::finish_time_fairness);
}
BENCHMARK(las_between_rounds)->ArgName("jobs")->Arg(2048)->Unit(benchmark::kMillisecond);
BENCHMARK(finish_time_fairness_between_rounds)
    ->ArgName("jobs")
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);

BENCHMARK(las_in_parts)
    ->ArgNames({"jobs", "parts"})
    ->ArgsProduct({{512, 2048}, {1, 2, 4, 8}})
    ->Unit(benchmark::kMillisecond);

void allox(benchmark::State& state) {
  const Scene scene(static_cast<std::size_t>(state.range(0)), static_cast<int>(state.range(1)) / 3,
                    true);
  const Allox policy{{1.0}};
  for (auto _ : state) {
    Allox::State fresh;
    auto decision = policy.decide(scene.snapshot, fresh);
    benchmark::DoNotOptimize(decision.run.data());
  }
}
BENCHMARK(allox)
    ->ArgNames({"jobs", "gpus"})
    ->Args({1024, 768})
    ->Args({1024, 96})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rubato::bench
