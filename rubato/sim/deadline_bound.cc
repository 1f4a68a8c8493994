#include "rubato/sim/deadline_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "rubato/base/check.h"

namespace rubato::sim {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// What the sums of a thousand jobs may be off by.
constexpr double kRounding = 1e-6;

// Prices to begin with: all GPUs together would earn this share of the deadlines. Prices below
// kLeast of these count as 0.
constexpr double kFirstEarnings = 0.5;
constexpr double kLeast = 1e-3;

struct DeadlineJob {
  double submit_s = 0;
  double restart_s = 0;
  double work_s = 0;
  double end_s = 0;  // its deadline, and a hair
  std::size_t menu = 0;

  [[nodiscard]] double from_s() const { return submit_s + restart_s; }
};

struct Instance {
  std::vector<double> gpus;  // by type
  std::vector<Menu> menus;
  std::vector<DeadlineJob> jobs;  // those that could be in time by themselves
  std::size_t total = 0;
};

Instance instance_of(const Workload& workload, const Cluster& cluster,
                     const BestCaseOptions& best_case) {
  const BestCases cases = BestCases::of(workload, cluster, best_case);
  Instance instance{cases.gpus(), cases.menus(), {}, 0};
  for (const SimJob& job : workload.jobs) instance.total += job.spec->deadline ? 1 : 0;
  for (const BestCase& best : cases.jobs()) {
    const auto& deadline = workload.jobs[best.job].spec->deadline;
    if (!deadline) continue;
    const double end_s = seconds(*deadline) + best.hair_s;
    if (best.submit_s + best.restart_s + best.alone_s > end_s) continue;
    instance.jobs.push_back({best.submit_s, best.restart_s, best.work_s, end_s, best.menu});
  }
  return instance;
}

// ---- what a job buys at given prices, as cheaply as possible ----

// A choice at one moment: nothing, or a corner of some type.
struct Choice {
  std::size_t type = 0;
  double gpus = 0;
  double speed = 0;
  double pay = 0;
};

// From one corner of the hull of speed over pay to the next, in one period.
struct Step {
  std::size_t period = 0;
  Choice from, to;
  double speed = 0;
  double pay = 0;

  [[nodiscard]] double pay_for_work() const { return pay / speed; }
};

// The steps of one period: of choices with equal pay the fastest counts; slopes fall.
void add_steps(const Menu& menu, const Prices& prices, std::size_t period,
               std::vector<Step>& steps) {
  std::vector<Choice> choices;
  for (std::size_t t = 0; t < menu.hulls.size(); ++t) {
    for (const Corner& corner : menu.hulls[t])
      choices.push_back({t, corner.gpus, corner.speed, prices.gpu_second[t][period] * corner.gpus});
  }
  std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return std::pair(a.pay, a.gpus) < std::pair(b.pay, b.gpus);
  });
  std::vector<Choice> hull{Choice{}};
  for (const Choice& choice : choices) {
    if (!(choice.speed > hull.back().speed)) continue;
    const auto below = [&](const Choice& o, const Choice& a) {
      return (a.pay - o.pay) * (choice.speed - o.speed) >=
             (a.speed - o.speed) * (choice.pay - o.pay);
    };
    while (hull.size() > 1 && hull.back().pay > 0 && below(hull[hull.size() - 2], hull.back()))
      hull.pop_back();
    hull.push_back(choice);
  }
  for (std::size_t i = 1; i < hull.size(); ++i) {
    steps.push_back({period, hull[i - 1], hull[i], hull[i].speed - hull[i - 1].speed,
                     hull[i].pay - hull[i - 1].pay});
  }
}

// All steps of a menu, the cheapest work first. Within a period they come in order, as slopes fall.
std::vector<Step> steps_of(const Menu& menu, const Prices& prices) {
  std::vector<Step> steps;
  for (std::size_t i = 0; i < prices.periods(); ++i) add_steps(menu, prices, i, steps);
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
    return a.pay_for_work() < b.pay_for_work();
  });
  return steps;
}

struct Use {
  std::size_t type = 0;
  std::size_t period = 0;
  double gpu_s = 0;
};

struct Purchase {
  double pay = 0;
  std::vector<Use> uses;
};

// Seconds of a period between two moments.
double overlap(const Prices& prices, std::size_t period, double from, double until) {
  return std::max(
      0.0, std::min(until, prices.start_s[period + 1]) - std::max(from, prices.start_s[period]));
}

