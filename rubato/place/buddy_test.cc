#include "rubato/place/buddy.h"

#include <algorithm>
#include <bit>
#include <gtest/gtest.h>
#include <map>

#include "rubato/base/random.h"
#include "rubato/core/testing.h"
#include "rubato/place/diff.h"

namespace rubato::place {
namespace {

// A cluster with one placement; a test says which jobs should run.
class Yard {
 public:
  Yard(const char* cluster, Placement placement)
      : free_(cluster_of(cluster)), differ_(placement, cluster_of(cluster)) {
    snapshot_.cluster = cluster_of(cluster);
  }

  JobId add() {
    const auto id = job_id(next_++);
    snapshot_.jobs.insert(job_view(id, elastic_spec(1, 1000)));
    return id;
  }
  void set_up(std::size_t node, bool up) {
    free_.set_up(node_id(node), up);
    snapshot_.cluster.set_state(node_id(node), up ? NodeState::up : NodeState::down);
  }
  int apply(const std::map<JobId, int>& run) {
    Decision decision;
    for (const auto& [job, gpus] : run) decision.run.push_back({job, Count{GpuType(), gpus}});
    auto changes = differ_.diff(decision, snapshot_.jobs, targeted_, free_);
    EXPECT_TRUE(changes.ok()) << changes.error().message;
    int moves = 0;
    for (const auto& change : *changes) {
      moves += change.kind == Change::Kind::move ? 1 : 0;
      snapshot_.jobs.find(change.job)->target = change.target;
    }
    targeted_.clear();
    for (const auto& [job, gpus] : run) targeted_.push_back(job);
    return moves;
  }
  const Allocation& of(JobId job) { return snapshot_.jobs.find(job)->target; }
  [[nodiscard]] const Cluster& cluster() const { return snapshot_.cluster; }
  [[nodiscard]] int free() const { return free_.free_of(GpuType()); }

