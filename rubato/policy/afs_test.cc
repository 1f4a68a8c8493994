#include "rubato/policy/afs.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <iostream>
#include <string>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::decide_once;
using testing::Draft;
using testing::make_policy;
using testing::NaiveAfs;
using testing::rates;
using testing::World;

const std::vector<CurvePoint> kLinear = rates({1, 2, 3, 4, 5, 6, 7, 8});
const std::vector<CurvePoint> kFlat = rates({1});

TEST(AfsL, BothAtShareZeroTheShorterOnOneGpuFirst) {
  EXPECT_EQ(
      decide_once("afs-l", "1x1", {{.work = 5, .curve = kLinear}, {.work = 4, .curve = kFlat}}),
      "1x1");
  // Work 6 at rate 3 is shorter than 4 at rate 1.
  EXPECT_EQ(decide_once("afs-l", "1x1",
                        {{.work = 4, .curve = kFlat}, {.work = 6, .curve = rates({3, 4})}}),
            "1x1");
  EXPECT_EQ(decide_once("afs-l", "1x1", {{.work = 4, .curve = kFlat}, {.work = 4, .curve = kFlat}}),
            "0x1")
      << "a tie goes to the older";
}

TEST(AfsL, TwoJobsByHand) {
  // Job 0: p = 1, 1.9, 2.7, length 10. Job 1: p = 1, 1.5, 1.6, length 20.
  // GPU 1: both at 0, the shorter: 0.
  // GPU 2: A = 0 (1 has no end). 1 gains 1/1 > .9/1: 1.
  // GPU 3: A = 0 (10 < 20). 1 gains .5/1.5 = .33, 0 gains .9/1: 0.
  // GPU 4: A = 0 (10/1.9). 1: .33; 0: .8/1.9 = .42: 0.
  // GPU 5: 0 is at its largest count: 1. GPU 6: 1.
  const std::vector<Draft> jobs = {{.work = 10, .curve = rates({1, 1.9, 2.7})},
                                   {.work = 20, .curve = rates({1, 1.5, 1.6})}};
  const std::vector<std::string> expected = {"0x1",     "0x1 1x1", "0x2 1x1",
                                             "0x3 1x1", "0x3 1x2", "0x3 1x3"};
  for (std::size_t gpus = 1; gpus <= 6; ++gpus) {
    EXPECT_EQ(decide_once("afs-l", "1x" + std::to_string(gpus), jobs), expected[gpus - 1]);
    EXPECT_EQ(decide_once("afs-l:find=scan", "1x" + std::to_string(gpus), jobs),
              expected[gpus - 1]);
  }
  // The long job is the one that scales. GPU 3: A = 0; 1: .9/1.9 = .47; 0: .45/1: 1.
  // GPU 4: A = 0 (10 < 20/1.9); 1: .8/2.7 = .296; 0: .45: 0. GPU 5: 10/1.45 first;
  // 1: .296; 0: .05/1.45 = .03: 1.
  const std::vector<Draft> crossed = {{.work = 10, .curve = rates({1, 1.45, 1.5})},
                                      {.work = 20, .curve = rates({1, 1.9, 2.7})}};
  EXPECT_EQ(decide_once("afs-l", "1x3", crossed), "0x1 1x2");
  EXPECT_EQ(decide_once("afs-l", "1x4", crossed), "0x2 1x2");
  EXPECT_EQ(decide_once("afs-l", "1x5", crossed), "0x2 1x3");
}

// With p(k) = k the rule is not the same as SRTF: B wins if 1/(k_B+1) > 1/k_A, that is, as soon as
// the shorter job leads by two. A A B A B A B A.
TEST(AfsL, LinearJobsKeepAShortLead) {
  const std::vector<Draft> jobs = {{.work = 30, .curve = kLinear}, {.work = 10, .curve = kLinear}};
  const std::vector<std::string> expected = {"1x1",     "1x2",     "0x1 1x2", "0x1 1x3",
                                             "0x2 1x3", "0x2 1x4", "0x3 1x4", "0x3 1x5"};
  for (std::size_t gpus = 1; gpus <= 8; ++gpus)
    EXPECT_EQ(decide_once("afs-l", "1x" + std::to_string(gpus), jobs), expected[gpus - 1]);
  EXPECT_EQ(decide_once("afs-l", "2x8", jobs), "0x8 1x8") << "both leave at their largest count";
  const auto fates = World("1x8").run(*make_policy("afs-l"), jobs);
  EXPECT_EQ(fates[1].end, time_at(2));      // 10 on 5
  EXPECT_EQ(fates[0].end, time_at(2 + 3));  // 6 on 3, then 24 on 8
}

