#include "rubato/sim/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>
#include <utility>

#include "rubato/base/check.h"

namespace rubato::sim {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Values of m tried for each job: while the prices are being found, and for the final word.
constexpr std::size_t kGrid = 120;
constexpr std::size_t kFineGrid = 400;

// A step costs as many cells as menus x types x periods x values: where every job has a curve of
// its own, periods are fewer.
constexpr std::size_t kMostHullPeriods = 40'000;

// A price that delays this many jobs by the time it takes all GPUs to earn it: lower ones are 0,
// and 0 rises to this, as a multiplied 0 would stay.
constexpr double kLeastJobs = 0.01;

// Prices go on, in ever longer periods, until so many times the shortest possible end.
constexpr double kBeyond = 4;
constexpr double kBeyondRatio = 1.15;

// Factors by which the worth of a GPU type is tried to be more or less, one after the other.
constexpr double kWorthFactors[] = {2, 1.4, 1.2, 1.1, 1.05, 1.02};

// ---- shortest remaining processing time on one machine ----

struct MachineRun {
  double mean_s = 0;
  double end_s = 0;
  // Over time, linear in between: jobs that are there, one that is half done counting as half.
  std::vector<std::pair<double, double>> left;
  std::vector<double> worth;  // of a GPU-second, by type; all GPUs are worth 1
};

// The least worth that the job takes, restart included.
double least_worth(const BestCase& job, const Menu& menu, const std::vector<double>& worth) {
  double work = kInfinite, restart = kInfinite;
  for (std::size_t t = 0; t < menu.hulls.size(); ++t) {
    if (menu.hulls[t].empty()) continue;
    const Corner& thriftiest = menu.hulls[t].front();
    work = std::min(work, worth[t] * thriftiest.gpus / thriftiest.speed);
    restart = std::min(restart, worth[t] * menu.fewest[t]);
  }
  return work * job.work_s + restart * job.restart_s;
}

MachineRun shortest_remaining_first(const BestCases& cases, std::vector<double> worth) {
  const auto gpus = cases.gpus();
  const double all = std::inner_product(gpus.begin(), gpus.end(), worth.begin(), 0.0);
  for (double& one : worth) one /= all;
  MachineRun run;
  std::priority_queue<std::pair<double, std::size_t>, std::vector<std::pair<double, std::size_t>>,
                      std::greater<>>
      left;  // seconds left on the machine
  double now = 0;
  double sum = 0;
  double parts = 0;  // what is left of the jobs that are there
  std::size_t next = 0;
  const auto& jobs = cases.jobs();
  std::vector<double> size(jobs.size());
  while (next < jobs.size() || !left.empty()) {
    if (left.empty()) now = std::max(now, jobs[next].submit_s);
    while (next < jobs.size() && jobs[next].submit_s <= now) {
      size[next] = least_worth(jobs[next], cases.menus()[jobs[next].menu], worth);
      left.emplace(size[next], next);
      parts += 1;
      ++next;
    }
    run.left.emplace_back(now, parts);
    const auto [need, job] = left.top();
    const double until = next < jobs.size() ? jobs[next].submit_s : kInfinite;
    left.pop();
    if (now + need <= until) {
      now += need;
      sum += now - jobs[job].submit_s;
      parts -= size[job] > 0 ? need / size[job] : 1;
    } else {
      left.emplace(need - (until - now), job);
      parts -= (until - now) / size[job];
      now = until;
    }
    run.left.emplace_back(now, parts);
  }
  run.end_s = now;
  run.left.emplace_back(now, 0);
  run.mean_s = jobs.empty() ? 0 : sum / static_cast<double>(jobs.size());
  run.worth = std::move(worth);
  return run;
}

// On the machine whose worths give the largest bound, as far as a walk from equal ones finds them.
MachineRun one_machine(const BestCases& cases) {
  MachineRun best = shortest_remaining_first(cases, std::vector<double>(cases.gpus().size(), 1));
  if (best.worth.size() < 2) return best;
  const auto try_factor = [&](std::size_t type, double factor) {
    auto worth = best.worth;
    worth[type] *= factor;
    MachineRun run = shortest_remaining_first(cases, std::move(worth));
    if (!(run.mean_s > best.mean_s)) return false;
    best = std::move(run);
    return true;
  };
  for (const double factor : kWorthFactors) {
    for (bool better = true; better;) {
      better = false;
      for (std::size_t type = 0; type < best.worth.size(); ++type) {
        // Steps of a relative size: each is a gain, so the walk ends.
        if (try_factor(type, factor) || try_factor(type, 1 / factor)) better = true;
      }
    }
  }
  return best;
}

// ---- prices ----

// The best corner at price c and value m of work: the last whose step is worth its GPUs; nullptr if
// none is. Slopes fall along a hull, so it can be found by halving.
const Corner* best_corner(const Hull& hull, double c, double m) {
  std::size_t low = 0;
  std::size_t high = hull.size();  // steps [0, low) are worth it, [high, end) are not
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    const Corner last = middle == 0 ? Corner{} : hull[middle - 1];
    const Corner& corner = hull[middle];
    const bool worth = m * (corner.speed - last.speed) > c * (corner.gpus - last.gpus);
    worth ? low = middle + 1 : high = middle;
  }
  return low == 0 ? nullptr : &hull[low - 1];
}

