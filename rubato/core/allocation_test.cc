#include "rubato/core/allocation.h"

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <iterator>

#include "rubato/base/random.h"
#include "rubato/core/testing.h"

namespace rubato::core {
namespace {

Slice random_slice(Random& random) {
  const std::uint64_t mask = random.next() & random.next() & random.next();
  return {node_id(random.below(6)), random.uniform() < 0.1 ? 0 : mask};
}

Allocation random_gpus(Random& random) {
  Allocation gpus;
  for (std::uint64_t i = random.below(5); i > 0; --i) gpus.add(random_slice(random));
  return gpus;
}

void expect_is(const Allocation& gpus, const GpuSet& reference) {
  ASSERT_EQ(gpu_set(gpus), reference);
  ASSERT_EQ(gpus.gpus(), static_cast<int>(reference.size()));
  ASSERT_EQ(gpus.empty(), reference.empty());
  std::set<std::size_t> nodes;
  for (const auto& [node, bit] : reference) nodes.insert(node);
  ASSERT_EQ(gpus.nodes(), static_cast<int>(nodes.size()));
  const auto& slices = gpus.slices();
  ASSERT_TRUE(std::is_sorted(slices.begin(), slices.end(),
                             [](const Slice& a, const Slice& b) { return a.node < b.node; }));
  for (const auto& slice : slices) {
    ASSERT_NE(slice.mask, 0U);
    ASSERT_EQ(gpus.mask_on(slice.node), slice.mask);
  }
}

TEST(Allocation, IsASetOfGpusUnderRandomChanges) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    Allocation gpus;
    GpuSet reference;
    for (int step = 0; step < 20; ++step) {
      const Allocation other = random_gpus(random);
      const Slice slice = random_slice(random);
      const GpuSet others = gpu_set(other);
      const GpuSet one = gpu_set(gpus_on({{slice.node.index(), slice.mask}}));
      switch (random.below(4)) {
        case 0:
          gpus.add(slice);
          reference.insert(one.begin(), one.end());
          break;
        case 1:
          gpus.remove(slice);
          for (const auto& gpu : one) reference.erase(gpu);
          break;
        case 2:
          gpus.add(other);
          reference.insert(others.begin(), others.end());
          break;
        default:
          gpus.remove(other);
          for (const auto& gpu : others) reference.erase(gpu);
      }
      ASSERT_NO_FATAL_FAILURE(expect_is(gpus, reference));
    }
  }
}

TEST(Allocation, MinusAndCommonSplitASet) {
  Random random(2);
  for (int round = 0; round < 2000; ++round) {
    const Allocation a = random_gpus(random);
    const Allocation b = random_gpus(random);
    GpuSet rest;
    GpuSet both;
    const GpuSet in_a = gpu_set(a);
    const GpuSet in_b = gpu_set(b);
    std::set_difference(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(),
                        std::inserter(rest, rest.end()));
    std::set_intersection(in_a.begin(), in_a.end(), in_b.begin(), in_b.end(),
                          std::inserter(both, both.end()));
    ASSERT_NO_FATAL_FAILURE(expect_is(minus(a, b), rest));
    ASSERT_NO_FATAL_FAILURE(expect_is(common(a, b), both));
    Allocation again = minus(a, b);
    again.add(common(a, b));
    ASSERT_EQ(again, a) << "equal sets are equal, however they came about";
  }
}

TEST(Allocation, KnowsItsTypeWhateverIsAdded) {
  const GpuType k80 = gpu_type(1);
  Allocation gpus(k80);
  gpus.add(Allocation());
  EXPECT_EQ(gpus.type(), k80) << "nothing has no type to give";
  gpus.add(gpus_on({{1, 1}}, k80));
  EXPECT_EQ(gpus.type(), k80);
  EXPECT_EQ(minus(gpus, gpus_on({{1, 1}}, k80)).type(), k80);
  EXPECT_EQ(common(gpus, gpus_on({{5, 1}})).type(), k80);
  Allocation taken;
  taken.add(gpus);
  EXPECT_EQ(taken.type(), k80) << "an empty one becomes what it is given";
}

TEST(Allocation, HoldsAllSixtyFourGpusOfANode) {
  Allocation gpus = gpus_on({{2, ~std::uint64_t{0}}});
  EXPECT_EQ(gpus.gpus(), 64);
  gpus.remove({node_id(2), std::uint64_t{1} << 63U});
  EXPECT_EQ(gpus.gpus(), 63);
  EXPECT_EQ(gpus.mask_on(node_id(2)), ~std::uint64_t{0} >> 1U);
  EXPECT_EQ(gpus.mask_on(node_id(1)), 0U);
}

}  // namespace
}  // namespace rubato::core
