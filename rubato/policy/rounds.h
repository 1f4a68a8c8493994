// Turns shares of time into rounds: the mechanism of Gavel (Narayanan et al., OSDI'20), for any
// policy that says which share of time each job should have on each GPU type.
//
// Time is divided into rounds. At the start of a round, each GPU type in turn is filled with jobs
// (or pairs that share GPUs). Jobs are ordered by (time received on the type) / share, lowest
// first; ties go by share, then by id. Jobs that do not fit are skipped. GPUs that no job with a
// share wants go to other jobs, so that none is idle without need. A job that continues keeps its
// GPUs (diff does this). A job that may not be preempted continues in any case, before all others.
//
// As in the published code: new shares are computed only when jobs arrived or ended and `resolve`
// has passed. Jobs that arrive in between wait. GPUs of a job that ends stay idle until the round
// ends. A round ends early when all its jobs have ended. What differs:
// - A job starts with some part of a round on its account for each type, spread evenly by id. In
//   the published code all start with half a round. Then many equal jobs with small shares had
//   their turns in the same rounds, and their user none for hours.
// - Accounts outlive a solve. In the published code all accounts start again, and time owed only
//   decides between equal priorities. A job whose share is less than half a round in the time
//   between two solves then never gets a turn (gavel.md has figures). Here a job keeps what it is
//   ahead of or behind its share, but at most one round. So a job is not punished for long for GPUs
//   that nobody else wanted, nor rewarded for long because its gang did not fit.
// - A round lasts exactly `length`. In the published code it ended with the last whole step.
// - A failure or a repair begins a new round. So does an arrival when nothing runs.
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
// The GPUs of each type on nodes that are up.
[[nodiscard]] std::vector<int> usable_gpus(const Cluster& cluster);

class Rounds {
 public:
  struct Settings {
    Duration length = from_seconds(360);
    Duration resolve = from_seconds(1920);
    bool spare = true;          // idle GPUs go to jobs without a share of them
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
