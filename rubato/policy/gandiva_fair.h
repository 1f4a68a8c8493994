// Gandiva_fair (Chaudhary et al., EuroSys'20, "Balancing Efficiency and Fairness in Heterogeneous
// GPU Clusters for Deep Learning"). Each user holds tickets and gets GPU time in proportion to
// them, on each GPU type, however many jobs the user has. Users then trade GPU types so that both
// sides gain.
//
// Gang-aware stride scheduling: in each quantum, gangs are visited in order of ascending pass. A
// gang that fits runs, and its pass rises by GPUs / tickets. A gang that does not fit is skipped
// and keeps its pass, so it comes first the next time. A newcomer starts at the lowest pass of all.
//
// Trading: every user is entitled to a share of every type. For a fast and a slow type, the user
// with the lowest speedup sells fast GPUs to the user with the highest. The price, in slow GPUs, is
// the second-highest speedup. Nobody ends below their untraded share.
//
// [reading] A user's tickets are the largest weight among their jobs (no trace has tickets). A job
// without a user counts as a user. Tickets are split over a user's jobs by gang size, so all jobs
// of a user have the same stride. We keep one pass per user and type, and the user's jobs take
// turns by the time that each has run.
//
// [reading] A user all of whose jobs run collects no credit for later: their pass stays within one
// stride of the users who wait.
//
// [reading] Servers: a gang that fits on one server runs on one; others spread over the emptiest.
// One loop decides for all servers, so passes are kept centrally (the paper's split stride does so
// only for large gangs). Balancing: a job that continues stays where it is. A job that resumes goes
// to the server with the fewest tickets per GPU among those with room. So servers stay balanced
// without moving a running job.
//
// [reading] Speedups come from the estimates for all types; the paper profiles jobs as they run.
// Users whose demand is below their share first give the rest to the others. Nobody trades for more
// GPUs than their jobs can use.
//
// A quantum is extended by the restart cost, because a job that only restarts makes no progress.
// GPU time is charged as it is used, also for a part of a quantum.
//
// Knows: user, weight, GPUs asked for, speed on each type. Pure: decide() is const; State is what
// it remembers between calls.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct GandivaFair {
  struct Config {
    Duration quantum = std::chrono::seconds(60);
    bool trade = true;
  };
  struct Charge {  // what a job of the last decision uses
    std::string user;
    GpuType type;
    int gpus = 0;
  };
  struct State {
    std::map<std::string, std::vector<double>> pass;  // by user and type
    std::map<JobId, double> turn;                     // seconds run, among the jobs of a user
    std::map<JobId, Charge> running;
    std::map<std::string, std::vector<double>> tickets;  // of the last decision, by type
    Time seen = kStart;
    Time quantum_end = kStart;
    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  struct User {
    double tickets = 1;
    double demand = 0;          // GPUs of all the user's jobs
    std::vector<double> rates;  // by type: speed of the jobs there / their best; mean by GPUs
  };
  using Shares = std::vector<std::vector<double>>;  // GPUs by user and type

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }
  [[nodiscard]] static bool keeps_unpreemptible() { return true; }

  // Each user gets the same fraction of every type, in proportion to tickets, but never more GPUs
  // than their demand. What a user cannot use goes to the others.
  [[nodiscard]] static Shares entitle(const std::vector<User>& users, const std::vector<int>& gpus);
  // Trades until no pair of users gains. Visits types from the fastest to the slowest.
  static void trade(const std::vector<User>& users, Shares& shares);
  // What a user's GPUs are worth to the user.
  [[nodiscard]] static double worth(const User& user, const std::vector<double>& share);

 private:
  void charge(const Snapshot& snapshot, State& state) const;
  void meet(const Snapshot& snapshot, State& state) const;
};

[[nodiscard]] std::vector<PolicyEntry> gandiva_fair_rows();

}  // namespace rubato::policy
