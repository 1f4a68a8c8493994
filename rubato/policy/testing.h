// Helpers for the tests of the policies, independent of the loop, the simulator and the policies: a
// World that advances time by hand or to the end, and the simplest possible policies ("keep the
// whole list, sort it, scan it") to compare the optimised ones with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rubato/core/cluster.h"
#include "rubato/core/decision.h"
#include "rubato/model/curve.h"
#include "rubato/policy/all.h"
#include "rubato/policy/policy.h"

namespace rubato::policy::testing {

inline Cluster cluster_of(std::string_view text) { return parse_cluster(text).value(); }

// A policy by its name, as a user would write it, with its samples, if it has any.
inline std::unique_ptr<Policy> make_policy(std::string_view text,
                                           std::vector<double> samples = {}) {
  const auto chosen = parse_policies(text);
  EXPECT_TRUE(chosen.ok()) << chosen.error().message;
  EXPECT_EQ(chosen->size(), 1U);
  auto made = chosen->front().make(
      {[&](const std::string&) -> Result<std::vector<double>> { return samples; }});
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(*made);
}

struct Job {
  Time submit = kStart;
  std::shared_ptr<const JobSpec> spec;
  std::shared_ptr<const SpeedModel> speed;
  Work work = 0;
};

// A short description of a job. Without a curve it is rigid, and its work is in seconds.
struct Draft {
  int gpus = 1;
  Work work = 1;
  double submit_s = 0;
  std::optional<double> deadline_s = std::nullopt;
  double restart_s = 0;
  int batch = 0;
  std::vector<CurvePoint> curve = {};
  std::vector<int> allowed = {};  // empty = all counts of the curve
  double network = 0;
  bool goes_first = false;
  double weight = 1;
  std::optional<Utility> utility = std::nullopt;
  bool opportunistic = false;
  int quota = 0;
  std::string user = {};

  [[nodiscard]] Job job() const { return {time_at(submit_s), spec(), speed(), work}; }

