#include "rubato/place/diff.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/core/testing.h"

namespace rubato::place {
namespace {

using Kind = Change::Kind;

// Targets, as in the loop.
struct World {
  explicit World(const char* text, std::size_t jobs) : free(cluster_of(text)) {
    snapshot.cluster = cluster_of(text);
    for (std::size_t i = 0; i < jobs; ++i) {
      snapshot.jobs.insert(job_view(job_id(i), elastic_spec(1, 1000)));
    }
  }

  void give(std::size_t job, const Allocation& gpus) {
    for (const auto& slice : gpus.slices()) free.take(slice);
    snapshot.jobs.find(job_id(job))->target = gpus;
    targeted.push_back(job_id(job));
  }
  const Allocation& target(std::size_t job) const {
    return snapshot.jobs.find(job_id(job))->target;
  }

  Result<std::vector<Change>> diff(Placement placement, const std::vector<Grant>& run) {
    Decision decision;
    decision.run = run;
    return Differ(placement, snapshot.cluster).diff(decision, snapshot.jobs, targeted, free);
  }
  std::vector<Change> apply(Placement placement, const std::vector<Grant>& run) {
    auto changes = diff(placement, run);
    EXPECT_TRUE(changes.ok()) << changes.error().message;
    for (const auto& change : *changes) snapshot.jobs.find(change.job)->target = change.target;
    targeted.clear();
    for (const auto& grant : run) targeted.push_back(grant.job);
    return std::move(*changes);
  }

  Snapshot snapshot;
  FreeGpus free;
  std::vector<JobId> targeted;
};

bool satisfies(const Allocation& gpus, const Want& want) {
  if (const auto* count = std::get_if<Count>(&want)) {
    return gpus.gpus() == count->gpus && gpus.type() == count->type;
  }
  if (const auto* exact = std::get_if<Exact>(&want)) {
    return gpus == exact->gpus && gpus.type() == exact->gpus.type();
  }
  std::map<NodeId, int> there;
  for (const auto& slice : gpus.slices()) there[slice.node] = slice.gpus();
  const auto& wished = std::get<Spread>(want).gpus;
  return there == std::map<NodeId, int>(wished.begin(), wished.end());
}

Allocation random_exact(const Cluster& cluster, Random& random) {
  const GpuType type = cluster.node(node_id(random.below(cluster.nodes().size()))).type;
  Allocation gpus(type);
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    if (cluster.nodes()[i].type != type) continue;
    const auto all = (std::uint64_t{1} << cluster.nodes()[i].gpus) - 1;
    gpus.add({node_id(i), random.next() & random.next() & random.next() & all});
  }
  return gpus;
}

Grant random_grant(std::size_t job, const Cluster& cluster, Random& random, bool counts_only) {
  const GpuType type = gpu_type(random.below(static_cast<std::uint64_t>(cluster.types())));
  const double kind = random.uniform();
  if (counts_only || kind < 0.5) {
    return grant_count(job, 1 + static_cast<int>(random.below(6)), type);
  }
  const Allocation gpus = random_exact(cluster, random);
  if (kind < 0.75) return grant_exact(job, gpus);
  Spread spread;
  for (const auto& slice : gpus.slices()) spread.gpus.emplace_back(slice.node, slice.gpus());
  return {job_id(job), spread};
}

// Jobs in a random order, each added if the decision stays valid.
std::vector<Grant> random_decision(const World& world, Random& random, bool counts_only) {
  Decision decision;
  for (std::size_t i = 0; i < world.snapshot.jobs.size(); ++i) {
    if (random.uniform() < 0.3) continue;
    const std::size_t at = random.below(decision.run.size() + 1);
    decision.run.insert(decision.run.begin() + static_cast<std::ptrdiff_t>(at),
                        random_grant(i, world.snapshot.cluster, random, counts_only));
    if (!validate(decision, world.snapshot))
      decision.run.erase(decision.run.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return decision.run;
}

Kind expected_kind(const Allocation& before, const Allocation& after) {
  if (before.empty()) return Kind::start;
  if (after.empty()) return Kind::stop;
  return before.gpus() == after.gpus() ? Kind::move : Kind::resize;
}

void expect_right(const World& before, const World& after, const std::vector<Grant>& run,
                  const std::vector<Change>& changes) {
  std::map<JobId, const Change*> change_of;
  bool wishes = false;
  for (const auto& change : changes) {
    ASSERT_TRUE(change_of.emplace(change.job, &change).second) << "one change a job";
    ASSERT_TRUE(!wishes || change.kind != Kind::stop) << "stops come first";
    wishes = wishes || change.kind != Kind::stop;
    const Allocation& was = before.target(change.job.index());
    ASSERT_EQ(change.kind, expected_kind(was, change.target));
    ASSERT_FALSE(change.target == was) << "no change that changes nothing";
  }
  std::map<JobId, const Want*> want_of;
  for (const auto& grant : run) want_of[grant.job] = &grant.want;
  GpuSet used;
  for (const JobView& job : after.snapshot.jobs) {
    const Allocation& was = before.target(job.id.index());
    const Allocation& is = job.target;
    ASSERT_TRUE(change_of.contains(job.id) || is == was);
    const auto want = want_of.find(job.id);
    if (want == want_of.end()) {
      ASSERT_TRUE(is.empty()) << "a job not named is paused";
      continue;
    }
    ASSERT_TRUE(satisfies(is, *want->second)) << "job " << job.id.value();
    for (const auto& gpu : gpu_set(is)) {
      ASSERT_TRUE(used.insert(gpu).second) << "a GPU given twice";
      ASSERT_FALSE(after.free.is_free({node_id(gpu.first), std::uint64_t{1} << gpu.second}));
    }
    const auto* count = std::get_if<Count>(want->second);
    if (count == nullptr || was.empty() || was.type() != count->type) continue;
    const Allocation& smaller = is.gpus() < was.gpus() ? is : was;
    const Allocation& larger = is.gpus() < was.gpus() ? was : is;
    ASSERT_EQ(common(smaller, larger), smaller) << "a resize moves nothing";
  }
  int free = 0;
  for (int t = 0; t < before.snapshot.cluster.types(); ++t) {
    free += after.free.free_of(gpu_type(static_cast<std::size_t>(t)));
  }
  ASSERT_EQ(free + static_cast<int>(used.size()), before.snapshot.cluster.installed());
}

class DifferWith : public ::testing::TestWithParam<Placement> {};

TEST_P(DifferWith, CarriesOutRandomDecisionsExactly) {
  int carried_out = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    World world("3x4:a,2x8:b,2x4:a", 6);
    const bool counts_only = seed % 3 == 0;
    for (int step = 0; step < 60; ++step) {
      const World before = world;
      const auto run = random_decision(world, random, counts_only);
      auto changes = world.diff(GetParam(), run);
      if (!changes) {
        ASSERT_FALSE(counts_only) << "numbers that fit never collide";
        ASSERT_NE(changes.error().message.find("the GPUs it was granted are not free"),
                  std::string::npos);
        world = before;
        continue;
      }
      world = before;
      const auto applied = world.apply(GetParam(), run);
      ASSERT_NO_FATAL_FAILURE(expect_right(before, world, run, applied));
      ++carried_out;
    }
  }
  EXPECT_GT(carried_out, 2000);
}

TEST_P(DifferWith, AValidDecisionForAnIdleClusterAlwaysFits) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    World world("2x3:a,2x2:b", 5);
    const auto run = random_decision(world, random, false);
    const auto changes = world.diff(GetParam(), run);
    ASSERT_TRUE(changes.ok()) << seed << ": " << changes.error().message;
  }
}

