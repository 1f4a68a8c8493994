// ElasticFlow (Gu et al., ASPLOS'23, "An Elastic Serverless Training Platform for Distributed Deep
// Learning"): the user says by when, never on how many GPUs; a job is taken in only if its
// deadline and all those promised before can be kept.
//
//   minimum satisfactory share  the smallest cap on a job's GPUs under which it is in time on the
//                               GPUs left to it; the next smaller cap while that is enough
//   admission                   one arrival at a time, in order of submission: all plans are made
//                               anew in order of deadlines, and the job is admitted if all fit
//   leftovers                   one level at a time to the job that saves most GPU-time per added
//                               GPU when it is planned anew; jobs without GPUs first
//   best effort                 jobs without a deadline live on leftovers; those that go first (as
//                               runs that measure a speed do) get theirs before the others
//
// Deviates, so that a promise is kept by real completion and not only on paper:
// - Time is not slotted (with Snapshot::interval, changes are planned for those moments only).
// - The restart after every change of a job's GPUs is part of its plan.
// - Plans stand once they are made. They are replaced only if new ones fit everyone; an order that
//   fails is tried again with the failing job further ahead. A job grows on leftovers only with a
//   plan that still keeps its deadline.
// - The published code declines all arrivals of a slot together and has the sign of the saving
//   reversed; we follow the paper. A job starts as early as its cap allows, not as late, because
//   leftovers would start it anyway at the price of a restart.
// - Who ends when its plan says makes nobody's plan worse, so plans are made anew at arrivals and
//   when something goes wrong, not at every end; leftovers are handed out at every decision.
// - Beside more than 500 promises, an arrival that fits between the plans changes none of them, and
//   one that does not may change those that have most time to spare, not all.
// - Where the placement moves jobs, each plan leaves time for one move, and says when that is used;
//   on a real clock it also leaves Snapshot::lateness, because nothing there comes at the instant,
//   and who is on the way to other GPUs is reckoned to be on them after a restart from now.
// - The saving that ranks leftovers is what the plan needs less afterwards, per GPU-second added.
// - Who loses a promise to a fault goes on as best effort, before the others, and is promised
//   again what becomes possible again.
//
// admission=off (for comparison; our reading): no promises. All jobs are planned in order of
// deadlines at every decision; who cannot be in time is planned to end as soon as possible.
//
// Knows: deadline, work left, speed curve, restart cost. Cluster of one GPU type; speeds are those
// of the best placement, which `--placement buddy` gives.
//
// Pure: decide() is const; what it remembers between calls is State.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rubato/policy/policy.h"
#include "rubato/policy/share_plan.h"

namespace rubato::policy {

struct ElasticFlow {
  struct Config {
    bool admission = true;
  };
  struct Record {
    JobId job;
    bool promised = false;  // its deadline; else best effort
    SharePlan plan;         // of a promised job
    // Not saved: what the speed curve allows.
    std::shared_ptr<const JobSpec> spec;
    std::shared_ptr<const SpeedModel> speed;
    std::vector<Level> levels;
  };
  struct State {
    std::vector<Record> records;  // by job
    int gpus = 0;                 // usable at the last decision
    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const;
};

[[nodiscard]] std::vector<PolicyEntry> elasticflow_rows();

}  // namespace rubato::policy
