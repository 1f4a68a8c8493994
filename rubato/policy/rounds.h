// From shares of time to rounds: the mechanism of Gavel (Narayanan et al., OSDI'20), for any policy
// that can say which share of time each job should have on each GPU type.
//
// Time goes in rounds. At the start of one, each GPU type in turn is filled with jobs (or pairs
// that share GPUs), those first whose time received on the type is the least part of their share;
// equal ones go by share, then by id. What does not fit is skipped; GPUs that nobody with a share
// wants go to the others, so that none idles in vain. Who continues keeps its GPUs (diff sees to
// that); who may not be preempted goes on in any case, before all others.
//
// As in the published code: shares are made anew only when jobs came or went and `resolve` has
// passed; who comes in between waits; GPUs of a job that ends stay idle until the round does; a
// round ends early when all its jobs have. Not as there:
// - A job starts with some part of a round on each type to its account, spread evenly by id, where
//   all started with half of one: many equal jobs with small shares then all had their turn in the
//   same rounds, and their user none for hours.
// - Accounts outlive a solve. There all start again, and what is still owed only
//   decides between equal priorities; a job whose share is less than half a round in the time
//   between two solves then never has its turn (gavel.md has figures). Here what a job is ahead of
//   or behind its share stays on its account, a round at most: GPUs that nobody else wanted, or a
//   gang that fitted nowhere, are not held against anybody for long.
// - A round is `length` sharp, where it ended with its last whole step.
// - A fault or a repair begins a new round, and so does an arrival when nothing runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/core/decision.h"
#include "rubato/core/snapshot.h"

namespace rubato::policy {

// A job, alone or beside another on the same GPUs, and its share of time on each type.
struct TimeShare {
  JobId job;
  std::optional<JobId> beside;
  std::vector<double> of_type;
};

[[nodiscard]] std::vector<GpuType> all_types(const Cluster& cluster);
// By type, those on nodes that are up.
[[nodiscard]] std::vector<int> usable_gpus(const Cluster& cluster);

class Rounds {
 public:
  struct Settings {
    Duration length = from_seconds(360);
    Duration resolve = from_seconds(1920);
    bool spare = true;          // GPUs left over go to who has no share of them
    bool fastest_first = true;  // the order in which types are filled; else random by seed
    std::uint64_t seed = 0;
  };
  using Solve = std::function<std::vector<TimeShare>(const Snapshot&)>;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, const Settings& settings,
                                const Solve& solve);

  [[nodiscard]] Json save() const;
  [[nodiscard]] static Result<Rounds> load(const Json& json);

 private:
  struct Entry {
    JobId job;
    std::optional<JobId> beside;
    std::vector<double> share;    // by type
    std::vector<double> account;  // by type: seconds received; see above for how it starts
  };
  struct Running {
    JobId job;
    std::optional<JobId> beside;
    GpuType type;
    int gpus = 0;
    Time since = kStart;
  };

  [[nodiscard]] bool over(const Snapshot& snapshot) const;
  [[nodiscard]] bool disturbed(const Snapshot& snapshot) const;
  void account(const Running& running, Time until);
  void drop_ended(const Snapshot& snapshot);
  [[nodiscard]] bool stale(const Snapshot& snapshot) const;
  [[nodiscard]] bool shares_due(const Snapshot& snapshot, const Settings& settings) const;
  void make_shares(const Snapshot& snapshot, const Settings& settings, const Solve& solve);
  void begin(const Snapshot& snapshot, const Settings& settings);
  void go_on_with_staying(const Snapshot& snapshot, std::vector<int>& room,
                          std::vector<JobId>& taken);
  void fill(const Snapshot& snapshot, GpuType type, int room, bool spare,
            std::vector<JobId>& taken);
  [[nodiscard]] std::vector<GpuType> order(const Snapshot& snapshot,
                                           const Settings& settings) const;
  [[nodiscard]] bool is_known(JobId job) const {
    return std::binary_search(known_.begin(), known_.end(), job);
  }
  [[nodiscard]] Decision present(const Snapshot& snapshot, const Settings& settings) const;

  std::vector<Entry> entries_;  // by job, then by partner, alone first
  std::vector<JobId> known_;    // jobs at the last solve
  std::optional<Time> solved_at_;
  std::vector<int> solved_for_;   // GPUs by type
  std::vector<Running> running_;  // this round
  std::optional<Time> end_;       // of this round
  std::vector<int> usable_;       // GPUs by type when it began
  std::uint64_t count_ = 0;       // of rounds
};

}  // namespace rubato::policy
