#include "rubato/policy/elasticflow.h"

#include <algorithm>
#include <fmt/format.h>
#include <queue>
#include <tuple>
#include <utility>

#include "rubato/base/check.h"

namespace rubato::policy {
namespace {

using Record = ElasticFlow::Record;

// How many orders are tried to make all plans fit, and how many plans may be made for one arrival
// in all; with thousands of jobs fewer orders must do. Counts, so that decisions are reproducible.
constexpr std::size_t kMostOrders = 4;
constexpr std::size_t kMostPlans = 6000;
constexpr std::size_t kMostHalvings = 10;
// With so many promises an arrival is fitted between the plans, or at most so many of them change.
constexpr std::size_t kMany = 500;
constexpr std::size_t kMostStretched = 1024;

Time deadline_of(const JobView& job) { return job.spec->deadline.value_or(kNever); }

// A job in one decision.
struct Member {
  const JobView* view = nullptr;
  Record* record = nullptr;
  Traveller traveller;
  Plan plan;     // of a promised job
  int gpus = 0;  // now: by the plan, or what best effort was given
};

bool due_before(const Member& a, const Member& b) {
  return std::pair(a.traveller.deadline, a.view->id) < std::pair(b.traveller.deadline, b.view->id);
}

// One decision.
class Round {
 public:
  Round(const ElasticFlow::Config& config, const Snapshot& snapshot, ElasticFlow::State& state)
      : config_(config),
        snapshot_(snapshot),
        state_(state),
        now_(snapshot.now),
        gpus_(snapshot.cluster.usable()),
        planner_(free_, snapshot.interval) {}

  Decision decide() {
    const bool same_machines = std::exchange(state_.gpus, gpus_) == gpus_;
    const bool same_jobs = meet();
    if (!config_.admission) {
      plan_without_promises();
    } else {
      // Plans that are kept to need not be made again when a job comes to its end.
      const bool on_course = check_courses();
      reserve_all();
      if (!on_course || !same_machines) {
        mend();
      } else if (moved_) {  // margins are used up: new ones if possible
        if (auto plans = plans_for_all()) {
          take(std::move(*plans));
        } else {
          reserve_all();
        }
      }
      if (!on_course || !same_machines || !same_jobs || somebody_hopes()) promise_again();
      for (const JobId id : arrived_) admit(id);
    }
    hand_out_leftovers();
    return conclude();
  }

 private:
  // Whether no job has come or gone since the last decision.
  bool meet() {
    bool same = true;
    std::vector<Record> records;
    records.reserve(snapshot_.jobs.size());
    auto known = state_.records.begin();
    for (const JobView& job : snapshot_.jobs) {
      while (known != state_.records.end() && known->job < job.id) {
        same = false;
        ++known;
      }
      if (known != state_.records.end() && known->job == job.id) {
        records.push_back(std::move(*known++));
      } else {
        records.emplace_back();
        records.back().job = job.id;
        if (job.spec->deadline && config_.admission) arrived_.push_back(job.id);
      }
      Record& record = records.back();
      if (record.speed != job.speed || record.spec != job.spec) {
        record.spec = job.spec;
        record.speed = job.speed;
        record.levels = levels_of(*job.spec, *job.speed, snapshot_.cluster.installed());
      }
    }
    same = same && known == state_.records.end();
    state_.records = std::move(records);
    for (Record& record : state_.records) {
      const JobView* job = snapshot_.jobs.find(record.job);
      if (record.promised || (!config_.admission && job->spec->deadline)) {
        promised_.push_back(member(*job, record));
        promised_.back().plan = std::move(record.plan);
      } else if (!std::binary_search(arrived_.begin(), arrived_.end(), record.job)) {
        guests_.push_back(member(*job, record));
      }
    }
    return same;
  }

  // To the GPUs it should have: on a real clock that takes a while, in which its progress is what
  // it was before.
  [[nodiscard]] static bool is_on_the_way(const JobView& job) {
    if (job.target.empty()) return false;
    const bool changes = job.phase == Phase::resizing || job.held.gpus() != job.target.gpus();
    return changes || !(job.progress.rate > 0);
  }

  Member member(const JobView& job, Record& record) const {
    Member member;
    member.view = &job;
    member.record = &record;
    Traveller& traveller = member.traveller;
    traveller.levels = record.levels;
    traveller.restart = job.spec->restart_cost;
    traveller.deadline = deadline_of(job);
    traveller.moves = snapshot_.jobs_move;
    traveller.lateness = snapshot_.lateness;
    traveller.course = {job.target.gpus(), job.progress};
    if (is_on_the_way(job)) {
      if (!(job.progress.rate > 0)) traveller.course.gpus = 0;
      for (const Level& level : record.levels) {
        if (level.gpus != job.target.gpus()) continue;
        traveller.course.gpus = 0;
        traveller.course.turn(now_, level.gpus, level.rate, traveller.restart);
      }
    }
    return member;
  }

