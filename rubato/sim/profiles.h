// Measured training jobs, from a directory with one folder per application, as published with
// Pollux (Qiao et al., OSDI'21): the truth of a simulation with --profiles. docs/traces.md
// describes the files.
//
//   placements.csv      step and synchronisation time, by GPUs on each node and local batch
//   scalability.csv     the same by numbers of nodes and GPUs, for more nodes
//   validation-B.csv    by epoch at global batch B: progress in steps at the initial batch,
//                       squared norm and variance of the gradient
//
// Between measurements everything is interpolated linearly. A measured placement is used directly
// (in its smallest rotation, as in the files). Any other placement is described by its nodes K and
// GPUs N, and interpolated first in the local batch, then in N at the two neighbouring measured K
// at the same N/K, then in K. Deviates: the published simulator triangulates (K, N, local batch) in
// three dimensions. The data is a grid in K and the local batch, so the result is the same except
// for which corners of a cell count. More than 16 nodes count as 16, as published. More than 4 GPUs
// per node were not measured; they count as spread over nodes of 4.
//
// The files were measured on one GPU type. On a cluster with several, a type may compute f times as
// fast: a pass takes 1/f of the measured time, and synchronisation takes as long as measured.
//
// Immutable after reading.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/base/units.h"
#include "rubato/core/allocation.h"
#include "rubato/core/batch.h"
#include "rubato/core/cluster.h"
#include "rubato/core/speed.h"
#include "rubato/model/gradient_noise.h"

namespace rubato::sim {

struct StepSeconds {
  double step = 0;  // one pass with synchronisation
  double sync = 0;  // the part of it that accumulating passes do not have

  [[nodiscard]] double grad() const { return step - sync; }
};

// Step times at some local batches, ascending.
class StepTimesByBatch {
 public:
  void add(int per_gpu, const StepSeconds& seconds);
  [[nodiscard]] bool empty() const { return points_.empty(); }
  // Linear; the step time also beyond the largest measured batch. Constant below the smallest.
  [[nodiscard]] StepSeconds at(double per_gpu) const;
  [[nodiscard]] const std::map<int, StepSeconds>& points() const { return points_; }

 private:
  std::map<int, StepSeconds> points_;
};

// The texts of an application's files, with their names for error messages.
struct ProfileText {
  std::string source;
  std::string text;
};
struct ApplicationTexts {
  std::string name;
  ProfileText placements, scalability;
  std::map<int, ProfileText> validation;  // by global batch
  // By GPU type: how fast it computes, relative to the measurements. Types beyond the end: 1.
  std::vector<double> type_speeds;
};

class Application {
 public:
  [[nodiscard]] static Result<std::shared_ptr<const Application>> parse(
      const ApplicationTexts& texts);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const BatchLimits& limits() const { return limits_; }
  [[nodiscard]] int epochs() const { return static_cast<int>(progress_.size()); }
  [[nodiscard]] int most_gpus() const { return most_gpus_; }
  // Whether a policy may choose the batch.
  [[nodiscard]] bool adaptive() const { return adaptive_; }

  // The progress at the end of an epoch, from 0: steps at the initial batch.
  [[nodiscard]] double progress_after(int epoch) const {
    return progress_[static_cast<std::size_t>(epoch)];
  }
  [[nodiscard]] Work work() const { return progress_.back(); }

  [[nodiscard]] double speed_of(GpuType type) const {
    return type.index() < type_speeds_.size() ? type_speeds_[type.index()] : 1;
  }
  // By GPU type; empty if all are as measured.
  [[nodiscard]] const std::vector<double>& type_speeds() const { return type_speeds_; }
  // The measured times as they are on a type.
  [[nodiscard]] StepSeconds on(GpuType type, const StepSeconds& measured) const {
    const double speed = speed_of(type);
    if (speed == 1) return measured;  // to the bit
    return {measured.grad() / speed + measured.sync, measured.sync};
  }

  // The gradients of an epoch at a global batch.
  [[nodiscard]] GradientNoise noise(double batch, int epoch) const;

