#include "rubato/sim/recorder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "rubato/sim/best_case.h"

namespace rubato::sim {
namespace {

// Above this a job has reason to complain (Gavel counts the same).
constexpr double kUnfair = 1.05;

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

std::optional<double> percentile(std::vector<double>& values, double share) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  if (below + 1 >= values.size()) return values.back();
  return values[below] + (at - static_cast<double>(below)) * (values[below + 1] - values[below]);
}

Recorder::Recorder(const Workload& workload, const Cluster& cluster, RecordingOptions options)
    : workload_(workload),
      cluster_(cluster),
      options_(options),
      jobs_(workload.jobs.size()),
      open_(workload.jobs.size()),
      active_integral_(workload.jobs.size()),
      use_(static_cast<std::size_t>(cluster.types()), GpuUse(cluster.nodes().size())),
      series_(kSeriesBuckets) {
  sums_.busy.resize(use_.size());
  sums_.price.resize(use_.size());
  until_last_end_ = sums_;
  int lane = 0;
  for (const auto& node : cluster.nodes()) {
    first_lane_.push_back(lane);
    lane += node.gpus;
  }
  count_users();
}

void Recorder::count_users() {
  std::map<std::string, std::size_t> place;
  for (const auto& job : workload_.jobs) place.emplace(job.spec->user, 0);
  for (auto& [name, at] : place) {
    at = users_.size();
    users_.push_back({name, 0, 0, 0, 0});
  }
  waiting_of_.assign(users_.size(), 0);
  for (const auto& job : workload_.jobs) {
    user_of_.push_back(place.at(job.spec->user));
    UserUse& user = users_[user_of_.back()];
    ++user.jobs;
    user.weight = std::max(user.weight, job.spec->weight);
  }
}

void Recorder::count_waiting(JobId job, int change) {
  int& waiting = waiting_of_[user_of_[job.index()]];
  users_waiting_ -= waiting > 0 ? 1 : 0;
  waiting += change;
  users_waiting_ += waiting > 0 ? 1 : 0;
}

void Recorder::advance(Time now) {
  if (now == now_) return;
  const double passed = seconds(now - now_);
  const int waiting = active_ - running_;
  active_seconds_ += passed * active_;
  sums_.queue += passed * waiting;
  if (users_waiting_ == users_.size()) contended_seconds_ += passed;
  int busy = 0;
  for (std::size_t type = 0; type < use_.size(); ++type) {
    sums_.busy[type] += passed * use_[type].gpus();
    busy += use_[type].gpus();
  }
  sums_.efficiency += passed * speedups_;
  double price = 0;
  for (std::size_t type = 0; type < prices_.size(); ++type) {
    const double now_costs = active_ > 0 ? prices_[type] : 0;
    sums_.price[type] += passed * now_costs;
    price = std::max(price, now_costs);
  }
  if (advice_ && active_ > 0) {
    sums_.utility += passed * advice_->utility;
    sums_.advised_nodes += passed * advice_->nodes;
    sums_.advised += passed;
  }
  if (options_.timeline) {
    const double gpus = cluster_.installed();
    series_.add(now_, now,
                {static_cast<double>(waiting), static_cast<double>(running_),
                 static_cast<double>(busy), speedups_ / gpus, price});
  }
  now_ = now;
}

void Recorder::submitted(Time now, JobId job) {
  advance(now);
  ++active_;
  count_waiting(job, 1);
  active_integral_[job.index()].first = active_seconds_;
}

void Recorder::rejected(Time now, const Reject& reject, bool was_active) {
  advance(now);
  if (was_active) {
    --active_;
    count_waiting(reject.job, -1);
  }
  jobs_[reject.job.index()].rejected = reject.reason.empty() ? "no reason given" : reject.reason;
  jobs_[reject.job.index()].earliest = reject.earliest;
}

void Recorder::allocation(Time now, JobId job, const Allocation& gpus, WorkRate rate) {
  JobRecord& record = jobs_[job.index()];
  if (!gpus.empty() && !record.start) record.start = now;
  change_gpus(now, job, gpus, rate);
}

void Recorder::speed(Time now, JobId job, WorkRate rate) {
  const OpenStretch& open = open_[job.index()];
  if (!open.gpus.empty() && open.rate != rate) change_gpus(now, job, Allocation(open.gpus), rate);
}

double Recorder::speedup(JobId job, const Allocation& gpus, WorkRate rate) const {
  if (gpus.empty()) return 0;
  const SpeedModel& speed = *workload_.jobs[job.index()].speed;
  const WorkRate on_one = speed.on(gpus.type(), 1);
  // A rigid job is known at one count only: it counts as using its GPUs fully.
  return speed.measured().empty() || on_one <= 0 ? gpus.gpus() : rate / on_one;
}

void Recorder::advised(Time now, const Advice& advice) {
  advance(now);
  advice_ = advice;
}

void Recorder::priced(Time now, std::vector<double> prices) {
  advance(now);
  if (prices.size() == use_.size()) prices_ = std::move(prices);
}

void Recorder::changed(const Change& change) {
  switch (change.kind) {
    case Change::Kind::start:
      break;
    case Change::Kind::stop:
      ++preemptions_;
      ++jobs_[change.job.index()].preemptions;
      break;
    case Change::Kind::resize:
      ++resizes_;
      break;
    case Change::Kind::move:
      ++migrations_;
      break;
  }
}

void Recorder::finished(Time now, JobId job) {
  change_gpus(now, job, Allocation(), 0);
  --active_;
  count_waiting(job, -1);
  active_integral_[job.index()].second = active_seconds_;
  jobs_[job.index()].end = now;
  last_end_ = now;
  until_last_end_ = sums_;
}

void Recorder::stopped(Time now, JobId job) {
  change_gpus(now, job, Allocation(), 0);
  --active_;
  count_waiting(job, -1);
  jobs_[job.index()].stopped = now;
  last_end_ = now;
  until_last_end_ = sums_;
}

void Recorder::failed(Time now, JobId job) {
  change_gpus(now, job, Allocation(), 0);
  ++failures_;
}

void Recorder::change_gpus(Time now, JobId job, Allocation gpus, WorkRate rate) {
  advance(now);
  const double speedup = this->speedup(job, gpus, rate);
  OpenStretch& open = open_[job.index()];
  if (!open.gpus.empty()) {
    const GpuTime used = GpuTime::of(open.gpus.gpus(), now - open.since);
    jobs_[job.index()].attained += used;
    UserUse& user = users_[user_of_[job.index()]];
    user.gpu_s += used.gpu_seconds();
    user.contended_gpu_s += open.gpus.gpus() * (contended_seconds_ - open.contended);
    if (options_.timeline) draw(job, open, now);
  }
  const int more = (gpus.empty() ? 0 : 1) - (open.gpus.empty() ? 0 : 1);
  running_ += more;
  if (more != 0) count_waiting(job, -more);
  if (!open.gpus.empty()) use_[open.gpus.type().index()].give(open.gpus);
  if (!gpus.empty()) {
    GpuUse& use = use_[gpus.type().index()];
    use.take(gpus);
    shared_ = shared_ || use.any_shared(gpus);
  }
  // Sums of doubles drift: an idle cluster is exactly idle.
  speedups_ = running_ == 0 ? 0 : speedups_ + speedup - open.speedup;
  if (options_.history) {
    auto& history = jobs_[job.index()].gpus;
    if (!history.empty() && history.back().first == now) history.pop_back();
    if (history.empty() || history.back().second != gpus.gpus())
      history.emplace_back(now, gpus.gpus());
  }
  open = {std::move(gpus), now, rate, speedup, contended_seconds_};
}

void Recorder::draw(JobId job, const OpenStretch& open, Time until) {
  if (until == open.since) return;
  for (const auto& slice : open.gpus.slices()) {
    std::uint64_t rest = slice.mask;
    while (rest != 0) {
      const int first = std::countr_zero(rest);
      const int width = std::countr_one(rest >> static_cast<unsigned>(first));
      const int lane = first_lane_[slice.node.index()] + first;
      rest = first + width == 64 ? 0
                                 : rest >> static_cast<unsigned>(first + width)
                                               << static_cast<unsigned>(first + width);
      const bool continues = !stretches_.empty() && stretches_.back().job == job &&
                             stretches_.back().end == until &&
                             stretches_.back().start == open.since &&
                             stretches_.back().lane + stretches_.back().width == lane;
      if (continues) {
        stretches_.back().width += width;
      } else {
        stretches_.push_back({job, lane, width, open.since, until});
      }
    }
  }
}

// On a slice that has its share of every GPU type.
WorkRate Recorder::mean_rate(const SimJob& job, int gpus) const {
  double sum = 0;
  for (int t = 0; t < cluster_.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    sum += cluster_.installed(type) * job.speed->on(type, gpus);
  }
  return sum / cluster_.installed();
}

// Completion time over the time alone on a 1/N slice of the cluster, N being the mean number of
// active jobs over its life: there it has the best count that this policy could choose. On a slice
// smaller than its smallest count a job shares time.
double Recorder::fairness(JobId id) const {
  const SimJob& job = workload_.jobs[id.index()];
  const JobRecord& record = jobs_[id.index()];
  const double shared = seconds(*record.end - job.submit);
  if (shared <= 0) return 1;
  const auto& [at_start, at_end] = active_integral_[id.index()];
  const double others = std::max(1.0, (at_end - at_start) / shared);
  const double slice = cluster_.installed() / others;
  const bool elastic = !options_.rigid && !job.speed->measured().empty();
  const int smallest = elastic ? job.spec->limits.smallest() : job.spec->requested;
  int gpus = smallest;
  WorkRate rate = mean_rate(job, smallest);
  while (elastic) {
    const auto next = job.spec->limits.above(gpus);
    if (!next || *next > slice) break;
    gpus = *next;
    rate = std::max(rate, mean_rate(job, gpus));
  }
  const double share = std::min(1.0, slice / smallest);
  const double alone = seconds(job.spec->restart_cost) + job.work / (rate * share);
  return alone > 0 ? shared / alone : 1;
}

namespace {

// Whether the deadline could be kept at all: started at once, at its fastest, never disturbed.
bool feasible_alone(const SimJob& job, BestCases& cases) {
  const auto best = cases.best_case(job);
  return best &&
         job.submit + job.spec->restart_cost + from_seconds(best->alone_s) <= *job.spec->deadline;
}

}  // namespace

Metrics Recorder::metrics() const {
  Metrics m;
  BestCases cases(cluster_);
  std::vector<double> jct, queued, fairness_of;
  double worth = 0;
  m.jobs = jobs_.size();
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const JobRecord& record = jobs_[i];
    const SimJob& job = workload_.jobs[i];
    m.rejected += record.rejected.empty() ? 0 : 1;
    if (record.start) queued.push_back(seconds(*record.start - job.submit));
    if (job.spec->deadline) {
      ++m.deadlines_total;
      m.deadlines_feasible += feasible_alone(job, cases) ? 1 : 0;
      m.deadlines_met += record.end && *record.end <= *job.spec->deadline ? 1 : 0;
    }
    if (job.spec->utility && !m.worth) m.worth = 0;
    if (!record.end) continue;
    ++m.completed;
    worth += job.spec->worth(job.submit, *record.end);
    jct.push_back(seconds(*record.end - job.submit));
    fairness_of.push_back(fairness(JobId(static_cast<JobId::rep>(i))));
  }
  if (m.worth) m.worth = worth;
  if (!jct.empty()) {
    m.avg_jct_s = mean(jct);
    m.p50_jct_s = percentile(jct, 0.5);
    m.p90_jct_s = percentile(jct, 0.9);
    m.p99_jct_s = percentile(jct, 0.99);
    m.makespan_s = seconds(last_end_);
    m.ftf_mean = mean(fairness_of);
    m.ftf_p99 = percentile(fairness_of, 0.99);
    m.ftf_max = *std::max_element(fairness_of.begin(), fairness_of.end());
    const auto unfair = std::count_if(fairness_of.begin(), fairness_of.end(),
                                      [](double rho) { return rho > kUnfair; });
    m.ftf_unfair = static_cast<double>(unfair) / static_cast<double>(fairness_of.size());
  }
  if (!queued.empty()) {
    m.avg_queue_s = mean(queued);
    m.p99_queue_s = percentile(queued, 0.99);
  }
  if (last_end_ > kStart) {
    const double span = seconds(last_end_);
    m.avg_queue_length = until_last_end_.queue / span;
    const auto& busy = until_last_end_.busy;
    m.gpu_busy = std::accumulate(busy.begin(), busy.end(), 0.0) / (span * cluster_.installed());
    for (int t = 0; t < cluster_.types(); ++t) {
      const GpuType type(static_cast<GpuType::rep>(t));
      m.types.push_back({cluster_.type_name(type), cluster_.installed(type),
                         busy[type.index()] / (span * cluster_.installed(type)), std::nullopt});
      if (has_prices()) m.types.back().price = until_last_end_.price[type.index()] / span;
    }
    m.cluster_efficiency = until_last_end_.efficiency / (span * cluster_.installed());
  }
  if (until_last_end_.advised > 0) {
    m.utility = until_last_end_.utility / until_last_end_.advised;
    m.advised_nodes = until_last_end_.advised_nodes / until_last_end_.advised;
  }
  const auto named = std::count_if(users_.begin(), users_.end(),
                                   [](const UserUse& user) { return !user.name.empty(); });
  if (named > 1) m.users = users_;
  m.preemptions = preemptions_;
  m.resizes = resizes_;
  m.migrations = migrations_;
  m.failures = failures_;
  m.shared = shared_;
  return m;
}

}  // namespace rubato::sim