  // Whether all counts of the plan are still ones the job can have.
  [[nodiscard]] static bool allows(const Traveller& traveller, const Plan& plan) {
    return std::all_of(plan.steps.begin(), plan.steps.end(), [&](const PlanStep& step) {
      return step.gpus == 0 || std::any_of(traveller.levels.begin(), traveller.levels.end(),
                                           [&](const Level& l) { return l.gpus == step.gpus; });
    });
  }

  // Follows every plan from where its job really is. Whether all will be done by the time for which
  // GPUs are reserved.
  bool check_courses() {
    bool all = true;
    for (Member& m : promised_) {
      m.plan.begin_at(now_);
      const Time finish = SharePlanner::finish_of(m.traveller, m.plan.steps);
      const Time reserved = m.plan.finish + m.plan.margin;
      // Its owner may have changed its limits, and a clock that was set its deadline.
      const bool in_time = finish >= now_ && finish <= reserved &&
                           reserved <= m.traveller.deadline && allows(m.traveller, m.plan);
      if (in_time && finish > m.plan.finish) {  // moved, or late: its margin is for that
        m.plan.margin = reserved - finish;
        moved_ = true;
      }
      // A plan that leads nowhere is over.
      m.plan.finish = finish == kNever ? now_ - Duration(1) : finish;
      auto& steps = m.plan.steps;
      while (steps.size() > 1 && steps.back().from >= m.plan.finish) steps.pop_back();
      all = all && in_time;
    }
    return all;
  }

  void reserve_all() {
    free_.reset(now_, gpus_);
    for (const Member& m : promised_) m.plan.reserve(free_);
  }

  [[nodiscard]] std::vector<std::size_t> by_deadline() const {
    std::vector<std::size_t> order(promised_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return due_before(promised_[a], promised_[b]); });
    return order;
  }

  // New plans for all, in an order in which all fit, and reserved. If there is none, free_ is
  // spoilt until reserve_all().
  std::optional<std::vector<Plan>> plans_for_all() {
    std::vector<std::size_t> order = by_deadline();
    std::vector<Plan> plans(promised_.size());
    const auto orders = std::min<std::size_t>(kMostOrders, kMostPlans / (order.size() + 1));
    for (std::size_t attempt = 0; attempt < orders; ++attempt) {
      free_.reset(now_, gpus_);
      std::size_t at = 0;
      for (; at < order.size(); ++at) {
        auto plan = planner_.least_share(promised_[order[at]].traveller, now_);
        if (!plan) break;
        plan->reserve(free_);
        plans[order[at]] = std::move(*plan);
      }
      if (at == order.size()) return plans;
      if (at == 0) break;  // not even alone
      std::swap(order[at], order[at - 1]);
    }
    return std::nullopt;
  }

  void take(std::vector<Plan> plans) {
    for (std::size_t i = 0; i < plans.size(); ++i) promised_[i].plan = std::move(plans[i]);
  }

  // After a fault or a wrong estimate: new plans for all if possible; else whoever's plan can be
  // neither kept nor replaced goes on as best effort.
  void mend() {
    if (auto plans = plans_for_all()) return take(std::move(*plans));
    free_.reset(now_, gpus_);
    std::vector<bool> kept(promised_.size(), false);
    for (const std::size_t i : by_deadline()) {
      Member& m = promised_[i];
      kept[i] = m.plan.finish >= now_ && m.plan.finish + m.plan.margin <= m.traveller.deadline &&
                allows(m.traveller, m.plan) && m.plan.fits(free_);
      if (!kept[i]) {
        if (auto plan = planner_.least_share(m.traveller, now_)) {
          m.plan = std::move(*plan);
          kept[i] = true;
        }
      }
      if (kept[i]) m.plan.reserve(free_);
    }
    std::vector<Member> still;
    for (std::size_t i = 0; i < promised_.size(); ++i) {
      if (!kept[i]) {
        promised_[i].record->promised = false;
        promised_[i].plan = Plan();
      }
      (kept[i] ? still : guests_).push_back(std::move(promised_[i]));
    }
    promised_ = std::move(still);
  }

