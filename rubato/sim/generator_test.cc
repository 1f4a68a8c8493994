#include "rubato/sim/generator.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <rapidcheck/gtest.h>
#include <string>
#include <utility>
#include <vector>

namespace rubato::sim {
namespace {

Trace must_generate(const GeneratorOptions& options) {
  auto trace = generate(options);
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  return std::move(*trace);
}

TEST(Generator, SameSeedSameBytes) {
  GeneratorOptions options{.jobs = 500, .seed = 3, .cluster_gpus = 64, .deadline_share = 0.5};
  const auto first = to_csv(must_generate(options));
  EXPECT_EQ(first, to_csv(must_generate(options)));
  options.seed = 4;
  EXPECT_NE(first, to_csv(must_generate(options)));
}

TEST(Generator, OffersTheLoadAskedFor) {
  for (const bool diurnal : {false, true}) {
    const auto trace = must_generate(
        {.jobs = 100'000, .seed = 1, .cluster_gpus = 1000, .load = 0.7, .diurnal = diurnal});
    double gpu_seconds = 0;
    for (const auto& job : trace.jobs) gpu_seconds += job.gpus * *job.duration_s;
    EXPECT_NEAR(gpu_seconds / (1000 * trace.jobs.back().submit_s), 0.7, 0.03) << diurnal;
  }
}

TEST(Generator, FollowsItsDistributions) {
  const auto trace = must_generate({.jobs = 100'000, .jobs_per_hour = 120, .deadline_share = 0.25});
  std::map<int, double> share;
  std::map<std::string, double> user;
  double deadlines = 0;
  double logs = 0;
  for (const auto& job : trace.jobs) {
    share[job.gpus] += 1e-5;
    user[job.user] += 1e-5;
    logs += std::log(*job.duration_s) * 1e-5;
    EXPECT_GE(*job.duration_s, 60);
    EXPECT_LE(*job.duration_s, 86400);
    if (!job.deadline_s) continue;
    deadlines += 1e-5;
    const double tightness = (*job.deadline_s - job.submit_s) / *job.duration_s;
    EXPECT_GT(tightness, 0.5 - 1e-4);
    EXPECT_LT(tightness, 1.5 + 1e-4);
  }
  EXPECT_NEAR(share[1], 0.85, 0.01);
  EXPECT_NEAR(share[8], 0.08, 0.005);
  EXPECT_NEAR(user["user0"] / user["user3"], 4, 0.3);
  EXPECT_NEAR(deadlines, 0.25, 0.01);
  EXPECT_NEAR(logs, (std::log(60) + std::log(86400)) / 2, 0.02);
  EXPECT_NEAR(trace.jobs.back().submit_s, 100'000 * 30.0, 100'000 * 30.0 * 0.02);
}

TEST(Generator, RefusesOptionsThatMakeNoSense) {
  using Change = std::function<void(GeneratorOptions&)>;
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](auto& o) { o.jobs = 0; }, "generate: 0 jobs is not from 1 to 100000000"},
      {[](auto& o) { o.load = 0.5; },
       "generate: a load needs the size of the cluster it is a share of"},
      {[](auto& o) { o.cluster_gpus = 8, o.load = 0.5, o.jobs_per_hour = 1; },
       "generate: give the load or the jobs per hour, not both"},
      {[](auto& o) { o.cluster_gpus = 8, o.load = NAN; }, "generate: the load must be above 0"},
      {[](auto& o) { o.jobs_per_hour = -1; }, "generate: the jobs per hour must be above 0"},
      {[](auto& o) { o.jobs_per_hour = 1e-9; },
       "generate: the trace would last more than 1,000 years"},
      {[](auto& o) { o.cluster_gpus = 0; }, "generate: the cluster has no GPUs"},
      {[](auto& o) { o.shortest_s = 0; },
       "generate: durations from 0 to 86400 s are not a range above 0"},
      {[](auto& o) { o.longest_s = 1; },
       "generate: durations from 60 to 1 s are not a range above 0"},
      {[](auto& o) { o.deadline_share = 2; },
       "generate: the share of jobs with deadlines must be from 0 to 1"},
      {[](auto& o) { o.tightness_low = 2; },
       "generate: tightness from 2 to 1.5 is not a range above 0"},
      {[](auto& o) { o.users = 0; }, "generate: 0 users is not from 1 to 1000000"},
      {[](auto& o) {
         o.gpu_mix = {{0, 1}};
       },
       "generate: 0 GPUs is not a count a job can ask for"},
      {[](auto& o) {
         o.gpu_mix = {{2, -1}};
       },
       "generate: the weight of 2 GPUs must be 0 or more"},
      {[](auto& o) {
         o.cluster_gpus = 4, o.gpu_mix = {{8, 1}};
       },
       "generate: no GPU count with a weight above 0 fits the cluster"},
  };
  for (const auto& [change, message] : cases) {
    GeneratorOptions options;
    change(options);
    const auto trace = generate(options);
    EXPECT_EQ(trace.ok() ? "accepted" : trace.error().message, message);
  }
}

RC_GTEST_PROP(Generator, MakesTracesOurReaderAccepts, (std::uint64_t seed)) {
  const GeneratorOptions options{.jobs = *rc::gen::inRange(1, 50),
                                 .seed = seed,
                                 .cluster_gpus = *rc::gen::inRange(1, 100),
                                 .diurnal = *rc::gen::arbitrary<bool>(),
                                 .deadline_share = 0.5};
  const auto trace = generate(options);
  RC_ASSERT(trace.ok());
  for (const auto& job : trace->jobs) RC_ASSERT(job.gpus <= *options.cluster_gpus);
  const auto csv = to_csv(*trace);
  const auto read = parse_trace(csv, "t.csv", std::nullopt);
  RC_ASSERT(read.ok());
  RC_ASSERT(to_csv(*read) == csv);
}

}  // namespace
}  // namespace rubato::sim