TEST_P(DifferWith, JobsLeaveANodeThatIsDrained) {
  World world("2x4", 2);
  world.give(0, gpus_on({{0, 0b0011}}));
  world.give(1, gpus_on({{0, 0b0100}, {1, 0b0001}}));
  world.snapshot.cluster.set_state(node_id(0), NodeState::draining);
  world.free.set_up(node_id(0), false);
  world.apply(GetParam(), {grant_count(0, 2), grant_count(1, 2)});
  EXPECT_EQ(world.target(0).mask_on(node_id(0)), 0U);
  EXPECT_EQ(world.target(0).gpus(), 2);
  EXPECT_EQ(world.target(1).mask_on(node_id(0)), 0U);
  EXPECT_EQ(world.target(1).gpus(), 2);
  EXPECT_EQ(world.free.free_of(GpuType()), 0);
  world.free.set_up(node_id(0), true);
  EXPECT_EQ(world.free.free_of(GpuType()), 4) << "all of the node is free again";
}

TEST_P(DifferWith, AJobThatShrinksGivesUpTheNodeThatIsDrained) {
  World world("2x4", 1);
  world.give(0, gpus_on({{0, 0b0011}, {1, 0b0011}}));
  world.snapshot.cluster.set_state(node_id(0), NodeState::draining);
  world.free.set_up(node_id(0), false);
  world.apply(GetParam(), {grant_count(0, 2)});
  EXPECT_EQ(world.target(0), gpus_on({{1, 0b0011}}));
  EXPECT_EQ(world.free.free_of(GpuType()), 2);
}

INSTANTIATE_TEST_SUITE_P(Placements, DifferWith,
                         ::testing::Values(Placement::count, Placement::pack, Placement::spread,
                                           Placement::gaps, Placement::skew),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Differ, WishesForGivenGpusComeBeforeThoseForAnyInWhateverOrder) {
  World world("1x2", 2);
  const auto changes =
      world.apply(Placement::count, {grant_count(0, 1), grant_exact(1, gpus_on({{0, 0b01}}))});
  EXPECT_EQ(world.target(0), gpus_on({{0, 0b10}}));
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].job, job_id(0)) << "the changes keep the order of the decision";
}

