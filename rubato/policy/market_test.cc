#include "rubato/policy/market.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include "rubato/base/random.h"
#include "rubato/model/curve.h"
#include "rubato/model/measured_speed.h"
#include "rubato/policy/hesrpt.h"
#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::cluster_of;
using testing::Draft;
using testing::rates;

// ---- the auction ----

// The most that so many GPUs can be worth, by trying every division.
double best_worth(const std::vector<std::vector<Auction::Point>>& bids, std::size_t from,
                  int gpus) {
  if (from == bids.size()) return 0;
  double best = 0;
  for (const auto& point : bids[from]) {
    if (point.gpus <= gpus)
      best = std::max(best, point.worth + best_worth(bids, from + 1, gpus - point.gpus));
  }
  return best;
}

TEST(Auction, IsTheBestDivisionOfConcaveWorths) {
  Random random(1);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<std::vector<Auction::Point>> bids;
    Auction auction;
    for (std::uint32_t i = 0; i < 4; ++i) {
      std::vector<Auction::Point> points = {{0, 0}};
      double step = random.uniform(1, 10);
      for (int gpus = 1; gpus <= 5; ++gpus) {
        points.push_back({gpus, points.back().worth + step});
        step *= random.uniform(0.3, 1);
      }
      auction.bid(i, points);
      bids.push_back(std::move(points));
    }
    const int gpus = static_cast<int>(random.below(22));
    std::vector<int> won(4, 0);
    const double price =
        auction.give_out(gpus, won, [](std::uint32_t, int has, int, int) { return has; });
    double worth = 0;
    for (std::size_t i = 0; i < 4; ++i) worth += bids[i][static_cast<std::size_t>(won[i])].worth;
    EXPECT_NEAR(worth, best_worth(bids, 0, gpus), 1e-9);
    EXPECT_EQ(std::accumulate(won.begin(), won.end(), 0), std::min(gpus, 20));
    EXPECT_EQ(price > 0, gpus < 20);
    // The price is what one GPU more adds.
    if (gpus < 20) {
      EXPECT_NEAR(price, best_worth(bids, 0, gpus + 1) - worth, 1e-9);
    }
  }
}

TEST(Auction, PassesOverWhatIsBelowTheConcaveCurveAndFillsTheRest) {
  Auction auction;
  auction.bid(0, {{0, 0}, {1, 1}, {4, 20}});  // one GPU alone is worth little
  auction.bid(1, {{0, 0}, {2, 6}});
  std::vector<int> won(2, 0);
  const auto smaller = [](std::uint32_t, int has, int, int room) { return has + room; };
  EXPECT_DOUBLE_EQ(auction.give_out(5, won, smaller), 3);
  EXPECT_EQ(won, (std::vector<int>{4, 1}));
}

TEST(Auction, TheLastMakeRoomForWhoDoesNotFit) {
  Auction auction;
  auction.bid(0, {{0, 0}, {4, 40}});
  auction.bid(1, {{0, 0}, {6, 54}});
  auction.bid(2, {{0, 0}, {2, 4}});
  std::vector<int> won(3, 0);
  const auto whole = [](std::uint32_t, int has, int, int) { return has; };
  EXPECT_DOUBLE_EQ(auction.give_out(8, won, whole), 9);
  EXPECT_EQ(won, (std::vector<int>{0, 6, 2}));
}

// Steps by slope, each of which is given if it fits.
double greedy_worth(std::vector<Auction::Point> bids, int gpus) {
  std::stable_sort(bids.begin(), bids.end(), [](const auto& a, const auto& b) {
    return a.worth / a.gpus > b.worth / b.gpus;
  });
  double worth = 0;
  for (const auto& bid : bids) {
    if (bid.gpus > gpus) continue;
    gpus -= bid.gpus;
    worth += bid.worth;
  }
  return worth;
}

