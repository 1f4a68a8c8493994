// Adds up the gradients of a worker's leaves as they arrive, in the fixed order of elastic/tree.h.
//
// A pass is one leaf: begin(), then add() once for each parameter in any order, then finish(). The
// slots then hold the subtree sums. Gradients go into the slots in tiles that stay in the cache
// while they are merged.
//
// For one thread at a time, except slot contents after bucket_ready.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "rubato/elastic/kernels.h"
#include "rubato/elastic/layout.h"
#include "rubato/elastic/tree.h"

namespace rubato::elastic {

class Accumulator {
 public:
  explicit Accumulator(Layout layout) : layout_(std::move(layout)) {}

  [[nodiscard]] const Layout& layout() const { return layout_; }
  // layout().total floats on a 64-byte boundary. They are allocated at the first call, and never
  // move.
  [[nodiscard]] std::span<float> slot(int index);

  // `bucket_ready` may be set for the last leaf of a range. It is called for every bucket when the
  // slots hold all of it, in ascending order, the tail last. It must not throw.
  void begin(const LeafStep& step, bool measure, std::function<void(int bucket)> bucket_ready);
  [[nodiscard]] bool running() const { return running_; }
  [[nodiscard]] bool arrived(int parameter) const {
    return arrived_[static_cast<std::size_t>(parameter)];
  }
  // The gradient of one parameter, multiplied by `weight`. Each parameter arrives at most once in a
  // pass.
  void add(int parameter, std::span<const float> gradient, float weight);
  // Ends the pass. Parameters that have not arrived count as zero. The result is about the weighted
  // gradient: 0 and true unless measured.
  Measured finish(std::span<const float> tail);
  // Ends the pass after an error. The content of the slots is undefined.
  void abandon() { running_ = false; }

 private:
  struct FreeAligned {
    void operator()(float* floats) const;
  };

  void add_absent();
  void deposit(std::size_t offset, std::span<const float> values, float weight, int parameter);
  void deposit_tile(std::size_t offset, std::span<const float> values, float weight, int parameter);
  // Measures as well, unless `measured` is below 0.
  void add_tile(std::span<float> into, std::span<const float> values, int measured);
  void count_arrival(int parameter);

  Layout layout_;
  std::vector<std::unique_ptr<float[], FreeAligned>> slots_;
  std::vector<float> weighted_;  // memory for one tile

  // The pass that is running.
  bool running_ = false;
  LeafStep step_;
  bool measure_ = false;
  std::function<void(int)> bucket_ready_;
  std::vector<bool> arrived_;
  std::vector<double> sqr_norms_;  // by parameter: added in one order
  std::vector<int> missing_;       // by bucket: parameters that have not arrived
  int next_bucket_ = 0;
  bool finite_ = true;
};

}  // namespace rubato::elastic
