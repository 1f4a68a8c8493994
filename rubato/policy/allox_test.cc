#include "rubato/policy/allox.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

#include "rubato/base/random.h"
#include "rubato/core/testing.h"
#include "rubato/model/typed_speed.h"
#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::make_policy;
using testing::World;

TEST(Allox, TheShortestStartFirstOnOneGpu) {
  World world("1x1");
  const auto policy = make_policy("allox:alpha=1");
  world.submit({.gpus = 1, .work = 30});
  world.submit({.gpus = 1, .work = 10});
  world.submit({.gpus = 1, .work = 20});
  EXPECT_EQ(world.decide(*policy), "1x1");
  world.pass(1);
  world.submit({.gpus = 1, .work = 1});
  EXPECT_EQ(world.decide(*policy), "1x1") << "nobody is preempted";
  world.pass(9).finish(job_id(1));
  EXPECT_EQ(world.decide(*policy), "3x1");
}

TEST(Allox, OnlyTheLeastServedUsersEnter) {
  World world("1x1");
  const auto policy = make_policy("allox:alpha=0.5");
  const auto submit = [&](const char* user, double work) {
    auto spec = rigid_spec(1);
    spec->user = user;
    return world.submit_job({world.now(), spec, std::make_shared<ConstantSpeed>(1), work});
  };
  const JobId first = submit("ann", 5);
  submit("bob", 100);
  world.decide(*policy);
  EXPECT_EQ(world.last().run.front().job, first) << "of equal users the first enters";
  world.pass(5);
  submit("ann", 1);
  world.finish(first);
  EXPECT_EQ(world.decide(*policy), "1x1") << "ann has been served, bob has not";
}

// The smallest sum of completion times, by trying all orders of all jobs on all GPUs.
double least_total(const std::vector<std::vector<double>>& length, std::vector<std::vector<int>> on,
                   std::size_t job, const std::vector<std::size_t>& type_of) {
  if (job == length.size()) {
    double total = 0;
    for (std::size_t gpu = 0; gpu < on.size(); ++gpu) {
      std::vector<double> lengths;
      for (const int i : on[gpu])
        lengths.push_back(length[static_cast<std::size_t>(i)][type_of[gpu]]);
      std::sort(lengths.begin(), lengths.end());
      double end = 0;
      for (const double one : lengths) total += end += one;
    }
    return total;
  }
  double best = 1e300;
  for (auto& queue : on) {
    queue.push_back(static_cast<int>(job));
    best = std::min(best, least_total(length, on, job + 1, type_of));
    queue.pop_back();
  }
  return best;
}

TEST(Allox, WithoutArrivalsItIsOptimal) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::size_t jobs = 1 + random.below(6);
    const std::vector<std::size_t> type_of = {0, 1, 1};
    auto table = std::make_shared<ThroughputTable>(jobs, 2);
    std::vector<std::vector<double>> length(jobs);
    Snapshot snapshot;
    snapshot.cluster = cluster_of("1x1:a,2x1:b");
    for (std::size_t i = 0; i < jobs; ++i) {
      for (std::size_t t = 0; t < 2; ++t) {
        const double rate = random.log_uniform(0.5, 8);
        table->set_alone(i, gpu_type(t), 1, rate);
        length[i].push_back(100 / rate);
      }
      JobView job = job_view(job_id(i), rigid_spec(1));
      job.speed = std::make_shared<TypedSpeed>(table, i);
      job.progress = {100, kStart, 0};
      snapshot.jobs.insert(std::move(job));
    }
    const auto policy = make_policy("allox:alpha=1");
    double total = 0;
    std::map<JobId, Time> end;
    std::vector<int> free_nodes = {1, 2};
    while (!snapshot.jobs.empty()) {
      const Decision decision = policy->decide(snapshot).value();
      ASSERT_TRUE(validate(decision, snapshot).ok());
      for (const auto& grant : decision.run) {
        if (end.contains(grant.job)) continue;
        const GpuType type = std::get<Count>(grant.want).type;
        ASSERT_GE(--free_nodes[type.index()], 0);
        JobView& job = *snapshot.jobs.find(grant.job);
        job.target = job.held = gpus_on({{0, 1}}, type);
        job.progress = {100, snapshot.now, job.speed->on(type, 1)};
        end[grant.job] = snapshot.now + from_seconds(length[grant.job.index()][type.index()]);
      }
      ASSERT_FALSE(end.empty()) << "somebody must run";
      const auto next = std::min_element(
          end.begin(), end.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
      snapshot.now = next->second;
      total += seconds(snapshot.now);
      ++free_nodes[snapshot.jobs.find(next->first)->target.type().index()];
      snapshot.jobs.erase(next->first);
      end.erase(next);
    }
    const double least = least_total(length, std::vector<std::vector<int>>(3), 0, type_of);
    EXPECT_NEAR(total, least, 1e-3);
  }
}

}  // namespace
}  // namespace rubato::policy
