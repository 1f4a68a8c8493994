// Finds workers that are steadily slower than the others: a hot GPU, a noisy neighbour, a dying
// disk. A step is as slow as its slowest worker, so one such worker slows down the whole job.
//
// A worker is slow in a step if its seconds per leaf exceed 1.5 times the median of the others.
// With only one other worker the limit is 2 times, because the other one may be the unusual one. A
// worker is a straggler when it was slow in 18 of its last 20 steps. So a pause of a few steps (a
// checkpoint, the page cache) does not count. A straggler is reported once. It is reported again
// only after it has recovered, which means slow in at most half of the window. This is far enough
// from 18 that a worker near the limit is not reported again and again.
//
// Pure. A value for one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace rubato::elastic {

struct LeafTime {
  std::int64_t uid = 0;
  double seconds = 0;  // per leaf; 0 if the worker had no leaf in this step
};

struct Straggler {
  std::int64_t uid = 0;
  double seconds = 0;  // per leaf, in the step in which it became a straggler
  double median = 0;   // of the others in that step
  int slow_steps = 0;  // of the last kWindow
};

class StragglerWatch {
 public:
  static constexpr int kWindow = 20;
  static constexpr int kSlowSteps = 18;
  static constexpr int kRecovered = kWindow / 2;
  static constexpr double kFactor = 1.5;
  static constexpr double kFactorOfTwo = 2;

  // Takes the times of all members in a step, and returns the workers that became stragglers in it.
  // A worker that is not listed is forgotten, so a worker that joins again starts from zero. A step
  // that is repeated after a failure is not counted twice. A step further back resets everything.
  std::vector<Straggler> add(std::int64_t step, std::span<const LeafTime> times);

  [[nodiscard]] bool is_straggler(std::int64_t uid) const;

 private:
  struct History {
    std::uint32_t slow = 0;  // one bit for each of the last steps, the newest is the lowest
    int steps = 0;           // steps seen, at most kWindow
    bool reported = false;
  };

  std::map<std::int64_t, History> workers_;
  std::optional<std::int64_t> last_step_;
};

}  // namespace rubato::elastic
