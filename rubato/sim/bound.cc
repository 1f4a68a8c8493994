#include "rubato/sim/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "rubato/base/check.h"

namespace rubato::sim {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Values of m tried for each job: while the prices are being found, and for the final word.
constexpr std::size_t kGrid = 40;
constexpr std::size_t kFineGrid = 200;

// A step costs as many cells as hulls x periods x values: where every job has a curve of its own,
// periods are fewer.
constexpr std::size_t kMostHullPeriods = 40'000;

// Relative change of a price at the first and at the last step.
constexpr double kFirstStep = 1.0;
constexpr double kLastStep = 0.02;
// A price that delays this many jobs by the time it takes all GPUs to earn it: lower ones are 0,
// and 0 rises to this, as a multiplied 0 would stay.
constexpr double kLeastJobs = 0.01;

// Prices go on, in ever longer periods, until so many times the shortest possible end.
constexpr double kBeyond = 4;
constexpr double kBeyondRatio = 1.15;

// A corner of the concave hull of speed over GPUs; speed relative to the job's best.
struct Corner {
  double gpus = 0;
  double speed = 0;
  friend auto operator<=>(const Corner&, const Corner&) = default;
};
using Hull = std::vector<Corner>;  // ascending, without the origin; the last has speed 1

struct BoundJob {
  double submit_s = 0;
  double restart_s = 0;
  double work_s = 0;  // on its best count
  double gpu_s = 0;   // the least it can be done with
};

struct Instance {
  double gpus = 0;
  std::vector<BoundJob> jobs;  // in order of submission
  std::vector<Hull> hulls;
  std::vector<std::vector<std::size_t>> jobs_of;  // by hull
};

// Which way the path o, a, b turns: positive if a lies below the line from o to b.
double turn(const Corner& o, const Corner& a, const Corner& b) {
  return (a.gpus - o.gpus) * (b.speed - o.speed) - (a.speed - o.speed) * (b.gpus - o.gpus);
}

// Jobs mostly share their curves, so hulls are made once for each speed model and limits.
class InstanceMaker {
 public:
  explicit InstanceMaker(const Cluster& cluster) : cluster_(cluster) {
    instance_.gpus = cluster.installed();
  }

  void add(const SimJob& job) {
    const Shaped& shaped = shape(job);
    if (!(shaped.best > 0)) return;  // it can never run here
    const double work_s = job.work / shaped.best;
    const double restart_s = seconds(job.spec->restart_cost);
    const Corner& thriftiest = instance_.hulls[shaped.hull].front();
    instance_.jobs_of[shaped.hull].push_back(instance_.jobs.size());
    instance_.jobs.push_back(
        {seconds(job.submit), restart_s, work_s,
         work_s * thriftiest.gpus / thriftiest.speed + restart_s * shaped.fewest});
  }

  Instance take() { return std::move(instance_); }

 private:
  struct Shaped {
    WorkRate best = 0;
    int fewest = 0;
    std::size_t hull = 0;
  };
  using Key = std::tuple<const SpeedModel*, int, int, std::vector<int>, int>;

  const Shaped& shape(const SimJob& job) {
    const JobSpec& spec = *job.spec;
    const int beside = spec.limits.legal(spec.requested) ? 0 : spec.requested;
    const auto [at, fresh] = shaped_.try_emplace(
        Key(job.speed.get(), spec.limits.min, spec.limits.max, spec.limits.allowed, beside));
    if (fresh) at->second = make_shape(job);
    return at->second;
  }

  Shaped make_shape(const SimJob& job) {
    const JobSpec& spec = *job.spec;
    const int most = cluster_.largest_type();
    std::vector<int> counts;
    for (int gpus = spec.limits.smallest(); gpus <= std::min(most, spec.limits.max);) {
      counts.push_back(gpus);
      const auto next = spec.limits.above(gpus);
      if (!next) break;
      gpus = *next;
    }
    if (spec.requested <= most) counts.push_back(spec.requested);
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());

