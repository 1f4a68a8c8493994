// Who is steadily slower than its peers: a hot GPU, a noisy neighbour, a dying disk. A step is as
// slow as its slowest worker, so one such worker holds up the whole job.
//
// A worker is slow in a step if its seconds per leaf exceed 1.5 times the median of the others (2
// times with only one other, which may be the odd one itself). It is a straggler when it was slow
// in 18 of its last 20 steps: a pause of a few steps (a checkpoint, the page cache) is none. It is
// reported once, and again only after it has recovered: slow in at most half of the window, far
// enough from 18 that a worker at the edge is not reported over and over.
//
// Pure; a value that belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace rubato::elastic {

struct LeafTime {
  std::int64_t uid = 0;
  double seconds = 0;  // per leaf; 0 of a worker that had no leaf in this step
};

struct Straggler {
  std::int64_t uid = 0;
  double seconds = 0;  // per leaf, in the step that made it one
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

  // The times of all members in a step; returns who became a straggler in it. A worker that is not
  // listed is forgotten, so one that joins (again) starts anew. A step that is repeated after a
  // failure is not counted twice; one further back starts everything anew.
  std::vector<Straggler> add(std::int64_t step, std::span<const LeafTime> times);

  [[nodiscard]] bool is_straggler(std::int64_t uid) const;

 private:
  struct History {
    std::uint32_t slow = 0;  // a bit for each of the last steps, the newest lowest
    int steps = 0;           // known, at most kWindow
    bool reported = false;
  };

  std::map<std::int64_t, History> workers_;
  std::optional<std::int64_t> last_step_;
};

}  // namespace rubato::elastic
