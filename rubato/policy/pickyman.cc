#include "rubato/policy/pickyman.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "rubato/policy/sorted.h"

namespace rubato::policy {
namespace {

struct Candidate {
  JobId job;
  int gpus = 0;
  double left = 0;  // microseconds
  double loss = 0;  // microseconds; of running jobs

  // A newcomer may take its GPUs if it needs less time than this.
  [[nodiscard]] double gives_way_to() const { return left - loss; }
};

bool shorter(const Candidate& a, const Candidate& b) {
  return std::tie(a.left, a.job) < std::tie(b.left, b.job);
}

// Least loss per GPU first; of equals, the one with most time left.
struct CheaperToStop {
  bool operator()(const Candidate& a, const Candidate& b) const {
    const double per_gpu_a = a.loss / a.gpus;
    const double per_gpu_b = b.loss / b.gpus;
    return std::tie(per_gpu_a, b.left, b.job) < std::tie(per_gpu_b, a.left, a.job);
  }
};

// The running jobs that a newcomer may stop. Newcomers come in ascending order of their time, so a
// job that does not give way to one gives way to none of the later ones.
class Victims {
 public:
  explicit Victims(const std::vector<Candidate>& running) {
    for (const auto& job : running) {
      by_loss_.insert(job);
      by_patience_.push_back(job);
      freeable_ += job.gpus;
    }
    std::sort(by_patience_.begin(), by_patience_.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.gives_way_to(), a.job) > std::tuple(b.gives_way_to(), b.job);
    });
  }

  // Those that are stopped to free this many GPUs; empty if they cannot.
  std::vector<Candidate> take(int gpus, double newcomer_left) {
    while (!by_patience_.empty() && by_patience_.back().gives_way_to() <= newcomer_left) {
      remove(by_patience_.back());
      by_patience_.pop_back();
    }
    if (freeable_ < gpus) return {};
    std::vector<Candidate> taken;
    int freed = 0;
    for (auto job = by_loss_.begin(); freed < gpus; ++job) {
      taken.push_back(*job);
      freed += job->gpus;
    }
    // The dearest first: what the others free without it may be enough.
    for (std::size_t i = taken.size(); i-- > 0;) {
      if (freed - taken[i].gpus < gpus) continue;
      freed -= taken[i].gpus;
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (const auto& job : taken) remove(job);
    return taken;
  }

 private:
  void remove(const Candidate& job) {
    if (by_loss_.erase(job) > 0) freeable_ -= job.gpus;
  }

  std::set<Candidate, CheaperToStop> by_loss_;
  std::vector<Candidate> by_patience_;  // the first to be left alone is last
  int freeable_ = 0;
};

}  // namespace

double restart_loss_per_gpu(const JobView& job) {
  return seconds(job.spec->restart_cost) / job.spec->requested;
}

double PickyMan::loss_micros(const JobView& job, Time now) const {
  double rest = 0;
  if (config.epochs > 0 && job.work > 0) {
    const Work epoch = job.work / config.epochs;
    const Work begun = std::fmod(job.work - job.progress.left(now), epoch);
    const Work unfinished = begun > 0 ? epoch - begun : 0;
    rest = unfinished / job.speed->on(GpuType(), job.spec->requested) * 1e6;
  }
  return std::round(rest) + seconds(job.spec->restart_cost) * 1e6;
}

Decision PickyMan::decide(const Snapshot& snapshot, State& /*state*/) const {
  std::vector<Candidate> running;
  std::vector<Candidate> waiting;
  int free = snapshot.cluster.usable();
  for (const JobView& job : snapshot.jobs) {
    const bool runs = !job.target.empty();
    // Its owner may have asked for another count since it started.
    const int gpus = job.spec->requested;
    Candidate candidate{job.id, gpus, remaining_micros(job, snapshot.now), 0};
    if (runs && gpus <= free) {
      candidate.loss = loss_micros(job, snapshot.now);
      running.push_back(candidate);
      free -= gpus;
    } else {
      waiting.push_back(candidate);
    }
  }
  std::sort(waiting.begin(), waiting.end(), shorter);
  Victims victims(running);
  std::set<JobId> stopped;
  Decision decision;
  const auto start = [&](const Candidate& job) {
    free -= job.gpus;
    decision.run.push_back({job.job, Count{GpuType(), job.gpus}});
  };
  std::vector<Candidate> left_over;
  for (const auto& job : waiting) {
    if (job.gpus > free) {
      for (const auto& victim : victims.take(job.gpus - free, job.left)) {
        stopped.insert(victim.job);
        left_over.push_back(victim);
        free += victim.gpus;
      }
    }
    job.gpus <= free ? start(job) : left_over.push_back(job);
  }
  // More may have been freed than was needed.
  std::sort(left_over.begin(), left_over.end(), shorter);
  for (const auto& job : left_over) {
    if (job.gpus <= free) start(job);
  }
  for (const auto& job : running) {
    if (!stopped.contains(job.job)) decision.run.push_back({job.job, Count{GpuType(), job.gpus}});
  }
  return decision;
}

Result<PickyMan::State> PickyMan::State::load(const Json& json) {
  if (!json.is_object()) return Error{"saved PickyMan state: not an object"};
  return State();
}

std::vector<PolicyEntry> pickyman_rows() {
  PolicyEntry entry;
  entry.name = "pickyman";
  entry.paper = "Chen et al. (PickyMan), IPCCC'22";
  entry.summary = "shortest first; stops the jobs that lose least by it";
  entry.knows = "GPUs asked for, work left, restart cost";
  entry.one_type = true;
  entry.keys = {whole_key("epochs", 0, 0, 1'000'000,
                          "epochs of a job, if it must finish one before it stops; 0 = it stops "
                          "at once")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    return erase(PickyMan{{static_cast<int>(values.whole("epochs"))}});
  };
  return {entry};
}

}  // namespace rubato::policy
