#include "rubato/policy/slot_plan.h"

#include <gtest/gtest.h>
#include <queue>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"

namespace rubato::policy {
namespace {

constexpr double kSlotSeconds = 10;

TEST(PriceRange, RisesFromLowToHigh) {
  const PriceRange range{1, 16};
  EXPECT_DOUBLE_EQ(range.at(0), 1);
  EXPECT_DOUBLE_EQ(range.at(0.5), 4);
  EXPECT_DOUBLE_EQ(range.at(1), 16);
}

TEST(SeenJobs, AllGpusAtTheLowPriceCostAQuarterOfTheLeastWorth) {
  SeenJobs seen;
  seen.see(8, 6, 3);
  seen.see(5, 5, 20);
  // 1000 GPU-slots, the smallest job has 3, and the least worth a GPU-slot is 5/20.
  const PriceRange range = seen.range(1000);
  EXPECT_DOUBLE_EQ(range.low, 0.25 / (4 * 1000.0 / 3));
  EXPECT_DOUBLE_EQ(range.high, 8);
}

// Where a job's speed is linear in its GPUs, the cheapest plan that ends by a slot is the cheapest
// GPU-slots up to there: a heap of them, from which the dearest go.
class CheapestGpuSlots {
 public:
  explicit CheapestGpuSlots(int needed) : needed_(needed) {}
  void add(double price, int gpus) {
    for (int i = 0; i < gpus; ++i) {
      taken_.push(price);
      cost_ += price;
      if (static_cast<int>(taken_.size()) <= needed_) continue;
      cost_ -= taken_.top();
      taken_.pop();
    }
  }
  [[nodiscard]] bool enough() const { return static_cast<int>(taken_.size()) == needed_; }
  [[nodiscard]] double cost() const { return cost_; }

