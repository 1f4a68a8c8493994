#include "rubato/model/search.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"

namespace rubato::model {
namespace {

TrialStanding of(const SearchRule& rule, const std::vector<TrialResults>& trials, std::size_t i) {
  return standings(rule, trials)[i];
}

TEST(SearchRule, HalvesUntilOneIsLeft) {
  const SearchRule eight{8, 2};
  EXPECT_EQ(eight.stages(), 3);
  EXPECT_EQ(eight.survivors(1), 4);
  EXPECT_EQ(eight.survivors(2), 2);
  EXPECT_EQ(eight.survivors(3), 1);
  EXPECT_EQ(eight.survivors(9), 1);
  EXPECT_EQ(eight.stage_end(1), 1);
  EXPECT_EQ(eight.stage_end(3), 4);
  const SearchRule nine{9, 3};
  EXPECT_EQ(nine.stages(), 2);
  EXPECT_EQ(nine.survivors(1), 3);
  EXPECT_EQ(nine.survivors(2), 1);
  EXPECT_EQ((SearchRule{2, 1000}.stages()), 1);
}

TEST(SearchRule, JudgesATrialAsSoonAsItsFateIsCertain) {
  const SearchRule rule{4, 2};  // two go on after stage 1, one after stage 2
  std::vector<TrialResults> trials(4);
  EXPECT_EQ(of(rule, trials, 0).stage, 0);
  trials[0].metrics = {0.5};
  EXPECT_EQ(of(rule, trials, 0), (TrialStanding{TrialVerdict::waits, 1, 1, 1}));
  trials[1].metrics = {0.4};
  EXPECT_EQ(of(rule, trials, 0), (TrialStanding{TrialVerdict::waits, 1, 2, 2}));
  EXPECT_EQ(of(rule, trials, 1).verdict, TrialVerdict::waits);
  trials[2].metrics = {0.45};
  EXPECT_EQ(of(rule, trials, 0), (TrialStanding{TrialVerdict::stops, 1, 3, 3}));
  EXPECT_EQ(of(rule, trials, 1).verdict, TrialVerdict::goes_on);  // one more can be better
  EXPECT_EQ(of(rule, trials, 2).verdict, TrialVerdict::waits);
  trials[0].over = true;
  trials[3].over = true;  // it failed
  EXPECT_EQ(of(rule, trials, 2).verdict, TrialVerdict::goes_on);
}

TEST(SearchRule, AMissingMetricIsTheWorstAndEqualOnesCountInOrder) {
  const SearchRule rule{4, 2, true};
  std::vector<TrialResults> trials(4);
  trials[0].metrics = {std::nullopt};
  trials[1].metrics = {0.5};
  trials[2].metrics = {0.5};
  trials[3].metrics = {0.5};
  EXPECT_EQ(of(rule, trials, 0), (TrialStanding{TrialVerdict::stops, 1, 4, 4}));
  EXPECT_EQ(of(rule, trials, 1).verdict, TrialVerdict::goes_on);
  EXPECT_EQ(of(rule, trials, 2).verdict, TrialVerdict::goes_on);
  EXPECT_EQ(of(rule, trials, 3), (TrialStanding{TrialVerdict::stops, 1, 3, 4}));
}

TEST(SearchRule, ALateTrialStopsOneThatWentOn) {
  const SearchRule rule{2, 2};
  std::vector<TrialResults> trials(1);
  trials[0].metrics = {0.5};
  EXPECT_EQ(of(rule, trials, 0).verdict, TrialVerdict::goes_on);  // the other is not there yet
  trials.push_back({{0.3}, false});
  EXPECT_EQ(of(rule, trials, 0).verdict, TrialVerdict::stops);
}

TEST(SearchRule, SaysWhoWasStopped) {
  EXPECT_EQ(stopped_text({TrialVerdict::stops, 2, 7, 8}, "loss"),
            "stopped after stage 2: 7th of 8 by loss");
  EXPECT_EQ(ordinal(1) + ordinal(2) + ordinal(3) + ordinal(11) + ordinal(22) + ordinal(112),
            "1st2nd3rd11th22nd112th");
}

// Plain successive halving, all trials at once: who is stopped after which stage (0: nobody).
std::vector<int> halved(const SearchRule& rule, const std::vector<std::vector<double>>& curves) {
  std::vector<int> stopped(curves.size(), 0);
  std::vector<std::size_t> alive(curves.size());
  std::iota(alive.begin(), alive.end(), 0U);
  for (int stage = 1; stage <= rule.stages(); ++stage) {
    std::stable_sort(alive.begin(), alive.end(), [&](std::size_t a, std::size_t b) {
      const double one = curves[a][static_cast<std::size_t>(stage - 1)];
      const double two = curves[b][static_cast<std::size_t>(stage - 1)];
      return one != two ? (rule.highest ? one > two : one < two) : a < b;
    });
    const auto left = static_cast<std::size_t>(rule.survivors(stage));
    for (std::size_t i = left; i < alive.size(); ++i) stopped[alive[i]] = stage;
    alive.resize(std::min(alive.size(), left));
  }
  return stopped;
}

// In any order of reports, and whether trials wait or not, the same trials are stopped as by plain
// successive halving, and none is ever stuck. If they wait, they are stopped after the same stages.
// (A trial that runs on may be beaten in a later stage before its fate in an earlier one is known.)
TEST(SearchRule, StopsWhomSuccessiveHalvingStops) {
  for (std::uint64_t seed = 0; seed < seeds(400) && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    const SearchRule rule{static_cast<int>(2 + random.below(20)),
                          static_cast<int>(2 + random.below(3)), random.below(2) == 0};
    const bool waits = random.below(2) == 0;
    const auto n = static_cast<std::size_t>(rule.trials);
    std::vector<std::vector<double>> curves(n);
    for (auto& curve : curves) {
      for (int s = 0; s < rule.stages(); ++s)
        curve.push_back(static_cast<double>(random.below(8)));  // with equal ones
    }
    std::vector<TrialResults> trials(n);
    std::vector<int> stopped(n, 0);
    for (;;) {
      std::vector<std::size_t> can;
      const auto places = standings(rule, trials);
      for (std::size_t i = 0; i < n; ++i) {
        const bool held = waits && places[i].verdict == TrialVerdict::waits;
        const bool done = static_cast<int>(trials[i].metrics.size()) == rule.stages();
        if (!trials[i].over && !held && !done) can.push_back(i);
      }
      if (can.empty()) break;
      const std::size_t next = can[random.below(can.size())];
      trials[next].metrics.emplace_back(curves[next][trials[next].metrics.size()]);
      const auto then = standings(rule, trials);
      for (std::size_t i = 0; i < n; ++i) {
        const TrialStanding& now = then[i];
        if (trials[i].over || now.verdict != TrialVerdict::stops) continue;
        trials[i].over = true;
        stopped[i] = now.stage;
      }
    }
    for (std::size_t i = 0; i < n; ++i)
      EXPECT_TRUE(trials[i].over || of(rule, trials, i).verdict == TrialVerdict::goes_on);
    const auto expected = halved(rule, curves);
    if (waits) {
      EXPECT_EQ(stopped, expected) << "seed " << seed;
    }
    for (std::size_t i = 0; i < n; ++i)
      EXPECT_EQ(stopped[i] == 0, expected[i] == 0) << "seed " << seed << " trial " << i;
    EXPECT_EQ(std::count(stopped.begin(), stopped.end(), 0), 1) << "seed " << seed;
  }
}

}  // namespace
}  // namespace rubato::model