TEST(Auction, OfRigidBidsIsNoWorseThanTheSteepestThatFit) {
  Random random(2);
  double all = 0, greedy = 0, best = 0;
  const auto whole = [](std::uint32_t, int has, int, int) { return has; };
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<std::vector<Auction::Point>> bids;
    std::vector<Auction::Point> points;
    Auction auction;
    for (std::uint32_t i = 0; i < 8; ++i) {
      const int gpus = 1 << random.below(4);
      points.push_back({gpus, gpus * random.uniform(1, 2)});
      bids.push_back({{0, 0}, points.back()});
      auction.bid(i, bids.back());
    }
    const int gpus = 1 + static_cast<int>(random.below(24));
    std::vector<int> won(8, 0);
    auction.give_out(gpus, won, whole);
    EXPECT_LE(std::accumulate(won.begin(), won.end(), 0), gpus);
    double worth = 0;
    for (std::size_t i = 0; i < 8; ++i) worth += won[i] > 0 ? points[i].worth : 0;
    EXPECT_GE(worth, greedy_worth(points, gpus) - 1e-9);
    all += worth;
    greedy += greedy_worth(points, gpus);
    best += best_worth(bids, 0, gpus);
  }
  EXPECT_LT(best - all, 0.5 * (best - greedy));
}

// ---- the menu ----

TEST(Menu, HasTheCornersOfTheConcaveCurve) {
  const Draft draft{.curve = rates({1, 1.5, 2.9, 3, 2})};
  const auto spec = draft.spec();
  const auto speed = draft.speed();
  const Cluster cluster = cluster_of("1x8");
  const Menu menu(*spec, *speed, cluster);
  std::vector<int> gpus;
  for (const Choice& choice : menu.corners(GpuType())) gpus.push_back(choice.gpus);
  EXPECT_EQ(gpus, (std::vector<int>{1, 3, 4}));
  EXPECT_EQ(menu.between(GpuType(), 1, 2, 1)->gpus, 2);
  EXPECT_FALSE(menu.between(GpuType(), 1, 1, 1).has_value());
  EXPECT_EQ(menu.first(GpuType(), 1, 8)->gpus, 1);
  EXPECT_FALSE(menu.first(GpuType(), 1, 0).has_value());
}

TEST(Menu, GuessesAtMostTwiceWhatIsKnown) {
  const Draft draft{.gpus = 2, .curve = rates({1, 2, 3, 4, 5, 6, 7, 8})};
  const auto spec = draft.spec();
  const MeasuredSpeed speed({{2, 2.0}}, 8);
  const Cluster cluster = cluster_of("1x8");
  const Menu menu(*spec, speed, cluster);
  EXPECT_EQ(menu.corners(GpuType()).back().gpus, 4);
  EXPECT_NEAR(menu.corners(GpuType()).back().rate, 2 * std::pow(2, 0.7), 1e-9);
}

// ---- prices ----

struct Stall {
  std::vector<std::shared_ptr<const JobSpec>> specs;
  std::vector<std::shared_ptr<const SpeedModel>> speeds;
  std::vector<std::unique_ptr<Menu>> menus;
  std::vector<Trader> traders;

  void add(const Cluster& cluster, std::shared_ptr<const SpeedModel> speed, int most, Work left) {
    auto spec = std::make_shared<JobSpec>();
    spec->limits = {1, most, {}};
    menus.push_back(std::make_unique<Menu>(*spec, *speed, cluster));
    specs.push_back(std::move(spec));
    speeds.push_back(std::move(speed));
    Trader trader;
    trader.menu = menus.back().get();
    trader.left = left;
    traders.push_back(trader);
  }
};

// For speeds k^q heSRPT is optimal, and in the limit of many jobs and GPUs its shares are ours.
TEST(Market, SharesAreThoseOfHesrptInTheLimit) {
  for (const double q : {0.3, 0.5, 0.7}) {
    const Cluster cluster = cluster_of("2000x10");
    Stall stall;
    const std::size_t n = 40;
    for (std::size_t i = 0; i < n; ++i)
      stall.add(cluster, std::make_shared<PowerSpeed>(q, 20000), 20000, 1000.0 * (n - i));
    Market market({20000}, {20000}, 0, false);
    std::vector<double> prices;
    for (int i = 0; i < 30; ++i) market.divide(stall.traders, prices);
    // All work together is worth the jobs that are there, and a GPU q n / K.
    EXPECT_NEAR(prices[0], q * n / 20000, 0.03 * q * n / 20000) << q;
    for (std::size_t i = 0; i < n; ++i) {
      const double share = Hesrpt::share(i + 1, n, q) * 20000;  // from the largest job on
      EXPECT_NEAR(stall.traders[i].won.gpus, share, 0.06 * share + 60) << q << " job " << i;
    }
  }
}

