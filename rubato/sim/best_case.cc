#include "rubato/sim/best_case.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace rubato::sim {
namespace {

constexpr double kRoundingSeconds = 1e-6;  // of one instant

// From GPUs that are nearly free to GPUs that cost far more than time.
constexpr double kGpuPrices[] = {0.03, 0.1, 0.3, 1, 1000};

// Which way the path o, a, b turns: positive if a lies below the line from o to b.
double turn(const Corner& o, const Corner& a, const Corner& b) {
  return (a.gpus - o.gpus) * (b.speed - o.speed) - (a.speed - o.speed) * (b.gpus - o.gpus);
}

// The corners from the origin to the highest point.
Hull hull_of(std::vector<Corner> points) {
  std::sort(points.begin(), points.end());
  Hull upper{{0, 0}};
  for (const Corner& point : points) {
    if (!(point.speed > upper.back().speed)) continue;
    while (upper.size() > 1 && turn(upper[upper.size() - 2], upper.back(), point) >= 0)
      upper.pop_back();
    upper.push_back(point);
  }
  upper.erase(upper.begin());
  return upper;
}

}  // namespace

struct BestCases::Speeds {
  std::vector<std::vector<Corner>> points;  // by type
  std::optional<Work> work;
  std::optional<double> alone_s;
};

std::vector<double> gpu_prices_for(const Workload& workload) {
  const bool profiles = std::any_of(workload.jobs.begin(), workload.jobs.end(),
                                    [](const SimJob& job) { return job.application != nullptr; });
  if (!profiles) return {0};
  return {std::begin(kGpuPrices), std::end(kGpuPrices)};
}

BestCases BestCases::of(const Workload& workload, const Cluster& cluster,
                        const BestCaseOptions& options) {
  BestCases cases(cluster, options.gpu_price);
  if (options.sharing) {
    std::set<const SpeedModel*> seen;
    for (const SimJob& job : workload.jobs)
      if (seen.insert(job.speed.get()).second) cases.partners_.push_back(job.speed);
  }
  for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
    if (auto best = cases.best_case(workload.jobs[i])) {
      best->job = i;
      cases.jobs_.push_back(*best);
    }
  }
  return cases;
}

std::vector<double> BestCases::gpus() const {
  std::vector<double> gpus;
  gpus.reserve(static_cast<std::size_t>(cluster_.types()));
  for (int t = 0; t < cluster_.types(); ++t)
    gpus.push_back(cluster_.installed(GpuType(static_cast<GpuType::rep>(t))));
  return gpus;
}

std::optional<BestCase> BestCases::best_case(const SimJob& job) {
  const Shaped& shaped = shape(job);
  if (!(shaped.best > 0)) return std::nullopt;
  BestCase best;
  best.submit_s = seconds(job.submit);
  best.restart_s = seconds(job.spec->restart_cost);
  best.work_s = shaped.work.value_or(job.work) / shaped.best;
  best.alone_s = shaped.alone_s.value_or(best.work_s);
  best.hair_s = kRoundingSeconds * (1 + (job.application ? job.application->epochs() : 0));
  best.menu = shaped.menu;
  return best;
}

// Jobs mostly share their curves: a menu is made once for each speed model and limits.
const BestCases::Shaped& BestCases::shape(const SimJob& job) {
  const JobSpec& spec = *job.spec;
  const int beside = spec.limits.legal(spec.requested) ? 0 : spec.requested;
  const int batch = spec.adaptive_batch ? -spec.batch : spec.batch;
  const Key key = job.application ? Key(nullptr, job.application.get(), batch, spec.limits.min,
                                        spec.limits.max, spec.limits.allowed, beside)
                                  : Key(job.speed.get(), nullptr, 0, spec.limits.min,
                                        spec.limits.max, spec.limits.allowed, beside);
  const auto [at, fresh] = shaped_.try_emplace(key);
  if (fresh) at->second = make_shape(job);
  return at->second;
}

