// The order in which gradients are added up. It does not depend on the number of workers.
//
// Virtual workers 0..V-1 are the leaves of a binary tree. Its node (level k, index i) covers the
// leaves [i 2^k, (i+1) 2^k). The sum of a node is the sum of its left child plus that of its right
// child. A child without leaves is left out, not zero, because -0.0 + 0.0 would change bits. A
// worker holds a contiguous range of leaves, and sums the maximal aligned subtrees inside it. With
// all subtrees of all ranges, one worker can finish the tree. Addition of floats is not
// associative, but every node is summed in one way only. So all splits into ranges give the same
// bits. (Virtual workers are an idea of EasyScale; the tree allows several workers to share the
// additions.)
//
// Pure.
#pragma once

#include <vector>

namespace rubato::elastic {

// Leaves [first, first + size); size is a power of two except at the right edge of the tree.
struct Subtree {
  int first = 0;
  int size = 1;  // of the node; leaves beyond the last one do not exist
  friend bool operator==(const Subtree&, const Subtree&) = default;
};

// What to do with the gradient of one leaf. A slot is a buffer with the size of a gradient, and
// holds one subtree sum. First the leaf goes into `slot`: copied if the slot is fresh, else added.
// Then each slot is merged into the one below it: slot[n-1] += slot[n], from `merge_from` down to
// `merge_to` + 1.
struct LeafStep {
  int leaf = 0;
  int slot = 0;
  bool fresh = true;
  int merge_from = 0;  // == merge_to: nothing to merge
  int merge_to = 0;
};

struct SummationOrder {
  std::vector<LeafStep> steps;    // in the order of the leaves
  std::vector<Subtree> subtrees;  // what the slots 0..n-1 hold at the end
  int slots = 0;                  // the largest number in use at any time
};

// For the leaves [first, last), which exist. Empty if first == last.
[[nodiscard]] SummationOrder summation_order(int first, int last);

// These steps add up the sums of the subtrees of all ranges, in the order of their leaves:
// element[into] += element[from]. The result is element 0.
struct Addition {
  int into = 0;
  int from = 0;
};
[[nodiscard]] std::vector<Addition> finish_tree(const std::vector<Subtree>& subtrees);

// The same for some of the subtrees, in the order of their leaves: only the nodes that need no
// other subtree. `at_the_edge`: the last one of them is the last one of the tree.
struct JoinedSubtrees {
  std::vector<Addition> additions;
  std::vector<int> left;       // elements that hold a sum afterwards
  std::vector<Subtree> nodes;  // what they hold
};
[[nodiscard]] JoinedSubtrees join_subtrees(const std::vector<Subtree>& subtrees, bool at_the_edge);

// How many leaves each of `workers` gets: as even as possible, the larger ranges first. If there
// are fewer leaves than workers, the last workers get none.
struct Range {
  int first = 0;
  int last = 0;
  [[nodiscard]] int size() const { return last - first; }
  [[nodiscard]] bool empty() const { return first == last; }
  friend bool operator==(const Range&, const Range&) = default;
};
[[nodiscard]] std::vector<Range> split_leaves(int leaves, int workers);

}  // namespace rubato::elastic
