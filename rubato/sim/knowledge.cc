#include "rubato/sim/knowledge.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "rubato/base/random.h"
#include "rubato/base/text.h"
#include "rubato/model/measured_speed.h"

namespace rubato::sim {
namespace {

constexpr double kNoise = 0.01;

}  // namespace

Result<Knowing> parse_knowing(std::string_view name) {
  if (name == "oracle") return Knowing::oracle;
  if (name == "measured") return Knowing::measured;
  return Error{fmt::format("unknown knowledge {}: use oracle or measured", base::quoted(name))};
}

Knowledge::Knowledge(const Workload& workload, const KnowledgeOptions& options, bool losses)
    : workload_(workload), options_(options), losses_(losses) {}

bool Knowledge::rigid(JobId job) const {
  return workload_.jobs[job.index()].speed->measured().empty();
}

std::shared_ptr<const SpeedModel> Knowledge::estimate(JobId job,
                                                      const std::map<int, WorkRate>& rates) const {
  const JobSpec& spec = *workload_.jobs[job.index()].spec;
  return std::make_shared<MeasuredSpeed>(rates, std::max(spec.limits.max, spec.requested));
}

std::shared_ptr<const SpeedModel> Knowledge::first_estimate(JobId job) const {
  const SimJob& truth = workload_.jobs[job.index()];
  if (!estimates() || rigid(job)) return truth.speed;
  const int asked = truth.spec->requested;
  const WorkRate rate = truth.speed->on(GpuType(), asked);
  return rate > 0 ? estimate(job, {{asked, rate}}) : truth.speed;
}

void Knowledge::runs(JobId job, int gpus, const Progress& progress) {
  const SimJob& truth = workload_.jobs[job.index()];
  if (!estimates() || truth.application || truth.phases) return;
  Seen& seen = seen_[job];
  seen.progress = progress;
  seen.gpus = gpus;
  const bool news = losses_ || (!rigid(job) && !seen.rates.contains(gpus));
  if (news && progress.rate > 0) {
    reports_.set(job.value(), progress.at + options_.measuring_time);
  } else {
    reports_.erase(job.value());
  }
}

void Knowledge::rests(JobId job) { reports_.erase(job.value()); }

std::optional<Time> Knowledge::next_fact() const {
  if (reports_.empty()) return std::nullopt;
  return reports_.top().key;
}

void Knowledge::collect(Time now, std::vector<Event>& facts) {
  while (!reports_.empty() && reports_.top().key <= now) {
    const JobId job(reports_.top().member);
    reports_.pop();
    const SimJob& truth = workload_.jobs[job.index()];
    Seen& seen = seen_[job];
    if (rigid(job)) {
      seen.estimate = truth.speed;
    } else if (seen.rates.try_emplace(seen.gpus, seen.progress.rate).second) {
      auto known = seen.rates;  // the owner's value counts until it is measured
      known.try_emplace(truth.spec->requested, truth.speed->on(GpuType(), truth.spec->requested));
      std::erase_if(known, [](const auto& entry) { return !(entry.second > 0); });
      seen.estimate = estimate(job, known);
    }
    Estimated news{job, seen.estimate, nullptr};
    if (losses_) {
      news.losses = shown(job, truth.work - seen.progress.left(now));
      const Duration on_these = now - seen.progress.at;
      reports_.set(job.value(), now + std::max(options_.measuring_time, on_these / 2));
    }
    facts.emplace_back(std::move(news));
  }
}

std::shared_ptr<const ShownLosses> Knowledge::shown(JobId job, Work done) const {
  const Work all = workload_.jobs[job.index()].work;
  Random random = Random(options_.seed).split(job.value());
  const double b2 = random.uniform(0.05, 0.4);
  const double b1 = 1 / (1 - b2);
  const double b0 = b1 * random.log_uniform(5, 50);
  const double epochs = std::round(random.log_uniform(20, 200));
  const auto loss = [&](double x) { return 1 / (b0 * x + b1) + b2; };

  auto losses = std::make_shared<ShownLosses>();
  losses->epoch = all / epochs;
  losses->threshold = loss(1 - 1 / epochs) - loss(1);
  for (double epoch = 0; epoch <= epochs && epoch * losses->epoch <= done; ++epoch) {
    const double noise = 1 + kNoise * random.uniform(-1, 1);
    losses->points.push_back({epoch * losses->epoch, loss(epoch / epochs) * noise});
  }
  return losses;
}

}  // namespace rubato::sim
