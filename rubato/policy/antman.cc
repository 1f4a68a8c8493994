#include "rubato/policy/antman.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <tuple>

#include "rubato/base/text.h"
#include "rubato/model/guest.h"
#include "rubato/policy/victims.h"

namespace rubato::policy {
namespace {

bool runs(const JobView& job) { return !job.target.empty(); }

// Measuring runs first, then in order of submission.
bool earlier(const JobView* a, const JobView* b) {
  return std::tuple(!a->spec->goes_first, a->id) < std::tuple(!b->spec->goes_first, b->id);
}

// The one that loses most by stopping keeps its GPUs first.
bool dearer(const JobView* a, const JobView* b) {
  return std::tuple(!a->spec->goes_first, -restart_loss_per_gpu(*a)) <
         std::tuple(!b->spec->goes_first, -restart_loss_per_gpu(*b));
}

std::string above_quota(const JobSpec& spec, int quota) {
  return fmt::format(
      "needs {}, and the guaranteed jobs of {} may have {} together; submit it as opportunistic, "
      "or with fewer GPUs",
      plural(spec.requested, "GPU"), spec.user, quota);
}

}  // namespace

// One decision in progress.
class AntMan::Round {
 public:
  Round(const Config& config, const Snapshot& snapshot) : config_(config), snapshot_(snapshot) {
    for (int t = 0; t < snapshot.cluster.types(); ++t)
      free_.push_back(snapshot.cluster.usable(GpuType(static_cast<GpuType::rep>(t))));
    for (const JobView& job : snapshot.jobs)
      (job.spec->opportunistic ? opportunistic_ : guaranteed_).push_back(&job);
    std::stable_sort(guaranteed_.begin(), guaranteed_.end(), earlier);
    std::stable_sort(opportunistic_.begin(), opportunistic_.end(), earlier);
  }

  void run_guaranteed() {
    for (const JobView* job : guaranteed_) {
      if (!job->spec->user.empty() && job->spec->quota > 0)
        quota_[job->spec->user] = job->spec->quota;  // the newest job's counts
    }
    for (const JobView* job : guaranteed_) {
      if (runs(*job) && give(*job)) used_[job->spec->user] += job->spec->requested;
    }
    for (const JobView* job : guaranteed_) {
      if (granted_.contains(job->id) || !within_quota(*job) || !give(*job)) continue;
      used_[job->spec->user] += job->spec->requested;
    }
  }

  // Those with GPUs of their own keep them, the oldest first; then those that wait; then guests.
  void run_opportunistic() {
    const auto give_to = [&](const auto& jobs, auto&& which) {
      for (const JobView* job : jobs) {
        if (!granted_.contains(job->id) && which(*job)) give(*job);
      }
    };
    auto keeping = opportunistic_;
    if (config_.cheapest_victims) std::stable_sort(keeping.begin(), keeping.end(), dearer);
    give_to(keeping, [](const JobView& job) { return runs(job) && !job.shares_with; });
    give_to(opportunistic_, [](const JobView& job) { return !runs(job); });
    give_to(opportunistic_, [](const JobView&) { return true; });
  }

  void add_guests() {
    for (const JobView* job : opportunistic_) {
      if (granted_.contains(job->id) || !job->shares_with) continue;
      const JobView* host = snapshot_.jobs.find(*job->shares_with);
      if (host != nullptr && rate_beside(*host, *job) > 0) guests_.emplace(host->id, job->id);
    }
    std::set<JobId> placed;
    for (const auto& [host, guest] : guests_) placed.insert(guest);
    for (const JobView* job : opportunistic_) {
      if (granted_.contains(job->id) || placed.contains(job->id)) continue;
      if (const JobView* host = host_for(*job)) guests_.emplace(host->id, job->id);
    }
  }

  // New jobs that are larger than their user's whole quota. They would wait for ever.
  [[nodiscard]] std::vector<Reject> rejects() const {
    std::vector<Reject> rejects;
    for (const JobView* job : guaranteed_) {
      const auto quota = quota_.find(job->spec->user);
      if (job->accepted() || quota == quota_.end()) continue;
      if (job->spec->requested > quota->second)
        rejects.push_back({job->id, above_quota(*job->spec, quota->second), std::nullopt});
    }
    return rejects;
  }

