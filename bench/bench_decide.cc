// The cost of one decision and of one event, on one core. Compare rows of the same run; seconds
// depend on the machine.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <bit>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/random.h"
#include "rubato/core/decision.h"
#include "rubato/policy/all.h"
#include "rubato/sim/catalogue.h"
#include "rubato/sim/generator.h"
#include "rubato/sim/simulation.h"

namespace rubato::bench {
namespace {

std::unique_ptr<Policy> policy_named(const std::string& name) {
  auto chosen = parse_policies(name);
  CHECK(chosen.ok() && chosen->size() == 1);
  auto policy = chosen->front().make({});
  CHECK(policy.ok());
  return std::move(*policy);
}

// Many jobs that have all just come, on `types` types with as many GPUs each. Their deadlines, if
// they have any, are 1 to 3 times their time on one GPU.
Snapshot crowd(int jobs, int nodes, int types, bool deadlines) {
  Snapshot snapshot;
  std::vector<NodeGroup> groups;
  std::vector<std::string> names;
  for (int t = 0; t < types; ++t) {
    groups.push_back({nodes / types, 8, GpuType(static_cast<GpuType::rep>(t))});
    names.push_back("gpu" + std::to_string(t));
  }
  snapshot.cluster = Cluster(groups, names);
  CatalogueCurves curves;
  Random random(1);
  for (int i = 0; i < jobs; ++i) {
    const Profile& profile = draw_profile(random.split(static_cast<std::uint64_t>(i)));
    auto spec = std::make_shared<JobSpec>();
    spec->limits = {1, profile.largest, {}};
    spec->requested = 1 << (i % 4);  // for policies that do not choose
    JobView job;
    job.id = JobId(static_cast<JobId::rep>(i));
    job.speed = curves.curve(profile, 1);
    const double alone_s = random.log_uniform(60, 86400);
    job.work = alone_s * profile.steps_per_s;
    job.progress = {job.work, kStart, 0};
    if (deadlines)
      spec->deadline = time_at(alone_s * random.split(static_cast<std::uint64_t>(i)).uniform(1, 3));
    job.spec = std::move(spec);
    snapshot.jobs.insert(std::move(job));
  }
  return snapshot;
}

// One elastic decision for all of them.
void decide_elastic(benchmark::State& state, const std::string& name, int types) {
  Snapshot snapshot =
      crowd(static_cast<int>(state.range(0)), static_cast<int>(state.range(1) / 8), types, false);
  const auto policy = policy_named(name);
  for (auto _ : state) {
    auto decision = policy->decide(snapshot);
    CHECK(decision.ok());
    benchmark::DoNotOptimize(decision->run.data());
    snapshot.now += from_seconds(120);  // a policy that decides in rounds decides anew
  }
}
void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"jobs", "gpus"})
      ->Args({100, 4096})
      ->Args({1000, 8192})
      ->Args({10000, 65536})
      ->Unit(benchmark::kMillisecond);
}
void decide_afs(benchmark::State& state) { decide_elastic(state, "afs-l", 1); }
void decide_rubato(benchmark::State& state) { decide_elastic(state, "rubato", 1); }
void decide_rubato_4_types(benchmark::State& state) { decide_elastic(state, "rubato", 4); }
void decide_sia(benchmark::State& state) { decide_elastic(state, "sia", 1); }
void decide_sia_4_types(benchmark::State& state) { decide_elastic(state, "sia", 4); }
BENCHMARK(decide_afs)->Apply(sizes);
BENCHMARK(decide_rubato)->Apply(sizes);
BENCHMARK(decide_rubato_4_types)->Apply(sizes);
void decide_shockwave(benchmark::State& state) { decide_elastic(state, "shockwave", 1); }
BENCHMARK(decide_shockwave)->Apply(sizes);
BENCHMARK(decide_sia)->Args({500, 2048})->Apply(sizes);
BENCHMARK(decide_sia_4_types)->Args({500, 2048})->Apply(sizes);

// Below 20 ms for 1,000 jobs on 512 GPUs: docs/learning.md.
void decide_learned(benchmark::State& state) { decide_elastic(state, "learned", 1); }
void decide_learned_network(benchmark::State& state) {
  decide_elastic(state, "learned:scorer=network", 1);
}
BENCHMARK(decide_learned)->Args({1000, 512})->Apply(sizes);
BENCHMARK(decide_learned_network)->Args({1000, 512})->Apply(sizes);

