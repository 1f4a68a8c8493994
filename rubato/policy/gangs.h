// Jobs of fixed size in an order: the common part of the rigid policies.
//
// A policy that "sorts all jobs and runs whatever fits" need not look at all jobs. Waiting jobs are
// kept sorted per gang size. During a scan the number of free GPUs only falls, so once a size does
// not fit, it is skipped for the rest of the scan. A scan costs O(jobs taken x sizes) instead of
// O(jobs). A test compares it with the plain scan.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/core/decision.h"
#include "rubato/core/snapshot.h"

namespace rubato::policy {

// Ascending: level first, then key, then the order in which the key was reached.
struct Rank {
  int level = 0;
  double key = 0;
  std::int64_t stamp = 0;
  friend auto operator<=>(const Rank&, const Rank&) = default;
};

struct Gang {
  Rank rank;
  JobId job;
  int gpus = 0;  // how many GPUs it needs
  friend bool operator<(const Gang& a, const Gang& b) {
    return std::tie(a.rank, a.job) < std::tie(b.rank, b.job);
  }
};

// GPUs not yet given out during a scan. A job runs on GPUs of one type.
class Room {
 public:
  explicit Room(const Cluster& cluster);
  [[nodiscard]] int largest() const { return largest_; }
  [[nodiscard]] bool fits(int gpus, const SpeedModel& speed) const {
    return gpus <= largest_ && (free_.size() == 1 || fits_on_some(gpus, speed));
  }
  // Takes GPUs and returns their type: the preferred one if the gang fits, else the first that
  // fits.
  GpuType take(int gpus, const SpeedModel& speed, std::optional<GpuType> preferred) {
    if (free_.size() > 1) return take_of_several(gpus, speed, preferred);
    largest_ = free_[0] -= gpus;
    return GpuType();
  }

 private:
  [[nodiscard]] bool fits_on(std::size_t type, int gpus, const SpeedModel& speed) const;
  [[nodiscard]] bool fits_on_some(int gpus, const SpeedModel& speed) const;
  GpuType take_of_several(int gpus, const SpeedModel& speed, std::optional<GpuType> preferred);

  std::vector<int> free_;
  int largest_ = 0;
};

class GangQueue {
 public:
  // Adds jobs that arrived and removes jobs that ended. to_rank(job) -> optional<pair<Rank, GPUs>>
  // gives the place of a new job; nullopt leaves it out. A job that already has GPUs (from another
  // policy, or from before it was hidden) is added to the running jobs. renew(Gang&, job) updates
  // the place of a known job, because its owner may have changed what it needs.
  template <class ToRank, class Renew>
  void sync(const Snapshot& snapshot, const ToRank& to_rank, const Renew& renew) {
    renew_running(snapshot, renew);
    if (snapshot.changed_since != seen_) {
      for (const JobId id : known_jobs()) {
        if (snapshot.jobs.find(id) == nullptr) forget(id);
      }
      for (const JobView& job : snapshot.jobs) meet(job, to_rank, renew);
    } else {
      for (const JobId id : snapshot.changed) {
        const JobView* job = snapshot.jobs.find(id);
        job != nullptr ? meet(*job, to_rank, renew) : forget(id);
      }
    }
    seen_ = snapshot.as_of;
  }

  // Updates the ranks of running jobs, in their previous order: rerank(Gang&, const JobView&)
  // changes the gang's rank. Jobs that have ended are removed.
  template <class Rerank>
  void rerank_running(const Snapshot& snapshot, const Rerank& rerank) {
    bool sorted = true;
    const Gang* before = nullptr;
    std::erase_if(running_,
                  [&](const Gang& gang) { return snapshot.jobs.find(gang.job) == nullptr; });
    for (Gang& gang : running_) {
      rerank(gang, *snapshot.jobs.find(gang.job));
      sorted = sorted && (before == nullptr || *before < gang);
      before = &gang;
    }
    if (!sorted) std::sort(running_.begin(), running_.end());
  }

  struct Picked {
    Gang gang;
    GpuType type;
    int gpus = 0;
    bool waited = false;
  };
  struct Outcome {
    std::vector<Picked> picked;   // in rank order
    std::vector<Gang> preempted;  // ran until now and must stop, in rank order
  };

  enum class Blocking : std::uint8_t { skip, head_blocks };

  // Picks what fits, in rank order. size(gang, room) -> GPUs that it gets (gang.gpus <= size <=
  // room). Ranks in the outcome may still be changed before settle().
  template <class Size>
  [[nodiscard]] Outcome fill(const Snapshot& snapshot, Blocking blocking, const Size& size);
  [[nodiscard]] Outcome fill(const Snapshot& snapshot, Blocking blocking) {
    return fill(snapshot, blocking, [](const Gang& gang, int /*room*/) { return gang.gpus; });
  }

  // Stores the outcome as the present state.
  void settle(const Outcome& outcome);

  // Moves running jobs that lost their GPUs by a failure back to the waiting jobs, at level 0.
  void return_thrown_off(const Snapshot& snapshot);

  // Moves a waiting job to another rank.
  void move_waiting(JobId job, Rank rank);

  [[nodiscard]] std::int64_t next_stamp() { return ++last_stamp_; }
  // Reserves `count` stamps before all stamps so far, and returns the first of them.
  [[nodiscard]] std::int64_t front_stamp(std::size_t count = 1) {
    return first_stamp_ -= static_cast<std::int64_t>(count);
  }

  [[nodiscard]] const std::vector<Gang>& running() const { return running_; }