// Tiresias: jobs of high skew get whole nodes, others what is left over.
TEST(Differ, SkewConsolidatesJobsWithOneLargeTensor) {
  World world("4x4", 4);
  const auto tell = [&](std::size_t job, double skew) {
    auto spec = std::make_shared<JobSpec>(*world.snapshot.jobs.find(job_id(job))->spec);
    spec->skew = skew;
    world.snapshot.jobs.find(job_id(job))->spec = spec;
  };
  tell(0, 0.1);
  tell(1, 0.7);
  tell(2, 0.3);  // not above the limit
  world.free.take(Slice{node_id(0), 0b0111});
  world.free.take(Slice{node_id(1), 0b0011});
  // Job 3 is not known yet. Jobs 1 and 3 choose first, although job 0 comes first.
  world.apply(Placement::skew,
              {grant_count(0, 2), grant_count(1, 4), grant_count(2, 3), grant_count(3, 2)});
  EXPECT_EQ(world.target(1), gpus_on({{2, 0b1111}}));
  EXPECT_EQ(world.target(3), gpus_on({{1, 0b1100}}));
  EXPECT_EQ(world.target(0), gpus_on({{0, 0b1000}, {3, 0b0001}}));
  EXPECT_EQ(world.target(2), gpus_on({{3, 0b1110}}));
}

TEST(Differ, WishesForGivenGpusComeBeforeThoseForANode) {
  World world("1x2,1x4", 2);
  world.apply(Placement::count, {grant_spread(0, {{0, 1}}), grant_exact(1, gpus_on({{0, 0b01}}))});
  EXPECT_EQ(world.target(0), gpus_on({{0, 0b10}}));
}

TEST(Differ, WishesForANodeComeBeforeThoseForAny) {
  World world("1x2,1x4", 2);
  world.apply(Placement::count, {grant_count(0, 2), grant_spread(1, {{0, 2}})});
  EXPECT_EQ(world.target(0).slices()[0].node, node_id(1));
}

TEST(Differ, TwoJobsMaySwap) {
  World world("1x2", 2);
  world.give(0, gpus_on({{0, 0b01}}));
  world.give(1, gpus_on({{0, 0b10}}));
  const auto changes = world.apply(Placement::count, {grant_exact(0, gpus_on({{0, 0b10}})),
                                                      grant_exact(1, gpus_on({{0, 0b01}}))});
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].kind, Kind::move);
  EXPECT_EQ(changes[1].kind, Kind::move);
}

TEST(Differ, FailsIfAnotherJobKeepsTheGpusWished) {
  World world("2x2", 2);
  world.give(0, gpus_on({{0, 0b11}}));
  const auto exact =
      world.diff(Placement::count, {grant_count(0, 2), grant_exact(1, gpus_on({{0, 0b01}}))});
  ASSERT_FALSE(exact.ok());
  EXPECT_EQ(exact.error().message, "job 1: the GPUs it was granted are not free");
}

TEST(Differ, AChangeOfTypeMovesTheJob) {
  World world("1x4:a,1x4:b", 1);
  world.give(0, gpus_on({{0, 0b11}}));
  const auto changes = world.apply(Placement::pack, {grant_count(0, 2, gpu_type(1))});
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].kind, Kind::move);
  EXPECT_EQ(world.target(0), gpus_on({{1, 0b11}}));
  EXPECT_EQ(world.target(0).type(), gpu_type(1));
  EXPECT_EQ(world.free.free_of(gpu_type(0)), 4);
}

TEST(Differ, SpreadOnNodesOfAnotherTypeKnowsTheType) {
  World world("1x4:a,1x4:b", 1);
  world.apply(Placement::count, {grant_spread(0, {{1, 2}})});
  EXPECT_EQ(world.target(0).type(), gpu_type(1));
}

TEST(Differ, AJobThatMayNotBePreemptedStaysOnADrainedNode) {
  World world("2x4", 0);
  const auto spec = elastic_spec(1, 4);
  spec->preemptible = false;
  JobView job = job_view(job_id(0), spec);
  job.held = gpus_on({{0, 0b0011}});
  world.snapshot.jobs.insert(job);
  world.give(0, job.held);
  world.free.set_up(node_id(0), false);
  EXPECT_TRUE(world.apply(Placement::pack, {grant_count(0, 2)}).empty());
}

TEST(Differ, GpusOnANodeThatLeftAreNotOfferedAgain) {
  World world("2x2", 2);
  world.give(0, gpus_on({{0, 0b11}}));
  world.snapshot.cluster.set_state(node_id(0), NodeState::down);
  world.free.set_up(node_id(0), false);
  world.apply(Placement::count, {grant_count(1, 2)});
  EXPECT_EQ(world.target(1), gpus_on({{1, 0b11}}));
  EXPECT_EQ(world.free.free_of(GpuType()), 0);
}

}  // namespace
}  // namespace rubato::place