TEST(AfsL, JobsThatDoNotScaleShareEqually) {
  const std::vector<Draft> jobs(5, {.work = 10, .curve = rates({1, 1.0001})});
  EXPECT_EQ(decide_once("afs-l", "1x3", jobs), "0x1 1x1 2x1");
  EXPECT_EQ(decide_once("afs-l", "1x7", jobs), "0x2 1x2 2x1 3x1 4x1");
}

TEST(AfsL, GpusStayIdleWhenNobodyGetsFaster) {
  EXPECT_EQ(decide_once("afs-l", "1x8", {{.work = 9, .curve = rates({1, 2, 2, 3})}}), "0x2")
      << "it leaves at the first count that is no faster";
  EXPECT_EQ(decide_once("afs-l", "1x8", {{.work = 9, .curve = rates({1, 2, 1.9})}}), "0x2");
  EXPECT_EQ(decide_once("afs-l", "1x8", {{.gpus = 3, .work = 9}}), "0x3") << "a rigid job";
  EXPECT_EQ(decide_once("afs-l", "1x2", {{.gpus = 3, .work = 9}, {.gpus = 2, .work = 99}}), "1x2")
      << "who does not fit does not block";
}

TEST(AfsL, StepsToTheNextLegalCountWithGainsPerGpu) {
  const Draft steps{.work = 8, .curve = kLinear, .allowed = {2, 4, 8}};
  EXPECT_EQ(decide_once("afs-l", "1x1", {steps}), "");
  EXPECT_EQ(decide_once("afs-l", "1x3", {steps}), "0x2");
  EXPECT_EQ(decide_once("afs-l", "1x7", {steps}), "0x4");
  EXPECT_EQ(decide_once("afs-l", "1x8", {steps}), "0x8");
  EXPECT_EQ(decide_once("afs-l", "1x3", {steps, {.work = 99, .curve = kFlat}}), "0x2 1x1")
      << "the last GPU is no step for job 0";
  // Job 0 from 4 to 8 gains (p(8) - p(4))/4/p(4) per GPU = .125, job 1 from 1 to 2 .3/1.3 = .23.
  const Draft wide{.work = 8, .curve = {{4, 4}, {8, 6}}, .allowed = {4, 8}};
  EXPECT_EQ(decide_once("afs-l", "1x9", {wide, {.work = 99, .curve = rates({1, 1.3})}}), "0x4 1x2");
  // Counted per step it would have won: (6-4)/4 = .5.
  EXPECT_EQ(decide_once("afs-l", "1x9", {wide, {.work = 99, .curve = rates({1, 1.1})}}), "0x8 1x1")
      << "against .1/1.1 = .09 it wins";
}

TEST(AfsL, InterpolatesBetweenMeasuredCounts) {
  EXPECT_EQ(decide_once("afs-l", "1x3", {{.work = 9, .curve = {{1, 1}, {4, 3.4}}}}), "0x3");
}

// Share 1, lengths 1 < 2 < 3, p(2)/p(1) = 1.4, 1.55, 2: each beats the next, and the last the
// first.
TEST(Afs, BeatsIsNotTransitive) {
  std::vector<Afs::Contender> job(3);
  const std::vector<double> speedup = {1.4, 1.55, 2.0};
  for (std::size_t i = 0; i < 3; ++i) {
    job[i].id = JobId(static_cast<JobId::rep>(i));
    job[i].gpus = 1;
    job[i].next = 2;
    job[i].rate = 1;
    job[i].next_rate = speedup[i];
    job[i].length = static_cast<double>(i + 1);
    job[i].gain_if_first = speedup[i] - 1;
    job[i].gain_if_last = (speedup[i] - 1) / speedup[i];
  }
  EXPECT_TRUE(Afs::beats(job[0], job[1]));
  EXPECT_TRUE(Afs::beats(job[1], job[2]));
  EXPECT_FALSE(Afs::beats(job[0], job[2]));
}

