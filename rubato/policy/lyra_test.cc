#include "rubato/policy/lyra.h"

#include <gtest/gtest.h>

#include "rubato/base/random.h"
#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::decide_once;
using testing::make_policy;
using testing::rates;
using testing::World;

constexpr double kHour = 3600;

TEST(Lyra, SpareGpusGoWhereCompletionTimesFallMost) {
  EXPECT_EQ(decide_once("lyra", "1x4",
                        {{.work = 4 * kHour, .curve = rates({1, 2, 3})},
                         {.work = 2 * kHour, .curve = rates({1, 2})}}),
            "0x2 1x2")
      << "one each saves 3 h, both for the first 2.67 h";
}

TEST(Lyra, BaseDemandsComeFirstTheShortestJobFirst) {
  World world("1x3");
  const auto policy = make_policy("lyra");
  world.submit({.work = 100, .curve = rates({1, 2, 3})});
  EXPECT_EQ(world.decide(*policy), "0x3");
  world.submit({.gpus = 2, .work = 50});
  world.submit({.gpus = 2, .work = 20});
  EXPECT_EQ(world.decide(*policy), "0x1 2x2") << "the first gives back what is beyond its base";
  world.submit({.gpus = 1, .work = 1});
  EXPECT_EQ(world.decide(*policy), "0x1 2x2") << "nobody is preempted for a shorter one";
}

// All choices of all jobs.
double best_of_all(std::span<const std::vector<Further>> choices, int gpus) {
  if (choices.empty()) return 0;
  double best = best_of_all(choices.subspan(1), gpus);
  for (const Further& choice : choices.front()) {
    if (choice.gpus <= gpus)
      best = std::max(best, choice.value + best_of_all(choices.subspan(1), gpus - choice.gpus));
  }
  return best;
}

TEST(Lyra, TheKnapsackIsExactAndTheGreedyOneCloseToIt) {
  double exact = 0, greedy = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    std::vector<std::vector<Further>> choices(1 + random.below(5));
    for (auto& of_job : choices) {
      Further last;
      const auto many = random.below(4);
      for (std::uint64_t i = 0; i < many; ++i) {
        last.gpus += 1 + static_cast<int>(random.below(3));
        last.value += random.uniform(0, 5);
        of_job.push_back(last);
      }
    }
    const int gpus = static_cast<int>(random.below(14));
    const auto worth = [&](const std::vector<int>& given) {
      double value = 0;
      int used = 0;
      for (std::size_t i = 0; i < choices.size(); ++i) {
        used += given[i];
        for (const Further& choice : choices[i])
          value += choice.gpus == given[i] ? choice.value : 0;
      }
      EXPECT_LE(used, gpus);
      return value;
    };
    const double best = best_of_all(choices, gpus);
    EXPECT_NEAR(worth(exact_knapsack(choices, gpus)), best, 1e-9) << "seed " << seed;
    exact += best;
    greedy += worth(greedy_knapsack(choices, gpus));
  }
  EXPECT_GT(greedy, 0.95 * exact);
}

}  // namespace
}  // namespace rubato::policy
