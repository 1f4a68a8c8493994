// The guarantees of Gandiva, Gandiva_fair, Themis and shares between users, seen from outside: GPU
// time by tickets, pairs that pay off, and the worst finish-time fairness on the public traces.
#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing.h"
#include "rubato/policy/testing.h"
#include "rubato/sim/generator.h"
#include "rubato/sim/report.h"
#include "rubato/sim/testing.h"

namespace rubato::sim {
namespace {

using testing::make_policy;

SimulationResult run(const Workload& workload, const std::string& cluster,
                     const std::string& policy, SimulationOptions options = {}) {
  const Cluster machines = cluster_of(cluster);
  auto result = simulate(workload, machines, *make_policy(policy), options);
  EXPECT_TRUE(result.ok()) << policy << ": " << result.error().message;
  return std::move(*result);
}

// ---- tickets ----

// Generated jobs, all present from the start, divided among users with 1, 2, 3, ... tickets.
Workload dealt_out(int users, int jobs, std::uint64_t seed, int gpus) {
  GeneratorOptions options;
  options.jobs = jobs;
  options.seed = seed;
  options.cluster_gpus = gpus;
  options.shortest_s = 3600;
  options.longest_s = 21600;
  Trace trace = generate(options).value();
  Random random(seed);
  for (auto& job : trace.jobs) {
    const auto user = random.below(static_cast<std::uint64_t>(users));
    job.submit_s = trace.jobs.front().submit_s;
    job.user = "user" + std::to_string(user);
    job.weight = static_cast<double>(user + 1);
  }
  return make_workload(trace, {}).value();
}

// Until when each user's unfinished jobs ask for at least the user's share of the GPUs.
Time all_have_enough(const Workload& workload, const Recorder& recorder, int gpus) {
  std::map<std::string, std::pair<double, double>> users;  // tickets, GPUs asked for
  std::vector<std::pair<Time, std::size_t>> ends;
  for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
    const JobSpec& spec = *workload.jobs[i].spec;
    auto& [tickets, demand] = users[spec.user];
    tickets = spec.weight;
    demand += spec.requested;
    if (recorder.jobs()[i].end) ends.emplace_back(*recorder.jobs()[i].end, i);
  }
  double all_tickets = 0;
  for (const auto& [name, user] : users) all_tickets += user.first;
  std::sort(ends.begin(), ends.end());
  for (const auto& [end, i] : ends) {
    auto& [tickets, demand] = users.at(workload.jobs[i].spec->user);
    demand -= workload.jobs[i].spec->requested;
    if (demand < tickets / all_tickets * gpus) return end;
  }
  return kNever;
}

std::map<std::string, double> gpu_time(const Workload& workload, const Recorder& recorder,
                                       Time until) {
  std::map<std::string, double> by_user;
  for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
    const auto& history = recorder.jobs()[i].gpus;
    for (std::size_t h = 0; h < history.size(); ++h) {
      const Time from = std::min(history[h].first, until);
      const Time to = h + 1 < history.size() ? std::min(history[h + 1].first, until) : until;
      by_user[workload.jobs[i].spec->user] += history[h].second * seconds(to - from);
    }
  }
  return by_user;
}

