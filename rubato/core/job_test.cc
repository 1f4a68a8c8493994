#include "rubato/core/job.h"

#include <gtest/gtest.h>
#include <optional>
#include <vector>

#include "rubato/core/testing.h"

namespace rubato::core {
namespace {

TEST(GpuLimits, AboveWalksExactlyTheLegalCounts) {
  for (const GpuLimits& limits :
       {GpuLimits{1, 1, {}}, GpuLimits{1, 8, {}}, GpuLimits{3, 5, {}},
        GpuLimits{1, 8, {1, 2, 4, 8}}, GpuLimits{2, 6, {2, 6}}, GpuLimits{4, 4, {4}}}) {
    std::vector<int> legal;
    for (int gpus = -3; gpus < 20; ++gpus) {
      if (limits.legal(gpus)) legal.push_back(gpus);
    }
    EXPECT_EQ(limits.smallest(), legal.front());
    for (int gpus = -3; gpus < 20; ++gpus) {
      std::optional<int> next;
      for (auto at = legal.rbegin(); at != legal.rend() && *at > gpus; ++at) next = *at;
      EXPECT_EQ(limits.above(gpus), next) << gpus;
    }
  }
}

TEST(Progress, FallsFromItsMomentOnAndNeverBelowNothing) {
  const Progress progress{100, time_at(10), 2};
  EXPECT_EQ(progress.left(time_at(0)), 100) << "nothing is done while it restarts";
  EXPECT_EQ(progress.left(time_at(10)), 100);
  EXPECT_EQ(progress.left(time_at(30)), 60);
  EXPECT_EQ(progress.left(time_at(60)), 0);
  EXPECT_EQ(progress.left(time_at(1000)), 0);
  EXPECT_EQ((Progress{5, kStart, 0}).left(time_at(1e9)), 5);
}

TEST(JobView, CountsServiceOnlyWhileItHoldsGpus) {
  JobView job = job_view(job_id(0), rigid_spec(2));
  EXPECT_EQ(job.attained(time_at(50)), GpuTime());
  EXPECT_EQ(job.ran(time_at(50)), Duration(0));
  job.held = gpus_on({{0, 0b11}});
  job.counted_from = time_at(50);
  job.attained_before = GpuTime::from_gpu_seconds(7);
  job.ran_before = from_seconds(3);
  EXPECT_EQ(job.attained(time_at(60)), GpuTime::from_gpu_seconds(27));
  EXPECT_EQ(job.ran(time_at(60)), from_seconds(13));
  EXPECT_FALSE(job.has_run());
}

TEST(JobSpec, AnEndIsWorthWhatItsUtilityOrItsDeadlineSays) {
  JobSpec spec;
  spec.weight = 3;
  EXPECT_EQ(spec.worth(kStart, time_at(1e9)), 3);
  spec.deadline = time_at(10);
  EXPECT_EQ(spec.worth(kStart, time_at(10)), 3);
  EXPECT_EQ(spec.worth(kStart, time_at(10) + Duration(1)), 0);
  spec.utility = Utility{8, 0.5, from_seconds(20)};
  EXPECT_EQ(spec.worth(time_at(5), time_at(25)), 4) << "at its target, whatever the deadline";
  EXPECT_NEAR(spec.worth(time_at(5), time_at(5)), 8, 1e-3);
  EXPECT_EQ(spec.worth(time_at(5), time_at(1e9)), 0);
  spec.utility = Utility{8, 0, {}};
  EXPECT_EQ(spec.worth(kStart, time_at(1e9)), 4) << "without decay always the same";
}

}  // namespace
}  // namespace rubato::core
