// Sums the gradients of one step over all workers.
//
// This is a narrow interface for different algorithms: they differ in which bytes are sent when and
// where. The sum itself is always the same: the tree of elastic/tree.h over all leaves, with the
// same bits for any number of workers. Buckets become ready in order while the backward pass
// continues.
//
// TreeReduction: each worker owns an equal shard of every bucket. It receives the subtree sums of
// its shard, finishes the tree and sends the result to all workers, including those that are
// joining. Workers of one host add up their sums before they cross the network
// (elastic/reduction_plan.h). If the ranges of the hosts are subtrees, a link carries no more bytes
// than in a ring all-reduce, in 2 to 4 hops instead of 2(n - 1). Ranges that are not subtrees
// (3-3-2) send up to log2 n sums each.
//
// For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rubato/elastic/layout.h"
#include "rubato/elastic/transport.h"
#include "rubato/elastic/tree.h"

namespace rubato::elastic {

// One step as the reduction sees it.
struct Geometry {
  std::int64_t step = 0;
  int leaves = 0;                    // leaves that exist
  std::vector<Uid> working;          // leaves are assigned to them in this order
  std::vector<std::string> hosts{};  // of the working ones; empty: all are on one
  std::vector<Uid> listening;        // they receive the result and add nothing
  std::span<float> result;           // layout.total floats
  [[nodiscard]] std::vector<Range> ranges() const {
    return split_leaves(leaves, static_cast<int>(working.size()));
  }
};

class Reduction {
 public:
  virtual ~Reduction() = default;

  virtual void begin(const Geometry& geometry) = 0;
  // The subtree sums of this worker's range, each with layout.total floats. The buckets become
  // final one after the other. The shard that this worker owns is overwritten.
  virtual void ready(int bucket, const std::vector<float*>& sums) = 0;
  // The result of all workers, if it was computed elsewhere (make_group_reduction).
  virtual void supply(std::span<const float> result) = 0;
  // For a message of the step: the place for its payload, and the notice that the payload has
  // arrived.
  virtual std::byte* where(Uid from, const Header& header) = 0;
  virtual void arrived(Uid from, const Header& header) = 0;

  [[nodiscard]] virtual bool complete() const = 0;
  // About the complete result.
  [[nodiscard]] virtual bool finite() const = 0;
  [[nodiscard]] virtual double sqr_norm() const = 0;  // without the tail
};

[[nodiscard]] std::unique_ptr<Reduction> make_tree_reduction(Uid self, const Layout& layout,
                                                             Transport& transport);
// The workers sum the gradients among themselves by other means, such as NCCL, and supply() the
// result. The leader sends it to workers that are joining. Sums have other bits for another number
// of workers, but the same bits on all of them.
[[nodiscard]] std::unique_ptr<Reduction> make_group_reduction(Uid self, const Layout& layout,
                                                              Transport& transport);

}  // namespace rubato::elastic
