#include "rubato/policy/victims.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <vector>

namespace rubato::policy {
namespace {

struct Candidate {
  const JobView* job = nullptr;
  Precedence precedence;

  [[nodiscard]] JobId id() const { return job->id; }
  // Its owner may have asked for another count since it started.
  [[nodiscard]] int gpus() const { return job->spec->requested; }
};

bool starts_before(const Candidate& a, const Candidate& b) {
  return std::pair(a.precedence.key, a.id()) < std::pair(b.precedence.key, b.id());
}

struct StopsBefore {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return std::pair(a.precedence.stop_turn, b.id()) < std::pair(b.precedence.stop_turn, a.id());
  }
};

// The running jobs that a newcomer may stop. Newcomers come in ascending order of their keys, so a
// job that does not give way to one gives way to none of the later ones.
class Victims {
 public:
  explicit Victims(const std::vector<Candidate>& running) {
    for (const auto& job : running) {
      by_turn_.insert(job);
      by_patience_.push_back(job);
      freeable_ += job.gpus();
    }
    std::sort(by_patience_.begin(), by_patience_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.precedence.gives_way_to, a.id()) >
             std::pair(b.precedence.gives_way_to, b.id());
    });
  }

  // Those that are stopped to free this many GPUs; empty if they cannot.
  std::vector<Candidate> take(int gpus, double newcomer_key) {
    while (!by_patience_.empty() && by_patience_.back().precedence.gives_way_to <= newcomer_key) {
      remove(by_patience_.back());
      by_patience_.pop_back();
    }
    if (freeable_ < gpus) return {};
    std::vector<Candidate> taken;
    int freed = 0;
    for (auto job = by_turn_.begin(); freed < gpus; ++job) {
      taken.push_back(*job);
      freed += job->gpus();
    }
    // The last to stop first: what the others free without it may be enough.
    for (std::size_t i = taken.size(); i-- > 0;) {
      if (freed - taken[i].gpus() < gpus) continue;
      freed -= taken[i].gpus();
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (const auto& job : taken) remove(job);
    return taken;
  }

 private:
  void remove(const Candidate& job) {
    if (by_turn_.erase(job) > 0) freeable_ -= job.gpus();
  }

  std::set<Candidate, StopsBefore> by_turn_;
  std::vector<Candidate> by_patience_;  // the first to be left alone is last
  int freeable_ = 0;
};

// One decision in progress.
class VictimScan {
 public:
  VictimScan(const Snapshot& snapshot,
             const std::function<Precedence(const JobView&)>& precedence_of) {
    for (int t = 0; t < snapshot.cluster.types(); ++t)
      free_.push_back(snapshot.cluster.usable(type_at(static_cast<std::size_t>(t))));
    running_.resize(free_.size());
    for (const JobView& job : snapshot.jobs) {
      const Candidate candidate{&job, precedence_of(job)};
      const std::size_t type = job.target.type().index();
      if (!job.target.empty() && fits(candidate, type)) {
        running_[type].push_back(candidate);
        free_[type] -= candidate.gpus();
      } else {
        waiting_.push_back(candidate);
      }
    }
  }

  Decision decide() {
    std::vector<Victims> victims(running_.begin(), running_.end());
    std::sort(waiting_.begin(), waiting_.end(), starts_before);
    for (const auto& job : waiting_) {
      if (!type_with_room(job)) make_room(job, victims);
      if (!start(job)) left_over_.push_back(job);
    }
    // More may have been freed than was needed.
    std::sort(left_over_.begin(), left_over_.end(), starts_before);
    for (const auto& job : left_over_) start(job);
    for (std::size_t type = 0; type < running_.size(); ++type) {
      for (const auto& job : running_[type]) {
        if (!stopped_.contains(job.id())) grant(job, type);
      }
    }
    return std::move(decision_);
  }

 private:
  [[nodiscard]] bool runs_on(const Candidate& job, std::size_t type) const {
    return free_.size() == 1 || job.job->speed->on(type_at(type), job.gpus()) > 0;
  }
  [[nodiscard]] bool fits(const Candidate& job, std::size_t type) const {
    return job.gpus() <= free_[type] && runs_on(job, type);
  }

  // Its present type if there is room, else the first type with room.
  [[nodiscard]] std::optional<std::size_t> type_with_room(const Candidate& job) const {
    const std::size_t present = job.job->target.type().index();
    if (!job.job->target.empty() && fits(job, present)) return present;
    for (std::size_t type = 0; type < free_.size(); ++type) {
      if (fits(job, type)) return type;
    }
    return std::nullopt;
  }

  void make_room(const Candidate& newcomer, std::vector<Victims>& victims) {
    for (std::size_t type = 0; type < free_.size(); ++type) {
      if (!runs_on(newcomer, type)) continue;
      const auto taken = victims[type].take(newcomer.gpus() - free_[type], newcomer.precedence.key);
      for (const auto& victim : taken) {
        stopped_.insert(victim.id());
        left_over_.push_back(victim);
        free_[type] += victim.gpus();
      }
      if (!taken.empty()) return;
    }
  }

  bool start(const Candidate& job) {
    const auto type = type_with_room(job);
    if (!type) return false;
    free_[*type] -= job.gpus();
    grant(job, *type);
    return true;
  }
  void grant(const Candidate& job, std::size_t type) {
    decision_.run.push_back({job.id(), Count{type_at(type), job.gpus()}});
  }

  std::vector<int> free_;                        // by type
  std::vector<std::vector<Candidate>> running_;  // by type
  std::vector<Candidate> waiting_;
  std::set<JobId> stopped_;
  std::vector<Candidate> left_over_;  // without GPUs
  Decision decision_;
};

}  // namespace

Decision decide_with_victims(const Snapshot& snapshot,
                             const std::function<Precedence(const JobView&)>& precedence_of) {
  return VictimScan(snapshot, precedence_of).decide();
}

double restart_loss_per_gpu(const JobView& job) {
  return seconds(job.spec->restart_cost) / job.spec->requested;
}

Key victims_key() {
  return choice_key("victims", {"last", "cheapest"},
                    "which running jobs stop for those before them: the last in the order, or "
                    "those with the least restart cost per GPU");
}

bool wants_cheapest_victims(const KeyValues& values) {
  return values.text("victims") == "cheapest";
}

}  // namespace rubato::policy
