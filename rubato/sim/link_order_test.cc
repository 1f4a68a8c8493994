#include "rubato/sim/link_order.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"

namespace rubato::sim {
namespace {

// The sum of completion times if stages send one after the other on each link, in this order.
double sum_of_ends(const std::vector<LinkDemand>& stages, const std::vector<std::size_t>& order) {
  LinkDemand busy;
  double sum = 0;
  for (const std::size_t i : order) {
    double end = 0;
    for (const auto& [link, seconds] : stages[i]) end = std::max(end, busy[link] += seconds);
    sum += end;
  }
  return sum;
}

std::vector<std::size_t> sequence(const std::vector<int>& place) {
  std::vector<std::size_t> order(place.size());
  for (std::size_t i = 0; i < place.size(); ++i) order[static_cast<std::size_t>(place[i])] = i;
  return order;
}

// Two searches on two links: X sends 4 and 1, Y 1 and 1. Y first gives 6, X first 9.
TEST(LinkOrder, ShortStagesGoFirst) {
  const std::vector<LinkDemand> stages = {{{0, 4}, {1, 1}}, {{0, 1}, {1, 1}}};
  EXPECT_EQ(order_of_stages(stages), (std::vector<int>{1, 0}));
  EXPECT_EQ(sum_of_ends(stages, {1, 0}), 6);
  EXPECT_EQ(sum_of_ends(stages, {0, 1}), 9);
}

TEST(LinkOrder, StagesThatSendNothingHaveAPlaceToo) {
  const std::vector<LinkDemand> stages = {{}, {{3, 2}}, {}};
  auto place = order_of_stages(stages);
  std::sort(place.begin(), place.end());
  EXPECT_EQ(place, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(order_of_stages({}).empty());
}

// Never more than four times the best order (what Sincronia proves for schedules), and on average
// close to it.
TEST(LinkOrder, IsNearTheBestOfAllOrders) {
  double ours = 0, best_of_all = 0;
  const std::uint64_t seeds = tries(200);
  for (std::uint64_t seed = 0; seed < seeds && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    std::vector<LinkDemand> stages(2 + random.below(4));
    for (auto& stage : stages) {
      for (std::size_t link = 0; link < 4; ++link) {
        if (random.below(2) == 0) stage[link] = random.uniform(0.1, 10);
      }
    }
    const double found = sum_of_ends(stages, sequence(order_of_stages(stages)));
    std::vector<std::size_t> order(stages.size());
    std::iota(order.begin(), order.end(), 0U);
    double best = found;
    do {
      best = std::min(best, sum_of_ends(stages, order));
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_LE(found, 4 * best + 1e-9) << "seed " << seed;
    ours += found;
    best_of_all += best;
  }
  EXPECT_LT(ours, 1.1 * best_of_all);
}

TEST(LinkOrder, ByFallingIntensity) {
  EXPECT_EQ(order_by_intensity(std::vector<double>{1, 5, 5, 0}), (std::vector<int>{1, 0, 0, 2}));
}

TEST(LinkOrder, Names) {
  EXPECT_EQ(parse_link_order("grouper").value(), LinkOrder::grouper);
  EXPECT_EQ(parse_link_order("first").error().message,
            "--link-order \"first\": must be fair, intensity or grouper");
}

}  // namespace
}  // namespace rubato::sim
