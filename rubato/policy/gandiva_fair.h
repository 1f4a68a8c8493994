// Gandiva_fair (Chaudhary et al., EuroSys'20, "Balancing Efficiency and Fairness in Heterogeneous
// GPU Clusters for Deep Learning"): each user holds tickets and gets GPU-time in proportion, on
// each GPU type, however many jobs he has; users then trade types to the profit of both.
//
// Gang-aware stride: each quantum the gangs are visited by ascending pass; one that fits runs, and
// its pass rises by GPUs / tickets; one that does not is skipped and keeps its pass, so it is first
// the next time. Who comes starts at the least pass there is.
//
// Trading: every user is entitled to his share of every type. For a fast and a slow type the user
// with the least speedup sells fast GPUs to the one with the most, at the second-highest speedup
// as the price in slow GPUs. Nobody ends below his untraded share.
//
// [reading] A user's tickets are the largest weight among his jobs (no trace names tickets); a job
// that names no user is a user of its own. Tickets are split over his jobs by gang size, so all his
// jobs have one stride: we keep one pass a user and type, and his jobs take turns by the time each
// has run.
//
// [reading] A user all of whose jobs run gathers no credit for later: his pass stays within one
// stride of those who wait.
//
// [reading] Servers: a gang that fits on one server runs on one, others spread over the emptiest.
// As one loop decides for all servers, passes are kept centrally (the paper's split stride does so
// for large gangs only). Balancing: a job that continues stays; one that resumes goes to the server
// with the fewest tickets per GPU among those with room, so servers stay even without moving a job
// that runs.
//
// [reading] Speedups come from the estimates of all types, where the paper profiles jobs as they
// run. Users whose demand is below their share give the rest to the others first; nobody trades
// for more GPUs than his jobs can use.
//
// A quantum is longer by the restart cost, as a job that only restarts gets nowhere. GPU-time is
// charged as it is used, also for part of a quantum.
//
// Knows: user, weight, GPUs asked for, speed on each type. Pure: decide() is const; what it
// remembers between calls is State.
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
    double demand = 0;          // GPUs of all his jobs
    std::vector<double> rates;  // by type: speed of his jobs there over their best, mean by GPUs
  };
  using Shares = std::vector<std::vector<double>>;  // GPUs by user and type

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }
  [[nodiscard]] static bool keeps_unpreemptible() { return true; }

  // The same fraction of every type for a user, in proportion to tickets, never more GPUs than his
  // demand; what one cannot use goes to the others.
  [[nodiscard]] static Shares entitle(const std::vector<User>& users, const std::vector<int>& gpus);
  // Trades until no pair profits; types are visited from the fastest to the slowest.
  static void trade(const std::vector<User>& users, Shares& shares);
  // What a user's GPUs are worth to him.
  [[nodiscard]] static double worth(const User& user, const std::vector<double>& share);

 private:
  void charge(const Snapshot& snapshot, State& state) const;
  void meet(const Snapshot& snapshot, State& state) const;
};

}  // namespace rubato::policy