  // On these GPUs, and as measured for so many.
  [[nodiscard]] StepSeconds step_seconds(const Allocation& gpus, int per_gpu) const;
  [[nodiscard]] StepSeconds step_seconds(int nodes, int gpus, int per_gpu) const;
  // The placement on the fewest nodes, all but one of them full.
  [[nodiscard]] StepSeconds packed_step_seconds(int gpus, int per_gpu) const;

  // Progress per second during an epoch.
  [[nodiscard]] WorkRate rate(const StepSeconds& seconds, int gpus, const Batch& batch,
                              int epoch) const;
  // Steps at the initial batch that one at this batch is worth during an epoch.
  [[nodiscard]] double step_worth(double batch, int epoch) const;

  // By epoch: the most progress a second on so many GPUs of a type, over all placements on nodes
  // that have at most `node_gpus`, with the owner's batch and, if it may be tuned, all batches
  // within the limits. Empty if no batch can be spread over them.
  [[nodiscard]] std::vector<WorkRate> best_rates(GpuType type, int gpus, int node_gpus,
                                                 int owners_batch, bool tuned) const;

 private:
  struct Statistics {  // by epoch, of one global batch
    std::vector<double> progress;
    std::vector<GradientNoise> noise;
  };
  using ByGpus = std::map<int, StepTimesByBatch>;

  Application() = default;
  [[nodiscard]] Result<void> read_placements(const ProfileText& file);
  [[nodiscard]] Result<void> read_scalability(const ProfileText& file);
  [[nodiscard]] static Result<Statistics> read_statistics(const ProfileText& file);
  void join_statistics();
  void set_limits();
  [[nodiscard]] static StepSeconds across_gpus(const ByGpus& row, double gpus, int per_gpu);
  // Of every placement of so many GPUs, and some more.
  [[nodiscard]] std::vector<StepSeconds> all_step_seconds(int gpus, int node_gpus,
                                                          int per_gpu) const;

  std::string name_;
  BatchLimits limits_;
  int most_gpus_ = 1;
  bool adaptive_ = true;
  std::vector<double> type_speeds_;
  std::vector<double> progress_;                                     // by epoch
  std::map<int, Statistics> statistics_;                             // by global batch
  std::map<std::string, StepTimesByBatch, std::less<>> placements_;  // "124": GPUs on each node
  std::map<int, ByGpus> by_nodes_;
};

// An application as a SpeedModel, for metrics and oracles, trained with the owner's batch. Its rate
// is that of the middle epoch. The time for the work left uses the number of steps that the
// gradients of each coming epoch require. If the nodes are not given, GPUs are packed.
class ApplicationSpeed final : public SpeedModel {
 public:
  ApplicationSpeed(std::shared_ptr<const Application> application, int batch);
  [[nodiscard]] WorkRate rate(const Shape& shape) const override;
  [[nodiscard]] double seconds_left(const Shape& shape, Work left) const override;
  [[nodiscard]] std::span<const int> measured() const override { return counts_; }

 private:
  [[nodiscard]] double steps_left(Work left) const;
  [[nodiscard]] StepSeconds step_seconds(const Shape& shape, const Batch& batch) const;

  std::shared_ptr<const Application> application_;
  int batch_;
  std::vector<int> counts_;
  std::vector<double> steps_after_;  // by epoch: steps left when it ends
};

struct ProfileBook {
  std::map<std::string, std::shared_ptr<const Application>, std::less<>> applications;

  // nullptr if there is none of that name.
  [[nodiscard]] std::shared_ptr<const Application> find(std::string_view name) const;
};

// `type_speeds` as in ApplicationTexts.
[[nodiscard]] Result<ProfileBook> read_profiles(const std::string& directory,
                                                const std::vector<double>& type_speeds = {});

// "a100=2,t4=0.5": how fast GPUs of these types of the cluster compute, by type; 1 for the others.
[[nodiscard]] Result<std::vector<double>> parse_type_speeds(std::string_view text,
                                                            const Cluster& cluster);

}  // namespace rubato::sim