  [[nodiscard]] std::shared_ptr<const JobSpec> spec() const {
    auto spec = std::make_shared<JobSpec>();
    spec->requested = gpus;
    spec->limits = curve.empty() ? GpuLimits{gpus, gpus, {}} : GpuLimits{1, curve.back().gpus, {}};
    if (!allowed.empty()) spec->limits = {allowed.front(), allowed.back(), allowed};
    spec->batch = batch;
    if (deadline_s) spec->deadline = time_at(*deadline_s);
    spec->restart_cost = from_seconds(restart_s);
    spec->goes_first = goes_first;
    spec->weight = weight;
    spec->utility = utility;
    spec->opportunistic = opportunistic;
    spec->quota = quota;
    spec->user = user;
    return spec;
  }
  [[nodiscard]] std::shared_ptr<const SpeedModel> speed() const {
    if (curve.empty()) return std::make_shared<ConstantSpeed>(1);
    return std::make_shared<CurveSpeed>(curve, network);
  }
};

// p(k) = rates[k-1] on k = 1, 2, 3, ... GPUs.
inline std::vector<CurvePoint> rates(const std::vector<double>& values) {
  std::vector<CurvePoint> curve;
  curve.reserve(values.size());
  for (const double rate : values) curve.push_back({static_cast<int>(curve.size()) + 1, rate});
  return curve;
}

// "0x2 3x1 !4": job 0 on 2 GPUs, job 3 on 1, job 4 refused.
inline std::string text_of(const Decision& decision) {
  std::map<JobId, std::string> words;
  for (const auto& grant : decision.run) {
    words[grant.job] =
        std::to_string(grant.job.value()) + "x" + std::to_string(gpus_of(grant.want));
  }
  for (const auto& reject : decision.reject)
    words[reject.job] = "!" + std::to_string(reject.job.value());
  std::string text;
  for (const auto& [job, word] : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// A minimal cluster: one GPU type, no topology, GPUs are released at once. It shows snapshots to a
// policy and carries out its decisions.
class World {
 public:
  explicit World(std::string_view cluster) {
    snapshot_.cluster = cluster_of(cluster);
    for (const auto& node : snapshot_.cluster.nodes()) {
      free_.push_back(node.gpus == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << node.gpus) - 1);
    }
  }

  [[nodiscard]] const Snapshot& snapshot() const { return snapshot_; }
  [[nodiscard]] Time now() const { return snapshot_.now; }
  [[nodiscard]] JobView& job(JobId id) { return *snapshot_.jobs.find(id); }
  [[nodiscard]] const Decision& last() const { return last_; }

  // Now, whatever the job says itself.
  JobId submit(const Draft& draft) { return submit_job(draft.job()); }
  JobId submit_job(const Job& job) {
    JobView view;
    view.id = JobId(next_id_++);
    view.spec = job.spec;
    view.speed = job.speed;
    view.work = job.work;
    view.submitted = view.last_ran = now();
    view.progress = {job.work, now(), 0};
    happened(view.id);
    return snapshot_.jobs.insert(std::move(view)).id;
  }
  World& pass(double seconds) {
    snapshot_.now += from_seconds(seconds);
    return *this;
  }
  void finish(JobId id) {
    hold(job(id), 0);
    snapshot_.jobs.erase(id);
    happened(id);
  }
  // By a failure of its node, which comes back at once.
  void throw_off(JobId id) {
    hold(job(id), 0);
    happened(id);
  }

  // Asks the policy, validates the decision and carries it out.
  std::string decide(Policy& policy) {
    auto decision = policy.decide(snapshot_);
    EXPECT_TRUE(decision.ok());
    const auto valid = validate(*decision, snapshot_);
    EXPECT_TRUE(valid.ok()) << valid.error().message << " at " << seconds(now()) << " s";
    snapshot_.changed.clear();
    snapshot_.changed_since = decision->as_of;
    snapshot_.as_of = snapshot_.as_of.next();
    std::map<JobId, int> granted;
    for (const auto& grant : decision->run) granted[grant.job] = gpus_of(grant.want);
    std::vector<JobId> present;
    for (const auto& view : snapshot_.jobs) present.push_back(view.id);
    for (const bool growing : {false, true}) {
      for (const JobId id : present) {
        const bool grows = granted[id] > job(id).held.gpus();
        if (grows == growing && granted[id] != job(id).held.gpus()) hold(job(id), granted[id]);
      }
    }
    for (const auto& reject : decision->reject) {
      snapshot_.jobs.erase(reject.job);
      happened(reject.job);
    }
    for (const JobId id : present) {
      if (JobView* view = snapshot_.jobs.find(id)) view->taken_in = true;
    }
    last_ = std::move(*decision);
    return text_of(last_);
  }

  struct Fate {
    std::optional<Time> start, end;
    friend bool operator==(const Fate&, const Fate&) = default;
  };

  std::vector<Fate> run(Policy& policy, const std::vector<Draft>& drafts) {
    std::vector<Job> jobs;
    jobs.reserve(drafts.size());
    for (const auto& draft : drafts) jobs.push_back(draft.job());
    return run_jobs(policy, jobs);
  }

  // Runs all jobs (in order of submission) to the last end. A job that never fits has no result.
  std::vector<Fate> run_jobs(Policy& policy, const std::vector<Job>& jobs) {
    std::vector<Fate> fates(jobs.size());
    std::size_t come = 0;
    while (come < jobs.size() || !snapshot_.jobs.empty()) {
      Time next = come < jobs.size() ? jobs[come].submit : kNever;
      for (const auto& view : snapshot_.jobs) next = std::min(next, end_of(view));
      if (last_.again_at) next = std::min(next, std::max(*last_.again_at, now()));
      if (next == kNever) {
        ADD_FAILURE() << "nothing more will happen, but jobs are left";
        return fates;
      }
      snapshot_.now = std::max(next, now());
      std::vector<JobId> ended;
      for (const auto& view : snapshot_.jobs) {
        if (end_of(view) <= now()) ended.push_back(view.id);
      }
      for (const JobId id : ended) {
        fates[id.index()].end = now();
        finish(id);
      }
      for (; come < jobs.size() && jobs[come].submit <= now(); ++come) {
        const Job& job = jobs[come];
        const bool fits =
            policy.least_gpus(*job.spec, *job.speed) <= snapshot_.cluster.largest_type();
        fits ? void(submit_job(job)) : void(++next_id_);
      }
      decide(policy);
      for (const auto& view : snapshot_.jobs) fates[view.id.index()].start = view.first_start;
    }
    return fates;
  }

 private:
  static Time end_of(const JobView& view) {
    if (view.held.empty()) return kNever;
    return view.progress.at + from_seconds(view.progress.work_left / view.progress.rate);
  }

  void happened(JobId id) {
    snapshot_.as_of = snapshot_.as_of.next();
    snapshot_.changed.push_back(id);
  }

  void hold(JobView& view, int gpus) {
    view.attained_before = view.attained(now());
    view.ran_before = view.ran(now());
    view.counted_from = now();
    if (!view.held.empty() && gpus == 0) view.last_ran = now();
    for (const auto& slice : view.held.slices()) free_[slice.node.index()] |= slice.mask;
    view.held = Allocation();
    for (std::size_t node = 0; node < free_.size(); ++node) {
      while (view.held.gpus() < gpus && free_[node] != 0) {
        const std::uint64_t lowest = free_[node] & (~free_[node] + 1);
        view.held.add(Slice{NodeId(static_cast<NodeId::rep>(node)), lowest});
        free_[node] ^= lowest;
      }
    }
    EXPECT_EQ(view.held.gpus(), gpus);
    view.target = view.held;
    const Work left = view.progress.left(now());
    view.progress = {left, now(), 0};
    if (gpus == 0) return;
    if (!view.first_start) view.first_start = now();
    view.progress = {left, now() + view.spec->restart_cost, view.speed->on(GpuType(), gpus)};
  }

  Snapshot snapshot_;
  std::vector<std::uint64_t> free_;  // by node
  JobId::rep next_id_ = 0;
  Decision last_;
};

// GPUs left during a plain scan.
class Pool {
 public:
  explicit Pool(const Cluster& cluster) {
    for (int t = 0; t < cluster.types(); ++t) {
      free_.push_back(cluster.usable(GpuType(static_cast<std::uint8_t>(t))));
    }
  }
  // On its present type if there is room, else on the first type with room.
  bool grant(const JobView& job, int gpus, Decision& decision) {
    std::vector<std::size_t> types;
    if (!job.target.empty()) types.push_back(job.target.type().index());
    for (std::size_t type = 0; type < free_.size(); ++type) types.push_back(type);
    for (const std::size_t type : types) {
      if (free_[type] < gpus) continue;
      free_[type] -= gpus;
      decision.run.push_back({job.id, Count{GpuType(static_cast<std::uint8_t>(type)), gpus}});
      return true;
    }
    return false;
  }

 private:
  std::vector<int> free_;
};

// A policy that looks at all jobs each time. It cannot be saved.
class NaivePolicy : public Policy {
 public:
  Result<Decision> decide(const Snapshot& snapshot) final {
    Decision decision;
    judge(snapshot, decision);
    decision.as_of = snapshot.as_of;
    return decision;
  }
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const override {
    return spec.requested;
  }
  [[nodiscard]] Json save() const final { return Json(); }
  Result<void> load(const Json& /*state*/) final { return Error{"a naive policy has no state"}; }

 protected:
  virtual void judge(const Snapshot& snapshot, Decision& decision) = 0;
};

// fifo and fifo-backfill: running jobs continue; the others come in order of submission.
class NaiveFifo final : public NaivePolicy {
 public:
  explicit NaiveFifo(bool head_blocks) : head_blocks_(head_blocks) {}

 private:
  void judge(const Snapshot& snapshot, Decision& decision) override {
    Pool pool(snapshot.cluster);
    for (const auto& job : snapshot.jobs) {
      if (!job.target.empty()) pool.grant(job, job.spec->requested, decision);
    }
    for (const auto& job : snapshot.jobs) {
      if (!job.target.empty()) continue;
      if (!pool.grant(job, job.spec->requested, decision) && head_blocks_) return;
    }
  }
  bool head_blocks_;
};

// sjf, srtf, srsf, edf:count=trace: the whole list, stably sorted at each decision.
class NaiveSorted final : public NaivePolicy {
 public:
  using Key = std::function<double(const JobView&, Time)>;
  explicit NaiveSorted(Key key) : key_(std::move(key)) {}

  static double gpus(const JobView& job, Time /*now*/) { return job.spec->requested; }
  static double remaining_time(const JobView& job, Time now) {
    const WorkRate rate = job.speed->on(GpuType(), job.spec->requested);
    return static_cast<double>(std::llround(job.progress.left(now) / rate * 1e6));
  }
  static double remaining_service(const JobView& job, Time now) {
    return remaining_time(job, now) * job.spec->requested;
  }
  static double deadline(const JobView& job, Time /*now*/) {
    return seconds(job.spec->deadline.value_or(kNever));
  }

 private:
  void judge(const Snapshot& snapshot, Decision& decision) override {
    std::erase_if(order_, [&](JobId id) { return snapshot.jobs.find(id) == nullptr; });
    for (const auto& job : snapshot.jobs) {
      if (std::find(order_.begin(), order_.end(), job.id) == order_.end()) order_.push_back(job.id);
    }
    const auto key = [&](JobId id) { return key_(*snapshot.jobs.find(id), snapshot.now); };
    std::stable_sort(order_.begin(), order_.end(),
                     [&](JobId a, JobId b) { return key(a) < key(b); });
    Pool pool(snapshot.cluster);
    for (const JobId id : order_) {
      const JobView& job = *snapshot.jobs.find(id);
      pool.grant(job, job.spec->requested, decision);
    }
  }
  Key key_;
  std::vector<JobId> order_;
};

// The Gittins rank directly from its definition, by a loop over all samples.
inline double gittins_rank(std::vector<double> samples, double quantum, double age) {
  std::sort(samples.begin(), samples.end());
  for (const double first : samples) {
    if (!(first > age)) continue;
    double above = 0, ending = 0, service = 0;
    for (const double d : samples) {
      if (!(d > first - 1)) continue;
      ++above;
      const bool ends = d <= first - 1 + quantum;
      ending += ends ? 1 : 0;
      service += ends ? d : quantum;
    }
    return (ending / above) / (service / above);
  }
  return 0;
}

// Tiresias as in the paper: a list for each queue.
class NaiveTiresias final : public NaivePolicy {
 public:
  NaiveTiresias(std::vector<double> limits, double promote, std::vector<double> samples = {},
                double quantum = 3250)
      : limits_(std::move(limits)),
        promote_(promote),
        samples_(std::move(samples)),
        quantum_(quantum),
        queues_(limits_.size() + 1) {}

 private:
  // Service and executed time count from the last promotion.
  struct Before {
    GpuTime service;
    Duration executed{};
  };

  [[nodiscard]] GpuTime service(const JobView& job, Time now) {
    return job.attained(now) - before_[job.id].service;
  }
  [[nodiscard]] Duration executed(const JobView& job, Time now) {
    return job.ran(now) - before_[job.id].executed;
  }
  [[nodiscard]] std::optional<Time> starves_at(const JobView& job, Time stopped) {
    const Duration ran = executed(job, stopped);
    if (promote_ == 0 || ran == Duration(0)) return std::nullopt;
    return stopped + std::max(Duration(1), from_seconds(promote_ * seconds(ran)));
  }

  void judge(const Snapshot& snapshot, Decision& decision) override {
    const Time now = snapshot.now;
    const auto view = [&](JobId id) -> const JobView& { return *snapshot.jobs.find(id); };
    for (auto& queue : queues_)
      queue.remove_if([&](JobId id) { return snapshot.jobs.find(id) == nullptr; });

    // Each job in turn. A job that has passed several limits since the last event is demoted past
    // all.
    std::vector<std::pair<std::size_t, JobId>> in_order;
    for (std::size_t q = 0; q < queues_.size(); ++q) {
      for (const JobId id : queues_[q]) in_order.emplace_back(q, id);
    }
    for (const auto& [from, id] : in_order) {
      std::size_t to = from;
      while (to < limits_.size() &&
             service(view(id), now) >= GpuTime::from_gpu_seconds(limits_[to])) {
        ++to;
      }
      if (to == from) continue;
      queues_[from].remove(id);
      queues_[to].push_back(id);
    }

    for (const auto& job : snapshot.jobs) {
      if (known_.insert(job.id).second) queues_[0].push_back(job.id);
    }

    std::set<std::pair<Time, JobId>> starved;
    for (const auto& queue : queues_) {
      for (const JobId id : queue) {
        if (!view(id).held.empty()) continue;
        const auto at = starves_at(view(id), view(id).last_ran);
        if (at && *at <= now) starved.emplace(*at, id);
      }
    }
    for (const auto& [at, id] : starved) {
      for (auto& queue : queues_) queue.remove(id);
      queues_[0].push_back(id);
      before_[id] = {view(id).attained(now), view(id).ran(now)};
    }

    if (!samples_.empty()) sort_by_index(snapshot);
    Pool pool(snapshot.cluster);
    const auto expect = [&](Time at) {
      if (!decision.again_at || at < *decision.again_at) decision.again_at = at;
    };
    for (std::size_t q = 0; q < queues_.size(); ++q) {
      std::list<JobId> running, pending;
      for (const JobId id : queues_[q]) {
        const JobView& job = view(id);
        const int gpus = job.spec->requested;
        if (pool.grant(job, gpus, decision)) {
          running.push_back(id);
          if (q == limits_.size()) continue;
          const GpuTime left = GpuTime::from_gpu_seconds(limits_[q]) - service(job, now);
          expect(now + left.held_by(gpus));
        } else {
          pending.push_back(id);
          const auto at = starves_at(job, job.held.empty() ? job.last_ran : now);
          if (at) expect(*at);
        }
      }
      running.splice(running.end(), pending);
      queues_[q] = std::move(running);
    }
  }

  void sort_by_index(const Snapshot& snapshot) {
    for (auto& queue : queues_) {
      std::map<JobId, double> rank;
      for (const JobId id : queue) {
        const double age = service(*snapshot.jobs.find(id), snapshot.now).gpu_seconds();
        rank[id] = gittins_rank(samples_, quantum_, age);
      }
      queue.sort([&](JobId a, JobId b) { return rank[a] != rank[b] ? rank[a] > rank[b] : a < b; });
    }
  }

  std::vector<double> limits_;
  double promote_;
  std::vector<double> samples_;
  double quantum_;
  std::vector<std::list<JobId>> queues_;
  std::set<JobId> known_;
  std::map<JobId, Before> before_;
};

// AFS as in the paper: all shares are 0, then each GPU goes to the winner of a new tournament.
class NaiveAfs final : public NaivePolicy {
 public:
  struct Player {
    const JobView* job = nullptr;
    Work left = 0;
    int share = 0;
    std::optional<int> next;  // nullopt: it has left

    [[nodiscard]] double p(int gpus) const {
      return gpus == 0 ? 0 : job->speed->on(GpuType(), gpus);
    }
    [[nodiscard]] double length() const { return left / p(share == 0 ? *next : share); }
    [[nodiscard]] double gain() const { return (p(*next) - p(share)) / (*next - share); }
    // The job has left if there is no next step, or it is too large or not faster.
    void look_ahead(int gpus_left) {
      next = job->spec->limits.above(share);
      if (next && (*next - share > gpus_left || !(p(*next) > p(share)))) next = std::nullopt;
    }
  };

  // Whether `a` gets the GPU and not `b`. `a` has the smaller id.
  static bool beats(const Player& a, const Player& b) {
    if (a.share == 0 && b.share == 0) return a.length() <= b.length();
    const bool a_first = b.share == 0 || (a.share > 0 && a.length() <= b.length());
    const Player& first = a_first ? a : b;
    const Player& last = a_first ? b : a;
    const bool last_wins = last.gain() / last.p(*last.next) > first.gain() / first.p(first.share);
    return last_wins != a_first;
  }

  // Computes the shares; `watch` sees the players before each GPU.
  template <class Watch>
  static std::vector<int> shares(std::vector<Player> players, int gpus, const Watch& watch) {
    for (auto& player : players) player.look_ahead(gpus);
    while (gpus > 0) {
      watch(players);
      const auto winner = knock_out(players, 0, power_of_two(players.size()));
      if (!winner) break;
      Player& player = players[*winner];
      if (*player.next - player.share > gpus) {
        player.next = std::nullopt;
        continue;
      }
      gpus -= *player.next - player.share;
      player.share = *player.next;
      player.look_ahead(gpus);
    }
    std::vector<int> shares;
    shares.reserve(players.size());
    for (const auto& player : players) shares.push_back(player.share);
    return shares;
  }

 private:
  static std::size_t power_of_two(std::size_t at_least) {
    std::size_t size = 1;
    while (size < at_least) size *= 2;
    return size;
  }
  static std::optional<std::size_t> knock_out(const std::vector<Player>& players, std::size_t from,
                                              std::size_t size) {
    if (from >= players.size()) return std::nullopt;
    if (size == 1) return players[from].next ? std::optional(from) : std::nullopt;
    const auto left = knock_out(players, from, size / 2);
    const auto right = knock_out(players, from + size / 2, size / 2);
    if (!left || !right) return left ? left : right;
    return beats(players[*left], players[*right]) ? left : right;
  }

  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const override {
    return spec.limits.smallest();
  }
  void judge(const Snapshot& snapshot, Decision& decision) override {
    std::vector<Player> players;
    for (const auto& job : snapshot.jobs)
      players.push_back({&job, job.progress.left(snapshot.now), 0, std::nullopt});
    const auto given = shares(players, snapshot.cluster.usable(), [](const auto&) {});
    for (std::size_t i = 0; i < players.size(); ++i) {
      if (given[i] > 0) decision.run.push_back({players[i].job->id, Count{GpuType(), given[i]}});
    }
  }
};

// What the policy gives these jobs when all of them have just been submitted.
inline std::string decide_once(const std::string& policy, const std::string& cluster,
                               const std::vector<Draft>& jobs) {
  World world(cluster);
  for (const auto& job : jobs) world.submit(job);
  return world.decide(*make_policy(policy));
}

// The naive version of a rigid policy; nullptr if there is none.
inline std::unique_ptr<Policy> naive_twin(std::string_view name) {
  if (name == "fifo") return std::make_unique<NaiveFifo>(true);
  if (name == "fifo-backfill") return std::make_unique<NaiveFifo>(false);
  if (name == "sjf") return std::make_unique<NaiveSorted>(NaiveSorted::gpus);
  if (name == "srtf") return std::make_unique<NaiveSorted>(NaiveSorted::remaining_time);
  if (name == "srsf") return std::make_unique<NaiveSorted>(NaiveSorted::remaining_service);
  if (name == "edf:count=trace") return std::make_unique<NaiveSorted>(NaiveSorted::deadline);
  if (name == "afs-l") return std::make_unique<NaiveAfs>();
  return nullptr;
}

}  // namespace rubato::policy::testing
