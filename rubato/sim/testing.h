// Helpers for tests: workloads written job by job, and policies as one function.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "rubato/core/testing.h"
#include "rubato/model/curve.h"
#include "rubato/model/typed_speed.h"
#include "rubato/policy/policy.h"
#include "rubato/sim/simulation.h"

namespace rubato::sim {

// A job that runs for this many seconds on this many GPUs.
inline SimJob rigid_job(double submit_s, int gpus, double duration_s, double restart_s = 0) {
  auto spec = rigid_spec(gpus);
  spec->restart_cost = from_seconds(restart_s);
  return {spec, time_at(submit_s), duration_s, std::make_shared<ConstantSpeed>(1)};
}

inline SimJob elastic_job(double submit_s, Work work, const std::vector<CurvePoint>& curve,
                          double restart_s = 0, double network = 0) {
  auto spec = elastic_spec(1, curve.back().gpus);
  spec->restart_cost = from_seconds(restart_s);
  return {spec, time_at(submit_s), work, std::make_shared<CurveSpeed>(curve, network)};
}

// Two kinds of jobs on one type, alone at 10 and 4 steps/s; as a pair on the same GPU at 8 and 3,
// and two of the first kind at 5 each.
inline std::shared_ptr<ThroughputTable> pair_table() {
  auto table = std::make_shared<ThroughputTable>(2, 1);
  table->set_alone(0, GpuType(), 1, 10);
  table->set_alone(1, GpuType(), 1, 4);
  table->set_beside(0, 1, GpuType(), 1, 8);
  table->set_beside(1, 0, GpuType(), 1, 3);
  table->set_beside(0, 0, GpuType(), 1, 5);
  return table;
}
inline SimJob typed_job(double submit_s, Work steps,
                        const std::shared_ptr<const ThroughputTable>& table, std::size_t row,
                        double restart_s = 0) {
  auto spec = rigid_spec(1);
  spec->restart_cost = from_seconds(restart_s);
  return {spec, time_at(submit_s), steps, std::make_shared<TypedSpeed>(table, row)};
}

// Changes the spec of a job that was just made.
inline SimJob with(SimJob job, const std::function<void(JobSpec&)>& change) {
  auto spec = std::make_shared<JobSpec>(*job.spec);
  change(*spec);
  job.spec = std::move(spec);
  return job;
}

inline Workload workload_of(std::vector<SimJob> jobs) {
  Workload workload;
  workload.name = "test";
  workload.jobs = std::move(jobs);
  return workload;
}

class FunctionPolicy final : public Policy {
 public:
  using Function = std::function<Result<Decision>(const Snapshot&)>;
  explicit FunctionPolicy(Function function) : function_(std::move(function)) {}

  Result<Decision> decide(const Snapshot& snapshot) override {
    asked_at.push_back(seconds(snapshot.now));
    auto decision = function_(snapshot);
    if (decision) decision->as_of = snapshot.as_of;
    return decision;
  }
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const override {
    return speed.measured().empty() ? spec.requested : spec.limits.smallest();
  }
  [[nodiscard]] Json save() const override { return {}; }
  Result<void> load(const Json& /*state*/) override { return {}; }

  [[nodiscard]] bool knows_truth() const override { return oracle; }

  std::vector<double> asked_at;
  bool oracle = false;

 private:
  Function function_;
};

// First come, first served: the first job that does not fit stops the scan.
inline Decision in_order(const Snapshot& snapshot) {
  Decision decision;
  int room = snapshot.cluster.usable();
  for (const JobView& job : snapshot.jobs) {
    room -= job.spec->requested;
    if (room < 0) break;
    decision.run.push_back({job.id, Count{GpuType(), job.spec->requested}});
  }
  return decision;
}

// Divides the GPUs equally over the elastic jobs.
inline Decision equal_shares(const Snapshot& snapshot) {
  Decision decision;
  int room = snapshot.cluster.usable();
  auto left = static_cast<int>(snapshot.jobs.size());
  for (const JobView& job : snapshot.jobs) {
    const int gpus = std::min(room / left--, job.spec->limits.max);
    if (gpus > 0) decision.run.push_back({job.id, Count{GpuType(), gpus}});
    room -= gpus;
  }
  return decision;
}

}  // namespace rubato::sim