// The same when the first decision was carried out: the jobs that it chose have its GPUs, and the
// others wait.
void decide_again(benchmark::State& state, const std::string& name) {
  Snapshot snapshot =
      crowd(static_cast<int>(state.range(0)), static_cast<int>(state.range(1) / 8), 1, false);
  const auto policy = policy_named(name);
  const auto first = policy->decide(snapshot);
  CHECK(first.ok());
  for (const Grant& grant : first->run) {
    JobView& job = *snapshot.jobs.find(grant.job);
    job.held = job.target = std::get<Exact>(grant.want).gpus;
    job.first_start = snapshot.now;
    job.progress.rate = job.speed->on(job.target.type(), job.target.gpus());
  }
  for (auto _ : state) {
    auto decision = policy->decide(snapshot);
    CHECK(decision.ok());
    benchmark::DoNotOptimize(decision->run.data());
  }
  state.counters["running"] = static_cast<double>(first->run.size());
}
void decide_again_learned(benchmark::State& state) { decide_again(state, "learned"); }
void decide_again_learned_network(benchmark::State& state) {
  decide_again(state, "learned:scorer=network");
}
BENCHMARK(decide_again_learned)
    ->ArgNames({"jobs", "gpus"})
    ->Args({1000, 512})
    ->Args({1000, 8192})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(decide_again_learned_network)
    ->ArgNames({"jobs", "gpus"})
    ->Args({1000, 512})
    ->Args({1000, 8192})
    ->Unit(benchmark::kMillisecond);

void decide_lyra(benchmark::State& state) { decide_elastic(state, "lyra", 1); }
BENCHMARK(decide_lyra)->Apply(sizes);

// The same by policies that plan: all jobs come at once to a policy that knows none of them. With
// `wait_s` that is not the decision in which they come but one so much later.
void decide_arrivals(benchmark::State& state, const std::string& name, double wait_s) {
  Snapshot snapshot =
      crowd(static_cast<int>(state.range(0)), static_cast<int>(state.range(1) / 8), 1, true);
  for (auto _ : state) {
    state.PauseTiming();
    const auto policy = policy_named(name);
    snapshot.now = kStart;
    if (wait_s > 0) CHECK(policy->decide(snapshot).ok());
    snapshot.now = time_at(wait_s);
    state.ResumeTiming();
    auto decision = policy->decide(snapshot);
    CHECK(decision.ok());
    benchmark::DoNotOptimize(decision->run.data());
  }
}
void decide_oasis(benchmark::State& state) { decide_arrivals(state, "oasis", 0); }
void decide_aonline(benchmark::State& state) { decide_arrivals(state, "aonline:unit=3600", 3600); }
void decide_edge_cloud(benchmark::State& state) { decide_arrivals(state, "edge-cloud", 0); }
BENCHMARK(decide_oasis)->Apply(sizes);
BENCHMARK(decide_aonline)->Apply(sizes);
BENCHMARK(decide_edge_cloud)->Apply(sizes);

// One arrival beside the plans of all others.
void decide_oasis_next(benchmark::State& state) {
  const auto jobs = static_cast<int>(state.range(0));
  const auto nodes = static_cast<int>(state.range(1) / 8);
  Snapshot snapshot = crowd(jobs - 1, nodes, 1, true);
  const auto before = policy_named("oasis");
  const auto first = before->decide(snapshot);
  CHECK(first.ok());
  for (const Reject& reject : first->reject) snapshot.jobs.erase(reject.job);
  snapshot.jobs.insert(
      *crowd(jobs, nodes, 1, true).jobs.find(JobId(static_cast<JobId::rep>(jobs - 1))));
  const Json saved = before->save();
  for (auto _ : state) {
    state.PauseTiming();
    const auto policy = policy_named("oasis");
    CHECK(policy->load(saved).ok());
    state.ResumeTiming();
    auto decision = policy->decide(snapshot);
    CHECK(decision.ok());
    benchmark::DoNotOptimize(decision->run.data());
  }
}
BENCHMARK(decide_oasis_next)->Apply(sizes);