// The same three jobs in complete decisions: the order of the matches decides who gets the fourth
// GPU.
TEST(Afs, ACycleStillHasOneWinner) {
  std::vector<Draft> jobs;
  for (const auto& [work, speedup] : {std::pair(1.0, 1.4), {2.0, 1.55}, {3.0, 2.0}})
    jobs.push_back({.work = work, .curve = rates({1, speedup})});
  EXPECT_EQ(decide_once("afs-l", "1x3", jobs), "0x1 1x1 2x1");
  EXPECT_EQ(decide_once("afs-l", "1x4", jobs), "0x1 1x1 2x2");
  EXPECT_EQ(decide_once("afs-l:find=scan", "1x4", jobs), "0x1 1x1 2x2");
  // In the order 2, 0, 1 of ids, 1 meets the winner of (2 against 0) and beats it.
  std::rotate(jobs.begin(), jobs.begin() + 2, jobs.end());
  EXPECT_EQ(decide_once("afs-l", "1x4", jobs), "0x1 1x1 2x2");
}

TEST(AfsP, TiesGoToTheLessServed) {
  const auto policy = make_policy("afs-p");
  World world("1x1");
  world.submit({.work = 100, .curve = kFlat});
  world.submit({.work = 100, .curve = kFlat});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.pass(1);  // expected to last longer now: 1 + 600 s against 600 s
  EXPECT_EQ(world.decide(*policy), "1x1");
  // Equal work done with different GPU time: the job with less service comes first.
  for (const bool first : {true, false}) {
    World two("1x1");
    two.submit({.work = 100, .curve = kFlat});
    two.submit({.work = 100, .curve = kFlat});
    two.job(JobId(first ? 0 : 1)).attained_before = GpuTime::from_gpu_seconds(1);
    EXPECT_EQ(two.decide(*policy), first ? "1x1" : "0x1");
  }
}

TEST(AfsP, PriorIsTheExpectedLengthOfANewJob) {
  for (const auto* policy : {"afs-p", "afs-p:prior=0"}) {
    World world("1x2");
    world.submit({.work = 1e6, .curve = rates({1, 1.5})});
    EXPECT_EQ(world.decide(*make_policy(policy)), "0x2");
    world.pass(10).submit({.work = 1, .curve = rates({1, 1.5})});
    EXPECT_EQ(world.decide(*make_policy(policy)), "0x1 1x1");
  }
}

// The work left must not influence decisions, not even through the last bits of the work done.
TEST(AfsP, DoesNotKnowTheWorkLeft) {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    const auto jobs = random.below(8) + 2;
    std::vector<Draft> drafts;
    for (std::uint64_t i = 0; i < jobs; ++i) {
      const double slope = random.below(3) == 0 ? 0.9 : 0.7;  // many equal curves, hence real ties
      drafts.push_back({.curve = rates({0.3, 0.3 + 0.3 * slope, 0.3 + 0.6 * slope})});
    }
    std::vector<std::string> decisions[2];
    for (auto& text : decisions) {
      World world("1x8");
      const auto policy = make_policy("afs-p");
      for (auto& draft : drafts) {
        draft.work = random.log_uniform(1e4, 1e7);  // the two worlds differ in nothing else
        world.submit(draft);
      }
      Random steps(static_cast<std::uint64_t>(round));
      for (int step = 0; step < 5; ++step) {
        text.push_back(world.decide(*policy));
        world.pass(steps.uniform(0.1, 50));
        drafts[0].work = random.log_uniform(1e4, 1e7);
        world.submit(drafts[0]);
      }
    }
    ASSERT_EQ(decisions[0], decisions[1]) << "round " << round;
  }
}

// Compares the tree with the scan.

struct Instance {
  int gpus = 1;
  std::vector<Draft> jobs;
};

enum class Shapes { catalogue, concave, arbitrary };

// Speed over 1, 2, 4, ... GPUs by the catalogue's formula, its parameters drawn from its range.
std::vector<CurvePoint> catalogue_curve(Random& random) {
  const double serial = random.log_uniform(0.002, 0.35);
  const double exchange = random.log_uniform(0.03, 0.45);
  const double latency = random.log_uniform(0.00015, 0.01);
  const int largest = 16 << random.below(4);
  std::vector<CurvePoint> curve;
  for (int k = 1; k <= largest; k *= 2) {
    const double step = serial + (1 - serial) / k + exchange * (k - 1) / k + latency * (k - 1);
    curve.push_back({k, 1 / step});
  }
  return curve;
}

