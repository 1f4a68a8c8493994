// AFS (Hwang et al., NSDI'21, "Elastic Resource Sharing for Distributed Deep Learning"): GPUs are
// given out one at a time. A tournament between short jobs and jobs that use GPUs well decides who
// gets the next one.
//
//   afs-l  the lengths of jobs are known
//   afs-p  the lengths are unknown; our reading: the same rule with the expected work left, given
//          the work done. We assume a heavy-tailed distribution of lengths (Lomax, shape 2), whose
//          mean excess at age a is a + prior. Ties go to the job with less service.
//
// Deviates: the paper argues that "beats" is transitive. With three jobs it can be a cycle, so the
// winner is not always well defined. We keep the jobs in a tournament tree in id order and replay
// one path per GPU. This is O(GPUs log jobs) and deterministic. afs_test.cc compares it with a
// linear scan, and docs/results.md says where they differ. If only some counts are legal, a step
// goes to the next legal count, and gains are per GPU. A job leaves the tournament at its largest
// legal count, or when its throughput no longer rises. So GPUs may stay idle.
//
// Knows: throughput p(k) on k GPUs; afs-l also the work left. Cluster of one GPU type.
//
// Pure: decide() is const, and there is no state.
#pragma once

#include <span>
#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Afs {
  enum class Finding : std::uint8_t { tree, scan };
  struct Config {
    bool lengths_known = true;
    double prior_seconds = 600;  // afs-p: expected length of a job that has not run, on one GPU
    Finding finding = Finding::tree;  // scan: the first job that no later one beats; to compare
  };
  struct State {
    [[nodiscard]] Json save() const { return Json::object(); }
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  // A job in the tournament, with its present share.
  struct Contender {
    JobId id;
    const JobView* job = nullptr;
    Work left = 0;
    int gpus = 0;              // share so far
    int next = 0;              // next legal count; 0 = has left the tournament
    double rate = 0;           // p(gpus)
    double next_rate = 0;      // p(next)
    double length = 0;         // left / p(gpus); at share 0, on the smallest legal count
    double gain_if_first = 0;  // (p(next) - p(gpus)) / p(gpus) per GPU
    double gain_if_last = 0;   // (p(next) - p(gpus)) / p(next) per GPU
    double served = 0;         // breaks ties in afs-p
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.limits.smallest();
  }

  // Whether `a` gets the next GPU and not `b`. `a` has the smaller id.
  [[nodiscard]] static bool beats(const Contender& a, const Contender& b);

 private:
  [[nodiscard]] Contender enter(const JobView& job, Time now) const;
  void share_by_tree(std::vector<Contender>& contenders, int gpus) const;
  void share_by_scan(std::vector<Contender>& contenders, int gpus) const;
};

[[nodiscard]] std::vector<PolicyEntry> afs_rows();

}  // namespace rubato::policy