// What the jobs of one hull do at each price, by period and value m of work.
class Table {
 public:
  struct Cell {
    double gain = 0;         // h(price, m)
    double gain_before = 0;  // its integral from 0 to the start of the period
    std::size_t type = 0;    // the type, the k, and the p(k), that give it
    double gpus = 0;
    double speed = 0;
    double work_before = 0;  // integral of speed
  };

  Table(const Menu& menu, const Prices& prices, std::size_t grid)
      : grid_(grid), cells_(prices.start_s.size() * grid) {
    // At a larger m a job gains more than a second a second at any price, so that the end of the
    // last period would be the best time; below 1 it would end at once. Neither makes a bound.
    double top = kInfinite;
    for (std::size_t t = 0; t < menu.hulls.size(); ++t) {
      if (menu.hulls[t].empty()) continue;
      const auto& of_type = prices.gpu_second[t];
      const double dearest = *std::max_element(of_type.begin(), of_type.end());
      const Corner& first = menu.hulls[t].front();
      top = std::min(top, (1 + dearest * first.gpus) / first.speed);
    }
    for (std::size_t m = 0; m < grid; ++m)
      value_.push_back(std::pow(top, static_cast<double>(m) / static_cast<double>(grid - 1)));
    for (std::size_t i = 0; i + 1 < prices.start_s.size(); ++i)
      for (std::size_t m = 0; m < grid; ++m) fill(menu, prices, i, m);
    for (std::size_t m = 0; m < grid; ++m) {  // after the last period GPUs cost nothing
      Cell& cell = cells_[(prices.start_s.size() - 1) * grid + m];
      cell.speed = 1;
      cell.gain = value_[m];
    }
  }

  [[nodiscard]] const Cell& cell(std::size_t period, std::size_t m) const {
    return cells_[period * grid_ + m];
  }
  [[nodiscard]] double value(std::size_t m) const { return value_[m]; }
  [[nodiscard]] std::size_t grid() const { return grid_; }

 private:
  void fill(const Menu& menu, const Prices& prices, std::size_t period, std::size_t m) {
    Cell& cell = cells_[period * grid_ + m];
    for (std::size_t t = 0; t < menu.hulls.size(); ++t) {
      const double price = prices.gpu_second[t][period];
      const Corner* corner = best_corner(menu.hulls[t], price, value_[m]);
      if (corner == nullptr) continue;
      const double gain = value_[m] * corner->speed - price * corner->gpus;
      if (!(gain > cell.gain)) continue;
      cell.type = t;
      cell.gpus = corner->gpus;
      cell.speed = corner->speed;
      cell.gain = gain;
    }
    const double length = prices.length_s(period);
    Cell& next = cells_[(period + 1) * grid_ + m];
    next.gain_before = cell.gain_before + length * cell.gain;
    next.work_before = cell.work_before + length * cell.speed;
  }

