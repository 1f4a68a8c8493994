#include "rubato/place/free_gpus.h"

#include <bit>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/core/testing.h"

namespace rubato::place {
namespace {

// The same, by a loop over all nodes.
class PlainFreeGpus {
 public:
  explicit PlainFreeGpus(const Cluster& cluster) : cluster_(cluster) {
    for (const auto& node : cluster.nodes()) {
      free.push_back(node.gpus == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << node.gpus) - 1);
      up.push_back(node.state == NodeState::up);
    }
  }
  int on(std::size_t node) const { return up[node] ? std::popcount(free[node]) : 0; }
  int of(GpuType type) const {
    int sum = 0;
    for (std::size_t i = 0; i < free.size(); ++i) sum += has(i, type) ? on(i) : 0;
    return sum;
  }
  std::optional<NodeId> first_with_any(GpuType type) const {
    return best(type, [&](std::size_t) { return 0; });
  }
  std::optional<NodeId> fewest_at_least(GpuType type, int gpus) const {
    if (gpus < 1) return std::nullopt;
    return best(type, [&](std::size_t i) { return on(i) >= gpus ? on(i) : kNo; });
  }
  std::optional<NodeId> most(GpuType type) const {
    return best(type, [&](std::size_t i) { return -on(i); });
  }

  std::vector<std::uint64_t> free;
  std::vector<bool> up;

 private:
  static constexpr int kNo = 1000;
  bool has(std::size_t node, GpuType type) const {
    return cluster_.node(node_id(node)).type == type;
  }
  template <class Cost>
  std::optional<NodeId> best(GpuType type, const Cost& cost) const {
    std::optional<NodeId> best;
    int least = kNo;
    for (std::size_t i = 0; i < free.size(); ++i) {
      if (!has(i, type) || on(i) == 0 || cost(i) >= least) continue;
      least = cost(i);
      best = node_id(i);
    }
    return best;
  }
  const Cluster& cluster_;
};

void expect_same(const FreeGpus& free, const PlainFreeGpus& plain, const Cluster& cluster) {
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    ASSERT_EQ(free.free_on(node_id(i)), plain.on(i));
    ASSERT_EQ(free.type_of(node_id(i)), cluster.nodes()[i].type);
    ASSERT_EQ(free.is_free({node_id(i), plain.free[i]}), plain.up[i]);
  }
  for (int t = 0; t < cluster.types(); ++t) {
    const GpuType type = gpu_type(static_cast<std::size_t>(t));
    ASSERT_EQ(free.free_of(type), plain.of(type));
    ASSERT_EQ(free.first_with_any(type), plain.first_with_any(type));
    ASSERT_EQ(free.most(type), plain.most(type));
    for (int gpus = 0; gpus <= 66; ++gpus) {
      ASSERT_EQ(free.fewest_at_least(type, gpus), plain.fewest_at_least(type, gpus)) << gpus;
    }
  }
}

TEST(FreeGpus, AgreesWithAPlainWalkUnderRandomChanges) {
  for (const char* text : {"1x1", "3x4", "2x64", "5x3:a,1x64:b,4x1:a", "70x2"}) {
    SCOPED_TRACE(text);
    Cluster cluster = cluster_of(text);
    if (cluster.nodes().size() > 2) cluster.set_state(node_id(1), NodeState::down);
    FreeGpus free(cluster);
    PlainFreeGpus plain(cluster);
    ASSERT_NO_FATAL_FAILURE(expect_same(free, plain, cluster));
    Random random(cluster.nodes().size());
    for (int step = 0; step < 1500; ++step) {
      const std::size_t node = random.below(cluster.nodes().size());
      const Node& machine = cluster.nodes()[node];
      const std::uint64_t all =
          machine.gpus == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << machine.gpus) - 1;
      switch (random.below(5)) {
        case 0: {
          const int gpus =
              static_cast<int>(random.below(static_cast<std::uint64_t>(plain.on(node)) + 1));
          const Slice taken = free.take(node_id(node), gpus);
          ASSERT_EQ(taken.gpus(), gpus);
          ASSERT_EQ(taken.mask & ~plain.free[node], 0U) << "only what was free";
          const std::uint64_t rest = plain.free[node] & ~taken.mask;
          ASSERT_TRUE(gpus == 0 || rest == 0 || std::bit_floor(taken.mask) < (rest & (~rest + 1)))
              << "the lowest";
          plain.free[node] = rest;
          break;
        }
        case 1: {
          const std::uint64_t mask = plain.free[node] & random.next();
          free.take(Slice{node_id(node), mask});
          plain.free[node] &= ~mask;
          break;
        }
        case 2:
        case 3: {
          const std::uint64_t mask = all & ~plain.free[node] & random.next();
          free.give(Slice{node_id(node), mask});
          plain.free[node] |= mask;
          break;
        }
        default: {
          const bool up = random.uniform() < 0.6;
          free.set_up(node_id(node), up);
          plain.up[node] = up;
        }
      }
      ASSERT_NO_FATAL_FAILURE(expect_same(free, plain, cluster));
    }
  }
}

TEST(FreeGpus, WhatIsGivenBackOnADownNodeWaitsForItsReturn) {
  FreeGpus free(cluster_of("2x4"));
  const Slice taken = free.take(node_id(0), 3);
  free.set_up(node_id(0), false);
  free.give(taken);
  EXPECT_EQ(free.free_of(GpuType()), 4);
  EXPECT_EQ(free.first_with_any(GpuType()), node_id(1));
  free.set_up(node_id(0), true);
  EXPECT_EQ(free.free_of(GpuType()), 8);
}

TEST(FreeGpus, ReservedGpusAreNotOffered) {
  FreeGpus free(cluster_of("2x4"));
  const Slice taken = free.take(node_id(0), 1);
  free.set_reserved(node_id(0), 0b0011);
  EXPECT_EQ(free.offered(node_id(0)), 0b1100U);
  EXPECT_EQ(free.free_of(GpuType()), 6);
  free.give(taken);
  EXPECT_EQ(free.free_of(GpuType()), 6);
  EXPECT_FALSE(free.is_free({node_id(0), 0b0010}));
  EXPECT_EQ(free.take(node_id(0), 2).mask, 0b1100U);
  free.set_reserved(node_id(0), 0);
  EXPECT_EQ(free.offered(node_id(0)), 0b0011U);
}

TEST(FreeGpusDeathTest, AGpuIsTakenAndGivenOnce) {
  FreeGpus free(cluster_of("2x4"));
  free.take(Slice{node_id(0), 0b11});
  EXPECT_DEATH(free.take(Slice{node_id(0), 0b110}), "CHECK");
  EXPECT_DEATH(free.give(Slice{node_id(0), 0b110}), "CHECK");
  EXPECT_DEATH(free.take(node_id(0), 3), "CHECK");
  free.set_up(node_id(1), false);
  EXPECT_DEATH(free.take(node_id(1), 1), "CHECK") << "nothing is offered on a node that is down";
}

}  // namespace
}  // namespace rubato::place
