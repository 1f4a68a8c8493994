// The order in which gradients are added up, the same whatever the number of workers.
//
// Virtual workers 0..V-1 are the leaves of a binary tree whose node (level k, index i) covers the
// leaves [i 2^k, (i+1) 2^k). The sum of a node is the sum of its left child plus that of its right;
// a child without leaves is absent, not zero, because -0.0 + 0.0 would change bits. A worker
// holds a contiguous range of leaves and adds up the maximal aligned subtrees inside it; whoever
// has all subtrees of all ranges finishes the tree. Addition of floats is not associative, but
// every node is added up in one way only, so all ranges give the same bits (EasyScale's idea of
// virtual workers; the tree lets the additions be shared).
//
// Pure.
#pragma once

#include <vector>

namespace rubato::elastic {

// Leaves [first, first + size); size is a power of two except at the right edge of the tree.
struct Subtree {
  int first = 0;
  int size = 1;  // of the node: leaves beyond the last one do not exist
  friend bool operator==(const Subtree&, const Subtree&) = default;
};

// What to do with the gradient of one leaf. Slots are buffers of the size of a gradient; slot s
// holds one subtree sum. First the leaf goes into `slot` (copied if fresh, else added), then each
// slot above is merged into the one below: slot[n-1] += slot[n], from `merge_from` down to
// `merge_to` + 1.
struct LeafStep {
  int leaf = 0;
  int slot = 0;
  bool fresh = true;
  int merge_from = 0;  // == merge_to: nothing to merge
  int merge_to = 0;
};

struct RangePlan {
  std::vector<LeafStep> steps;    // in the order of the leaves
  std::vector<Subtree> subtrees;  // what the slots 0..n-1 hold in the end
  int slots = 0;                  // the most in use at any time
};

// For the leaves [first, last) that exist; empty if first == last.
[[nodiscard]] RangePlan plan_range(int first, int last);

// The sums of the subtrees of all ranges, in the order of their leaves, are added up by these
// steps: element[into] += element[from]; the result is element 0.
struct Addition {
  int into = 0;
  int from = 0;
};
[[nodiscard]] std::vector<Addition> finish_tree(const std::vector<Subtree>& subtrees);

// How many leaves each of `workers` gets: ranges as even as can be, the larger ones first. With
// fewer leaves than workers the last ones get none.
struct Range {
  int first = 0;
  int last = 0;
  [[nodiscard]] int size() const { return last - first; }
  [[nodiscard]] bool empty() const { return first == last; }
  friend bool operator==(const Range&, const Range&) = default;
};
[[nodiscard]] std::vector<Range> split_leaves(int leaves, int workers);

}  // namespace rubato::elastic
