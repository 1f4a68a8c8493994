// Themis (Mahajan et al., NSDI'20, "Themis: Fair and Efficient GPU Cluster Scheduling"): GPUs are
// leased. When leases end, the GPUs are auctioned among the apps that are treated worst.
//
// The metric is finish-time fairness, rho = T_shared / T_ideal: the time that an app takes in the
// shared cluster / the time on its own 1/N of the cluster. N is the mean number of apps during its
// life so far. In each auction, the share 1-f of all apps with the worst rho (at least one) bid
// V(G) = 1/rho(G). The winning allocation G* maximises the product of all V. Each winner keeps only
// the fraction c = (product of the others' V in G*) / (the same product without this bidder). This
// is its hidden payment; with it, lying does not pay. GPUs that are left go to the apps outside the
// auction.
//
// [reading] An app is a job and asks for one gang. So its subsets G are "these GPUs of a type" or
// nothing. The value of nothing is the rho of waiting for one lease and then getting the gang. With
// 1/infinity every product would be 0.
//
// [reading] A gang cannot give up a fraction of its GPUs. It pays in time: its lease is c times as
// long.
//
// [reading] Leases end together, at the end of a round. If they ended one by one, a large gang
// would never find enough free GPUs.
//
// [reading] GPUs that are left go to the apps with the worst rho (in the paper: at random), on the
// type where the app would end first. The losers of the auction come last. So no GPU is idle that
// an app can use.
//
// A lease is extended by the restart cost, because a job that only restarts makes no progress. The
// product is maximised exactly (a dynamic program over the offer) while the offer has at most
// kExactOffers subsets by type and count. Beyond that, a greedy rule uses the gain per GPU.
//
// Knows: GPUs asked for, work left, speed on each type. Pure: decide() is const; State is what it
// remembers between calls.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Themis {
  struct Config {
    double fairness = 0.8;  // f: the share 1-f of apps with the worst rho may bid
    Duration lease = std::chrono::minutes(20);
  };
  struct State {
    std::map<JobId, double> joined;   // active app-seconds before the app came
    double app_seconds = 0;           // integral of the number of apps
    Time seen = kStart;               // until when
    std::map<JobId, Time> lease_end;  // of apps with GPUs
    Time round_end = kStart;
    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  // GPUs of a type for the whole gang.
  struct Option {
    GpuType type;
    double log_value = 0;  // log V
  };
  struct Bid {
    const JobView* app = nullptr;
    int gpus = 0;
    double rho = 0;               // with nothing in this auction
    double log_nothing = 0;       // log V of nothing
    std::vector<Option> options;  // best first
  };
  using Offer = std::vector<int>;  // GPUs by type
  struct Allotment {
    std::vector<std::optional<GpuType>> won;  // by bid
    double log_product = 0;
  };

  static constexpr std::size_t kExactOffers = 1024;

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }

  // G*: the allocation of the offer with the largest product of values.
  [[nodiscard]] static Allotment auction(const std::vector<Bid>& bids, const Offer& offer);
  // The fraction c that the winner of bids[i] keeps.
  [[nodiscard]] static double kept_fraction(const std::vector<Bid>& bids, const Offer& offer,
                                            const Allotment& best, std::size_t i);

 private:
  void count_apps(const Snapshot& snapshot, State& state) const;
  // Keeps the apps whose lease continues. What is left of each type is the offer.
  [[nodiscard]] Offer keep_leases(const Snapshot& snapshot, State& state, Decision& decision) const;
  [[nodiscard]] Bid bid(const JobView& app, const Snapshot& snapshot, const State& state) const;
  [[nodiscard]] double ideal_seconds(const JobView& app, const Snapshot& snapshot,
                                     const State& state) const;
};

[[nodiscard]] std::vector<PolicyEntry> themis_rows();

}  // namespace rubato::policy