  std::size_t grid_;
  std::vector<double> value_;
  std::vector<Cell> cells_;
};

// The cheapest completion of one job: a lower bound of its cost, and how it is reached.
struct Cheapest {
  double cost = kInfinite;
  std::size_t first = 0;   // period of its earliest progress
  std::size_t period = 0;  // in which it ends
  std::size_t m = 0;
  double end_s = 0;
};

// The jobs of one hull at given prices.
class Market {
 public:
  Market(const Menu& menu, const Prices& prices, std::size_t grid)
      : prices_(prices), table_(menu, prices, grid), steps_((periods() + 1) * grid, 0) {}

  [[nodiscard]] Cheapest cheapest_end(const BestCase& job) const {
    Cheapest best;
    const double from = job.submit_s + job.restart_s;
    best.first = period_at(from);
    std::size_t m = table_.grid() - 1;
    for (std::size_t i = best.first; i <= periods(); ++i) {
      const double start = std::max(from, prices_.start_s[i]);
      if (start - job.submit_s >= best.cost) break;
      // The later the end, the less a second of work is worth: the best m falls from period to
      // period. The cost is concave in m, so the first that is worse ends the walk.
      if (i == periods()) m = 0;
      double here = cost(job, best.first, i, m);
      for (; m > 0; --m) {
        const double below = cost(job, best.first, i, m - 1);
        if (below < here) break;
        here = below;
      }
      if (here >= best.cost) continue;
      best.cost = here;
      best.period = i;
      best.m = m;
      const bool whole = i < periods() && table_.cell(i, m).gain > 1;
      best.end_s = whole ? prices_.start_s[i + 1] : start;
    }
    return best;
  }

  // Notes the GPU-seconds that the job wants in each period. Those of whole periods go into sums by
  // first and last period, so that a long job costs no more than a short one.
  void want(const BestCase& job, const Cheapest& end, Demand& demand) {
    const double from = job.submit_s + job.restart_s;
    const double done = work_done(from, end);
    if (!(done > 0)) return;
    const double share = std::min(1.0, job.work_s / done);  // a grid's m does not hit it exactly
    const auto add = [&](std::size_t period) {
      if (period == periods()) return;
      const Table::Cell& cell = table_.cell(period, end.m);
      demand[cell.type][period] += share * span(from, end, period) * cell.gpus;
    };
    add(end.first);
    if (end.period == end.first) return;
    add(end.period);
    steps_[(end.first + 1) * table_.grid() + end.m] += share;
    steps_[end.period * table_.grid() + end.m] -= share;
  }

  void add_whole_periods(Demand& demand) const {
    std::vector<double> running(table_.grid(), 0);
    for (std::size_t i = 0; i < periods(); ++i) {
      const double length = prices_.length_s(i);
      for (std::size_t m = 0; m < table_.grid(); ++m) {
        running[m] += steps_[i * table_.grid() + m];
        const Table::Cell& cell = table_.cell(i, m);
        demand[cell.type][i] += running[m] * length * cell.gpus;
      }
    }
  }

 private:
  [[nodiscard]] std::size_t periods() const { return prices_.periods(); }
  [[nodiscard]] std::size_t period_at(double t) const {
    const auto& starts = prices_.start_s;
    const auto after = std::upper_bound(starts.begin(), starts.end(), t);
    return static_cast<std::size_t>(after - starts.begin()) - 1;
  }

