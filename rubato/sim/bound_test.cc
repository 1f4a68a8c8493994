#include "rubato/sim/bound.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/policy/all.h"
#include "rubato/policy/hesrpt.h"
#include "rubato/policy/testing.h"
#include "rubato/sim/simulation.h"
#include "rubato/sim/testing.h"

namespace rubato::sim {
namespace {

constexpr BoundOptions kQuick{60, 60};

double avg_jct(const Workload& workload, const Cluster& cluster, Policy& policy) {
  const auto result = simulate(workload, cluster, policy, {});
  EXPECT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->metrics.completed, workload.jobs.size());
  return result->metrics.avg_jct_s.value_or(0);
}

std::vector<CurvePoint> draw_curve(Random& random) {
  std::vector<CurvePoint> curve;
  double rate = 1;
  for (const int gpus : {1, 2, 3, 4, 6}) {
    curve.push_back({gpus, rate});
    rate *= random.below(6) == 0 ? 0.9 : random.uniform(1, 1.9);  // not concave, not monotone
  }
  return curve;
}

Workload draw_workload(Random& random, std::uint64_t most_jobs, double restart_s) {
  std::vector<SimJob> jobs;
  double submit_s = 0;
  for (auto left = random.below(most_jobs) + 1; left > 0; --left) {
    const auto work = static_cast<double>(random.below(40));
    if (random.below(4) == 0) {
      jobs.push_back(rigid_job(submit_s, static_cast<int>(random.below(4)) + 1, work, restart_s));
    } else {
      jobs.push_back(elastic_job(submit_s, work, draw_curve(random), restart_s));
    }
    submit_s += static_cast<double>(random.below(2) * random.below(10));
  }
  return workload_of(std::move(jobs));
}

TEST(Bound, AJobAloneIsItsOwnLimit) {
  const auto workload = workload_of({elastic_job(0, 100, {{1, 1}, {2, 1.8}, {4, 2.5}}, 5)});
  const Bound bound = lower_bound(workload, cluster_of("1x4"), kQuick);
  EXPECT_NEAR(bound.alone_s, 5 + 40, 1e-9);
  EXPECT_NEAR(bound.avg_jct_s(), 45, 1e-3);
  // Where it cannot have four GPUs, two are its best.
  EXPECT_NEAR(lower_bound(workload, cluster_of("1x3"), kQuick).alone_s, 5 + 100 / 2.15, 1e-9);
}

TEST(Bound, OneMachineIsShortestRemainingFirst) {
  // On one GPU: 10 s of work from 0, 2 s from 1: done at 12 and 3.
  const auto workload = workload_of({rigid_job(0, 1, 10), rigid_job(1, 1, 2)});
  const Bound bound = lower_bound(workload, cluster_of("1x1"), kQuick);
  EXPECT_NEAR(bound.srpt_s, (12 + 2) / 2.0, 1e-9);
  EXPECT_LE(bound.priced_s, bound.srpt_s + 1e-9);
}

TEST(Bound, JobsThatNeverFitAreNotCounted) {
  const auto workload = workload_of({rigid_job(0, 1, 10), rigid_job(0, 5, 10)});
  EXPECT_EQ(lower_bound(workload, cluster_of("1x4"), kQuick).jobs, 1U);
  EXPECT_EQ(lower_bound(workload_of({rigid_job(0, 5, 10)}), cluster_of("1x4")).avg_jct_s(), 0);
}

// All jobs of length 1 at time 0 on one GPU: the order does not matter, the sum is n(n+1)/2.
TEST(Bound, PricesComeCloseWhereTheAnswerIsKnown) {
  std::vector<SimJob> jobs(20, rigid_job(0, 1, 60));
  const Bound bound = lower_bound(workload_of(std::move(jobs)), cluster_of("1x1"), {300, 200});
  EXPECT_LE(bound.priced_s, 630 + 1e-6);
  EXPECT_GT(bound.priced_s, 0.93 * 630);
}

// The least sum of JCTs over all ways to share whole GPUs second by second, by trying them all:
// jobs whose speeds are whole numbers and which have no better ends than whole seconds.
class BruteForce {
 public:
  BruteForce(std::vector<std::vector<int>> rates, std::vector<int> submit, int gpus)
      : rates_(std::move(rates)), submit_(std::move(submit)), gpus_(gpus) {}

  int least_sum(const std::vector<int>& work) { return search(work, 0, 1'000'000); }

 private:
  int search(const std::vector<int>& left, int now, int best) {
    int waiting = 0;
    for (const int work : left) waiting += work > 0 ? 1 : 0;
    if (waiting == 0) return 0;
    if (best <= 0 || now > 30) return 1'000'000;
    int active = 0;
    for (std::size_t j = 0; j < left.size(); ++j)
      active += left[j] > 0 && submit_[j] <= now ? 1 : 0;
    std::vector<int> next = left;
    share(left, next, 0, gpus_, now, best, active);
    return best;
  }
  void share(const std::vector<int>& left, std::vector<int>& next, std::size_t job, int gpus,
             int now, int& best, int active) {
    if (job == left.size()) {
      best = std::min(best, active + search(next, now + 1, best - active));
      return;
    }
    next[job] = left[job];
    share(left, next, job + 1, gpus, now, best, active);
    if (left[job] <= 0 || submit_[job] > now) return;
    for (int k = 1; k <= std::min<int>(gpus, static_cast<int>(rates_[job].size())); ++k) {
      next[job] = left[job] - rates_[job][static_cast<std::size_t>(k) - 1];
      share(left, next, job + 1, gpus - k, now, best, active);
    }
    next[job] = left[job];
  }

