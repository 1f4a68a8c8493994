#include "rubato/policy/pollux.h"

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <rapidcheck/gtest.h>
#include <utility>
#include <vector>

#include "rubato/core/testing.h"
#include "rubato/model/curve.h"
#include "rubato/model/goodput_estimate.h"
#include "rubato/model/testing.h"

namespace rubato::policy {
namespace {

// About ResNet-18 on CIFAR-10.
const BatchLimits kLimits{128, 4096, 32, 1024, true};
const StepTime kTime{0.03, 0.0004, 0.01, 0.001, 0.05, 0.002, 1.5};
const GradientNoise kNoise{1, 5};

class PolluxTest : public ::testing::Test {
 protected:
  JobView& add(std::shared_ptr<const SpeedModel> speed, int most = 64, double submitted_s = 0) {
    auto spec = elastic_spec(1, most);
    spec->restart_cost = from_seconds(30);
    spec->batch = 128;
    spec->adaptive_batch = true;
    JobView job = job_view(job_id(jobs_++), spec);
    job.speed = std::move(speed);
    job.submitted = time_at(submitted_s);
    return snapshot_.jobs.insert(std::move(job));
  }
  JobView& add_seen(int most_gpus, int most = 64) {
    return add(std::make_shared<GoodputEstimate>(kLimits, std::nullopt,
                                                 GoodputEstimate::Seen{kTime, kNoise, most_gpus}),
               most);
  }
  JobView& add_unknown() { return add(std::make_shared<GoodputEstimate>(kLimits, std::nullopt)); }
  void run_on(JobView& job, const Allocation& gpus) {
    job.target = job.held = gpus;
    job.first_start = job.submitted;
  }
  Decision decide(double s) {
    snapshot_.now = time_at(s);
    Decision decision = pollux_.decide(snapshot_, state_);
    const auto valid = validate(decision, snapshot_);
    EXPECT_TRUE(valid.ok()) << valid.error().message;
    return decision;
  }
  static int gpus_for(const Decision& decision, std::size_t job) {
    for (const auto& grant : decision.run) {
      if (grant.job == job_id(job)) return gpus_of(grant.want);
    }
    return 0;
  }

