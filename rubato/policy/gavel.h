// Gavel (Narayanan et al., OSDI'20): heterogeneity-aware scheduling. An objective determines the
// share of time that each job should have on each GPU type (share_program.h). Rounds realise these
// shares (rounds.h).
//
//   gavel-las           max-min fairness: maximises the lowest weighted throughput, relative to the
//                       throughput on an equal share of every type; water filling breaks ties
//   gavel-ftf           finish-time fairness: minimises the highest rho = (age + work left /
//                       throughput) / (isolated time so far + work left / isolated throughput).
//                       A sequence of programs lowers rho until nothing is gained; then water
//                       filling
//   gavel-makespan      all jobs end as early as possible: max-min of throughput / work left
//   gavel-throughput    the largest sum of throughputs, each relative to an equal share of every
//                       type; with `prices`, per unit of cost (a sequence of programs, Dinkelbach
//                       1967); jobs with a deadline get throughput >= work left / time left where
//                       possible
//   gavel-min-jct       our reading: the largest sum of throughput / work left, so that short jobs
//                       come first; the paper gives no program for the mean completion time
//   gavel-hierarchical  weighted water filling over users; inside each user, fair by weight or in
//                       order of submission
//   isolated            a 1/n slice of every type for each of n jobs; no program
//
// `aware=off` ignores the types: all count as one, with speed 1 (las) or the speed on the first
// type on which the job runs. Time is split over the types in proportion to their GPUs.
// `packing=on` also considers pairs of jobs with equal GPU counts on the same GPUs, with their
// measured speeds. Pairs that are no better than time slicing are left out. `parts=k` splits jobs
// and GPUs into k equal problems (POP, Narayanan et al., SOSP'21), which is faster and a little
// worse (results.md).
//
// Each solve starts where the last one ended. This starting point is part of the state and saved
// with it. So a policy that continues from a saved state takes bit-identical decisions.
//
// Knows: GPUs asked for, speed on each type and in pairs; ftf, makespan and min-jct also the work
// left; hierarchical also the user.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rubato/policy/policy.h"
#include "rubato/policy/rounds.h"
#include "rubato/policy/share_program.h"

namespace rubato::policy {

struct Gavel {
  enum class Objective : std::uint8_t {
    las,
    finish_time_fairness,
    makespan,
    throughput,
    min_jct,
    hierarchical,
    isolated
  };
  struct Config {
    Objective objective = Objective::las;
    bool aware = true;
    bool packing = false;
    bool water_filling = true;
    bool fifo_inside = false;                      // hierarchical
    std::map<std::string, double> entity_weights;  // hierarchical; empty = the jobs' own
    std::vector<double> prices;                    // throughput: of a GPU-hour, by type
    std::size_t parts = 1;
    Rounds::Settings rounds;
  };
  // How long the job would have taken so far on its isolated share.
  struct Isolated {
    double so_far_s = 0;
    Work left = 0;
    WorkRate rate = 0;
  };
  // Where the last programs ended; the next ones start there. The basis of a group is stored for
  // each of its jobs, that of a pair of groups for their oldest jobs.
  struct Ended {
    std::map<JobId, std::string> jobs;
    std::map<std::pair<JobId, JobId>, std::string> pairs;  // those that had time
    struct Part {
      std::string types;
      double level = 0;
    };
    std::vector<Part> parts;
  };
  struct State {
    Rounds rounds;
    std::map<JobId, Isolated> isolated;  // ftf
    Ended ended;
    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }
  [[nodiscard]] static bool keeps_unpreemptible() { return true; }

  // The present shares of the jobs, without the rounds.
  [[nodiscard]] std::vector<TimeShare> shares(const Snapshot& snapshot, State& state) const;

 private:
  // One part of the jobs with its program.
  struct Part;

  [[nodiscard]] Part make_part(const Snapshot& snapshot, const std::vector<const JobView*>& jobs,
                               std::size_t parts) const;
  void add_pairs(const Snapshot& snapshot, Part& part, ShareProblem& problem) const;
  static void start(Part& part, std::size_t index, const Ended& before);
  static void note_end(const Part& part, Ended& ended);
  [[nodiscard]] bool solve(const Snapshot& snapshot, Part& part, State& state) const;
  [[nodiscard]] bool solve_finish_time(const Snapshot& snapshot, Part& part, State& state) const;
  [[nodiscard]] bool solve_sum(const Snapshot& snapshot, Part& part) const;
  [[nodiscard]] bool solve_hierarchy(Part& part) const;
  [[nodiscard]] std::vector<TimeShare> isolated_shares(const Snapshot& snapshot) const;
  void expand(const Part& part, std::vector<TimeShare>& shares) const;
  [[nodiscard]] bool groups_jobs() const;
};

[[nodiscard]] std::vector<PolicyEntry> gavel_rows();

}  // namespace rubato::policy
