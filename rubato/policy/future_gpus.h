// How many GPUs are free at every moment from now on, as a step function. Plans reserve GPUs in it
// and give them back.
//
// Thousands of plans make thousands of steps, but planning one job asks only a few questions such
// as "until when are 8 GPUs free?". So the steps are stored in blocks that know their minimum and
// maximum, and a query looks only into the block with the answer. A test compares it with a plain
// map.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "rubato/base/time.h"

namespace rubato::policy {

class FutureGpus {
 public:
  // All GPUs are free from `from` on.
  void reset(Time from, int gpus);

  [[nodiscard]] int at(Time when) const;
  // The first moment, not before `from`, with fewer than (or at least) this many free GPUs; kNever
  // if there is none.
  [[nodiscard]] Time first_below(Time from, int gpus) const;
  [[nodiscard]] Time first_with(Time from, int gpus) const;

  // The smallest number of free GPUs in [from, until), which is not empty.
  [[nodiscard]] int least(Time from, Time until) const;

  // Changes the number of free GPUs in [from, until). It may become negative.
  void add(Time from, Time until, int gpus);
  void reserve(Time from, Time until, int gpus) { add(from, until, -gpus); }

 private:
  static constexpr std::size_t kBlock = 64;
  struct Step {
    Time from = kStart;
    int free = 0;  // without the block's `shift`
  };
  struct Block {
    Time from = kStart;  // of its first step
    int shift = 0;
    int least = 0, most = 0;  // with the shift
    std::size_t size = 0;
    std::array<Step, kBlock> steps;

    void measure();
    [[nodiscard]] std::size_t step_at(Time when) const;
  };

  [[nodiscard]] std::size_t block_at(Time when) const;
  // Ensures that a step begins at this moment.
  void cut(Time when);

  std::vector<Block> blocks_;
};

}  // namespace rubato::policy