  // Another estimate, or a clock that was set, may give a lost promise back. Not by what has
  // changed since the last decision: whoever is loaded from a saved state must decide the same.
  [[nodiscard]] bool somebody_hopes() const {
    return std::any_of(guests_.begin(), guests_.end(), [&](const Member& m) {
      return m.traveller.deadline != kNever && m.traveller.deadline > now_;
    });
  }

  // Jobs that lost a promise which can be given again.
  void promise_again() {
    std::vector<Member> rest;
    for (Member& m : guests_) {
      std::optional<Plan> plan;
      if (m.traveller.deadline != kNever && m.traveller.deadline > now_)
        plan = planner_.least_share(m.traveller, now_);
      if (!plan) {
        rest.push_back(std::move(m));
        continue;
      }
      plan->reserve(free_);
      m.plan = std::move(*plan);
      m.record->promised = true;
      promised_.push_back(std::move(m));
    }
    guests_ = std::move(rest);
  }

  // Whether the last of promised_ can be promised its deadline; then its plan is reserved.
  bool find_room_for_last() {
    if (promised_.size() > kMany) return find_room_between_plans() || find_room_by_stretching();
    if (auto plans = plans_for_all()) {
      take(std::move(*plans));
      return true;
    }
    promised_.back().plan = Plan();
    reserve_all();
    return find_room_between_plans();
  }

  // New plans for the last and for those who have most time to spare; the others' stand.
  bool find_room_by_stretching() {
    std::vector<std::size_t> others(promised_.size() - 1);
    for (std::size_t i = 0; i < others.size(); ++i) others[i] = i;
    const auto spare = [&](std::size_t i) {
      return promised_[i].traveller.deadline - promised_[i].plan.finish;
    };
    std::sort(others.begin(), others.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(-spare(a), a) < std::pair(-spare(b), b);
    });
    for (std::size_t some = 16; some <= kMostStretched; some *= 4) {
      std::vector<std::size_t> order(
          others.begin(),
          others.begin() + static_cast<std::ptrdiff_t>(std::min(some, others.size())));
      order.push_back(promised_.size() - 1);
      if (plan_some(order)) return true;
    }
    return false;
  }