 private:
  int needed_;
  std::priority_queue<double> taken_;
  double cost_ = 0;
};

TEST(SlotPlanner, AgreesWithTheHeapWhereSpeedIsLinear) {
  int planned = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < tries(1500); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto draw = [&](int bound) {
      return static_cast<int>(random.below(static_cast<std::uint64_t>(bound)));
    };
    const int gpus = 1 + draw(12);
    const int slots = 2 + draw(20);
    const int most = 1 + draw(gpus);
    const int needed = 1 + draw(most * slots);
    const double value = random.log_uniform(1, 1000);
    const double lost = random.uniform(0, value / slots);  // with every slot
    const PriceRange range{1, random.log_uniform(1, 100)};
    FutureGpus free;
    free.reset(kStart, gpus);
    std::vector<int> room(static_cast<std::size_t>(slots), gpus);
    for (int s = 0; s < slots; ++s) {
      const int taken = draw(gpus + 1);
      room[static_cast<std::size_t>(s)] -= taken;
      free.reserve(time_at(s * kSlotSeconds), time_at((s + 1) * kSlotSeconds), taken);
    }
    CheapestGpuSlots heap(needed);
    double best = 0;
    for (int s = 0; s < slots; ++s) {
      const int here = room[static_cast<std::size_t>(s)];
      heap.add(range.at(1 - static_cast<double>(here) / gpus), std::min(here, most));
      if (heap.enough()) best = std::max(best, value - lost * (s + 1) - heap.cost());
    }
    std::vector<Level> levels;
    for (int k = 1; k <= most; ++k) levels.push_back({k, 3.0 * k});
    const Traveller job{levels, {}, kNever, {0, {3.0 * needed * kSlotSeconds, kStart, 0}}};
    // An end within a slot is worth as much as one at the end of it.
    const Time end = time_at(slots * kSlotSeconds);
    const Worth worth{[&](Time t) { return value - lost * std::ceil(seconds(t) / kSlotSeconds); },
                      end};
    const auto offer =
        SlotPlanner(free, gpus, from_seconds(kSlotSeconds), range).best(job, kStart, worth, end);
    ASSERT_EQ(offer.has_value(), best > 1e-9);
    if (!offer) {
      ++refused;
      continue;
    }
    ++planned;
    EXPECT_NEAR(offer->gain, best, 1e-9 * value);
    EXPECT_TRUE(offer->plan.fits(free));
    EXPECT_LE(offer->plan.finish, end);
    EXPECT_NEAR(offer->plan.gpu_seconds(kStart), needed * kSlotSeconds, 1e-3);
  }
  EXPECT_GT(planned, static_cast<int>(tries(300)));
  EXPECT_GT(refused, static_cast<int>(tries(300)));
}

// All ways to have some count in each slot; the last one is used as far as needed.
double cheapest_of_all(const std::vector<Level>& levels, const std::vector<int>& room,
                       const std::vector<double>& price, Work left, std::size_t s = 0) {
  if (s == room.size()) return 1e300;
  double best = cheapest_of_all(levels, room, price, left, s + 1);
  for (const Level& level : levels) {
    if (level.gpus > room[s]) continue;
    const double part = left / (level.rate * kSlotSeconds);
    const double rest =
        part <= 1 ? 0
                  : cheapest_of_all(levels, room, price, left - level.rate * kSlotSeconds, s + 1);
    best = std::min(best, price[s] * level.gpus * std::min(1.0, part) + rest);
  }
  return best;
}

TEST(SlotPlanner, IsCloseToTheBestOfAllPlansWithCurves) {
  int planned = 0;
  double cost = 0, least = 0;
  for (std::uint64_t seed = 0; seed < tries(400); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const int gpus = 8, slots = 6;
    std::vector<Level> levels;
    double rate = 1;
    for (int k = 1; k <= gpus; k *= 2) {
      levels.push_back({k, rate});
      rate *= random.uniform(1.1, 2);
    }
    const PriceRange range{1, 30};
    FutureGpus free;
    free.reset(kStart, gpus);
    std::vector<int> room;
    std::vector<double> price;
    for (int s = 0; s < slots; ++s) {
      const int taken = static_cast<int>(random.below(9));
      free.reserve(time_at(s * kSlotSeconds), time_at((s + 1) * kSlotSeconds), taken);
      room.push_back(gpus - taken);
      price.push_back(range.at(taken / 8.0));
    }
    const Work left = random.uniform(0.2, 10) * kSlotSeconds;
    const double best = cheapest_of_all(levels, room, price, left);
    const Traveller job{levels, {}, kNever, {0, {left, kStart, 0}}};
    const Time end = time_at(slots * kSlotSeconds);
    const auto offer = SlotPlanner(free, gpus, from_seconds(kSlotSeconds), range)
                           .best(job, kStart, {[](Time) { return 1e6; }, end}, end);
    ASSERT_EQ(offer.has_value(), best < 1e6);
    if (!offer) continue;
    ++planned;
    EXPECT_GE(offer->cost, best * (1 - 1e-9));
    cost += offer->cost;
    least += best;
  }
  EXPECT_GT(planned, static_cast<int>(tries(100)));
  EXPECT_LT(cost, 1.01 * least);
}

TEST(SlotPlanner, ARestartIsPaidWithTimeWheneverTheCountChanges) {
  FutureGpus free;
  free.reset(kStart, 4);
  free.reserve(time_at(10), time_at(20), 3);  // dear
  const std::vector<Level> levels = {{1, 1}, {2, 2}};
  const Traveller job{levels, from_seconds(2), kNever, {0, {16, kStart, 0}}};
  const auto offer = SlotPlanner(free, 4, from_seconds(10), {1, 16})
                         .best(job, kStart, {[](Time) { return 100.0; }, time_at(60)}, time_at(60));
  ASSERT_TRUE(offer.has_value());
  EXPECT_EQ(offer->plan.finish, time_at(10)) << "2 GPUs from 0 s, 2 s of restart, 8 s of work";
  EXPECT_EQ(offer->plan.steps, (std::vector<GpuStep>{{kStart, 2}}));
  EXPECT_DOUBLE_EQ(offer->cost, 2);
}

}  // namespace
}  // namespace rubato::policy