  [[nodiscard]] Json save() const;
  // canonical_json(save()). The text of a waiting job is cached.
  [[nodiscard]] Result<std::string> save_text() const;
  [[nodiscard]] static Result<GangQueue> load(const Json& json);

 private:
  struct SizeClass {
    int gpus = 0;
    std::set<Gang> gangs;
  };
  enum class Where : std::uint8_t { unknown, waiting, running };

  template <class ToRank, class Renew>
  void meet(const JobView& job, const ToRank& to_rank, const Renew& renew) {
    if (where(job.id) == Where::waiting) return renew_waiting(job, renew);
    if (where(job.id) == Where::running) return;
    const std::optional<std::pair<Rank, int>> place = to_rank(job);
    if (!place) return;
    const Gang gang{place->first, job.id, place->second};
    job.target.empty() ? insert_waiting(gang) : insert_running(gang);
  }
  template <class Renew>
  void renew_waiting(const JobView& job, const Renew& renew) {
    Gang gang = waiting_gang_[job.id.index()];
    renew(gang, job);
    const Gang& before = waiting_gang_[job.id.index()];
    if (gang.gpus == before.gpus && !(gang < before) && !(before < gang)) return;
    erase_waiting(job.id);
    insert_waiting(gang);
  }
  template <class Renew>
  void renew_running(const Snapshot& snapshot, const Renew& renew) {
    for (Gang& gang : running_) {
      if (const JobView* job = snapshot.jobs.find(gang.job)) renew(gang, *job);
    }
    if (!std::is_sorted(running_.begin(), running_.end()))
      std::sort(running_.begin(), running_.end());
  }
  // The type on which a job runs, if there are several.
  [[nodiscard]] static std::optional<GpuType> type_now(const Snapshot& snapshot, JobId job) {
    if (snapshot.cluster.types() == 1) return GpuType();
    const Allocation& now = snapshot.jobs.find(job)->target;
    return now.empty() ? std::nullopt : std::optional(now.type());
  }
  [[nodiscard]] static bool fits(const Gang& gang, const Snapshot& snapshot, const Room& room) {
    return room.fits(gang.gpus, *snapshot.jobs.find(gang.job)->speed);
  }
  void forget(JobId job);
  void insert_waiting(const Gang& gang);
  void insert_running(const Gang& gang);
  void erase_waiting(JobId job);
  [[nodiscard]] Where where(JobId job) const {
    return job.index() < where_.size() ? where_[job.index()] : Where::unknown;
  }
  void set_where(JobId job, Where where);
  [[nodiscard]] std::vector<JobId> known_jobs() const;

  std::vector<Gang> running_;                 // in rank order
  std::vector<SizeClass> waiting_;            // ascending in gpus; sizes stay once seen
  std::vector<Where> where_;                  // by job
  std::vector<Gang> waiting_gang_;            // by job, valid while it waits
  mutable std::vector<std::string> spelled_;  // by job: its text; empty: not yet made
  std::int64_t last_stamp_ = 0;
  std::int64_t first_stamp_ = 0;
  Sequence seen_{static_cast<Sequence::rep>(-1)};
};

template <class Size>
GangQueue::Outcome GangQueue::fill(const Snapshot& snapshot, Blocking blocking, const Size& size) {
  Outcome outcome;
  outcome.picked.reserve(running_.size() + 4);
  Room room(snapshot.cluster);
  struct Cursor {
    int gpus;
    std::set<Gang>::const_iterator at, end;
  };
  std::vector<Cursor> cursors;
  for (const auto& waiting : waiting_) {
    if (!waiting.gangs.empty())
      cursors.push_back({waiting.gpus, waiting.gangs.begin(), waiting.gangs.end()});
  }
  auto next_running = running_.begin();
  for (;;) {
    Cursor* best = nullptr;
    for (auto& cursor : cursors) {
      if (cursor.at == cursor.end || (cursor.gpus > room.largest() && blocking == Blocking::skip))
        continue;
      if (best == nullptr || *cursor.at < *best->at) best = &cursor;
    }
    if (next_running != running_.end() && (best == nullptr || *next_running < *best->at)) {
      const Gang& gang = *next_running++;
      const SpeedModel& speed = *snapshot.jobs.find(gang.job)->speed;
      const int gpus = room.fits(gang.gpus, speed) ? size(gang, room.largest()) : 0;
      if (gpus == 0 || !room.fits(gpus, speed)) {
        outcome.preempted.push_back(gang);
        continue;
      }
      outcome.picked.push_back(
          {gang, room.take(gpus, speed, type_now(snapshot, gang.job)), gpus, false});
    } else if (best != nullptr && fits(*best->at, snapshot, room)) {
      const Gang& gang = *best->at++;
      const SpeedModel& speed = *snapshot.jobs.find(gang.job)->speed;
      const int gpus = size(gang, room.largest());
      if (room.fits(gpus, speed))
        outcome.picked.push_back({gang, room.take(gpus, speed, std::nullopt), gpus, true});
    } else if (best != nullptr && blocking == Blocking::skip) {
      ++best->at;  // GPUs are free, but of no type on which it can run
    } else if (next_running == running_.end()) {
      return outcome;  // nothing more fits, or the head of the queue blocks
    } else {
      cursors.clear();  // the head blocks waiting jobs; running jobs continue
    }
  }
}

[[nodiscard]] Decision to_decision(const GangQueue::Outcome& outcome);

// canonical_json() of `rest` with the member "queue". All other keys must sort before "queue".
[[nodiscard]] Result<std::string> with_queue(const Json& rest, const GangQueue& queue);

}  // namespace rubato::policy