  [[nodiscard]] std::vector<Grant> grants() const {
    std::vector<Grant> grants;
    for (const auto& [id, count] : granted_) grants.push_back({id, count});
    for (const auto& [host, guest] : guests_) grants.push_back({guest, Beside{host}});
    return grants;
  }

 private:
  [[nodiscard]] bool within_quota(const JobView& job) const {
    const auto quota = quota_.find(job.spec->user);
    if (quota == quota_.end()) return true;
    const auto used = used_.find(job.spec->user);
    return (used == used_.end() ? 0 : used->second) + job.spec->requested <= quota->second;
  }

  // On its present type if there is room, else on the first type with room.
  bool give(const JobView& job) {
    const int gpus = job.spec->requested;
    const auto fits = [&](std::size_t type) {
      return free_[type] >= gpus &&
             job.speed->on(GpuType(static_cast<GpuType::rep>(type)), gpus) > 0;
    };
    std::size_t type = runs(job) ? job.target.type().index() : 0;
    if (!runs(job) || !fits(type)) {
      for (type = 0; type < free_.size() && !fits(type); ++type) {
      }
    }
    if (type == free_.size()) return false;
    free_[type] -= gpus;
    granted_.emplace(job.id, Count{GpuType(static_cast<GpuType::rep>(type)), gpus});
    return true;
  }

  // How fast the guest would be there; 0 if it cannot be a guest of this host.
  [[nodiscard]] WorkRate rate_beside(const JobView& host, const JobView& guest) const {
    const auto at = granted_.find(host.id);
    if (at == granted_.end() || host.spec->opportunistic || guests_.contains(host.id)) return 0;
    if (at->second.gpus != guest.spec->requested || !guest.spec->preemptible) return 0;
    const Shape shape{at->second.type, at->second.gpus, 0, 0};
    if (!host.spec->tries_pairs || !guest.spec->tries_pairs)
      return guest_pair(*host.speed, *guest.speed, shape).guest;
    // Nobody knows before it is tried. The agent that watches the pair is that of the node on which
    // both have started (node/guest_control.h).
    return host.resized ? 0 : guest.speed->rate(shape);
  }

  [[nodiscard]] const JobView* host_for(const JobView& job) const {
    const JobView* best = nullptr;
    WorkRate most = 0;
    for (const JobView* host : guaranteed_) {
      const WorkRate rate = rate_beside(*host, job);
      if (rate <= most) continue;
      best = host;
      most = rate;
      if (!config_.fastest) break;
    }
    return best;
  }

  const Config& config_;
  const Snapshot& snapshot_;
  std::vector<const JobView*> guaranteed_, opportunistic_;
  std::vector<int> free_;  // by type
  std::map<std::string, int> quota_, used_;
  std::map<JobId, Count> granted_;  // without guests
  std::map<JobId, JobId> guests_;   // by host
};

Decision AntMan::decide(const Snapshot& snapshot, State& /*state*/) const {
  Round round(config, snapshot);
  round.run_guaranteed();
  round.run_opportunistic();
  if (config.guests) round.add_guests();
  Decision decision;
  decision.run = round.grants();
  decision.reject = round.rejects();
  return decision;
}

std::vector<PolicyEntry> antman_rows() {
  PolicyEntry entry;
  entry.name = "antman";
  entry.paper = "Xiao et al., OSDI'20";
  entry.summary = "opportunistic jobs take what guaranteed jobs leave, also on the same GPUs";
  entry.knows = "GPUs asked for, class, quota, speeds of pairs";
  entry.keys = {choice_key("guests", {"on", "off"},
                           "opportunistic jobs may share the GPUs of guaranteed ones"),
                choice_key("host", {"fastest", "oldest"},
                           "whose guest: beside whom it is fastest, or the oldest host"),
                choice_key("victims", {"last", "cheapest"},
                           "which opportunistic jobs leave their GPUs first: the newest, or those "
                           "with the least restart cost per GPU")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    return erase(AntMan{{values.text("guests") == "on", values.text("host") == "fastest",
                         wants_cheapest_victims(values)}});
  };
  return {entry};
}

}  // namespace rubato::policy
