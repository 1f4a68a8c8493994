#include "rubato/elastic/tree.h"

#include <algorithm>
#include <utility>

#include "rubato/base/check.h"

namespace rubato::elastic {

namespace {

// Two neighbouring nodes of the same size are siblings if the left one starts at a multiple of
// twice that size.
bool siblings(const Subtree& left, const Subtree& right) {
  return left.size == right.size && left.first % (2 * left.size) == 0 &&
         right.first == left.first + left.size;
}

}  // namespace

SummationOrder summation_order(int first, int last) {
  CHECK(0 <= first && first <= last);
  SummationOrder order;
  std::vector<Subtree>& stack = order.subtrees;
  for (int leaf = first; leaf < last; ++leaf) {
    LeafStep step{.leaf = leaf};
    const bool joins_sibling = !stack.empty() && siblings(stack.back(), {leaf, 1});
    step.fresh = !joins_sibling;
    if (joins_sibling) {
      stack.back().size = 2;
    } else {
      stack.push_back({leaf, 1});
    }
    step.slot = step.merge_from = step.merge_to = static_cast<int>(stack.size()) - 1;
    order.slots = std::max(order.slots, static_cast<int>(stack.size()));
    while (stack.size() > 1 && siblings(stack[stack.size() - 2], stack.back())) {
      stack.pop_back();
      stack.back().size *= 2;
      --step.merge_to;
    }
    order.steps.push_back(step);
  }
  return order;
}

// A node at the right edge has no sibling to wait for. It stands for larger and larger nodes until
// it is the right child of the node before it.
JoinedSubtrees join_subtrees(const std::vector<Subtree>& subtrees, bool at_the_edge) {
  JoinedSubtrees joined;
  const auto merge = [&](bool last) {
    while (joined.nodes.size() > 1) {
      Subtree& left = joined.nodes[joined.nodes.size() - 2];
      const Subtree right = joined.nodes.back();
      const bool is_left_child = left.first % (2 * left.size) == 0;
      const bool cut =
          last && is_left_child && right.first == left.first + left.size && right.size <= left.size;
      if (!siblings(left, right) && !cut) return;
      joined.additions.push_back({joined.left[joined.left.size() - 2], joined.left.back()});
      left.size *= 2;
      joined.nodes.pop_back();
      joined.left.pop_back();
    }
  };
  for (std::size_t i = 0; i < subtrees.size(); ++i) {
    joined.nodes.push_back(subtrees[i]);
    joined.left.push_back(static_cast<int>(i));
    merge(false);
  }
  if (at_the_edge) merge(true);
  return joined;
}

std::vector<Addition> finish_tree(const std::vector<Subtree>& subtrees) {
  JoinedSubtrees joined = join_subtrees(subtrees, true);
  CHECK(joined.left.size() <= 1);
  return std::move(joined.additions);
}

std::vector<Range> split_leaves(int leaves, int workers) {
  CHECK(leaves >= 0 && workers > 0);
  std::vector<Range> ranges;
  int first = 0;
  for (int i = 0; i < workers; ++i) {
    const int size = leaves / workers + (i < leaves % workers ? 1 : 0);
    ranges.push_back({first, first + size});
    first += size;
  }
  return ranges;
}

}  // namespace rubato::elastic