    Shaped shaped;
    Hull upper{{0, 0}};
    for (const int gpus : counts) {
      const WorkRate rate = fastest(*job.speed, gpus);
      if (rate > 0 && shaped.fewest == 0) shaped.fewest = gpus;
      if (!(rate > shaped.best)) continue;
      shaped.best = rate;
      const Corner corner{static_cast<double>(gpus), rate};
      while (upper.size() > 1 && turn(upper[upper.size() - 2], upper.back(), corner) >= 0)
        upper.pop_back();
      upper.push_back(corner);
    }
    upper.erase(upper.begin());
    if (upper.empty()) return shaped;
    for (Corner& corner : upper) corner.speed /= shaped.best;
    const auto [at, fresh] = hull_of_.try_emplace(upper, instance_.hulls.size());
    if (fresh) {
      instance_.hulls.push_back(std::move(upper));
      instance_.jobs_of.emplace_back();
    }
    shaped.hull = at->second;
    return shaped;
  }

  [[nodiscard]] WorkRate fastest(const SpeedModel& speed, int gpus) const {
    WorkRate best = 0;
    for (int type = 0; type < cluster_.types(); ++type)
      best = std::max(best, speed.on(GpuType(static_cast<std::uint8_t>(type)), gpus));
    return best;
  }

  const Cluster& cluster_;
  Instance instance_;
  std::map<Key, Shaped> shaped_;
  std::map<Hull, std::size_t> hull_of_;
};

Instance instance_of(const Workload& workload, const Cluster& cluster) {
  InstanceMaker maker(cluster);
  for (const SimJob& job : workload.jobs) maker.add(job);
  return maker.take();
}

// ---- shortest remaining processing time on one machine ----

struct MachineRun {
  double mean_s = 0;
  double end_s = 0;
  std::vector<std::pair<double, double>> active;  // from when, how many jobs are there
};

