#include "rubato/policy/optimus.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>
#include <vector>

#include "rubato/model/convergence.h"

namespace rubato::policy {
namespace {

struct Worker {
  const JobView* job = nullptr;
  const ScalingModel* scaling = nullptr;  // nullptr: use the snapshot's speed
  Work left = 0;
  int gpus = 0;

  [[nodiscard]] double time_left(int count) const {
    if (scaling == nullptr) return job->speed->seconds_left({GpuType(), count, 0, 0}, left);
    const WorkRate rate = scaling->rate(count);
    return rate > 0 ? left / rate : INFINITY;
  }
};

// The marginal gain of a job's next step, if there is one.
struct Gain {
  double per_gpu = 0;
  int next = 0;
};
std::optional<Gain> gain_of(const Worker& worker) {
  const auto next = worker.job->spec->limits.above(worker.gpus);
  if (!next) return std::nullopt;
  const double gain = worker.time_left(worker.gpus) - worker.time_left(*next);
  if (!(gain > 0)) return std::nullopt;
  return Gain{gain / (*next - worker.gpus), *next};
}

}  // namespace

const Optimus::Fitted& Optimus::fit(const JobView& job, State& state) const {
  Fitted& fitted = state.fits[job.id];
  if (fitted.shown_speed != job.speed) {
    fitted.shown_speed = job.speed;
    fitted.scaling.reset();
    std::vector<StepRate> shown;
    for (const int gpus : job.speed->measured())
      shown.push_back({gpus, job.speed->on(GpuType(), gpus)});
    if (!shown.empty()) fitted.scaling = fit_scaling(shown);
  }
  if (job.losses != nullptr && fitted.shown_losses != job.losses) {
    fitted.shown_losses = job.losses;
    fitted.end.reset();
    if (const auto model = fit_losses(*job.losses))
      fitted.end = convergence(*model, job.losses->epoch, job.losses->threshold);
  }
  return fitted;
}

Work Optimus::work_left(const JobView& job, const Fitted& fitted, Time now) const {
  const int smallest = job.spec->limits.smallest();
  const WorkRate alone =
      fitted.scaling ? fitted.scaling->rate(smallest) : job.speed->on(GpuType(), smallest);
  // Rounded to milliseconds: the last bits of the work done would reveal the work left.
  const double done_s = std::round((job.work - job.progress.left(now)) / alone * 1e3) / 1e3;
  if (!fitted.end) return (done_s + config.prior_seconds) * alone;
  // The job should have ended already, so expect its end with this epoch.
  return std::max(*fitted.end - done_s * alone, job.losses->epoch);
}

Decision Optimus::decide(const Snapshot& snapshot, State& state) const {
  std::erase_if(state.fits,
                [&](const auto& entry) { return snapshot.jobs.find(entry.first) == nullptr; });
  std::vector<Worker> workers;
  workers.reserve(snapshot.jobs.size());
  int room = snapshot.cluster.usable();
  for (const JobView& job : snapshot.jobs) {
    const int smallest = job.spec->limits.smallest();
    if (smallest > room) continue;
    room -= smallest;
    if (config.oracle) {
      workers.push_back({&job, nullptr, job.progress.left(snapshot.now), smallest});
    } else {
      const Fitted& fitted = fit(job, state);
      workers.push_back({&job, fitted.scaling ? &*fitted.scaling : nullptr,
                         work_left(job, fitted, snapshot.now), smallest});
    }
  }

  using Offer = std::tuple<double, JobId, std::size_t, int>;  // -gain: the largest is first
  std::priority_queue<Offer, std::vector<Offer>, std::greater<>> offers;
  const auto offer = [&](std::size_t i) {
    if (const auto gain = gain_of(workers[i]))
      offers.emplace(-gain->per_gpu, workers[i].job->id, i, gain->next);
  };
  for (std::size_t i = 0; i < workers.size(); ++i) offer(i);
  while (room > 0 && !offers.empty()) {
    const auto [gain, id, i, next] = offers.top();
    offers.pop();
    if (next - workers[i].gpus > room) continue;
    room -= next - workers[i].gpus;
    workers[i].gpus = next;
    offer(i);
  }

  Decision decision;
  for (const Worker& worker : workers)
    decision.run.push_back({worker.job->id, Count{GpuType(), worker.gpus}});
  return decision;
}

std::vector<PolicyEntry> optimus_rows() {
  PolicyEntry entry;
  entry.name = "optimus";
  entry.paper = "Peng et al., EuroSys'18";
  entry.summary = "GPU by GPU to the job whose time left falls most; fits losses and step times";
  entry.knows = "losses and step times shown so far";
  entry.elastic = true;
  entry.one_type = true;
  entry.keys = {
      choice_key("oracle", {"off", "on"}, "on: true work left and speed curve instead of fits"),
      number_key("prior", 600, 0, 1e9,
                 "expected seconds on the fewest GPUs of a job that has shown nothing")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    return erase(Optimus{{values.text("oracle") == "on", values.number("prior")}});
  };
  return {entry};
}

}  // namespace rubato::policy