BestCases::Shaped BestCases::make_shape(const SimJob& job) {
  const auto counts = this->counts(*job.spec);
  const Speeds speeds = job.application ? profiled(job, counts) : modelled(job, counts);
  Shaped shaped;
  for (const auto& points : speeds.points)
    for (const Corner& point : points) shaped.best = std::max(shaped.best, point.speed);
  if (!(shaped.best > 0)) return shaped;
  shaped.work = speeds.work;
  shaped.alone_s = speeds.alone_s;
  shaped.menu = menu_of(speeds, shaped.best);
  return shaped;
}

// Those on which it may run on some type.
std::vector<int> BestCases::counts(const JobSpec& spec) const {
  const int most = cluster_.largest_type();
  std::set<int> counts;
  for (int gpus = spec.limits.smallest(); gpus <= std::min(most, spec.limits.max);) {
    counts.insert(gpus);
    const auto next = spec.limits.above(gpus);
    if (!next) break;
    gpus = *next;
  }
  if (spec.requested <= most) counts.insert(spec.requested);
  return {counts.begin(), counts.end()};
}

BestCases::Speeds BestCases::modelled(const SimJob& job, const std::vector<int>& counts) const {
  Speeds speeds;
  for (int t = 0; t < cluster_.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    auto& points = speeds.points.emplace_back();
    for (const int gpus : counts) {
      if (gpus > cluster_.installed(type)) break;
      const double held = gpus;
      points.push_back({held, job.speed->on(type, gpus)});
      WorkRate shared = 0;
      for (const auto& partner : partners_)
        shared = std::max(shared, job.speed->beside({type, gpus, 0, 0}, *partner));
      if (shared > 0) points.push_back({held / 2, shared});
    }
  }
  return speeds;
}

BestCases::Speeds BestCases::profiled(const SimJob& job, const std::vector<int>& counts) const {
  const Application& application = *job.application;
  int node = 1;
  for (const auto& group : cluster_.groups()) node = std::max(node, group.gpus_per_node);
  const auto epochs = static_cast<std::size_t>(application.epochs());
  struct Rates {
    std::size_t type = 0;
    int gpus = 0;
    std::vector<WorkRate> by_epoch;
  };
  std::vector<Rates> rates;
  const auto installed = this->gpus();
  std::vector<WorkRate> unit(epochs, 0), best(epochs, 0);
  for (std::size_t type = 0; type < installed.size(); ++type) {
    for (const int gpus : counts) {
      if (gpus > installed[type]) continue;
      auto here = application.best_rates(type_at(type), gpus, node, job.spec->batch,
                                         job.spec->adaptive_batch);
      for (std::size_t e = 0; e < here.size(); ++e) {
        unit[e] = std::max(unit[e], here[e] / (1 + gpu_price_ * gpus));
        best[e] = std::max(best[e], here[e]);
      }
      if (!here.empty()) rates.push_back({type, gpus, std::move(here)});
    }
  }
  Speeds speeds;
  speeds.points.resize(installed.size());
  for (const Rates& at : rates) {
    Corner& point = speeds.points[at.type].emplace_back(Corner{static_cast<double>(at.gpus), 0});
    for (std::size_t e = 0; e < epochs; ++e)
      point.speed = std::max(point.speed, at.by_epoch[e] / unit[e]);
  }
  double work = 0, alone_s = 0;
  for (std::size_t e = 0; e < epochs; ++e) {
    const int epoch = static_cast<int>(e);
    const Work of_epoch =
        application.progress_after(epoch) - (e == 0 ? 0 : application.progress_after(epoch - 1));
    work += of_epoch / unit[e];
    alone_s += of_epoch / best[e];
  }
  speeds.work = work;
  speeds.alone_s = alone_s;
  return speeds;
}

std::size_t BestCases::menu_of(const Speeds& speeds, WorkRate best) {
  Menu menu;
  for (const auto& points : speeds.points) {
    double fewest = 0;
    for (const Corner& point : points)
      if (point.speed > 0 && (fewest == 0 || point.gpus < fewest)) fewest = point.gpus;
    menu.fewest.push_back(fewest);
    Hull& hull = menu.hulls.emplace_back(hull_of(points));
    for (Corner& corner : hull) corner.speed /= best;
  }
  const auto [at, fresh] = index_of_.try_emplace(menu, menus_.size());
  if (fresh) menus_.push_back(std::move(menu));
  return at->second;
}

}  // namespace rubato::sim