Instance draw(Random& random, Shapes shapes) {
  Instance instance;
  instance.gpus = static_cast<int>(random.below(127)) + 2;
  const auto jobs = random.below(39) + 2;
  for (std::uint64_t i = 0; i < jobs; ++i) {
    Draft job{.work = random.log_uniform(60, 86400)};
    double rate = 0, gain = 1;
    if (shapes == Shapes::catalogue) job.curve = catalogue_curve(random);
    for (int k = 1; k <= 16 && shapes != Shapes::catalogue; ++k) {
      rate += gain;
      job.curve.push_back({k, rate});
      gain = shapes == Shapes::concave ? gain * random.uniform(0.7, 1) : random.uniform(0.01, 2);
    }
    instance.jobs.push_back(std::move(job));
  }
  return instance;
}

// Whether "beats" is a total order: then all numbers of victories differ.
bool is_line(const std::vector<NaiveAfs::Player>& players) {
  std::vector<const NaiveAfs::Player*> in;
  for (const auto& player : players) {
    if (player.next) in.push_back(&player);
  }
  std::vector<int> wins(in.size(), 0);
  for (std::size_t a = 0; a < in.size(); ++a) {
    for (std::size_t b = a + 1; b < in.size(); ++b) ++wins[NaiveAfs::beats(*in[a], *in[b]) ? a : b];
  }
  std::sort(wins.begin(), wins.end());
  return std::adjacent_find(wins.begin(), wins.end()) == wins.end();
}

class TreeAndScan : public ::testing::TestWithParam<std::pair<const char*, Shapes>> {};

TEST_P(TreeAndScan, AgreeWheneverBeatsIsALine) {
  const auto instances = static_cast<int>(tries(1000));
  Random random(2021);
  int differ = 0, cyclic = 0;
  double gpus = 0, moved = 0;
  for (int i = 0; i < instances; ++i) {
    const Instance instance = draw(random, GetParam().second);
    World world(std::to_string(instance.gpus) + "x1");
    for (const auto& job : instance.jobs) world.submit(job);
    const auto shares = [&](Afs::Finding finding) {
      Afs::State none;
      std::vector<int> shares(instance.jobs.size(), 0);
      for (const auto& grant : Afs{{.finding = finding}}.decide(world.snapshot(), none).run)
        shares[grant.job.index()] = gpus_of(grant.want);
      return shares;
    };
    std::vector<NaiveAfs::Player> players;
    for (const auto& job : world.snapshot().jobs) players.push_back({&job, job.work, 0, {}});
    bool line = true;
    const auto expected = NaiveAfs::shares(players, instance.gpus,
                                           [&](const auto& now) { line = line && is_line(now); });
    const auto tree = shares(Afs::Finding::tree);
    const auto scan = shares(Afs::Finding::scan);
    ASSERT_EQ(tree, expected) << "instance " << i << ": as played from scratch";
    if (line) {
      ASSERT_EQ(tree, scan) << "instance " << i << ": a line has one winner";
    }
    cyclic += line ? 0 : 1;
    differ += tree == scan ? 0 : 1;
    gpus += instance.gpus;
    for (std::size_t j = 0; j < tree.size(); ++j) moved += std::abs(tree[j] - scan[j]) / 2.0;
  }
  const double percent = 100.0 / instances;
  std::cout << "tree and scan, " << GetParam().first << " curves: " << differ * percent
            << " % of instances differ, in " << 100 * moved / gpus << " % of all GPUs; "
            << cyclic * percent << " % have a cycle on the way\n";
  RecordProperty("differ_percent", std::to_string(differ * percent));
  RecordProperty("cyclic_percent", std::to_string(cyclic * percent));
}

INSTANTIATE_TEST_SUITE_P(Curves, TreeAndScan,
                         ::testing::Values(std::pair("catalogue", Shapes::catalogue),
                                           std::pair("concave", Shapes::concave),
                                           std::pair("arbitrary", Shapes::arbitrary)),
                         [](const auto& name) { return name.param.first; });

}  // namespace
}  // namespace rubato::policy
