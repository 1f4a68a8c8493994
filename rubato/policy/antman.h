// AntMan (Xiao, Ren, Li, Zhang, Hou, Li, Feng, Lin, Jia, OSDI'20, "AntMan: Dynamic Scaling on GPU
// Clusters for Deep Learning"). Guaranteed jobs have their GPUs to themselves, up to a quota of
// their users. Opportunistic jobs take what is left: idle GPUs, and a part of the time of GPUs that
// a guaranteed job does not use fully. There they are guests, and yield first.
//
//   guaranteed     in order of submission, each on the GPUs that it asks for, and never preempted.
//                  A job that does not fit, or is above its user's quota, lets later ones pass. A
//                  new job that is larger than the whole quota is refused
//   opportunistic  on GPUs that no guaranteed job wants; else as the only guest of a guaranteed
//                  job. If a guaranteed job needs GPUs, opportunistic jobs leave theirs, the newest
//                  first, and become guests where they can. A guest moves to GPUs that become idle,
//                  unless others wait for them. If its host ends, it keeps the GPUs
//   the share      a guest computes only so much of the time that its host loses at most 5%
//                  (model/guest.h). In the simulator this follows from measured pairs. On the live
//                  cluster the node's agent measures the host and tells the guest how long to sleep
//                  after each step (node/guest_control.h)
//
// Sure (the paper, and a public re-implementation): the two classes and the quota; the guest on the
// least used GPU; the limit on compute is a sleep after a mini-batch, 0 suspends the guest; memory
// limits change between mini-batches, what does not fit goes to the host's memory.
//
// [reading] The coordinator that chooses the share is not published. Ours allows the host a loss of
// 5%. No trace has utilisation, so "least used" is the host beside which the guest is fastest by
// the measured pairs; live, where pairs are not measured before, the host with the lowest number.
// On generated traces this ends opportunistic jobs earlier than the oldest host (`host=oldest`;
// docs/results.md).
// [reading] The newest opportunistic job leaves first. With victims=cheapest it is the one that
// loses least per GPU by it (victims.h).
// [reading] A job above the quota waits. (An owner may submit it as opportunistic.) It is the only
// one that waits beside idle GPUs on which it runs. A job that was taken in before the quota became
// too small for it, waits until a newer job of its user brings a larger one.
//
// Deviates: a guest has as many GPUs as its host, because two jobs share all of their GPUs or none;
// in the re-implementation a guest has one GPU, which may be one of a larger host. Memory is not
// scaled: whether two jobs fit together is a measurement in the simulator, and is not known live
// (docs/fairness.md).
//
// Knows: GPUs asked for, class, user and quota, speeds of pairs. Never the length of a job. Pure:
// decide() is const; it remembers nothing, because jobs show who shares GPUs with whom.
#pragma once

#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct AntMan {
  struct Config {
    bool guests = true;   // opportunistic jobs may share the GPUs of guaranteed ones
    bool fastest = true;  // a guest chooses the host beside which it is fastest, else the oldest
    bool cheapest_victims = false;  // opportunistic jobs leave by least loss, else the newest first
  };
  struct State {
    [[nodiscard]] static Json save() { return Json::object(); }
    [[nodiscard]] static Result<State> load(const Json& /*json*/) { return State(); }
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }

 private:
  class Round;
};

[[nodiscard]] std::vector<PolicyEntry> antman_rows();

}  // namespace rubato::policy