  // New plans for these, in order of deadlines, beside all others; or no change.
  bool plan_some(std::vector<std::size_t> order) {
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return due_before(promised_[a], promised_[b]); });
    std::vector<Plan> old;
    for (const std::size_t i : order) {
      promised_[i].plan.give_back(free_);
      old.push_back(std::exchange(promised_[i].plan, Plan()));
    }
    for (const std::size_t i : order) {
      auto plan = planner_.least_share(promised_[i].traveller, now_);
      if (!plan) {
        for (std::size_t k = 0; k < order.size(); ++k) {
          promised_[order[k]].plan.give_back(free_);
          promised_[order[k]].plan = std::move(old[k]);
          promised_[order[k]].plan.reserve(free_);
        }
        return false;
      }
      plan->reserve(free_);
      promised_[i].plan = std::move(*plan);
    }
    return true;
  }

  // The other plans stand.
  bool find_room_between_plans() {
    Member& last = promised_.back();
    auto plan = planner_.least_share(last.traveller, now_);
    if (!plan) return false;
    plan->reserve(free_);
    last.plan = std::move(*plan);
    return true;
  }

  void admit(JobId id) {
    const JobView& job = *snapshot_.jobs.find(id);
    const auto record = record_of(id);
    record->promised = true;
    promised_.push_back(member(job, *record));
    if (find_room_for_last()) return;

    if (job.accepted()) {  // taken in before: it goes on without a promise
      record->promised = false;
      guests_.push_back(std::move(promised_.back()));
      guests_.back().plan = Plan();
      promised_.pop_back();
      return;
    }
    Reject reject{id, "no plan keeps this deadline and all those promised before", std::nullopt};
    reject.earliest = earliest_for_last();
    if (!reject.earliest) reject.reason = "cannot be finished with the GPUs that are up";
    rejected_.push_back(std::move(reject));
    promised_.pop_back();
    state_.records.erase(record);
    for (Member& m : promised_) relink(m);  // the records have moved
    for (Member& m : guests_) relink(m);
  }

  // The earliest deadline with which the last of promised_, who found no room, would have found it.
  // Its soonest end beside the plans that stand is one; if others can make room there are earlier
  // ones, which are looked for by halving.
  std::optional<Time> earliest_for_last() {
    Traveller& last = promised_.back().traveller;
    const auto soonest = planner_.soonest(last, now_);
    if (!soonest) return std::nullopt;
    Time refused = last.deadline;
    Time possible = soonest->finish + soonest->margin;
    const std::vector<Plan> standing = [&] {
      std::vector<Plan> plans;
      for (const Member& m : promised_) plans.push_back(m.plan);
      return plans;
    }();
    const std::size_t cost = kMostOrders * (promised_.size() + 1);
    for (std::size_t i = 0; i < kMostHalvings && (i + 2) * cost <= kMostPlans; ++i) {
      if (possible - refused <= std::chrono::seconds(1)) break;
      last.deadline = refused + (possible - refused) / 2;
      const bool found = find_room_for_last();
      take(standing);
      (found ? possible : refused) = last.deadline;
    }
    reserve_all();
    return possible;
  }

  [[nodiscard]] std::vector<Record>::iterator record_of(JobId id) {
    return std::lower_bound(state_.records.begin(), state_.records.end(), id,
                            [](const Record& r, JobId j) { return r.job < j; });
  }

  void relink(Member& m) {
    m.record = &*record_of(m.view->id);
    m.traveller.levels = m.record->levels;
  }

  void plan_without_promises() {
    free_.reset(now_, gpus_);
    for (const std::size_t i : by_deadline()) {
      Member& m = promised_[i];
      auto plan = planner_.least_share(m.traveller, now_);
      if (!plan) plan = planner_.soonest(m.traveller, now_);
      m.plan = plan ? std::move(*plan) : Plan();
      m.plan.reserve(free_);
    }
  }

  // A member's next level, and what it saves.
  struct Offer {
    bool idle = false;  // has no GPUs yet
    bool first = false;
    double saved = 0;  // GPU-seconds per GPU-second added
    Time deadline = kNever;
    JobId id;
    Member* member = nullptr;
    const Level* level = nullptr;
    std::optional<Plan> plan;

    friend bool operator<(const Offer& a, const Offer& b) {  // a is worse
      if (a.idle != b.idle) return b.idle;
      if (a.first != b.first) return b.first;
      if (!a.idle && a.saved != b.saved) return a.saved < b.saved;
      return std::pair(a.deadline, a.id) > std::pair(b.deadline, b.id);
    }
  };

  std::optional<Offer> offer(Member& m, int idle) {
    const auto next = std::find_if(m.traveller.levels.begin(), m.traveller.levels.end(),
                                   [&](const Level& level) { return level.gpus > m.gpus; });
    if (next == m.traveller.levels.end() || next->gpus - m.gpus > idle) return std::nullopt;
    Offer offer;
    offer.idle = m.gpus == 0;
    offer.first = m.view->spec->goes_first;
    offer.deadline = m.traveller.deadline;
    offer.id = m.view->id;
    offer.member = &m;
    offer.level = &*next;
    const double added = next->gpus - m.gpus;
    if (m.plan.finish == kNever) {
      const auto to_end = [&](int gpus) {
        Course course = m.traveller.course;
        for (const Level& level : m.traveller.levels) {
          if (level.gpus == gpus) course.turn(now_, gpus, level.rate, m.traveller.restart);
        }
        return seconds(course.finish() - now_);
      };
      if (m.gpus > 0) {
        const double before = to_end(m.gpus);
        const double after = to_end(next->gpus);
        if (after >= before) return std::nullopt;
        offer.saved = m.gpus * (before - after) / (added * after);
      }
      return offer;
    }
    m.plan.give_back(free_);
    offer.plan = planner_.begun_with(m.traveller, *next, now_);
    m.plan.reserve(free_);
    if (!offer.plan || offer.plan->finish >= m.plan.finish) return std::nullopt;
    // What the plan needs less once the added GPUs are gone, for each GPU-second they are added.
    const Time until = std::min(offer.plan->next_change(now_), offer.plan->finish);
    offer.saved = (m.plan.gpu_seconds(until) - offer.plan->gpu_seconds(until)) /
                  (added * seconds(until - now_));
    return offer;
  }

  void hand_out_leftovers() {
    for (Member& m : promised_) m.gpus = m.plan.gpus_at(now_);
    int idle = free_.at(now_);
    std::priority_queue<Offer> offers;
    const auto put = [&](Member& m) {
      if (idle == 0) return;
      if (auto made = offer(m, idle)) offers.push(std::move(*made));
    };
    for (Member& m : promised_) put(m);
    for (Member& m : guests_) put(m);
    while (idle > 0 && !offers.empty()) {
      Member& m = *offers.top().member;
      const double hoped = offers.top().saved;
      offers.pop();
      auto made = offer(m, idle);  // others have taken GPUs meanwhile
      if (!made) continue;
      if (made->saved < hoped && !offers.empty() && *made < offers.top()) {
        offers.push(std::move(*made));
        continue;
      }
      idle -= made->level->gpus - m.gpus;
      m.gpus = made->level->gpus;
      if (made->plan) {
        m.plan.give_back(free_);
        m.plan = std::move(*made->plan);
        m.plan.reserve(free_);
      }
      put(m);
    }
  }

  Decision conclude() {
    Decision decision;
    decision.reject = std::move(rejected_);
    Time again = kNever;
    for (Member& m : promised_) {
      if (m.gpus > 0) decision.run.push_back({m.view->id, Count{GpuType(), m.gpus}});
      again = std::min(again, m.plan.next_change(now_));
      if (config_.admission) {
        decision.promise.push_back(
            {m.view->id, m.plan.finish, m.plan.steps, m.plan.margin >= margin_needed(m)});
        m.record->plan = std::move(m.plan);
      }
    }
    for (const Member& m : guests_) {
      if (m.gpus > 0) decision.run.push_back({m.view->id, Count{GpuType(), m.gpus}});
    }
    if (again != kNever) decision.again_at = again;
    return decision;
  }

  // By a move now, to end no later than is reserved.
  [[nodiscard]] static Duration margin_needed(const Member& m) {
    const auto rate_of = [&](int gpus) {
      for (const Level& level : m.traveller.levels) {
        if (level.gpus == gpus) return level.rate;
      }
      return m.traveller.course.progress.rate;
    };
    WorkRate fastest = 0;
    for (const auto& step : m.plan.steps) {
      if (step.gpus > 0) fastest = std::max(fastest, rate_of(step.gpus));
    }
    const WorkRate last = rate_of(m.plan.steps.back().gpus);
    return from_seconds(seconds(m.traveller.restart) * fastest / last) + Duration(1);
  }

  const ElasticFlow::Config& config_;
  const Snapshot& snapshot_;
  ElasticFlow::State& state_;
  Time now_;
  int gpus_;
  FutureGpus free_;
  SharePlanner planner_;
  std::vector<Member> promised_, guests_;
  bool moved_ = false;  // the placement has moved a job
  std::vector<JobId> arrived_;
  std::vector<Reject> rejected_;
};

}  // namespace