// Newcomers will be there when the long job ends, so that its work is worth more beside a short
// one.
TEST(Market, WhereJobsKeepComingTheLongHaveMore) {
  const Cluster cluster = cluster_of("100x10");
  const auto share_of_the_long = [&](bool newcomers) {
    Stall stall;
    for (int i = 0; i < 10; ++i)
      stall.add(cluster, std::make_shared<PowerSpeed>(0.5, 1000), 1000, 100.0 * (i + 1));
    Market market({1000}, {1000}, 0, newcomers);
    std::vector<double> prices;
    for (int i = 0; i < 20; ++i) market.divide(stall.traders, prices);
    return stall.traders.back().won.gpus;
  };
  EXPECT_GT(share_of_the_long(true), 2 * share_of_the_long(false));
}

TEST(Market, UnknownLengthsAreComparedByChance) {
  std::vector<Trader> traders(2);
  traders[0].cost = 1;
  traders[1].cost = 1000;
  set_later(traders);
  EXPECT_DOUBLE_EQ(traders[0].later, 0.75);
  EXPECT_DOUBLE_EQ(traders[1].later, 0.25);
  traders[0].certain = traders[1].certain = false;
  set_later(traders);
  EXPECT_NEAR(traders[0].later, 0.75, 0.01);
  EXPECT_NEAR(traders[1].later, 0.25, 0.01);
  traders[1].cost = 1;
  set_later(traders);
  EXPECT_NEAR(traders[0].later, 0.5, 1e-9);
}

TEST(Market, WhoRunsIsNotMovedForLessThanItsRestart) {
  const Cluster cluster = cluster_of("1x4");
  Stall stall;
  for (int i = 0; i < 2; ++i)
    stall.add(cluster, std::make_shared<PowerSpeed>(0.5, 4), 4, 1000.0 + i);
  stall.traders[0].now = {GpuType(), 1, 1};
  stall.traders[1].now = {GpuType(), 3, std::sqrt(3.0)};
  std::vector<double> prices;
  Market market({4}, {4}, 0, false);
  market.divide(stall.traders, prices);
  EXPECT_EQ(stall.traders[0].won.gpus, 3);  // the shorter one, where changes cost nothing
  for (Trader& trader : stall.traders) trader.restart_s = 400;
  market.divide(stall.traders, prices);
  EXPECT_EQ(stall.traders[0].won.gpus, 1);
}

TEST(Market, AFloorIsKeptAndNotSoldTwice) {
  const Cluster cluster = cluster_of("1x4:a,1x4:b");
  Stall stall;
  for (int i = 0; i < 5; ++i)
    stall.add(cluster, std::make_shared<PowerSpeed>(0.9, 4), 4, 10.0 + 100 * i);
  Trader& tied = stall.traders[4];
  tied.tied = true;
  tied.floor = {GpuType(1), 2, std::pow(2, 0.9)};
  std::vector<double> prices;
  Market market({4, 4}, {4, 2}, 0, false);
  market.divide(stall.traders, prices);
  EXPECT_EQ(tied.won.type, GpuType(1));
  EXPECT_GE(tied.won.gpus, 2);
  std::vector<int> used(2, 0);
  for (const Trader& trader : stall.traders) used[trader.won.type.index()] += trader.won.gpus;
  EXPECT_LE(used[0], 4);
  EXPECT_LE(used[1], 4);
}

// Between decisions a GPU is idle once its job has ended: then fewer GPUs do.
TEST(Market, KnowsThatGpusChangeHandsOnlySoOften) {
  const Cluster cluster = cluster_of("1x8");
  Stall stall;
  stall.add(cluster, std::make_shared<PowerSpeed>(1, 8), 8, 10);
  stall.add(cluster, std::make_shared<PowerSpeed>(0.7, 8), 8, 1e5);
  std::vector<double> prices;
  Market(std::vector<int>{8}, {8}, 0, false).divide(stall.traders, prices);
  EXPECT_GE(stall.traders[0].won.gpus, 4);
  prices.clear();
  Market(std::vector<int>{8}, {8}, 7200, false).divide(stall.traders, prices);
  EXPECT_EQ(stall.traders[0].won.gpus, 1);
}

}  // namespace
}  // namespace rubato::policy