// One answer of elasticflow to one arrival, while many jobs with promises hold all GPUs. `roomy`:
// the new job fits between the plans. `tight`: it must start soon, so all plans are made again.
// `hopeless`: it is refused, and the answer names the earliest feasible deadline.
void admission(benchmark::State& state, double tightness) {
  const auto jobs = static_cast<int>(state.range(0));
  const auto nodes = static_cast<int>(state.range(1) / 8);
  Snapshot snapshot;
  snapshot.cluster = Cluster({{nodes, 8, GpuType()}}, {"gpu"});
  CatalogueCurves curves;
  Random random(1);
  Json saved = {{"gpus", nodes * 8}, {"jobs", Json::array()}};
  int used = 0;
  const auto add = [&](int id, int gpus, double seconds_alone, double slack) {
    const Profile& profile = draw_profile(random.split(static_cast<std::uint64_t>(id)));
    auto spec = std::make_shared<JobSpec>();
    spec->limits = {1, profile.largest, {}};
    spec->restart_cost = from_seconds(7);
    JobView job;
    job.id = JobId(static_cast<JobId::rep>(id));
    job.speed = curves.curve(profile, 1);
    const WorkRate rate = job.speed->on(GpuType(), std::max(1, gpus));
    job.work = seconds_alone * rate;
    job.progress = {job.work, kStart, gpus > 0 ? rate : 0};
    const Time finish = kStart + from_seconds(job.work / rate);
    spec->deadline = kStart + from_seconds(slack * seconds_alone);
    job.spec = std::move(spec);
    for (int i = 0; i < gpus; ++i, ++used) {
      job.target.add(Slice{NodeId(static_cast<NodeId::rep>(used / 8)),
                           std::uint64_t{1} << static_cast<unsigned>(used % 8)});
    }
    if (gpus > 0) {
      saved["jobs"].push_back({{"job", id},
                               {"promised", true},
                               {"finish", finish.time_since_epoch().count()},
                               {"margin", 0},
                               {"plan", {{0, gpus}}}});
    }
    snapshot.jobs.insert(std::move(job));
  };
  for (int i = 0; i < jobs; ++i) {
    const int gpus = std::vector<int>{1, 1, 2, 2, 4, 4, 4, 8}[random.below(8)];
    if (used + gpus <= nodes * 8)
      add(i, gpus, random.log_uniform(600, 86400), random.uniform(1.05, 3));
  }
  int last = jobs;
  while (used < nodes * 8) {
    const auto rest = static_cast<unsigned>(nodes * 8 - used);
    add(last++, static_cast<int>(std::min(8U, std::bit_floor(rest))),
        random.log_uniform(600, 86400), random.uniform(1.05, 3));
  }
  add(last, 0, 3600, tightness);
  std::size_t admitted = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const auto policy = policy_named("elasticflow");
    CHECK(policy->load(saved).ok());
    state.ResumeTiming();
    auto decision = policy->decide(snapshot);
    CHECK(decision.ok());
    admitted += decision->reject.empty() ? 1 : 0;
  }
  state.counters["live"] = static_cast<double>(snapshot.jobs.size() - 1);
  state.counters["free_gpus"] = nodes * 8 - used;
  state.counters["admitted"] =
      static_cast<double>(admitted) / static_cast<double>(state.iterations());
}
void admission_roomy(benchmark::State& state) { admission(state, 3); }
void admission_tight(benchmark::State& state) { admission(state, 0.15); }
void admission_hopeless(benchmark::State& state) { admission(state, 0.002); }
BENCHMARK(admission_roomy)
    ->ArgNames({"jobs", "gpus"})
    ->Args({500, 2048})
    ->Args({5000, 16384})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(admission_tight)
    ->ArgNames({"jobs", "gpus"})
    ->Args({5000, 16384})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(admission_hopeless)
    ->ArgNames({"jobs", "gpus"})
    ->Args({5000, 16384})
    ->Unit(benchmark::kMillisecond);

// The total cost of an event (fold, decide, validate, place, diff, engine, metrics) in a simulation
// with about 20 active jobs.
void event(benchmark::State& state, const std::string& name) {
  GeneratorOptions options;
  options.jobs = 50'000;
  options.cluster_gpus = 64;
  options.load = 0.45;
  const auto trace = generate(options);
  CHECK(trace.ok());
  const auto workload = make_workload(*trace, {});
  CHECK(workload.ok());
  const Cluster cluster({{8, 8, GpuType()}}, {"gpu"});
  double wall = 0;
  double active = 0;
  std::size_t events = 0;
  for (auto _ : state) {
    auto result = simulate(*workload, cluster, *policy_named(name), {});
    CHECK(result.ok());
    wall += result->metrics.wall_s;
    events += result->metrics.events;
    active = *result->metrics.avg_jct_s * static_cast<double>(options.jobs) /
             *result->metrics.makespan_s;
  }
  state.counters["us_per_event"] = 1e6 * wall / static_cast<double>(events);
  state.counters["active_jobs"] = active;
}

const int kRegistered = [] {
  for (const auto& entry : all_policies()) {
    if (entry.elastic) continue;
    benchmark::RegisterBenchmark(("event/" + entry.name).c_str(), [name = entry.name](
                                                                      benchmark::State& s) {
      event(s, name);
    })->Unit(benchmark::kMillisecond);
  }
  return 0;
}();

}  // namespace
}  // namespace rubato::bench
