#include "rubato/elastic/tree.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <string>
#include <vector>

namespace rubato::elastic {
namespace {

// Gradients as texts. The sum of a and b is "(a+b)". So two sums are equal if and only if every
// addition had the same operands in the same order.
std::string leaf_name(int leaf) { return std::to_string(leaf); }

std::vector<std::string> run(const SummationOrder& order) {
  std::vector<std::string> slots(static_cast<std::size_t>(order.slots));
  const auto slot = [&](int index) -> std::string& {
    return slots.at(static_cast<std::size_t>(index));
  };
  for (const LeafStep& step : order.steps) {
    std::string& own = slot(step.slot);
    own = step.fresh ? leaf_name(step.leaf) : "(" + own + "+" + leaf_name(step.leaf) + ")";
    for (int n = step.merge_from; n > step.merge_to; --n) {
      slot(n - 1) = "(" + slot(n - 1) + "+" + slot(n) + ")";
    }
  }
  slots.resize(order.subtrees.size());
  return slots;
}

std::string reduce(const std::vector<Range>& ranges) {
  std::vector<Subtree> subtrees;
  std::vector<std::string> elements;
  for (const Range& range : ranges) {
    const SummationOrder order = summation_order(range.first, range.last);
    subtrees.insert(subtrees.end(), order.subtrees.begin(), order.subtrees.end());
    const std::vector<std::string> slots = run(order);
    elements.insert(elements.end(), slots.begin(), slots.end());
  }
  for (const Addition& addition : finish_tree(subtrees)) {
    std::string& into = elements.at(static_cast<std::size_t>(addition.into));
    into = "(" + into + "+" + elements.at(static_cast<std::size_t>(addition.from)) + ")";
  }
  return elements.empty() ? "" : elements[0];
}

// The definition in the header, taken literally.
std::string tree(int first, int size, int leaves) {
  if (size == 1) return leaf_name(first);
  const int half = size / 2;
  if (first + half >= leaves) return tree(first, half, leaves);
  return "(" + tree(first, half, leaves) + "+" + tree(first + half, half, leaves) + ")";
}

std::string whole_tree(int leaves) {
  int size = 1;
  while (size < leaves) size *= 2;
  return tree(0, size, leaves);
}

TEST(Tree, AddsInPairs) {
  EXPECT_EQ(whole_tree(5), "(((0+1)+(2+3))+4)");
  EXPECT_EQ(reduce({{0, 5}}), "(((0+1)+(2+3))+4)");
  EXPECT_EQ(reduce({{0, 1}, {1, 4}, {4, 5}}), "(((0+1)+(2+3))+4)");
}

TEST(Tree, NothingIsNothing) {
  EXPECT_TRUE(summation_order(3, 3).steps.empty());
  EXPECT_TRUE(summation_order(3, 3).subtrees.empty());
  EXPECT_TRUE(finish_tree({}).empty());
}

TEST(Tree, ARangeKeepsItsMaximalAlignedSubtrees) {
  EXPECT_EQ(summation_order(3, 8).subtrees, (std::vector<Subtree>{{3, 1}, {4, 4}}));
  EXPECT_EQ(summation_order(0, 8).subtrees, (std::vector<Subtree>{{0, 8}}));
  EXPECT_EQ(summation_order(1, 7).subtrees, (std::vector<Subtree>{{1, 1}, {2, 2}, {4, 2}, {6, 1}}));
}

TEST(Tree, SlotsGrowWithTheLogarithmOfTheRange) {
  EXPECT_EQ(summation_order(0, 1).slots, 1);
  EXPECT_EQ(summation_order(0, 2).slots, 1);
  for (int leaves = 2; leaves <= 1024; leaves *= 2) {
    int logarithm = 0;
    while ((1 << logarithm) < leaves) ++logarithm;
    EXPECT_LE(summation_order(0, leaves).slots, logarithm);
    EXPECT_LE(summation_order(1, leaves).slots, 2 * logarithm);
  }
}

TEST(Tree, EveryEvenSplitAddsUpInTheOneWay) {
  for (int leaves = 1; leaves <= 40; ++leaves) {
    const std::string expected = whole_tree(leaves);
    for (int workers = 1; workers <= leaves + 2; ++workers) {
      ASSERT_EQ(reduce(split_leaves(leaves, workers)), expected)
          << leaves << " leaves on " << workers << " workers";
    }
  }
}

RC_GTEST_PROP(TreeProperty, AnySplitAddsUpInTheOneWay, ()) {
  const auto sizes = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 20));
  std::vector<Range> ranges;
  int leaves = 0;
  for (const int size : sizes) {
    ranges.push_back({leaves, leaves + size});
    leaves += size;
  }
  RC_PRE(leaves > 0);
  RC_ASSERT(reduce(ranges) == whole_tree(leaves));
}

TEST(Tree, LeavesAreSplitEvenlyTheLargerRangesFirst) {
  EXPECT_EQ(split_leaves(8, 3), (std::vector<Range>{{0, 3}, {3, 6}, {6, 8}}));
  EXPECT_EQ(split_leaves(2, 4), (std::vector<Range>{{0, 1}, {1, 2}, {2, 2}, {2, 2}}));
  EXPECT_TRUE(split_leaves(2, 4).back().empty());
}

}  // namespace
}  // namespace rubato::elastic
