// The samples of each step: a permutation of all samples per epoch, one cursor into it for the
// whole job, and the split over the leaves of the summation tree (elastic/tree.h).
//
// Everything is a function of (seed, epoch, position) and of the agreed step. It never depends on
// the number of workers or on what happened before. So a repeated step takes the same samples, and
// a worker that joins needs no list. Samples that were prefetched for a plan that was dropped are
// thrown away.
//
// The permutation is computed, not stored. A position is a pair (left, right) on a grid of about
// sqrt(N) x sqrt(N). In turn, each half is shifted by a keyed hash of the other half. Each shift
// can be undone, so this is a bijection (a Feistel network on residues). A position that lands on
// one of the few grid points beyond N goes through again until it is inside. A shuffled array would
// cost 80 MB and half a second per epoch for 10 million samples, in every worker.
//
// Pure and immutable: any thread may use it.
#pragma once

#include <cstdint>

namespace rubato::elastic {

// The samples [cursor, cursor + samples) of an epoch's permutation.
struct Slice {
  std::int64_t epoch = 0;
  std::int64_t cursor = 0;
  std::int64_t samples = 0;
  friend bool operator==(const Slice&, const Slice&) = default;
};

// Positions [first, last) of the epoch's permutation.
struct Positions {
  std::int64_t first = 0;
  std::int64_t last = 0;
  [[nodiscard]] std::int64_t size() const { return last - first; }
  [[nodiscard]] bool empty() const { return first == last; }
  friend bool operator==(const Positions&, const Positions&) = default;
};

// The samples of leaf `leaf` of `leaves` in a step: in order, as even as possible, the larger ones
// first. If there are fewer samples than leaves, the last leaves are empty. A full step of leaves x
// b samples gives each leaf b. A short step never gives a leaf more than that. So one rule is
// enough for a fixed and for a chosen leaf size, and a short step still uses all workers. The
// leaves of a short step differ in size, so their gradients must be weighted.
[[nodiscard]] Positions leaf_positions(const Slice& step, int leaves, int leaf);
// The number of leaves that get a sample. They are the first ones.
[[nodiscard]] int existing_leaves(const Slice& step, int leaves);

// A 64-bit hash. If each sample of an epoch was used exactly once, the sum of their marks (modulo
// 2^64) equals SampleOrder::epoch_mark(). Otherwise it is equal only by chance.
[[nodiscard]] std::uint64_t sample_mark(std::int64_t epoch, std::int64_t index);

class SampleOrder {
 public:
  // `shuffled`: false takes the samples in the order of their indices. `per_epoch`: an epoch ends
  // after so many of its permutation; 0 = all.
  SampleOrder(std::int64_t samples, std::uint64_t seed, bool shuffled = true,
              std::int64_t per_epoch = 0);

  // In one epoch.
  [[nodiscard]] std::int64_t samples() const { return per_epoch_; }
  // The sample at a position of an epoch. In every epoch this is a bijection of 0..samples-1.
  [[nodiscard]] std::int64_t index(std::int64_t epoch, std::int64_t position) const;

  [[nodiscard]] Slice first(std::int64_t batch) const;
  // The step after `step`, with a global batch of `batch`. The last step of an epoch is short and
  // takes nothing from the next epoch, so every sample is used once per epoch.
  [[nodiscard]] Slice next(const Slice& step, std::int64_t batch) const;

  // The sum of the marks of all samples of the epoch. Takes time linear in their number.
  [[nodiscard]] std::uint64_t epoch_mark(std::int64_t epoch) const;

 private:
  [[nodiscard]] Slice at(std::int64_t epoch, std::int64_t cursor, std::int64_t batch) const;

  std::int64_t samples_;
  std::int64_t per_epoch_;
  std::uint64_t seed_;
  bool shuffled_;
  std::uint64_t rows_;     // of the grid
  std::uint64_t columns_;  // rows x columns >= samples, by less than one row
};

}  // namespace rubato::elastic
