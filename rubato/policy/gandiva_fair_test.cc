#include "rubato/policy/gandiva_fair.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <rapidcheck/gtest.h>
#include <string>
#include <vector>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::Job;
using testing::make_policy;
using testing::World;
using User = GandivaFair::User;
using Shares = GandivaFair::Shares;

double total(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST(GandivaFairShares, FollowTicketsOnEveryType) {
  const auto shares = GandivaFair::entitle({{1, 100, {1, 1}}, {3, 100, {1, 1}}}, {8, 4});
  EXPECT_EQ(shares, (Shares{{2, 1}, {6, 3}}));
}

TEST(GandivaFairShares, WhatOneCannotUseGoesToTheOthers) {
  const auto shares = GandivaFair::entitle({{1, 1, {1}}, {1, 100, {1}}, {2, 100, {1}}}, {10});
  EXPECT_NEAR(shares[0][0], 1, 1e-12);
  EXPECT_NEAR(shares[1][0], 3, 1e-12);
  EXPECT_NEAR(shares[2][0], 6, 1e-12);
}

TEST(GandivaFairTrade, LeastSpeedupSellsToTheMostAtTheSecondHighest) {
  // Speedups 1.2, 2 and 5; two of each GPU type for everybody.
  const std::vector<User> users = {{1, 100, {1, 1 / 1.2}}, {1, 100, {1, 0.5}}, {1, 100, {1, 0.2}}};
  Shares shares = {{2, 2}, {2, 2}, {2, 2}};
  GandivaFair::trade(users, shares);
  // The third buys one fast GPU for its two slow ones; the second then buys the other fast GPU of
  // the first, at the first's own 1.2.
  EXPECT_NEAR(shares[2][0], 3, 1e-9);
  EXPECT_NEAR(shares[2][1], 0, 1e-9);
  EXPECT_NEAR(shares[1][0], 3, 1e-9);
  EXPECT_NEAR(shares[1][1], 0.8, 1e-9);
  EXPECT_NEAR(shares[0][0], 0, 1e-9);
  EXPECT_NEAR(shares[0][1], 5.2, 1e-9);
}

RC_GTEST_PROP(GandivaFairTrade, NobodyLosesAndNoGpuIsMadeOrLost, ()) {
  const auto types = *rc::gen::inRange<std::size_t>(2, 5);
  std::vector<User> users(*rc::gen::inRange<std::size_t>(1, 9));
  for (User& user : users) {
    user.tickets = *rc::gen::inRange(1, 6);
    user.demand = *rc::gen::inRange(1, 40);
    for (std::size_t t = 0; t < types; ++t)
      user.rates.push_back(*rc::gen::inRange(0, 12) / 10.0);  // 0: cannot run there
  }
  std::vector<int> gpus;
  for (std::size_t t = 0; t < types; ++t) gpus.push_back(*rc::gen::inRange(0, 20));
  const Shares before = GandivaFair::entitle(users, gpus);
  Shares after = before;
  GandivaFair::trade(users, after);
  for (std::size_t u = 0; u < users.size(); ++u) {
    RC_ASSERT(GandivaFair::worth(users[u], after[u]) >=
              GandivaFair::worth(users[u], before[u]) - 1e-6);
    RC_ASSERT(total(before[u]) <= users[u].demand + 1e-6);
    RC_ASSERT(total(after[u]) <= users[u].demand + 1e-6);
    for (const double share : after[u]) RC_ASSERT(share >= -1e-9);
  }
  for (std::size_t t = 0; t < types; ++t) {
    double held_before = 0, held_after = 0;
    for (std::size_t u = 0; u < users.size(); ++u) {
      held_before += before[u][t];
      held_after += after[u][t];
    }
    RC_ASSERT(std::abs(held_before - held_after) < 1e-6);
    RC_ASSERT(held_before <= gpus[t] + 1e-6);
  }
}

Job job_of(const std::string& user, int gpus, double tickets = 1, Work work = 1e6) {
  Job job = testing::Draft{.gpus = gpus, .work = work}.job();
  auto spec = std::make_shared<JobSpec>(*job.spec);
  spec->user = user;
  spec->weight = tickets;
  job.spec = spec;
  return job;
}

TEST(GandivaFair, AGangThatDoesNotFitKeepsItsPassAndIsFirstTheNextTime) {
  const auto policy = make_policy("gandiva-fair");
  World world("1x4");
  world.submit_job(job_of("one by one", 1));
  world.submit_job(job_of("one by one", 1));
  world.submit_job(job_of("in a gang", 4));
  EXPECT_EQ(world.decide(*policy), "2x4") << "equal passes: by name";
  EXPECT_EQ(world.pass(60).decide(*policy), "0x1 1x1");
  EXPECT_EQ(world.pass(60).decide(*policy), "0x1 1x1") << "120 GPU-seconds against 240";
  EXPECT_EQ(world.pass(60).decide(*policy), "2x4");
}

TEST(GandivaFair, MoreJobsDoNotBringMoreGpuTime) {
  const auto policy = make_policy("gandiva-fair");
  World world("1x2");
  for (int i = 0; i < 6; ++i) world.submit_job(job_of("many", 1));
  for (int i = 0; i < 2; ++i) world.submit_job(job_of("two", 1));
  for (int quantum = 0; quantum < 60; ++quantum) {
    world.decide(*policy);
    world.pass(60);
  }
  double many = 0, two = 0;
  for (const JobView& job : world.snapshot().jobs)
    (job.spec->user == "many" ? many : two) += job.attained(world.now()).gpu_seconds();
  EXPECT_NEAR(many, two, 120);
  for (const JobView& job : world.snapshot().jobs) {
    if (job.spec->user == "many") {
      EXPECT_NEAR(job.attained(world.now()).gpu_seconds(), 600, 60) << "and they take turns";
    }
  }
}

TEST(GandivaFair, WhoComesLateHasNoCredit) {
  const auto policy = make_policy("gandiva-fair");
  World world("1x1");
  world.submit_job(job_of("early", 1));
  world.submit_job(job_of("early", 1));
  for (int quantum = 0; quantum < 10; ++quantum) {
    world.decide(*policy);
    world.pass(60);
  }
  const JobId late = world.submit_job(job_of("late", 1));
  for (int quantum = 0; quantum < 10; ++quantum) {
    world.decide(*policy);
    world.pass(60);
  }
  EXPECT_NEAR(world.job(late).attained(world.now()).gpu_seconds(), 300, 60);
}

TEST(GandivaFair, GangsThatFitOnAServerAreNotSplitAndServersStayEven) {
  const auto policy = make_policy("gandiva-fair");
  World world("2x4,2x2");
  for (int i = 0; i < 4; ++i) world.submit_job(job_of("a", 2));
  world.submit_job(job_of("b", 3));
  const auto decision = policy->decide(world.snapshot());
  ASSERT_TRUE(decision.ok());
  ASSERT_TRUE(validate(*decision, world.snapshot()).ok());
  for (const auto& grant : decision->run)
    EXPECT_EQ(std::get<Spread>(grant.want).gpus.size(), 1U) << "job " << grant.job.value();
  EXPECT_EQ(decision->run.size(), 5U);
}

TEST(GandivaFair, AGangLargerThanAServerSpreads) {
  const auto policy = make_policy("gandiva-fair");
  World world("3x2");
  world.submit_job(job_of("a", 5));
  EXPECT_EQ(world.decide(*policy), "0x5");
}

}  // namespace
}  // namespace rubato::policy