  Snapshot snapshot_ = [] {
    Snapshot snapshot;
    snapshot.cluster = cluster_of("4x4");
    return snapshot;
  }();
  std::size_t jobs_ = 0;
  Pollux pollux_;
  Pollux::State state_;
};

TEST_F(PolluxTest, AJobThatNeverRanStartsOnOneGpuAtTheInitialBatch) {
  add_unknown();
  const Decision decision = decide(600);
  ASSERT_EQ(decision.run.size(), 1U);
  EXPECT_EQ(gpus_of(decision.run[0].want), 1);
  EXPECT_EQ(decision.run[0].batch, (Batch{128, 0}));
  EXPECT_EQ(decision.again_at, time_at(660));
}

TEST_F(PolluxTest, AJobGrowsToTwiceWhatItHasRunOn) {
  run_on(add_seen(2), gpus_on({{0, 0b11}}));
  EXPECT_EQ(gpus_for(decide(6000), 0), 4);
}

TEST_F(PolluxTest, ItsOwnerMayAllowLess) {
  run_on(add_seen(4, 3), gpus_on({{0, 0b11}}));
  EXPECT_EQ(gpus_for(decide(6000), 0), 3);
}

TEST_F(PolluxTest, TheBatchIsTheOneOfHighestGoodputOnTheGpusGranted) {
  run_on(add_seen(4), gpus_on({{0, 0b1111}}));
  const Decision decision = decide(6000);
  ASSERT_EQ(decision.run.size(), 1U);
  const auto& spread = std::get<Spread>(decision.run[0].want);
  const Footprint place{static_cast<int>(spread.gpus.size()), gpus_of(decision.run[0].want)};
  EXPECT_EQ(decision.run[0].batch, (Goodput{kTime, kNoise, kLimits}.best(place)->batch));
}

TEST_F(PolluxTest, WithFixedBatchesThereIsNoneInTheGrant) {
  pollux_.config.tune_batch = false;
  run_on(add_seen(4), gpus_on({{0, 0b1111}}));
  EXPECT_EQ(decide(6000).run.at(0).batch, std::nullopt);
}

// Its fair share is 16 GPUs, but its batch of 128 cannot be spread over them: at least 32 per GPU.
TEST_F(PolluxTest, AFixedBatchTooSmallForTheFairShareStillRuns) {
  pollux_.config.tune_batch = false;
  add_seen(4);
  EXPECT_EQ(gpus_for(decide(6000), 0), 4);
}

TEST_F(PolluxTest, NoJobStaysWithoutGpusWhereThereAreEnough) {
  for (int i = 0; i < 12; ++i) i % 2 == 0 ? add_seen(16) : add_unknown();
  const Decision decision = decide(6000);
  EXPECT_EQ(decision.run.size(), 12U);
}

TEST_F(PolluxTest, BetweenRoundsAllStaysAsItIs) {
  run_on(add_seen(4), gpus_on({{0, 0b1111}}));
  decide(6000);
  add_unknown();
  const Decision decision = decide(6030);
  ASSERT_EQ(decision.run.size(), 1U);
  EXPECT_EQ(std::get<Exact>(decision.run[0].want).gpus, gpus_on({{0, 0b1111}}));
  EXPECT_EQ(decision.again_at, time_at(6060));
  EXPECT_EQ(decide(6060).run.size(), 2U);
}

// If a restart costs a young job more than the GPUs would gain, the job stays.
TEST_F(PolluxTest, AJobThatWasRestartedTooOftenIsLeftAlone) {
  run_on(add_seen(4), gpus_on({{0, 0b11}}));
  state_.restarts[job_id(0)] = 19;
  EXPECT_EQ(gpus_for(decide(600), 0), 2) << "19 of 20 half minutes were lost";
  state_ = {};
  EXPECT_GT(gpus_for(decide(600), 0), 2);
  EXPECT_EQ(state_.restarts.at(job_id(0)), 1) << "and that is a restart";
}

TEST_F(PolluxTest, AJobThatMustNotBeStoppedKeepsItsGpus) {
  JobView& job = add_seen(4);
  auto spec = std::make_shared<JobSpec>(*job.spec);
  spec->preemptible = false;
  job.spec = spec;
  run_on(job, gpus_on({{0, 0b11}, {1, 0b1}}));
  for (int i = 0; i < 6; ++i) add_seen(16);
  const Decision decision = decide(6000);
  EXPECT_EQ(std::get<Exact>(decision.run.at(0).want).gpus, gpus_on({{0, 0b11}, {1, 0b1}}));
  for (std::size_t i = 1; i < decision.run.size(); ++i) {
    const auto& spread = std::get<Spread>(decision.run[i].want).gpus;
    if (spread.size() > 1) {
      EXPECT_GT(spread.front().first, node_id(1)) << "it shares no node with another wide job";
    }
  }
}

TEST_F(PolluxTest, UtilityIsOneWhereJobsScalePerfectlyAndFallsWhereTheyDoNot) {
  std::vector<CurvePoint> perfect, none;
  for (const int gpus : {1, 16}) {
    perfect.push_back({gpus, 1.0 * gpus});
    none.push_back({gpus, 1 + 0.01 * gpus});
  }
  add(std::make_shared<CurveSpeed>(perfect), 16);
  EXPECT_NEAR(decide(6000).advice->utility, 1, 1e-9);
  snapshot_.jobs.erase(job_id(0));
  add(std::make_shared<CurveSpeed>(none), 16);
  EXPECT_LT(decide(12000).advice->utility, 0.1);
}

TEST_F(PolluxTest, AdvisesFewerNodesWhereTheyAreOfLittleUse) {
  pollux_.config.autoscale = true;
  add_seen(16);
  const auto wide = decide(6000).advice;
  ASSERT_LT(wide->utility, 0.35);
  EXPECT_LT(wide->nodes, 4);
  for (int i = 0; i < 30; ++i) add_seen(16);
  const auto full = decide(12000).advice;
  ASSERT_GT(full->utility, 0.65);
  EXPECT_GT(full->nodes, 4);
}

TEST_F(PolluxTest, AdvisesMoreNodesToAJobThatCouldUseMoreThanThereAre) {
  snapshot_.cluster = cluster_of("1x4");
  pollux_.config.autoscale = true;
  pollux_.config.low_utility = pollux_.config.high_utility = 0.1;
  add_seen(16);
  const auto advice = decide(6000).advice;
  ASSERT_GT(advice->utility, 0.1);
  EXPECT_EQ(advice->nodes, 2) << "as many as may be advised";
}

TEST_F(PolluxTest, StateSurvivesBeingSavedAndRubbishIsRefused) {
  for (int i = 0; i < 5; ++i) add_seen(4);
  decide(6000);
  state_.restarts[job_id(2)] = 3;
  const Json saved = state_.save();
  const auto loaded = Pollux::State::load(saved);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->save(), saved);
  EXPECT_EQ(loaded->restarts, state_.restarts);
  for (const char* text :
       {"[]", "{}", R"({"restarts":[],"population":[[[1]]]})",
        R"({"restarts":[],"population":[[[1,0,0]]]})", R"({"restarts":[[1]],"population":[]})",
        R"({"restarts":[],"population":[[[1,3,1,2,1]]]})",
        R"({"restarts":[],"population":[],"next_round_us":"soon"})"}) {
    EXPECT_FALSE(Pollux::State::load(*parse_json(text, "state")).ok()) << text;
  }
}

// ---- on random clusters and jobs ----

std::shared_ptr<const SpeedModel> random_speed(Random& random) {
  const BatchLimits limits = random_limits(random);
  if (random.below(4) == 0) return std::make_shared<GoodputEstimate>(limits, std::nullopt);
  if (random.below(4) == 0) return std::make_shared<ConstantSpeed>(1);
  const Goodput goodput = random_goodput(random);
  return std::make_shared<GoodputEstimate>(
      limits, std::nullopt,
      GoodputEstimate::Seen{goodput.time, goodput.noise, 1 + static_cast<int>(random.below(12))});
}

Snapshot random_snapshot(Random& random) {
  Snapshot snapshot;
  const int nodes = 1 + static_cast<int>(random.below(6));
  const int size = 1 + static_cast<int>(random.below(8));
  snapshot.cluster = Cluster({{nodes, size, GpuType()}}, {"gpu"});
  for (int i = 0; i < nodes; ++i) {
    if (random.below(6) == 0)
      snapshot.cluster.set_state(NodeId(static_cast<NodeId::rep>(i)), NodeState::down);
  }
  const auto jobs = random.below(15);
  for (std::uint64_t i = 0; i < jobs; ++i) {
    const int least = random.below(4) == 0 ? 1 + static_cast<int>(random.below(5)) : 1;
    auto spec = elastic_spec(least, least + static_cast<int>(random.below(20)));
    spec->restart_cost = from_seconds(30);
    spec->adaptive_batch = random.below(2) == 0;
    spec->preemptible = random.below(5) != 0;
    spec->batch = 128;
    JobView job = job_view(job_id(i), spec);
    job.speed = random_speed(random);
    job.submitted = time_at(static_cast<double>(random.below(1000)));
    snapshot.jobs.insert(std::move(job));
  }
  return snapshot;
}

// Carries out a decision, so that the next one starts from it.
void apply(const Decision& decision, Snapshot& snapshot) {
  std::vector<std::uint64_t> used(snapshot.cluster.nodes().size(), 0);
  std::map<JobId, Allocation> target;
  for (const auto& grant : decision.run) {
    const auto* exact = std::get_if<Exact>(&grant.want);
    if (exact == nullptr) continue;
    target[grant.job] = exact->gpus;
    for (const auto& slice : exact->gpus.slices()) used[slice.node.index()] |= slice.mask;
  }
  for (const auto& grant : decision.run) {
    const auto* spread = std::get_if<Spread>(&grant.want);
    if (spread == nullptr) continue;
    for (const auto& [node, gpus] : spread->gpus) {
      Slice slice{node, 0};
      for (unsigned bit = 0; slice.gpus() < gpus; ++bit) {
        if ((used[node.index()] >> bit & 1U) == 0) slice.mask |= std::uint64_t{1} << bit;
      }
      used[node.index()] |= slice.mask;
      target[grant.job].add(slice);
    }
  }
  for (std::size_t i = 0; i < 20; ++i) {
    JobView* job = snapshot.jobs.find(job_id(i));
    if (job == nullptr) continue;
    job->target = job->held = target[job->id];
    if (!job->target.empty()) job->first_start = snapshot.now;
  }
}

std::vector<NodeId> nodes_of(const Want& want) {
  std::vector<NodeId> nodes;
  if (const auto* exact = std::get_if<Exact>(&want)) {
    for (const auto& slice : exact->gpus.slices()) nodes.push_back(slice.node);
  } else {
    for (const auto& [node, gpus] : std::get<Spread>(want).gpus) nodes.push_back(node);
  }
  return nodes;
}

RC_GTEST_PROP(PolluxDecisions, KeepCapacityAvoidInterferenceAndDoNotGrowTooFast, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  Snapshot snapshot = random_snapshot(random);
  Pollux pollux;
  pollux.config.population = 10;
  pollux.config.generations = 10;
  pollux.config.p = std::vector<double>{-1, -3, 0, 0.5, 1}[random.below(5)];
  Pollux::State state;
  for (int round = 1; round <= 3; ++round) {
    snapshot.now = time_at(1000 + 60.0 * round);
    const Decision decision = pollux.decide(snapshot, state);
    const auto valid = validate(decision, snapshot);
    RC_ASSERT(valid.ok());
    std::map<NodeId, int> wide;
    for (const auto& grant : decision.run) {
      const auto nodes = nodes_of(grant.want);
      if (nodes.size() > 1) {
        for (const NodeId node : nodes) RC_ASSERT(++wide[node] == 1);
      }
      const JobView& job = *snapshot.jobs.find(grant.job);
      const auto* estimate = dynamic_cast<const GoodputEstimate*>(job.speed.get());
      if (estimate == nullptr) continue;
      const int seen = estimate->seen() ? estimate->seen()->most_gpus : 0;
      const int most = std::max({2 * seen, 1, job.spec->limits.min});
      RC_ASSERT(gpus_of(grant.want) <= most);
      RC_ASSERT(!grant.batch || job.spec->adaptive_batch);
    }
    apply(decision, snapshot);
  }
}

}  // namespace
}  // namespace rubato::policy