 private:
  Snapshot snapshot_;
  FreeGpus free_;
  Differ differ_;
  std::vector<JobId> targeted_;
  std::size_t next_ = 0;
};

// On equal nodes whose size is a power of two.
bool is_aligned_block(const Allocation& gpus, int node) {
  const int size = gpus.gpus();
  if (size <= node) {
    if (gpus.nodes() != 1) return false;
    const int first = std::countr_zero(gpus.slices()[0].mask);
    return first % size == 0 &&
           std::countr_one(gpus.slices()[0].mask >> static_cast<unsigned>(first)) == size;
  }
  const auto nodes = static_cast<std::size_t>(size / node);
  if (gpus.slices().size() != nodes || gpus.slices()[0].node.index() % nodes != 0) return false;
  for (std::size_t i = 0; i < nodes; ++i) {
    if (gpus.slices()[i].gpus() != node) return false;
    if (gpus.slices()[i].node.index() != gpus.slices()[0].node.index() + i) return false;
  }
  return true;
}

TEST(Buddy, MovesOneJobToMakeRoom) {
  Yard yard("2x4", Placement::buddy);
  const JobId a = yard.add(), b = yard.add(), c = yard.add(), d = yard.add();
  yard.apply({{a, 2}, {b, 2}, {c, 2}});
  EXPECT_EQ(yard.apply({{b, 2}, {c, 2}}), 0) << "a hole on each node";
  EXPECT_EQ(yard.apply({{b, 2}, {c, 2}, {d, 4}}), 1) << "one of the two makes room";
  EXPECT_TRUE(is_aligned_block(yard.of(d), 4));
  EXPECT_EQ(yard.free(), 0);
}

TEST(Buddy, GrowsAndShrinksWhereTheJobIs) {
  Yard yard("4x4", Placement::buddy);
  const JobId a = yard.add(), b = yard.add();
  yard.apply({{a, 4}, {b, 2}});
  const Allocation before = yard.of(a);
  EXPECT_EQ(yard.apply({{a, 2}, {b, 2}}), 0);
  EXPECT_EQ(common(yard.of(a), before), yard.of(a));
  yard.apply({{a, 8}, {b, 2}});
  EXPECT_TRUE(is_aligned_block(yard.of(a), 4));
  EXPECT_EQ(yard.apply({{a, 8}, {b, 2}}), 0) << "who has what it wants stays";
}

TEST(Buddy, LivesWithMissingNodesAndOddCounts) {
  Yard yard("4x4", Placement::buddy);
  const JobId a = yard.add(), b = yard.add();
  yard.set_up(1, false);
  yard.apply({{a, 8}, {b, 3}});
  EXPECT_EQ(yard.of(a).gpus(), 8);
  EXPECT_EQ(yard.of(b).gpus(), 3);
  EXPECT_EQ(yard.of(b).nodes(), 1);
  EXPECT_EQ(yard.of(a).mask_on(node_id(1)), 0U);
}

// The guarantee: if enough GPUs are free, an aligned block is found, whatever happened before.
TEST(Buddy, FindsAnAlignedBlockWheneverEnoughGpusAreFree) {
  int migrations = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const int node = 1 << random.below(4);
    const int nodes = 1 + static_cast<int>(random.below(12));
    Yard yard((std::to_string(nodes) + "x" + std::to_string(node)).c_str(), Placement::buddy);
    std::map<JobId, int> run;
    for (int step = 0; step < 60; ++step) {
      int room = nodes * node;
      for (auto& [job, gpus] : run) room -= gpus;
      for (auto& [job, gpus] : run) {  // some grow or shrink
        if (random.below(8) != 0) continue;
        const int to = random.below(2) == 0 ? std::max(1, gpus / 2) : gpus * 2;
        if (to - gpus > room) continue;
        room -= to - gpus;
        gpus = to;
      }
      std::erase_if(run, [&](const auto& entry) {
        const bool ends = random.below(6) == 0;
        room += ends ? entry.second : 0;
        return ends;
      });
      for (int tries = 0; tries < 4 && room > 0; ++tries) {
        const int gpus = 1 << random.below(std::bit_width(static_cast<unsigned>(room)));
        if (gpus > room) continue;
        run[yard.add()] = gpus;
        room -= gpus;
      }
      migrations += yard.apply(run);
      for (const auto& [job, gpus] : run) {
        ASSERT_EQ(yard.of(job).gpus(), gpus);
        ASSERT_TRUE(is_aligned_block(yard.of(job), node)) << "seed " << seed << " step " << step;
      }
      ASSERT_EQ(yard.free(), room);
    }
  }
  EXPECT_GT(migrations, 100) << "it would be no test without";
}

TEST(NetworkPacking, AtMostOneJobOnANodeUsesTheNetwork) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const int node = 1 << (1 + random.below(3));
    const int nodes = 2 + static_cast<int>(random.below(8));
    Yard yard((std::to_string(nodes) + "x" + std::to_string(node)).c_str(), Placement::netpack);
    std::map<JobId, int> run;
    for (int step = 0; step < 40; ++step) {
      std::erase_if(run, [&](const auto& /*entry*/) { return random.below(4) == 0; });
      int room = nodes * node;
      for (const auto& [job, gpus] : run) room -= gpus;
      for (int tries = 0; tries < 4; ++tries) {
        const int gpus = random.below(3) == 0
                             ? node * (1 + static_cast<int>(random.below(3)))
                             : 1 << random.below(std::bit_width(static_cast<unsigned>(node)));
        if (gpus > room) continue;
        run[yard.add()] = gpus;
        room -= gpus;
      }
      yard.apply(run);
      std::map<NodeId, int> crossing;
      for (const auto& [job, gpus] : run) {
        if (yard.of(job).nodes() < 2) continue;
        for (const auto& slice : yard.of(job).slices()) ASSERT_LE(++crossing[slice.node], 1);
        ASSERT_EQ(yard.of(job).nodes(), gpus / node) << "no more nodes than it needs";
      }
    }
  }
}

}  // namespace
}  // namespace rubato::place
