#include "rubato/math/assignment.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

#include "rubato/base/random.h"

namespace rubato::math {
namespace {

double total(const std::vector<std::size_t>& bin_of, const std::vector<std::vector<double>>& cost) {
  double sum = 0;
  for (std::size_t i = 0; i < bin_of.size(); ++i) sum += cost[i][bin_of[i]];
  return sum;
}

// Tries all assignments.
double cheapest(const std::vector<std::vector<double>>& cost, std::vector<std::size_t> room,
                std::size_t item = 0) {
  if (item == cost.size()) return 0;
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t bin = 0; bin < room.size(); ++bin) {
    if (room[bin] == 0) continue;
    --room[bin];
    best = std::min(best, cost[item][bin] + cheapest(cost, room, item + 1));
    ++room[bin];
  }
  return best;
}

TEST(Assign, IsTheCheapestOfAllWays) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const std::size_t items = 1 + random.below(7), bins = 1 + random.below(4);
    std::vector<std::size_t> capacity;
    for (std::size_t bin = 0; bin < bins; ++bin) capacity.push_back(1 + random.below(3));
    if (std::accumulate(capacity.begin(), capacity.end(), std::size_t{0}) < items) continue;
    std::vector<std::vector<double>> cost(items);
    for (auto& row : cost) {
      for (std::size_t bin = 0; bin < bins; ++bin)
        row.push_back(static_cast<double>(random.below(10)));
    }
    const auto bin_of =
        assign(items, capacity, [&](std::size_t i, std::size_t bin) { return cost[i][bin]; });
    std::vector<std::size_t> used(bins, 0);
    for (const std::size_t bin : bin_of) {
      ASSERT_LT(bin, bins);
      ASSERT_LE(++used[bin], capacity[bin]);
    }
    ASSERT_DOUBLE_EQ(total(bin_of, cost), cheapest(cost, capacity)) << seed;
  }
}

TEST(Assign, CostsOfAllSizesComeToAnEnd) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const std::size_t items = 1 + random.below(40), bins = 1 + random.below(12);
    const auto bin_of = assign(items, std::vector<std::size_t>(bins, 2), [&](auto, auto) {
      return random.below(5) == 0 ? 0 : random.log_uniform(1e-9, 1e9);
    });
    const auto in = std::count_if(bin_of.begin(), bin_of.end(), [](auto b) { return b != kNoBin; });
    ASSERT_EQ(static_cast<std::size_t>(in), std::min(items, 2 * bins));
  }
}

TEST(Assign, WhoFindsNoRoomStaysOut) {
  const double never = std::numeric_limits<double>::infinity();
  const std::vector<std::vector<double>> cost = {{1, never}, {2, never}, {never, 3}};
  const auto bin_of = assign(3, {1, 5}, [&](std::size_t i, std::size_t b) { return cost[i][b]; });
  EXPECT_EQ(bin_of[0], 0U);
  EXPECT_EQ(bin_of[1], kNoBin);
  EXPECT_EQ(bin_of[2], 1U);
  EXPECT_TRUE(assign(0, {}, nullptr).empty());
}

}  // namespace
}  // namespace rubato::math
