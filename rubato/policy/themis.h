// Themis (Mahajan et al., NSDI'20, "Themis: Fair and Efficient GPU Cluster Scheduling"): GPUs are
// leased; when leases end, the GPUs are auctioned among the apps that are treated worst.
//
// The metric is finish-time fairness, rho = T_shared / T_ideal: the time an app takes among the
// others over the time on its own 1/N of the cluster, N being the mean number of apps over its life
// so far. At each auction the 1-f share of all apps with the worst rho (at least one) bid
// V(G) = 1/rho(G); the winning allocation G* maximises the product of all V; each winner keeps only
// the fraction c = (product of the others' V in G*) / (the same had it not come), its hidden
// payment, so that a lie does not pay. What is left goes to the apps outside the auction.
//
// [reading] An app is a job and asks for one gang, so its subsets G are "these GPUs of a type" or
// nothing. Nothing is worth the rho of waiting for a lease and then getting what it asks for; with
// 1/infinity every product would be 0.
//
// [reading] A gang cannot give up a fraction of its GPUs: it pays in time, with a lease that is
// c times as long.
//
// [reading] Leases end together, at the end of a round. If they ended one by one, a large gang
// would never meet enough free GPUs.
//
// [reading] Leftovers go by worst rho (the paper: at random), to the type where the app would end
// first; last to those who lost the auction, so that no GPU idles that somebody can use.
//
// A lease is longer by the restart cost, as a job that only restarts in its lease gets nowhere. The
// product is maximised exactly (dynamic program over the offer) while the offer has at most
// kExactOffers subsets by type and count; beyond that by gain per GPU.
//
// Knows: GPUs asked for, work left, speed on each type. Pure: decide() is const; what it remembers
// between calls is State.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Themis {
  struct Config {
    double fairness = 0.8;  // f: the auction is for the 1-f share of apps with the worst rho
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

  // G*: the allotment of the offer with the largest product of values.
  [[nodiscard]] static Allotment auction(const std::vector<Bid>& bids, const Offer& offer);
  // The fraction c that the winner of bids[i] keeps.
  [[nodiscard]] static double kept_fraction(const std::vector<Bid>& bids, const Offer& offer,
                                            const Allotment& best, std::size_t i);

 private:
  void count_apps(const Snapshot& snapshot, State& state) const;
  // Apps whose lease goes on, and what is left of each type.
  [[nodiscard]] Offer keep_leases(const Snapshot& snapshot, State& state, Decision& decision) const;
  [[nodiscard]] Bid bid(const JobView& app, const Snapshot& snapshot, const State& state) const;
  [[nodiscard]] double ideal_seconds(const JobView& app, const Snapshot& snapshot,
                                     const State& state) const;
};

}  // namespace rubato::policy
