#include "rubato/place/placement.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/core/testing.h"

namespace rubato::place {
namespace {

constexpr Placement kAll[] = {Placement::count, Placement::pack, Placement::spread, Placement::even,
                              Placement::quiet, Placement::gaps, Placement::skew};

// A cluster on which some GPUs are already taken.
FreeGpus worn(const Cluster& cluster, Random& random) {
  FreeGpus free(cluster);
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    const auto all = (std::uint64_t{1} << cluster.nodes()[i].gpus) - 1;
    free.take(Slice{node_id(i), all & random.next()});
  }
  return free;
}

std::vector<int> free_by_node(const FreeGpus& free, const Cluster& cluster) {
  std::vector<int> counts;
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i)
    counts.push_back(free.free_on(node_id(i)));
  return counts;
}

std::vector<int> sizes(const Allocation& gpus) {
  std::vector<int> sizes;
  for (const auto& slice : gpus.slices()) sizes.push_back(slice.gpus());
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

// The fewest nodes that have this many GPUs in total, by trying all sets of nodes.
int fewest_nodes(const std::vector<int>& available, int gpus) {
  int fewest = 99;
  for (unsigned set = 0; set < 1U << available.size(); ++set) {
    int sum = 0;
    for (std::size_t i = 0; i < available.size(); ++i)
      sum += (set >> i & 1U) != 0 ? available[i] : 0;
    if (sum >= gpus) fewest = std::min(fewest, std::popcount(set));
  }
  return fewest;
}

TEST(Placement, HasNames) {
  for (const Placement placement : kAll) EXPECT_EQ(*parse_placement(name_of(placement)), placement);
  EXPECT_EQ(parse_placement("Pack").error().message,
            "unknown placement \"Pack\": use count, pack, emptiest, spread, even, buddy, "
            "netpack, quiet, gaps or skew");
  EXPECT_FALSE(parse_placement("").ok());
}

TEST(Placement, GrowTakesExactlySoManyFreeGpusNextToWhatTheJobHas) {
  Random random(1);
  const Cluster cluster = cluster_of("4x4,2x8");
  for (int round = 0; round < 2000; ++round) {
    for (const Placement placement : kAll) {
      FreeGpus free = worn(cluster, random);
      const int room = free.free_of(GpuType());
      const int first = static_cast<int>(random.below(static_cast<std::uint64_t>(room) + 1));
      const int more = static_cast<int>(random.below(static_cast<std::uint64_t>(room - first) + 1));
      Allocation gpus{GpuType()};
      grow(placement, free, gpus, first);
      const Allocation before = gpus;
      const auto free_before = free_by_node(free, cluster);
      grow(placement, free, gpus, more);
      ASSERT_EQ(gpus.gpus(), first + more);
      ASSERT_EQ(common(gpus, before), before) << "a job that grows keeps what it has";
      ASSERT_EQ(free.free_of(GpuType()), room - first - more);
      const Allocation added = minus(gpus, before);
      for (const auto& slice : added.slices()) {
        ASSERT_FALSE(free.is_free(slice));
        ASSERT_EQ(free.free_on(slice.node), free_before[slice.node.index()] - slice.gpus());
      }
      FreeGpus all_back = free;
      all_back.give(gpus);  // would fail if a GPU had not been taken
    }
  }
}

TEST(Placement, CountTakesTheLowestNodesFirst) {
  FreeGpus free(cluster_of("3x4"));
  free.take(Slice{node_id(0), 0b0101});
  Allocation gpus{GpuType()};
  grow(Placement::count, free, gpus, 4);
  EXPECT_EQ(gpus, gpus_on({{0, 0b1010}, {1, 0b0011}}));
}

TEST(Placement, PackUsesTheFewestNodesForANewJob) {
  Random random(2);
  const Cluster cluster = cluster_of("5x4,2x8");
  for (int round = 0; round < 3000; ++round) {
    FreeGpus free = worn(cluster, random);
    const auto available = free_by_node(free, cluster);
    if (free.free_of(GpuType()) == 0) continue;
    const int want =
        1 + static_cast<int>(random.below(static_cast<std::uint64_t>(free.free_of(GpuType()))));
    Allocation gpus{GpuType()};
    grow(Placement::pack, free, gpus, want);
    ASSERT_EQ(gpus.nodes(), fewest_nodes(available, want)) << want;
    if (gpus.nodes() > 1) continue;
    // Best fit: no node with fewer free GPUs would have been enough.
    const int there = available[gpus.slices()[0].node.index()];
    for (const int other : available) ASSERT_TRUE(other < want || other >= there);
  }
}

TEST(Placement, GapsTakesTheNodesWithTheFewestFreeGpus) {
  FreeGpus free(cluster_of("4x4"));
  free.take(Slice{node_id(1), 0b0111});
  free.take(Slice{node_id(3), 0b0011});
  Allocation gpus{GpuType()};
  grow(Placement::gaps, free, gpus, 4);
  EXPECT_EQ(gpus, gpus_on({{0, 0b0001}, {1, 0b1000}, {3, 0b1100}}));
}

TEST(Placement, PackFillsTheJobsOwnNodesBeforeOthers) {
  FreeGpus free(cluster_of("3x4"));
  Allocation gpus = gpus_on({{1, 0b1}});
  free.take(Slice{node_id(1), 0b1});
  grow(Placement::pack, free, gpus, 3);
  EXPECT_EQ(gpus, gpus_on({{1, 0b1111}}));
  grow(Placement::pack, free, gpus, 2);
  EXPECT_EQ(gpus, gpus_on({{0, 0b11}, {1, 0b1111}}));
}

TEST(Placement, SpreadLeavesTheNodesAsEvenAsPossible) {
  Random random(3);
  const Cluster cluster = cluster_of("6x8");
  for (int round = 0; round < 2000; ++round) {
    FreeGpus free = worn(cluster, random);
    auto expected = free_by_node(free, cluster);  // water-filling from the fullest of free GPUs
    const int want =
        static_cast<int>(random.below(static_cast<std::uint64_t>(free.free_of(GpuType())) + 1));
    for (int i = 0; i < want; ++i) --*std::max_element(expected.begin(), expected.end());
    Allocation gpus{GpuType()};
    grow(Placement::spread, free, gpus, want);
    ASSERT_EQ(free_by_node(free, cluster), expected);
  }
  FreeGpus empty(cluster);
  Allocation gpus{GpuType()};
  grow(Placement::spread, empty, gpus, 9);
  EXPECT_EQ(sizes(gpus), (std::vector<int>{1, 1, 1, 2, 2, 2}));
}

TEST(Placement, EvenUsesTheFewestNodesAndLevelsThem) {
  Random random(5);
  const Cluster cluster = cluster_of("5x4,2x8");
  for (int round = 0; round < 2000; ++round) {
    FreeGpus free = worn(cluster, random);
    const auto available = free_by_node(free, cluster);
    if (free.free_of(GpuType()) == 0) continue;
    const int want =
        1 + static_cast<int>(random.below(static_cast<std::uint64_t>(free.free_of(GpuType()))));
    Allocation gpus{GpuType()};
    grow(Placement::even, free, gpus, want);
    ASSERT_EQ(gpus.gpus(), want);
    ASSERT_EQ(gpus.nodes(), fewest_nodes(available, want)) << want;
    // No node has two GPUs more than another node that still had room.
    for (const auto& more : gpus.slices()) {
      for (const auto& less : gpus.slices()) {
        const bool full = less.gpus() == available[less.node.index()];
        ASSERT_TRUE(full || more.gpus() <= less.gpus() + 1);
      }
    }
  }
  FreeGpus empty(cluster_of("4x4"));
  Allocation gpus{GpuType()};
  grow(Placement::even, empty, gpus, 6);
  EXPECT_EQ(sizes(gpus), (std::vector<int>{3, 3}));
  grow(Placement::even, empty, gpus, 1);
  EXPECT_EQ(sizes(gpus), (std::vector<int>{3, 4})) << "no third node while its own have room";
}

TEST(Placement, DropsExactlySoManyOfItsOwn) {
  Random random(4);
  for (int round = 0; round < 3000; ++round) {
    Allocation gpus(gpu_type(1));
    for (std::size_t node = 0; node < 5; ++node)
      gpus.add({node_id(node), random.next() & random.next() & 0xFF});
    const int fewer = static_cast<int>(random.below(static_cast<std::uint64_t>(gpus.gpus()) + 1));
    for (const Placement placement : kAll) {
      const Allocation dropped = choose_to_drop(placement, gpus, fewer);
      ASSERT_EQ(dropped.gpus(), fewer);
      ASSERT_EQ(dropped.type(), gpus.type());
      ASSERT_EQ(common(dropped, gpus), dropped);
      const Allocation rest = minus(gpus, dropped);
      if (placement == Placement::pack) {
        ASSERT_EQ(rest.nodes(), rest.empty() ? 0 : fewest_nodes(sizes(gpus), rest.gpus()));
      }
      if (placement == Placement::spread || placement == Placement::even) {
        auto expected = sizes(gpus);
        for (int i = 0; i < fewer; ++i) --*std::max_element(expected.begin(), expected.end());
        std::sort(expected.begin(), expected.end());
        expected.erase(std::remove(expected.begin(), expected.end(), 0), expected.end());
        ASSERT_EQ(sizes(rest), expected) << "as even as it can be";
      }
      if (placement == Placement::count && !rest.empty() && !dropped.empty()) {
        ASSERT_LE(rest.slices().back().node, dropped.slices().front().node) << "the highest nodes";
      }
    }
  }
}

TEST(PlacementDeathTest, GrowingBeyondWhatIsFreeIsABug) {
  for (const Placement placement : kAll) {
    FreeGpus free(cluster_of("2x2"));
    Allocation gpus{GpuType()};
    EXPECT_DEATH(grow(placement, free, gpus, 5), "CHECK");
  }
}

}  // namespace
}  // namespace rubato::place
