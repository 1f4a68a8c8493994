// Gavel (Narayanan et al., OSDI'20): heterogeneity-aware scheduling. An objective is turned into
// the share of time that each job should have on each GPU type (share_program.h), and rounds
// realise the shares (rounds.h).
//
//   gavel-las           max-min fairness: the worst weighted throughput, relative to that on an
//                       equal share of every type, is as high as it can be; water filling breaks
//                       ties
//   gavel-ftf           finish-time fairness: the worst rho = (age + work left / throughput) /
//                       (time isolated so far + work left / isolated throughput) is as low as it
//                       can be; found by programs whose rho falls until nothing is gained, then
//                       water filling
//   gavel-makespan      all end as early as possible: max-min of throughput / work left
//   gavel-throughput    the largest sum of throughputs, each relative to an equal share of every
//                       type; with `prices` per unit of cost (a sequence of programs, Dinkelbach
//                       1967); jobs with a deadline get throughput >= work left / time left where
//                       possible
//   gavel-min-jct       our reading: the largest sum of throughput / work left, so that short jobs
//                       come first; the paper gives no program for the mean of completion times
//   gavel-hierarchical  weighted water filling over users, and inside each fair by weight or in
//                       order of submission
//   isolated            a 1/n slice of every type for each of n jobs; no program
//
// `aware=off` forgets the types: all count as one, with speed 1 (las) or that of the first type the
// job runs on, and time is split over types in proportion to their GPUs. `packing=on` also
// considers pairs of jobs with equal GPU counts on the same GPUs, with their measured speeds; pairs
// that are no better than time slicing are left out. `parts=k` splits jobs and GPUs into k equal
// problems (POP, Narayanan et al., SOSP'21), which is faster and a little worse (results.md).
//
// A solve starts where the last one ended: that is part of the state and saved with it, so that who
// goes on from a saved state takes the same decisions to the bit.
//
// Knows: GPUs asked for, speed on each type and in pairs; ftf, makespan and min-jct also the work
// left, hierarchical the user.
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
  // Where the programs ended the last time: the next ones start there. A group's place is known by
  // all of its jobs, that of two groups by their oldest ones.
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

  // The shares of the jobs at this moment, without the rounds.
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

}  // namespace rubato::policy
