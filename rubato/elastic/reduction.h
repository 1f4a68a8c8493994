// Adding up the gradients of one step over all workers.
//
// The narrow interface behind which algorithms differ (which bytes travel when, and by which way);
// what the sum is does not: the tree of elastic/tree.h over all leaves, the same bits for any
// number of workers. Buckets become ready in order while the backward pass goes on.
//
// TreeReduction: each worker owns an equal shard of every bucket. It receives the subtree sums of
// its shard from all others, finishes the tree and sends the result to everybody, joining workers
// included. For ranges that are subtrees this moves as many bytes as a ring all-reduce, in two hops
// instead of 2(n - 1); ranges that are not (3-3-2) send up to log2 n sums each.
//
// Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rubato/elastic/layout.h"
#include "rubato/elastic/transport.h"
#include "rubato/elastic/tree.h"

namespace rubato::elastic {

// One step as the reduction sees it.
struct Geometry {
  std::int64_t step = 0;
  int leaves = 0;              // that exist
  std::vector<Uid> working;    // ranges go to them in order
  std::vector<Uid> listening;  // receive the result, add nothing
  std::span<float> result;     // layout.total floats
  [[nodiscard]] std::vector<Range> ranges() const {
    return split_leaves(leaves, static_cast<int>(working.size()));
  }
};

class Reduction {
 public:
  virtual ~Reduction() = default;

  virtual void begin(const Geometry& geometry) = 0;
  // The subtree sums of this worker's range, one span of layout.total floats each; bucket after
  // bucket they become final. The shard that this worker owns is overwritten.
  virtual void ready(int bucket, const std::vector<float*>& sums) = 0;
  // Messages of the step: where the payload goes, and that it is there.
  virtual std::byte* where(Uid from, const Header& header) = 0;
  virtual void arrived(Uid from, const Header& header) = 0;

  [[nodiscard]] virtual bool complete() const = 0;
  // Of the complete result.
  [[nodiscard]] virtual bool finite() const = 0;
  [[nodiscard]] virtual double sqr_norm() const = 0;  // without the tail
};

[[nodiscard]] std::unique_ptr<Reduction> make_tree_reduction(Uid self, const Layout& layout,
                                                             Transport& transport);

}  // namespace rubato::elastic