  // F + pay at least, if the job ends in this period, by the value m.
  [[nodiscard]] double cost(const BestCase& job, std::size_t first, std::size_t period,
                            std::size_t m) const {
    const double from = job.submit_s + job.restart_s;
    const double start = std::max(from, prices_.start_s[period]);
    const Table::Cell& head = table_.cell(first, m);
    const Table::Cell& here = table_.cell(period, m);
    const double gained = period == first ? 0
                                          : here.gain_before - head.gain_before -
                                                (from - prices_.start_s[first]) * head.gain;
    const double at_start = start - job.submit_s + table_.value(m) * job.work_s - gained;
    if (period == periods()) return m == 0 ? at_start : -kInfinite;  // the period has no end
    return at_start + std::min(0.0, (prices_.start_s[period + 1] - start) * (1 - here.gain));
  }

  [[nodiscard]] double span(double from, const Cheapest& end, std::size_t period) const {
    const double start = std::max(from, prices_.start_s[period]);
    const double until = period == end.period ? end.end_s : prices_.start_s[period + 1];
    return std::max(0.0, until - start);
  }

  [[nodiscard]] double work_done(double from, const Cheapest& end) const {
    const Table::Cell& head = table_.cell(end.first, end.m);
    if (end.period == end.first) return span(from, end, end.first) * head.speed;
    const Table::Cell& tail = table_.cell(end.period, end.m);
    return tail.work_before - head.work_before - (from - prices_.start_s[end.first]) * head.speed +
           span(from, end, end.period) * tail.speed;
  }

  const Prices& prices_;
  Table table_;
  std::vector<double> steps_;  // by period and m: how many more jobs are within whole periods
};

// The bound on the sum of all JCTs; `demand`, if given, is added to.
double priced_sum(const BestCases& cases, const Prices& prices, std::size_t grid, Demand* demand) {
  std::vector<std::vector<const BestCase*>> jobs_of(cases.menus().size());
  for (const BestCase& job : cases.jobs()) jobs_of[job.menu].push_back(&job);
  double sum = 0;
  for (std::size_t menu = 0; menu < jobs_of.size(); ++menu) {
    if (jobs_of[menu].empty()) continue;
    Market market(cases.menus()[menu], prices, grid);
    for (const BestCase* job : jobs_of[menu]) {
      const Cheapest cheapest = market.cheapest_end(*job);
      sum += cheapest.cost;
      if (demand != nullptr) market.want(*job, cheapest, *demand);
    }
    if (demand != nullptr) market.add_whole_periods(*demand);
  }
  return sum - prices.earnings(cases.gpus());
}

// Half of the boundaries at equal distances, half at equal numbers of submissions.
std::vector<double> period_starts(const BestCases& cases, double horizon, std::size_t periods) {
  std::vector<double> starts;
  const std::size_t half = periods / 2;
  for (std::size_t i = 0; i <= half; ++i)
    starts.push_back(horizon * static_cast<double>(i) / static_cast<double>(half));
  for (std::size_t i = 1; i < half; ++i)
    starts.push_back(cases.jobs()[i * cases.jobs().size() / half].submit_s);
  std::sort(starts.begin(), starts.end());
  // None shorter than a tenth of the average: it would say little and cost as much.
  const double least = horizon / static_cast<double>(periods) / 10;
  std::vector<double> apart{0};
  for (const double start : starts) {
    if (start - apart.back() >= least) apart.push_back(start);
  }
  for (double end = horizon; end < kBeyond * horizon;) {
    end *= kBeyondRatio;
    apart.push_back(end);
  }
  return apart;
}

