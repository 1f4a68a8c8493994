#include "rubato/policy/hesrpt.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

namespace rubato::policy {
namespace {

// The range of q in which the shares are well defined; at 1 the smallest job would get everything.
constexpr double kLeastExponent = 0.05;
constexpr double kMostExponent = 0.95;

struct Sharer {
  const JobView* job = nullptr;
  double size = 0;   // seconds left on one GPU
  double share = 0;  // GPUs, not yet whole
  int gpus = 0;
  WorkRate rate = 0;

  // The next legal count, if the job is faster there.
  [[nodiscard]] std::optional<int> step() const {
    const auto next = job->spec->limits.above(gpus);
    if (!next || !(job->speed->on(GpuType(), *next) > rate)) return std::nullopt;
    return next;
  }
  void take(int count) {
    gpus = count;
    rate = job->speed->on(GpuType(), count);
  }
};

// The slope of log p over log k; nullopt if only one count of the job is known.
std::optional<double> exponent_of(const SpeedModel& speed) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const int gpus : speed.measured()) {
    const WorkRate rate = speed.on(GpuType(), gpus);
    if (!(rate > 0)) continue;
    const double u = std::log(gpus);
    const double v = std::log(rate);
    n += 1;
    x += u;
    y += v;
    xx += u * u;
    xy += u * v;
  }
  const double spread = n * xx - x * x;
  if (!(spread > 1e-9)) return std::nullopt;
  return (n * xy - x * y) / spread;
}

}  // namespace

double Hesrpt::share(std::size_t i, std::size_t n, double q) {
  const double power = 1 / (1 - q);
  const double jobs = static_cast<double>(n);
  const double rank = static_cast<double>(i);
  return std::pow(rank / jobs, power) - std::pow((rank - 1) / jobs, power);
}

double Hesrpt::closed_form(std::vector<double> sizes, double gpus, double q) {
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  double sum = 0;
  for (std::size_t n = 0; n < sizes.size(); ++n) {
    const double i = static_cast<double>(n) + 1;
    const double w = n == 0 ? 0 : 1 / (std::pow(i / (i - 1), 1 / (1 - q)) - 1);
    sum += sizes[n] * (i * std::pow(1 + w, q) - (i - 1) * std::pow(w, q));
  }
  return sum / std::pow(gpus, q);
}

double Hesrpt::exponent(const Snapshot& snapshot) const {
  if (config.q > 0) return config.q;
  double sum = 0;
  double jobs = 0;
  std::map<const SpeedModel*, std::optional<double>> known;  // jobs share curves
  for (const JobView& job : snapshot.jobs) {
    const auto [at, fresh] = known.try_emplace(job.speed.get());
    if (fresh) at->second = exponent_of(*job.speed);
    if (!at->second) continue;
    sum += *at->second;
    jobs += 1;
  }
  return jobs == 0 ? 0.5 : std::clamp(sum / jobs, kLeastExponent, kMostExponent);
}

Decision Hesrpt::decide(const Snapshot& snapshot, State& /*state*/) const {
  std::vector<Sharer> sharers;
  sharers.reserve(snapshot.jobs.size());
  for (const JobView& job : snapshot.jobs) {
    const WorkRate one = job.speed->on(GpuType(), 1);
    const Work left = job.progress.left(snapshot.now);
    sharers.push_back({&job, one > 0 ? left / one : left, 0, 0, 0});
  }
  std::sort(sharers.begin(), sharers.end(), [](const Sharer& a, const Sharer& b) {
    return std::tuple(-a.size, a.job->id) < std::tuple(-b.size, b.job->id);
  });

  const double q = exponent(snapshot);
  const int gpus = snapshot.cluster.usable();
  int room = gpus;
  for (std::size_t i = 0; i < sharers.size(); ++i) {
    Sharer& sharer = sharers[i];
    sharer.share = share(i + 1, sharers.size(), q) * gpus;
    for (auto next = sharer.step(); next && *next <= sharer.share; next = sharer.step())
      sharer.take(*next);
    room -= sharer.gpus;
  }
  std::vector<Sharer*> order;
  order.reserve(sharers.size());
  for (Sharer& sharer : sharers) order.push_back(&sharer);
  const auto offer_in_order = [&] {
    for (Sharer* sharer : order) {
      const auto next = sharer->step();
      if (!next || *next - sharer->gpus > room) continue;
      room -= *next - sharer->gpus;
      sharer->take(*next);
    }
  };
  const auto shorter = [](const Sharer* a, const Sharer* b) {
    return std::tuple(a->size, a->job->id) < std::tuple(b->size, b->job->id);
  };
  std::sort(order.begin(), order.end(), [&](const Sharer* a, const Sharer* b) {
    const double left_a = a->share - a->gpus;
    const double left_b = b->share - b->gpus;
    return left_a != left_b ? left_a > left_b : shorter(a, b);
  });
  offer_in_order();
  std::erase_if(order, [](const Sharer* sharer) { return sharer->gpus > 0; });
  std::sort(order.begin(), order.end(), shorter);
  offer_in_order();

  Decision decision;
  for (const Sharer& sharer : sharers) {
    if (sharer.gpus > 0) decision.run.push_back({sharer.job->id, Count{GpuType(), sharer.gpus}});
  }
  std::sort(decision.run.begin(), decision.run.end(),
            [](const Grant& a, const Grant& b) { return a.job < b.job; });
  return decision;
}

std::vector<PolicyEntry> hesrpt_rows() {
  PolicyEntry entry;
  entry.name = "hesrpt";
  entry.paper = "Berg, Vesilo, Harchol-Balter 2020";
  entry.summary = "the optimal shares for jobs with speed k^q that are all there at the start";
  entry.knows = "work left, speed curve";
  entry.elastic = true;
  entry.one_type = true;
  entry.keys = {number_key("q", 0, 0, 0.99, "the exponent; 0 = mean of the jobs' curves")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    return erase(Hesrpt{{values.number("q")}});
  };
  return {entry};
}

}  // namespace rubato::policy