Decision ElasticFlow::decide(const Snapshot& snapshot, State& state) const {
  return Round(config, snapshot, state).decide();
}

int ElasticFlow::least_gpus(const JobSpec& spec, const SpeedModel& speed) const {
  const auto levels = levels_of(spec, speed, std::numeric_limits<int>::max());
  return levels.empty() ? spec.requested : levels.front().gpus;
}

Json ElasticFlow::State::save() const {
  Json json = {{"gpus", gpus}, {"jobs", Json::array()}};
  for (const Record& record : records) {
    Json row = {{"job", record.job.value()}, {"promised", record.promised}};
    if (record.promised) {
      row["finish"] = record.plan.finish.time_since_epoch().count();
      row["margin"] = record.plan.margin.count();
      row["plan"] = Json::array();
      for (const auto& step : record.plan.steps)
        row["plan"].push_back({step.from.time_since_epoch().count(), step.gpus});
    }
    json["jobs"].push_back(std::move(row));
  }
  return json;
}

Result<ElasticFlow::State> ElasticFlow::State::load(const Json& json) {
  try {
    State state;
    state.gpus = json.at("gpus").get<int>();
    for (const auto& row : json.at("jobs")) {
      Record record;
      record.job = JobId(row.at("job").get<JobId::rep>());
      record.promised = row.at("promised").get<bool>();
      if (record.promised) {
        record.plan.finish = Time(Duration(row.at("finish").get<std::int64_t>()));
        record.plan.margin = Duration(row.at("margin").get<std::int64_t>());
        for (const auto& step : row.at("plan")) {
          record.plan.steps.push_back(
              {Time(Duration(step.at(0).get<std::int64_t>())), step.at(1).get<int>()});
        }
      }
      const auto& steps = record.plan.steps;
      const auto out_of_order = [](const PlanStep& a, const PlanStep& b) {
        return a.from >= b.from;
      };
      if (record.promised && (steps.empty() || std::adjacent_find(steps.begin(), steps.end(),
                                                                  out_of_order) != steps.end()))
        return Error{"saved ElasticFlow state: a promised job has no plan, or one out of order"};
      if (!state.records.empty() && !(state.records.back().job < record.job))
        return Error{"saved ElasticFlow state: the jobs are not in order"};
      state.records.push_back(std::move(record));
    }
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved ElasticFlow state: {}", problem.what())};
  }
}

}  // namespace rubato::policy