// To start with: a second of the one machine costs what is left of the jobs that are there.
Prices first_prices(std::vector<double> starts, const MachineRun& run) {
  std::vector<double> mean(starts.size() - 1, 0);  // by period
  std::size_t i = 0;
  for (std::size_t line = 0; line + 1 < run.left.size(); ++line) {
    const auto [from, at_start] = run.left[line];
    const auto [until, at_end] = run.left[line + 1];
    if (!(until > from)) continue;
    const double slope = (at_end - at_start) / (until - from);
    while (starts[i + 1] <= from) ++i;
    for (std::size_t k = i; k < mean.size() && starts[k] < until; ++k) {
      const double a = std::max(from, starts[k]);
      const double b = std::min(until, starts[k + 1]);
      const double middle = at_start + slope * ((a + b) / 2 - from);
      mean[k] += middle * (b - a) / (starts[k + 1] - starts[k]);
    }
  }
  Prices prices{std::move(starts), {}};
  for (const double worth : run.worth) {
    prices.gpu_second.push_back(mean);
    for (double& price : prices.gpu_second.back()) price *= worth;
  }
  return prices;
}

double tuned_sum(const BestCases& cases, const MachineRun& machine, const BoundOptions& options) {
  double horizon = machine.end_s;
  for (const BestCase& job : cases.jobs())
    horizon = std::max(horizon, job.submit_s + job.restart_s + job.work_s);
  if (!(horizon > 0)) return 0;
  const auto gpus = cases.gpus();
  const auto periods =
      std::clamp<std::size_t>(static_cast<std::size_t>(options.periods), 2,
                              kMostHullPeriods / (cases.menus().size() * gpus.size()) + 10);
  PriceSearch search;
  search.gpus = gpus;
  for (const double of_type : gpus) search.least.push_back(kLeastJobs / of_type);
  search.steps = options.steps;
  search.judge = [&](const Prices& prices, Demand& demand) {
    return priced_sum(cases, prices, kGrid, &demand);
  };
  const Prices best =
      search.best_from(first_prices(period_starts(cases, 1.1 * horizon, periods), machine));
  return priced_sum(cases, best, kFineGrid, nullptr);
}

Bound bound_of(const BestCases& cases, const BoundOptions& options) {
  Bound bound;
  bound.jobs = cases.jobs().size();
  if (bound.jobs == 0) return bound;
  const auto count = static_cast<double>(bound.jobs);
  for (const BestCase& job : cases.jobs()) {
    bound.alone_s += (job.restart_s + job.alone_s) / count;
    bound.rounding_s += job.hair_s / count;
  }
  const MachineRun machine = one_machine(cases);
  bound.srpt_s = machine.mean_s;
  bound.priced_s = tuned_sum(cases, machine, options) / count;
  return bound;
}

}  // namespace

double Bound::avg_jct_s() const {
  const double best = std::max({alone_s, srpt_s, priced_s});
  return std::max(0.0, best * (1 - 1e-9) - rounding_s);
}

Bound lower_bound(const Workload& workload, const Cluster& cluster, const BoundOptions& options) {
  Bound bound;
  for (const double gpu_price : gpu_prices_for(workload)) {
    const BestCases cases = BestCases::of(workload, cluster, {options.sharing, gpu_price});
    const Bound here = bound_of(cases, options);
    bound.jobs = here.jobs;
    bound.rounding_s = here.rounding_s;
    bound.alone_s = here.alone_s;
    bound.srpt_s = std::max(bound.srpt_s, here.srpt_s);
    bound.priced_s = std::max(bound.priced_s, here.priced_s);
  }
  return bound;
}

double priced_bound(const Workload& workload, const Cluster& cluster, const Prices& prices,
                    const BestCaseOptions& best_case) {
  const BestCases cases = BestCases::of(workload, cluster, best_case);
  CHECK(prices.gpu_second.size() == cases.gpus().size() && prices.start_s.front() == 0);
  for (const auto& of_type : prices.gpu_second) CHECK(of_type.size() + 1 == prices.start_s.size());
  if (cases.jobs().empty()) return 0;
  return priced_sum(cases, prices, kFineGrid, nullptr) / static_cast<double>(cases.jobs().size());
}

}  // namespace rubato::sim
