// OASiS (Bao, Peng, Wu, Li, INFOCOM'18, "Online Job Scheduling in Distributed Machine Learning
// Clusters"): every GPU of every time slot has a price that rises as they are taken; a job is taken
// in if its end is worth more than the GPUs of its cheapest plan, and that plan is carried out.
//
//   price      low (high/low)^(taken/all), for a GPU and a slot
//   plan       for each slot in which the job could end, the cheapest counts per slot that end it
//              there; of these the one with the largest worth - cost. The count may change from
//              slot to slot, and may be 0
//   admission  if worth - cost > 0; then the GPUs of the plan are taken, so prices rise
//   range      high is the most that an end is worth, for one GPU-slot. low is so small that all
//              GPU-slots up to the horizon cost a quarter of the least worth (SeenJobs)
//
// Sure (abstract): prices, admission and numbers of workers that change over time. Recalled: the
// formulas of the prices and of the dynamic program, and the utilities of its evaluation. Our
// reading: where speed is linear in the workers, the dynamic program takes the cheapest
// worker-slots; a test compares it with that.
//
// Utilities: of the trace (column `utility`); else a job is worth its weight until its deadline and
// nothing afterwards. A job with neither is best effort: it lives on GPUs that no plan has now, and
// is never refused.
//
// Deviates:
// - Jobs are of GPUs that exchange gradients, so there are no parameter servers and one price only.
// - Speeds are curves (the paper's are linear): the work is discretised (slot_plan.h). Restarts are
//   part of a plan, and its end is exact, within a slot too; the last slot is paid as far as it is
//   used. Long waits are planned in coarser slots.
// - The paper knows the range of all jobs in advance. Ours is that of the jobs so far. For a job
//   whose worth decays, the least worth is half its value, because at the horizon it is nothing.
//   `low` and `high` set the range.
// - The paper knows no faults. Who is thrown off its plan gets the least share that is in time, as
//   in ElasticFlow, and otherwise goes on as best effort and is planned again when that has a gain.
// - A plan that stands is never changed: jobs do not grow on leftovers. Only best effort jobs do.
// - The horizon moves with time, and a plan may go beyond it to its deadline (or to twice its
//   target). Slot and horizon were chosen on generated traces (docs/results.md).
// - With Snapshot::interval, a slot is a multiple of it. Where the placement moves jobs, and on a
//   real clock, plans leave time as those of ElasticFlow do.
//
// Knows: deadline and weight, or utility; work left, speed curve, restart cost. Cluster of one GPU
// type.
//
// Pure: decide() is const; what it remembers between calls is State.
#pragma once

#include <memory>
#include <vector>

#include "rubato/policy/policy.h"
#include "rubato/policy/slot_plan.h"

namespace rubato::policy {

struct Oasis {
  struct Config {
    Duration slot{};
    Duration horizon{};
    PriceRange range{0, 0};  // 0: by the jobs so far
  };
  struct Record {
    JobId job;
    bool promised = false;
    SharePlan plan;     // of a promised job
    Time due = kNever;  // by which it must end, if its utility has no deadline
    // Not saved.
    std::shared_ptr<const JobSpec> spec;
    std::shared_ptr<const SpeedModel> speed;
    std::vector<Level> levels;
  };
  struct State {
    std::vector<Record> records;  // by job
    int gpus = 0;                 // usable at the last decision
    SeenJobs seen;
    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const;
};

[[nodiscard]] std::vector<PolicyEntry> oasis_rows();

}  // namespace rubato::policy
