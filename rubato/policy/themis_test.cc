#include "rubato/policy/themis.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <vector>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::make_policy;
using testing::World;
using Bid = Themis::Bid;

Bid bid_of(int gpus, double nothing, const std::vector<double>& value_by_type) {
  Bid bid;
  bid.gpus = gpus;
  bid.log_nothing = std::log(nothing);
  for (const double value : value_by_type) {
    const GpuType type(static_cast<GpuType::rep>(bid.options.size()));
    bid.options.push_back({type, std::log(value)});
  }
  return bid;
}

// The largest log product over all ways to allocate the offer.
double best_by_trying(const std::vector<Bid>& bids, const Themis::Offer& offer, std::size_t from) {
  if (from == bids.size()) return 0;
  double best = bids[from].log_nothing + best_by_trying(bids, offer, from + 1);
  for (const auto& option : bids[from].options) {
    Themis::Offer rest = offer;
    if ((rest[option.type.index()] -= bids[from].gpus) < 0) continue;
    best = std::max(best, option.log_value + best_by_trying(bids, rest, from + 1));
  }
  return best;
}

std::vector<Bid> draw_bids(std::size_t types) {
  std::vector<Bid> bids;
  const int count = *rc::gen::inRange(1, 6);
  for (int i = 0; i < count; ++i) {
    std::vector<double> values;
    for (std::size_t t = 0; t < types; ++t) values.push_back(*rc::gen::inRange(1, 40) / 10.0);
    bids.push_back(bid_of(*rc::gen::inRange(1, 5), *rc::gen::inRange(1, 20) / 10.0, values));
  }
  return bids;
}

void check_feasible(const std::vector<Bid>& bids, Themis::Offer offer,
                    const Themis::Allotment& allotment) {
  for (std::size_t i = 0; i < bids.size(); ++i) {
    if (allotment.won[i]) offer[allotment.won[i]->index()] -= bids[i].gpus;
  }
  for (const int left : offer) RC_ASSERT(left >= 0);
}

RC_GTEST_PROP(ThemisAuction, MaximisesTheProductOfValues, ()) {
  const Themis::Offer offer = {*rc::gen::inRange(0, 9), *rc::gen::inRange(0, 7)};
  const auto bids = draw_bids(offer.size());
  const auto allotment = Themis::auction(bids, offer);
  check_feasible(bids, offer, allotment);
  RC_ASSERT(std::abs(allotment.log_product - best_by_trying(bids, offer, 0)) < 1e-9);
}

RC_GTEST_PROP(ThemisAuction, AWinnerKeepsAFractionAndAllOfItWhereNobodyElseWantsIt, ()) {
  const Themis::Offer offer = {*rc::gen::inRange(0, 9), *rc::gen::inRange(0, 7)};
  const auto bids = draw_bids(offer.size());
  const auto allotment = Themis::auction(bids, offer);
  const Themis::Offer plenty = {25, 25};
  const auto everything = Themis::auction(bids, plenty);
  for (std::size_t i = 0; i < bids.size(); ++i) {
    if (allotment.won[i]) {
      const double kept = Themis::kept_fraction(bids, offer, allotment, i);
      RC_ASSERT(kept > 0 && kept <= 1);
    }
    if (everything.won[i]) {
      RC_ASSERT(Themis::kept_fraction(bids, plenty, everything, i) > 1 - 1e-9);
    }
  }
}

RC_GTEST_PROP(ThemisAuction, LargeOffersAreGivenOutFeasiblyToo, ()) {
  const Themis::Offer offer = {40, 30};  // more subsets than the exact search tries
  RC_ASSERT(std::size_t{41} * 31 > Themis::kExactOffers);
  auto bids = draw_bids(offer.size());
  for (auto& bid : bids) bid.gpus *= 8;
  const auto allotment = Themis::auction(bids, offer);
  check_feasible(bids, offer, allotment);
  RC_ASSERT(allotment.log_product <= best_by_trying(bids, offer, 0) + 1e-9);
}

TEST(ThemisAuction, TheHiddenPaymentIsWhatTheOthersLose) {
  // One GPU; the first gains 3/1, the second 2/1. Without the first, the second would have had 2.
  const std::vector<Bid> bids = {bid_of(1, 1, {3}), bid_of(1, 1, {2})};
  const auto allotment = Themis::auction(bids, {1});
  ASSERT_EQ(allotment.won[0], GpuType());
  EXPECT_EQ(allotment.won[1], std::nullopt);
  EXPECT_NEAR(Themis::kept_fraction(bids, {1}, allotment, 0), 0.5, 1e-12);
}

TEST(Themis, AtTheEndOfALeaseTheWorstTreatedWins) {
  const auto policy = make_policy("themis:f=1");
  World world("1x1");
  world.submit({.work = 5000});
  EXPECT_EQ(world.decide(*policy), "0x1");
  EXPECT_EQ(world.last().again_at, time_at(1200));
  world.pass(600);
  world.submit({.work = 100});
  EXPECT_EQ(world.decide(*policy), "0x1") << "a lease is a promise";
  world.pass(600);
  // rho with nothing: (600 + 100 + 1200) / 200 against (1200 + 3800 + 1200) / 7500.
  EXPECT_EQ(world.decide(*policy), "1x1");
}

TEST(Themis, ThePriceOfTheAuctionIsPaidInTime) {
  const auto policy = make_policy("themis:f=0");
  World world("1x1");
  world.submit({.work = 1000});
  world.submit({.work = 3000});
  // V(nothing) and V(GPU) of the loser differ by (3000 + 1200) / 3000.
  EXPECT_EQ(world.decide(*policy), "0x1");
  ASSERT_TRUE(world.last().again_at);
  EXPECT_NEAR(seconds(*world.last().again_at), 1200 * 3000.0 / 4200, 1e-3);
}

TEST(Themis, LeftoversGoToTheOthersAndNothingIdles) {
  const auto policy = make_policy("themis:f=1");
  World world("1x4");
  for (int i = 0; i < 3; ++i) world.submit({.work = 100});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1 2x1");
}

TEST(Themis, ALargeGangIsNotShutOutByASteadyStreamOfSmallOnes) {
  const auto policy = make_policy("themis");
  std::vector<testing::Draft> jobs = {{.gpus = 4, .work = 1000, .submit_s = 1}};
  for (int i = 0; i < 200; ++i) jobs.push_back({.gpus = 1, .work = 900, .submit_s = 230.0 * i});
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const auto& a, const auto& b) { return a.submit_s < b.submit_s; });
  World world("1x4");
  const auto fates = world.run(*policy, jobs);
  const auto gang = static_cast<std::size_t>(
      std::find_if(jobs.begin(), jobs.end(), [](const auto& j) { return j.gpus == 4; }) -
      jobs.begin());
  EXPECT_LT(seconds(*fates[gang].end), 20000);
}

}  // namespace
}  // namespace rubato::policy
