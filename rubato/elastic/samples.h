// Which samples a step trains on: a permutation of all samples for each epoch, one cursor into it
// for the whole job, and its split over the leaves of the summation tree (elastic/tree.h).
//
// Everything is a function of (seed, epoch, position) and of the agreed step, never of the number
// of workers or of what happened before: a repeated step takes the same samples, a worker that
// joins needs no list, and whoever prefetched for a plan that was dropped throws it away.
//
// The permutation is computed, not stored: a position is written as a pair (left, right) on a grid
// of about sqrt(N) x sqrt(N), and in turn each half is shifted by a keyed hash of the other, which
// can be undone and so is a bijection (a Feistel network on residues). A position that lands
// on one of the few grid points beyond N goes through again until it is inside. A shuffled array
// would cost 80 MB and half a second an epoch for 10 million samples, in every worker.
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

// What leaf `leaf` of `leaves` takes of a step: in order, as even as can be, the larger ones first;
// with fewer samples than leaves the last ones are empty. A whole step of leaves x b gives each b,
// and a short one never gives a leaf more than that, so one rule serves a fixed leaf size and a
// chosen one alike, and the short step still keeps all workers busy. Sizes of a short step differ,
// so its gradients must be weighted by them.
[[nodiscard]] Positions leaf_positions(const Slice& step, int leaves, int leaf);
// Leaves that get any sample; they are the first ones.
[[nodiscard]] int existing_leaves(const Slice& step, int leaves);

// A 64-bit hash. The sum of the marks (modulo 2^64) of all samples used in an epoch equals
// SampleOrder::epoch_mark() if each was used exactly once, and by chance alone otherwise.
[[nodiscard]] std::uint64_t sample_mark(std::int64_t epoch, std::int64_t index);

class SampleOrder {
 public:
  SampleOrder(std::int64_t samples, std::uint64_t seed);

  [[nodiscard]] std::int64_t samples() const { return samples_; }
  // The sample at a position of an epoch: for every epoch a bijection of 0..samples-1.
  [[nodiscard]] std::int64_t index(std::int64_t epoch, std::int64_t position) const;

  [[nodiscard]] Slice first(std::int64_t batch) const;
  // What follows `step` with a global batch of `batch`. The last step of an epoch is short rather
  // than mixed with the next epoch, so that every sample is used once in each.
  [[nodiscard]] Slice next(const Slice& step, std::int64_t batch) const;

  // The sum of the marks of all samples; linear in their number.
  [[nodiscard]] std::uint64_t epoch_mark(std::int64_t epoch) const;

 private:
  [[nodiscard]] Slice at(std::int64_t epoch, std::int64_t cursor, std::int64_t batch) const;

  std::int64_t samples_;
  std::uint64_t seed_;
  std::uint64_t rows_;     // of the grid
  std::uint64_t columns_;  // rows x columns >= samples, by less than one row
};

}  // namespace rubato::elastic
