#include "rubato/policy/measuring.h"

#include <algorithm>
#include <utility>

namespace rubato::policy {
namespace {

// Two counts within this factor give little more information than one.
constexpr double kClose = 1.4142135623730951;

// A job is measured only if its time left is at least this many times the cost of a measurement.
constexpr double kWorth = 10;

bool measured_near(const SpeedModel& speed, int gpus) {
  const auto counts = speed.measured();
  return std::any_of(counts.begin(), counts.end(),
                     [&](int count) { return count <= gpus * kClose && gpus <= count * kClose; });
}

// The largest legal count up to `gpus`; 0 if there is none.
int legal_up_to(const GpuLimits& limits, int gpus) {
  if (limits.allowed.empty()) return gpus >= limits.min ? std::min(gpus, limits.max) : 0;
  const auto above = std::upper_bound(limits.allowed.begin(), limits.allowed.end(), gpus);
  return above == limits.allowed.begin() ? 0 : *(above - 1);
}

class Measuring final : public Policy {
 public:
  Measuring(std::unique_ptr<Policy> policy, Duration measuring_time)
      : policy_(std::move(policy)), measuring_time_(measuring_time) {}

  Result<Decision> decide(const Snapshot& snapshot) override {
    auto decision = policy_->decide(snapshot);
    if (!decision) return decision;
    for (Grant& grant : decision->run) {
      if (auto* count = std::get_if<Count>(&grant.want))
        count->gpus = to_measure(*snapshot.jobs.find(grant.job), *count, snapshot.now);
    }
    return decision;
  }
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const override {
    return policy_->least_gpus(spec, speed);
  }
  [[nodiscard]] bool learns() const override { return policy_->learns(); }
  [[nodiscard]] bool knows_truth() const override { return policy_->knows_truth(); }
  [[nodiscard]] bool keeps_deadline(JobId job) const override {
    return policy_->keeps_deadline(job);
  }
  [[nodiscard]] std::vector<double> prices() const override { return policy_->prices(); }
  [[nodiscard]] std::shared_ptr<const Quotes> quotes() const override { return policy_->quotes(); }
  [[nodiscard]] Json save() const override { return policy_->save(); }
  [[nodiscard]] Result<std::string> save_text() const override { return policy_->save_text(); }
  Result<void> load(const Json& state) override { return policy_->load(state); }

 private:
  [[nodiscard]] int to_measure(const JobView& job, const Count& wanted, Time now) const {
    const SpeedModel& speed = *job.speed;
    if (speed.measured().empty()) return wanted.gpus;
    if (!job.spec->preemptible) return wanted.gpus;  // it could not be resized again
    const double left_s = job.progress.left(now) / speed.on(wanted.type, wanted.gpus);
    const double costs_s = seconds(job.spec->restart_cost + measuring_time_);
    if (left_s < kWorth * costs_s) return wanted.gpus;
    for (int gpus = wanted.gpus; gpus > 0; gpus = legal_up_to(job.spec->limits, gpus / 2)) {
      if (!measured_near(speed, gpus)) return gpus;
    }
    return wanted.gpus;
  }

  std::unique_ptr<Policy> policy_;
  Duration measuring_time_;
};

}  // namespace

std::unique_ptr<Policy> measure_first(std::unique_ptr<Policy> policy, Duration measuring_time) {
  return std::make_unique<Measuring>(std::move(policy), measuring_time);
}

}  // namespace rubato::policy