MachineRun shortest_remaining_first(const Instance& instance) {
  MachineRun run;
  std::priority_queue<std::pair<double, std::size_t>, std::vector<std::pair<double, std::size_t>>,
                      std::greater<>>
      left;  // seconds left on the machine
  double now = 0;
  double sum = 0;
  std::size_t next = 0;
  const auto& jobs = instance.jobs;
  while (next < jobs.size() || !left.empty()) {
    if (left.empty()) now = std::max(now, jobs[next].submit_s);
    while (next < jobs.size() && jobs[next].submit_s <= now) {
      left.emplace(jobs[next].gpu_s / instance.gpus, next);
      ++next;
    }
    run.active.emplace_back(now, static_cast<double>(left.size()));
    const auto [need, job] = left.top();
    const double until = next < jobs.size() ? jobs[next].submit_s : kInfinite;
    left.pop();
    if (now + need <= until) {
      now += need;
      sum += now - jobs[job].submit_s;
    } else {
      left.emplace(need - (until - now), job);
      now = until;
    }
  }
  run.end_s = now;
  run.active.emplace_back(now, 0);
  run.mean_s = jobs.empty() ? 0 : sum / static_cast<double>(jobs.size());
  return run;
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
    double gpus = 0;         // the k, and the p(k), that give it
    double speed = 0;
    double work_before = 0;  // integral of speed
  };

  Table(const Hull& hull, const Prices& prices, std::size_t grid)
      : grid_(grid), cells_((prices.gpu_second.size() + 1) * grid) {
    double dearest = 0;
    for (const double price : prices.gpu_second) dearest = std::max(dearest, price);
    // At a larger m a job gains more than a second a second at any price, so that the end of the
    // last period would be the best time; below 1 it would end at once. Neither makes a bound.
    const double top = (1 + dearest * hull.front().gpus) / hull.front().speed;
    for (std::size_t m = 0; m < grid; ++m)
      value_.push_back(std::pow(top, static_cast<double>(m) / static_cast<double>(grid - 1)));
    for (std::size_t i = 0; i < prices.gpu_second.size(); ++i) {
      const double length = prices.start_s[i + 1] - prices.start_s[i];
      for (std::size_t m = 0; m < grid; ++m) fill(hull, prices.gpu_second[i], i, m, length);
    }
    for (std::size_t m = 0; m < grid; ++m) {  // after the last period GPUs cost nothing
      Cell& cell = cells_[prices.gpu_second.size() * grid + m];
      cell.gpus = hull.back().gpus;
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
  void fill(const Hull& hull, double price, std::size_t period, std::size_t m, double length) {
    Cell& cell = cells_[period * grid_ + m];
    if (const Corner* corner = best_corner(hull, price, value_[m])) {
      cell.gpus = corner->gpus;
      cell.speed = corner->speed;
      cell.gain = value_[m] * corner->speed - price * corner->gpus;
    }
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
  Market(const Hull& hull, const Prices& prices, std::size_t grid)
      : prices_(prices), table_(hull, prices, grid), steps_((periods() + 1) * grid, 0) {}

  [[nodiscard]] Cheapest cheapest_end(const BoundJob& job) const {
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
  void want(const BoundJob& job, const Cheapest& end, std::vector<double>& demand) {
    const double from = job.submit_s + job.restart_s;
    const double done = work_done(from, end);
    if (!(done > 0)) return;
    const double share = std::min(1.0, job.work_s / done);  // a grid's m does not hit it exactly
    if (end.first < periods())
      demand[end.first] += share * span(from, end, end.first) * table_.cell(end.first, end.m).gpus;
    if (end.period == end.first) return;
    if (end.period < periods()) {
      demand[end.period] +=
          share * span(from, end, end.period) * table_.cell(end.period, end.m).gpus;
    }
    steps_[(end.first + 1) * table_.grid() + end.m] += share;
    steps_[end.period * table_.grid() + end.m] -= share;
  }

  void add_whole_periods(std::vector<double>& demand) const {
    std::vector<double> running(table_.grid(), 0);
    for (std::size_t i = 0; i < periods(); ++i) {
      const double length = prices_.start_s[i + 1] - prices_.start_s[i];
      for (std::size_t m = 0; m < table_.grid(); ++m) {
        running[m] += steps_[i * table_.grid() + m];
        demand[i] += running[m] * length * table_.cell(i, m).gpus;
      }
    }
  }

 private:
  [[nodiscard]] std::size_t periods() const { return prices_.gpu_second.size(); }
  [[nodiscard]] std::size_t period_at(double t) const {
    const auto& starts = prices_.start_s;
    const auto after = std::upper_bound(starts.begin(), starts.end(), t);
    return static_cast<std::size_t>(after - starts.begin()) - 1;
  }

  // F + pay at least, if the job ends in this period, by the value m.
  [[nodiscard]] double cost(const BoundJob& job, std::size_t first, std::size_t period,
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

// The bound on the sum of all JCTs; `demand`, if given, gets the GPU-seconds wanted in each period.
double priced_sum(const Instance& instance, const Prices& prices, std::size_t grid,
                  std::vector<double>* demand) {
  if (demand != nullptr) demand->assign(prices.gpu_second.size(), 0);
  double sum = 0;
  for (std::size_t h = 0; h < instance.hulls.size(); ++h) {
    Market market(instance.hulls[h], prices, grid);
    for (const std::size_t j : instance.jobs_of[h]) {
      const Cheapest cheapest = market.cheapest_end(instance.jobs[j]);
      sum += cheapest.cost;
      if (demand != nullptr) market.want(instance.jobs[j], cheapest, *demand);
    }
    if (demand != nullptr) market.add_whole_periods(*demand);
  }
  for (std::size_t i = 0; i < prices.gpu_second.size(); ++i)
    sum -= instance.gpus * prices.gpu_second[i] * (prices.start_s[i + 1] - prices.start_s[i]);
  return sum;
}

// Half of the boundaries at equal distances, half at equal numbers of submissions.
std::vector<double> period_starts(const Instance& instance, double horizon, std::size_t periods) {
  std::vector<double> starts;
  const std::size_t half = periods / 2;
  for (std::size_t i = 0; i <= half; ++i)
    starts.push_back(horizon * static_cast<double>(i) / static_cast<double>(half));
  for (std::size_t i = 1; i < half; ++i)
    starts.push_back(instance.jobs[i * instance.jobs.size() / half].submit_s);
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

// To start with: a GPU-second more helps all the jobs that are there, on the one machine.
std::vector<double> first_prices(const std::vector<double>& starts, const MachineRun& run,
                                 double gpus) {
  std::vector<double> prices(starts.size() - 1, 0);
  std::size_t step = 0;
  for (std::size_t i = 0; i < prices.size(); ++i) {
    const double end = starts[i + 1];
    for (; step + 1 < run.active.size() && run.active[step].first < end; ++step) {
      const double from = std::max(starts[i], run.active[step].first);
      const double until = std::min(end, run.active[step + 1].first);
      prices[i] += std::max(0.0, until - from) * run.active[step].second / gpus / (end - starts[i]);
      if (run.active[step + 1].first > end) break;  // goes on in the next period
    }
  }
  return prices;
}

// Dearer where more is wanted than there is, cheaper where less.
void adjust(Prices& prices, const std::vector<double>& demand, double gpus, double step) {
  const double least = kLeastJobs / gpus;
  for (std::size_t i = 0; i < demand.size(); ++i) {
    const double supply = gpus * (prices.start_s[i + 1] - prices.start_s[i]);
    const double excess = std::clamp(demand[i] / supply - 1, -1.0, 1.0);
    double& price = prices.gpu_second[i];
    price = std::max(price, least) * std::exp(step * excess);
    if (price < least) price = 0;
  }
}

double tuned_sum(const Instance& instance, const MachineRun& machine, const BoundOptions& options) {
  double horizon = machine.end_s;
  for (const BoundJob& job : instance.jobs)
    horizon = std::max(horizon, job.submit_s + job.restart_s + job.work_s);
  if (!(horizon > 0)) return 0;
  const auto periods = std::clamp<std::size_t>(static_cast<std::size_t>(options.periods), 2,
                                               kMostHullPeriods / instance.hulls.size() + 10);
  Prices prices;
  prices.start_s = period_starts(instance, 1.1 * horizon, periods);
  prices.gpu_second = first_prices(prices.start_s, machine, instance.gpus);

  Prices best = prices;
  Prices mean = prices;  // of the second half: single prices swing around the best ones
  std::fill(mean.gpu_second.begin(), mean.gpu_second.end(), 0.0);
  double best_sum = -kInfinite;
  double weight = 0;
  std::vector<double> demand;
  for (int i = 0; i < options.steps; ++i) {
    const double sum = priced_sum(instance, prices, kGrid, &demand);
    if (sum > best_sum) {
      best_sum = sum;
      best = prices;
    }
    const double step =
        kFirstStep * std::pow(kLastStep / kFirstStep, static_cast<double>(i) / options.steps);
    if (2 * i >= options.steps) {
      weight += step;
      for (std::size_t k = 0; k < mean.gpu_second.size(); ++k)
        mean.gpu_second[k] += (prices.gpu_second[k] - mean.gpu_second[k]) * step / weight;
    }
    adjust(prices, demand, instance.gpus, step);
  }
  return std::max(priced_sum(instance, best, kFineGrid, nullptr),
                  priced_sum(instance, mean, kFineGrid, nullptr));
}

}  // namespace

double Bound::avg_jct_s() const {
  const double best = std::max({alone_s, srpt_s, priced_s});
  return std::max(0.0, best * (1 - 1e-9) - 1e-6);  // times are whole microseconds
}

Bound lower_bound(const Workload& workload, const Cluster& cluster, const BoundOptions& options) {
  const Instance instance = instance_of(workload, cluster);
  Bound bound;
  bound.jobs = instance.jobs.size();
  if (bound.jobs == 0) return bound;
  const auto count = static_cast<double>(bound.jobs);
  for (const BoundJob& job : instance.jobs) bound.alone_s += (job.restart_s + job.work_s) / count;
  const MachineRun machine = shortest_remaining_first(instance);
  bound.srpt_s = machine.mean_s;
  bound.priced_s = tuned_sum(instance, machine, options) / count;
  return bound;
}

double priced_bound(const Workload& workload, const Cluster& cluster, const Prices& prices) {
  CHECK(prices.start_s.size() == prices.gpu_second.size() + 1 && prices.start_s.front() == 0);
  const Instance instance = instance_of(workload, cluster);
  if (instance.jobs.empty()) return 0;
  return priced_sum(instance, prices, kFineGrid, nullptr) /
         static_cast<double>(instance.jobs.size());
}

}  // namespace rubato::sim