  std::vector<std::vector<int>> rates_;
  std::vector<int> submit_;
  int gpus_;
};

// Whole seconds are one way to schedule, so their best is above the limit; the bound must be below.
TEST(Bound, IsBelowTheBestOfAllSmallSchedules) {
  Random random(11);
  for (int trial = 0; trial < 60; ++trial) {
    const int gpus = static_cast<int>(random.below(2)) + 2;
    std::vector<std::vector<int>> rates;
    std::vector<int> submit, work;
    std::vector<SimJob> jobs;
    int at = 0;
    for (std::uint64_t j = 0; j < 3; ++j) {
      std::vector<CurvePoint> curve;
      std::vector<int> rate;
      int speed = static_cast<int>(random.below(2)) + 1;
      for (int k = 1; k <= gpus; ++k) {
        rate.push_back(speed);
        curve.push_back({k, static_cast<double>(speed)});
        speed += static_cast<int>(random.below(3));
      }
      work.push_back(static_cast<int>(random.below(6)) + 1);
      rates.push_back(rate);
      submit.push_back(at);
      jobs.push_back(elastic_job(at, work.back(), curve));
      at += static_cast<int>(random.below(3));
    }
    const double best = BruteForce(rates, submit, gpus).least_sum(work) / 3.0;
    const auto cluster = cluster_of("1x" + std::to_string(gpus));
    const Bound bound = lower_bound(workload_of(jobs), cluster, kQuick);
    EXPECT_LE(bound.avg_jct_s(), best + 1e-9) << "trial " << trial;
    EXPECT_GT(bound.avg_jct_s(), 0.3 * best) << "trial " << trial << ": it should say something";
  }
}

// Whatever the prices are, no policy beats what they say; nor the tuned ones.
TEST(Bound, NoPolicyBeatsIt) {
  Random random(5);
  std::size_t compared = 0;
  for (int trial = 0; trial < 120 && !HasFailure(); ++trial) {
    const double restart_s = trial % 3 == 0 ? 2 : 0;
    const Workload workload = draw_workload(random, 14, restart_s);
    const auto cluster = cluster_of(trial % 2 == 0 ? "1x4" : "3x2");
    double limit = lower_bound(workload, cluster, kQuick).avg_jct_s();
    for (int i = 0; i < 4; ++i) {
      Prices prices{{0}, {}};
      for (auto left = random.below(8) + 1; left > 0; --left) {
        prices.start_s.push_back(prices.start_s.back() + random.log_uniform(0.1, 60));
        prices.gpu_second.push_back(random.below(3) == 0 ? 0 : random.log_uniform(0.01, 20));
      }
      limit = std::max(limit, priced_bound(workload, cluster, prices) - 1e-6);
    }
    for (const auto& entry : all_policies()) {
      if (entry.name == "edf-admission") continue;  // refuses jobs
      const auto policy = testing::make_policy(entry.name);
      EXPECT_GE(avg_jct(workload, cluster, *policy), limit) << entry.name << ", trial " << trial;
      ++compared;
    }
  }
  EXPECT_GT(compared, 1000U);
}

Workload power_jobs(const std::vector<double>& sizes, double q, int gpus) {
  const auto speed = std::make_shared<PowerSpeed>(q, gpus);
  std::vector<SimJob> jobs;
  for (const double size : sizes) jobs.push_back({elastic_spec(1, gpus), kStart, size, speed});
  return workload_of(std::move(jobs));
}

// With 65,536 GPUs for ten jobs the rounding to whole ones is below the tolerance.
TEST(Hesrpt, TheSimulatedShareMatchesTheClosedForm) {
  constexpr int kGpus = 65536;
  Random random(3);
  for (const double q : {0.2, 0.5, 0.7}) {
    std::vector<double> sizes;
    for (int i = 0; i < 10; ++i) sizes.push_back(random.log_uniform(1e6, 1e8));
    const Workload workload = power_jobs(sizes, q, kGpus);
    const auto cluster = cluster_of("1024x64");
    const double exact = Hesrpt::closed_form(sizes, kGpus, q) / 10;
    const double simulated = avg_jct(workload, cluster, *testing::make_policy("hesrpt"));
    EXPECT_NEAR(simulated / exact, 1, 0.001) << "q = " << q;
    const Bound bound = lower_bound(workload, cluster, {100, 200});
    EXPECT_LE(bound.avg_jct_s(), exact * 1.0001) << "it is the optimum";
    EXPECT_GT(bound.avg_jct_s(), exact * 0.85) << "q = " << q;
    EXPECT_GT(avg_jct(workload, cluster, *testing::make_policy("equal")), exact);
  }
}

}  // namespace
}  // namespace rubato::sim
