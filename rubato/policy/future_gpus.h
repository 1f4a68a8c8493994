// How many GPUs are free at every moment from now on, as a step function in which plans are
// reserved and given back.
//
// Thousands of plans make thousands of steps, and planning one job asks few questions of the kind
// "until when are there 8?". The steps therefore stand in blocks that know their least and most, so
// that a question looks into a block only where the answer is; a test compares it with a plain map.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "rubato/base/time.h"

namespace rubato::policy {

class FutureGpus {
 public:
  // All GPUs free from `from` on.
  void reset(Time from, int gpus);

  [[nodiscard]] int at(Time when) const;
  // The first moment from `from` on with fewer than, or with at least, so many free GPUs; kNever
  // if there is none.
  [[nodiscard]] Time first_below(Time from, int gpus) const;
  [[nodiscard]] Time first_with(Time from, int gpus) const;

  // Changes the number in [from, until); it may fall below 0.
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
  // Makes a step begin at this moment.
  void cut(Time when);

  std::vector<Block> blocks_;
};

}  // namespace rubato::policy
