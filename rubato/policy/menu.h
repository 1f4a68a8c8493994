// What a job could have: the GPU counts it may use on each type, and its speed there.
//
// Of all counts only those matter that are corners of the smallest concave curve above the speeds:
// at any price of a GPU the best count is such a corner. Between corners there are counts that are
// legal and fill a gap; they are looked up when a gap is there.
//
// Where a count was not tried, speeds are guesses. Beyond the largest known count, and below the
// smallest, the guess is k^0.7, and nobody goes beyond twice what is known. A job that tunes its
// batch goes up to twice the GPUs it has run on, and above one node uses whole ones.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "rubato/core/cluster.h"
#include "rubato/core/job.h"

namespace rubato::policy {

struct Choice {
  GpuType type;
  int gpus = 0;
  WorkRate rate = 0;
};

class Menu {
 public:
  Menu() = default;
  Menu(const JobSpec& spec, const SpeedModel& speed, const Cluster& cluster);

  // The corners of a type, by GPUs; rates rise too. Empty where the job cannot run.
  [[nodiscard]] std::span<const Choice> corners(GpuType type) const {
    return {corners_.data() + first_[type.index()], corners_.data() + first_[type.index() + 1]};
  }
  // All corners, by type and GPUs.
  [[nodiscard]] std::span<const Choice> corners() const { return corners_; }

  // The largest legal count from `least` to `most` GPUs that is faster than `than`; nullopt if
  // there is none.
  [[nodiscard]] std::optional<Choice> between(GpuType type, int least, int most,
                                              WorkRate than) const;
  // The smallest legal count from `least` to `most` on which the job runs.
  [[nodiscard]] std::optional<Choice> first(GpuType type, int least, int most) const;
  // The speed on such a part of a type; parts of a GPU are parts of the time on the smallest count.
  [[nodiscard]] WorkRate rate_on(GpuType type, double gpus) const;
  // The speed at a count that the job has, whether it is on the menu or not.
  [[nodiscard]] WorkRate rate_at(GpuType type, int gpus) const;

 private:
  [[nodiscard]] std::vector<int> counts(GpuType type, int most, int node) const;
  [[nodiscard]] bool fills_nodes(GpuType type, int gpus) const;
  [[nodiscard]] bool legal(int gpus) const;
  void add_corners(GpuType type, const std::vector<int>& counts);

  const JobSpec* spec_ = nullptr;
  const SpeedModel* speed_ = nullptr;
  int known_least_ = 0, known_most_ = 0;  // counts that were tried; 0 = all are known
  int most_ = 0;
  bool rigid_ = false;          // known at one count only
  std::vector<int> node_size_;  // by type, of jobs whose speed depends on it; else empty
  std::vector<Choice> corners_;
  std::vector<std::size_t> first_;  // by type, and the end
};

}  // namespace rubato::policy