class Tickets : public ::testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(Tickets, GpuTimeOfUsersIsWithinFivePercentOfTheirTickets) {
  const auto& [cluster, policy] = GetParam();
  const int gpus = cluster_of(cluster).installed();
  for (const std::uint64_t seed : {1U, 2U}) {
    const Workload workload = dealt_out(4, 300, seed, cluster_of(cluster).largest_type());
    SimulationOptions options;
    options.record.history = true;
    const auto result = run(workload, cluster, policy, options);
    const Time until = all_have_enough(workload, result.recorder, gpus);
    ASSERT_GT(until, time_at(6 * 3600)) << "too few jobs to tell";
    double all = 0;
    const auto by_user = gpu_time(workload, result.recorder, until);
    for (const auto& [user, time] : by_user) all += time;
    for (const auto& [user, time] : by_user) {
      const double tickets = std::stod(user.substr(4)) + 1;
      EXPECT_NEAR(time / all / (tickets / 10), 1, 0.05)
          << user << " of seed " << seed << " until " << seconds(until) / 3600 << " h";
    }
    EXPECT_GT(all / (gpus * seconds(until)), 0.9) << "and the GPUs are in use";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Tickets,
    ::testing::Values(std::pair("4x8", "gandiva-fair"), std::pair("16x2", "gandiva-fair"),
                      std::pair("2x8:a,4x4:b", "gandiva-fair:trade=off"),
                      std::pair("4x8", "gandiva-fair:quantum=600"),
                      std::pair("4x8", "gavel-hierarchical"),
                      std::pair("4x8", "gavel-hierarchical:resolve=0"),
                      std::pair("16x2", "gavel-hierarchical"),
                      std::pair("2x8:a,4x4:b", "gavel-hierarchical"),
                      std::pair("2x8:a,4x4:b", "gavel-hierarchical:round=60,resolve=0")));

// ---- pairs ----

TEST(Packing, APairThatIsBetterThanSlicingStaysTogether) {
  // Speeds 8 of 10 and 3 of 4: 1.55 instead of 1.
  const auto table = pair_table();
  const auto workload = workload_of({typed_job(0, 8000, table, 0), typed_job(0, 3000, table, 1)});
  const auto packed = run(workload, "1x1", "gandiva");
  EXPECT_EQ(packed.recorder.jobs()[0].end, time_at(1000));
  EXPECT_EQ(packed.recorder.jobs()[1].end, time_at(1000));
  const auto sliced = run(workload, "1x1", "gandiva:packing=off");
  EXPECT_EQ(sliced.metrics.makespan_s, 800 + 750);
}

TEST(Packing, APairThatIsNoBetterIsTriedOnceAndParted) {
  // Speeds 5 of 10 twice: what slicing gives without the interference.
  const auto table = pair_table();
  const auto workload = workload_of({typed_job(0, 6000, table, 0), typed_job(0, 6000, table, 0)});
  const auto result = run(workload, "1x1", "gandiva");
  // Ten seconds at half speed each, which is what they would have had; then turns of a minute.
  EXPECT_EQ(result.metrics.makespan_s, 1200);
  EXPECT_EQ(run(workload, "1x1", "gandiva:packing=off").metrics.makespan_s, 1200);
}

TEST(Packing, PairsPartWhenGpusIdle) {
  const auto table = pair_table();
  const auto workload = workload_of(
      {typed_job(0, 100, table, 0), typed_job(0, 8000, table, 0), typed_job(0, 3200, table, 1)});
  // Jobs 0 and 1 start; job 2 joins the first until that ends at 100 / 8 s and then has its GPU.
  const auto result = run(workload, "1x2", "gandiva");
  EXPECT_EQ(result.recorder.jobs()[0].end, time_at(12.5));
  EXPECT_EQ(result.recorder.jobs()[1].end, time_at(800));
  EXPECT_EQ(result.recorder.jobs()[2].end, time_at(12.5 + (3200 - 37.5) / 4));
}

// Random speeds alone and in pairs on two types, gangs, failures and restarts. Whatever pairs form
// and separate, the loop accepts every decision, every job ends, and two runs give the same bytes.
TEST(Packing, RandomPairsNeverBreakTheLoop) {
  for (std::uint64_t seed = 0; seed < 150 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    auto table = std::make_shared<ThroughputTable>(3, 2);
    for (std::size_t row = 0; row < 3; ++row) {
      for (std::size_t type = 0; type < 2; ++type) {
        for (const int gpus : {1, 2}) {
          const double alone = random.uniform(1, 4);
          table->set_alone(row, gpu_type(type), gpus, alone);
          for (std::size_t other = 0; other < 3; ++other) {
            const double share = random.below(4) == 0 ? 0 : random.uniform(0.2, 0.9);
            table->set_beside(row, other, gpu_type(type), gpus, alone * share);
          }
        }
      }
    }
    Workload workload;
    workload.name = "pairs";
    const double restart_s = random.below(2) == 0 ? 0 : 2;
    double submit_s = 0;
    for (std::uint64_t i = 0; i < 5 + random.below(20); ++i) {
      const int gpus = random.below(3) == 0 ? 2 : 1;
      auto spec = rigid_spec(gpus);
      spec->restart_cost = from_seconds(restart_s);
      spec->user = "user" + std::to_string(random.below(3));
      spec->weight = static_cast<double>(1 + random.below(3));
      workload.jobs.push_back({spec, time_at(submit_s), static_cast<double>(random.below(200)),
                               std::make_shared<TypedSpeed>(table, random.below(3))});
      submit_s += static_cast<double>(random.below(2) * random.below(30));
    }
    SimulationOptions options;
    options.record.history = true;
    options.placement = static_cast<Placement>(random.below(3));
    for (std::size_t node = 0; node < 3; ++node) {
      const double down = static_cast<double>(random.below(100));
      options.node_events.push_back({time_at(down), node_id(node), NodeState::down});
      options.node_events.push_back({time_at(down + 20), node_id(node), NodeState::up});
    }
    std::stable_sort(options.node_events.begin(), options.node_events.end(),
                     [](const NodeEvent& a, const NodeEvent& b) { return a.at < b.at; });
    for (const auto* policy : {"gandiva:quantum=7,trial=2", "gandiva:quantum=3,trial=0",
                               "gandiva-fair:quantum=5", "themis:lease=11"}) {
      std::vector<std::string> files;
      for (int twice = 0; twice < 2; ++twice) {
        auto result = run(workload, "2x1:a,1x2:b", policy, options);
        EXPECT_EQ(result.metrics.completed, workload.jobs.size()) << policy;
        std::vector<sim::Run> runs;
        runs.push_back({policy, "", false, result.metrics, std::move(result.recorder)});
        files.push_back(jobs_csv(workload, runs));
      }
      EXPECT_EQ(files[0], files[1]) << policy;
    }
  }
}

// ---- public traces ----

const std::string kFairData = shared_data();

struct PublicCase {
  std::string trace, throughputs, cluster;
};

const PublicCase kGavel{"gavel/96jobs.trace", "gavel/throughputs.json",
                        "8x1:v100,16x1:p100,24x1:k80"};
const PublicCase kShockwave{"shockwave/220jobs.trace", "shockwave/throughputs-tacc.json",
                            "8x4:v100"};

bool public_data_is_here() { return std::filesystem::is_directory(kFairData); }

Workload public_workload(const PublicCase& data, bool single_gpu_jobs = false) {
  WorkloadOptions options;
  options.throughputs =
      read_throughputs(kFairData + "/" + data.throughputs, cluster_of(data.cluster)).value();
  options.restart_cost_s = 0;
  Trace trace = read_trace(kFairData + "/" + data.trace, std::nullopt).value();
  if (single_gpu_jobs) std::erase_if(trace.jobs, [](const auto& job) { return job.gpus != 1; });
  return make_workload(trace, options).value();
}

TEST(Themis, WorstRhoIsBelowThoseOfLasAndSrtfOnPublicTraces) {
  if (!public_data_is_here()) GTEST_SKIP() << "the public traces are not here: " << kFairData;
  for (const PublicCase& data : {kGavel, kShockwave}) {
    const Workload workload = public_workload(data);
    const auto worst = [&](const std::string& policy) {
      return *run(workload, data.cluster, policy).metrics.ftf_max;
    };
    const double themis = worst("themis");
    EXPECT_LT(themis, worst("tiresias-las")) << data.trace;
    EXPECT_LT(themis, worst("srtf")) << data.trace;
  }
}

double average_jct_h(const Workload& workload, const std::string& policy) {
  SimulationOptions options;
  options.placement = Placement::count;
  return *run(workload, kGavel.cluster, policy, options).metrics.avg_jct_s / 3600;
}

TEST(Gavel, AverageJctIsThatOfThePublishedCode) {
  if (!public_data_is_here()) GTEST_SKIP() << "the public traces are not here: " << kFairData;
  const Workload workload = public_workload(kGavel);
  for (const auto& [policy, published_h] : {std::pair("gavel-las", 4.1),
                                            {"gavel-las:aware=off", 5.5},
                                            {"fifo-perf", 5.42},
                                            {"isolated", 5.52}}) {
    EXPECT_NEAR(average_jct_h(workload, policy) / published_h, 1, 0.05) << policy;
  }
}

TEST(Allox, AverageJctOfJobsOnOneGpuIsNotAboveThoseOfFifoPerfAndSrtf) {
  if (!public_data_is_here()) GTEST_SKIP() << "the public traces are not here: " << kFairData;
  const Workload workload = public_workload(kGavel, true);
  ASSERT_EQ(workload.jobs.size(), 59U);
  const double allox = average_jct_h(workload, "allox");
  EXPECT_LE(allox, average_jct_h(workload, "fifo-perf"));
  EXPECT_LE(allox, average_jct_h(workload, "srtf"));
}

}  // namespace
}  // namespace rubato::sim