// The restart at the cheapest price of the job's time.
void add_restart(const DeadlineJob& job, const Menu& menu, const Prices& prices,
                 Purchase& purchase) {
  if (!(job.restart_s > 0) || job.end_s > prices.start_s.back()) return;  // or it may be free
  Use cheapest;
  double least = kUnbounded;
  for (std::size_t t = 0; t < menu.hulls.size(); ++t) {
    if (menu.hulls[t].empty()) continue;
    for (std::size_t i = 0; i < prices.periods(); ++i) {
      if (overlap(prices, i, job.submit_s, job.end_s) <= 0) continue;
      const double gpu_s = job.restart_s * menu.fewest[t];
      const double pay = gpu_s * prices.gpu_second[t][i];
      if (pay >= least) continue;
      least = pay;
      cheapest = {t, i, gpu_s};
    }
  }
  if (least == kUnbounded) return;
  purchase.pay += least;
  purchase.uses.push_back(cheapest);
}

// After the last period GPUs cost nothing.
Purchase cheapest_purchase(const DeadlineJob& job, const Menu& menu, const std::vector<Step>& steps,
                           const Prices& prices) {
  Purchase purchase;
  double left =
      job.work_s - std::max(0.0, job.end_s - std::max(job.from_s(), prices.start_s.back()));
  for (const Step& step : steps) {
    if (left <= 0) break;
    const double seconds = overlap(prices, step.period, job.from_s(), job.end_s);
    if (seconds <= 0) continue;
    const double taken = std::min(seconds, left / step.speed);
    left -= taken * step.speed;
    purchase.pay += taken * step.pay;
    purchase.uses.push_back({step.to.type, step.period, taken * step.to.gpus});
    if (step.from.gpus > 0)
      purchase.uses.push_back({step.from.type, step.period, -taken * step.from.gpus});
  }
  add_restart(job, menu, prices, purchase);
  return purchase;
}

// ---- prices ----

// What the prices prove; `demand`, if given, is added to.
double proven(const Instance& instance, const Prices& prices, Demand* demand) {
  std::vector<std::vector<Step>> steps;
  for (const Menu& menu : instance.menus) steps.push_back(steps_of(menu, prices));
  double sum = prices.earnings(instance.gpus);
  for (const DeadlineJob& job : instance.jobs) {
    const Purchase purchase =
        cheapest_purchase(job, instance.menus[job.menu], steps[job.menu], prices);
    if (purchase.pay >= 1) continue;
    sum += 1 - purchase.pay;
    if (demand == nullptr) continue;
    for (const Use& use : purchase.uses) (*demand)[use.type][use.period] += use.gpu_s;
  }
  return sum;
}

// Where a job's time begins or ends; of too many, evenly chosen ones.
std::vector<double> period_starts(const Instance& instance, std::size_t periods) {
  std::set<double> moments{0};
  double last = 0;
  for (const DeadlineJob& job : instance.jobs) {
    moments.insert(job.from_s());
    moments.insert(job.end_s);
    last = std::max(last, job.end_s);
  }
  const std::vector<double> all(moments.begin(), moments.end());
  const std::size_t kept = std::min(all.size(), std::max<std::size_t>(periods, 2));
  std::vector<double> starts;
  for (std::size_t i = 0; i + 1 < kept; ++i) starts.push_back(all[i * all.size() / kept]);
  starts.push_back(last > 0 ? last : 1);
  return starts;
}

// What the best prices prove that a search finds.
double searched(const Instance& instance, const DeadlineOptions& options) {
  const auto feasible = static_cast<double>(instance.jobs.size());
  if (feasible == 0) return 0;
  Prices first{period_starts(instance, static_cast<std::size_t>(options.periods)), {}};
  double supply = 0;
  for (const double gpus : instance.gpus) supply += gpus * first.start_s.back();
  const double even = kFirstEarnings * feasible / supply;
  first.gpu_second.assign(instance.gpus.size(), std::vector<double>(first.periods(), even));

  PriceSearch search;
  search.gpus = instance.gpus;
  search.least.assign(instance.gpus.size(), kLeast * even);
  search.steps = options.steps;
  search.judge = [&](const Prices& prices, Demand& demand) {
    return -proven(instance, prices, &demand);
  };
  return std::min(feasible, proven(instance, search.best_from(first), nullptr));
}

}  // namespace

std::size_t DeadlineBound::most() const {
  return std::min(feasible, static_cast<std::size_t>(std::floor(relaxed + kRounding)));
}

DeadlineBound deadline_bound(const Workload& workload, const Cluster& cluster,
                             const DeadlineOptions& options) {
  std::optional<DeadlineBound> bound;
  for (const double gpu_price : gpu_prices_for(workload)) {
    const Instance instance = instance_of(workload, cluster, {options.sharing, gpu_price});
    const DeadlineBound here{instance.total, instance.jobs.size(), searched(instance, options)};
    if (!bound || here.relaxed < bound->relaxed) bound = here;
  }
  return *bound;
}

double priced_deadlines(const Workload& workload, const Cluster& cluster, const Prices& prices,
                        const BestCaseOptions& best_case) {
  CHECK(prices.gpu_second.size() == static_cast<std::size_t>(cluster.types()));
  return proven(instance_of(workload, cluster, best_case), prices, nullptr);
}

}  // namespace rubato::sim
