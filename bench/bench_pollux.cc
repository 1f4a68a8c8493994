// The cost and the quality of a search of Pollux. Compare rows of the same run; seconds depend on
// the machine. The workloads are those published with Pollux, in ../shared/data/pollux. Without
// them, only the generated searches run.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/random.h"
#include "rubato/policy/pollux.h"
#include "rubato/sim/catalogue.h"
#include "rubato/sim/simulation.h"

namespace rubato::bench {
namespace {

const std::string kData = "../shared/data/pollux";

bool data_is_here(benchmark::State& state) {
  if (std::filesystem::is_directory(kData)) return true;
  state.SkipWithError("run it beside the public data: ../shared/data/pollux");
  return false;
}

Workload published_workload(int number) {
  const auto trace =
      read_trace(kData + "/workloads/workload-" + std::to_string(number) + ".csv", std::nullopt);
  CHECK(trace.ok());
  auto profiles = read_profiles(kData + "/profiles");
  CHECK(profiles.ok());
  WorkloadOptions options;
  options.profiles = std::move(*profiles);
  auto workload = make_workload(*trace, options);
  CHECK(workload.ok());
  return std::move(*workload);
}

SimulationOptions every_minute() {
  SimulationOptions options;
  options.interval = from_seconds(60);
  return options;
}

// One search for many jobs, all present at once and none of them running.
void search(benchmark::State& state) {
  const auto jobs = static_cast<int>(state.range(0));
  const auto nodes = static_cast<int>(state.range(1));
  Snapshot snapshot;
  snapshot.now = time_at(3600);
  snapshot.cluster = Cluster({{nodes, 8, GpuType()}}, {"gpu"});
  CatalogueCurves curves;
  Random random(1);
  for (int i = 0; i < jobs; ++i) {
    const Profile& profile = draw_profile(random.split(static_cast<std::uint64_t>(i)));
    auto spec = std::make_shared<JobSpec>();
    spec->limits = {1, profile.largest, {}};
    JobView job;
    job.id = JobId(static_cast<JobId::rep>(i));
    job.spec = std::move(spec);
    job.speed = curves.curve(profile, 1);
    snapshot.jobs.insert(std::move(job));
  }
  double mean = 0;
  for (auto _ : state) {
    Pollux::State fresh;
    const Decision decision = Pollux{}.decide(snapshot, fresh);
    benchmark::DoNotOptimize(decision.run.data());
    mean = fresh.mean;
  }
  state.counters["mean_speedup"] = mean;
}
BENCHMARK(search)
    ->ArgNames({"jobs", "nodes"})
    ->Args({20, 16})
    ->Args({60, 16})
    ->Args({1000, 512})
    ->Unit(benchmark::kMillisecond);

// A whole workload of 160 jobs, with a search every minute.
void workload(benchmark::State& state) {
  if (!data_is_here(state)) return;
  const Workload jobs = published_workload(static_cast<int>(state.range(0)));
  const Cluster cluster({{16, 4, GpuType()}}, {"gpu"});
  double hours = 0;
  for (auto _ : state) {
    const auto policy = erase(Pollux{});
    const auto result = simulate(jobs, cluster, *policy, every_minute());
    CHECK(result.ok());
    hours = *result->metrics.avg_jct_s / 3600;
    state.counters["decisions"] = static_cast<double>(result->metrics.decisions);
  }
  state.counters["avg_jct_h"] = hours;
}
BENCHMARK(workload)->ArgName("number")->Arg(1)->Arg(7)->Unit(benchmark::kSecond)->Iterations(1);

// For each decision with the full budget, also takes one with a tenth of it on the same snapshot.
// The second one keeps its own state.
class Beside final : public Policy {
 public:
  explicit Beside(const Pollux::Config& less) : less_{less} {}

  Result<Decision> decide(const Snapshot& snapshot) override {
    Decision decision = full_.decide(snapshot, full_state_);
    decision.as_of = snapshot.as_of;
    less_state_.restarts = before_;
    const Decision other = less_.decide(snapshot, less_state_);
    benchmark::DoNotOptimize(other.run.data());
    before_ = full_state_.restarts;
    if (!snapshot.jobs.empty()) ratios.push_back(less_state_.mean / full_state_.mean);
    return decision;
  }
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const override {
    return full_.least_gpus(spec, speed);
  }
  [[nodiscard]] Json save() const override { return {}; }
  Result<void> load(const Json& /*state*/) override { return {}; }

  std::vector<double> ratios;

 private:
  Pollux full_, less_;
  Pollux::State full_state_, less_state_;
  std::map<JobId, int> before_;
};

void a_tenth_of_the_budget(benchmark::State& state) {
  if (!data_is_here(state)) return;
  Pollux::Config less;
  less.population = static_cast<int>(state.range(1));
  less.generations = static_cast<int>(state.range(2));
  const Workload jobs = published_workload(static_cast<int>(state.range(0)));
  const Cluster cluster({{16, 4, GpuType()}}, {"gpu"});
  for (auto _ : state) {
    Beside policy(less);
    CHECK(simulate(jobs, cluster, policy, every_minute()).ok());
    auto& ratios = policy.ratios;
    double sum = 0;
    for (const double ratio : ratios) sum += ratio;
    state.counters["mean"] = sum / static_cast<double>(ratios.size());
    state.counters["p01"] = *percentile(ratios, 0.01);
    state.counters["worst"] = *percentile(ratios, 0);
    state.counters["within_2%"] =
        static_cast<double>(std::count_if(ratios.begin(), ratios.end(),
                                          [](double ratio) { return ratio >= 0.98; })) /
        static_cast<double>(ratios.size());
  }
}
BENCHMARK(a_tenth_of_the_budget)
    ->ArgNames({"number", "population", "generations"})
    ->ArgsProduct({{1, 2, 3, 4, 5, 7, 8}, {32}, {31}})
    ->Args({3, 100, 10})
    ->Unit(benchmark::kSecond)
    ->Iterations(1);

}  // namespace
}  // namespace rubato::bench
