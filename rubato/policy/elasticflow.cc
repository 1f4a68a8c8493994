#include "rubato/policy/elasticflow.h"

#include <algorithm>
#include <fmt/format.h>
#include <queue>
#include <tuple>
#include <utility>

#include "rubato/policy/promise_book.h"

namespace rubato::policy {
namespace {

using FlowRecord = ElasticFlow::Record;

// One decision.
class ElasticFlowRound {
 public:
  ElasticFlowRound(const ElasticFlow::Config& config, const Snapshot& snapshot,
                   ElasticFlow::State& state)
      : config_(config),
        snapshot_(snapshot),
        state_(state),
        now_(snapshot.now),
        book_(snapshot, GpuType(), snapshot.cluster.usable()) {}

  Decision decide() {
    const int gpus = snapshot_.cluster.usable();
    const bool same_machines = std::exchange(state_.gpus, gpus) == gpus;
    const bool same_jobs = meet();
    if (!config_.admission) {
      book_.plan_all();
    } else {
      // Plans that are kept to need not be made again when a job comes to its end.
      const bool on_course = book_.keep(same_machines, guests_);
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
    std::vector<FlowRecord> records;
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
      FlowRecord& record = records.back();
      if (record.speed != job.speed || record.spec != job.spec) {
        record.spec = job.spec;
        record.speed = job.speed;
        record.levels = levels_of(*job.spec, *job.speed, snapshot_.cluster.installed());
      }
    }
    same = same && known == state_.records.end();
    state_.records = std::move(records);
    for (FlowRecord& record : state_.records) {
      const JobView& job = *snapshot_.jobs.find(record.job);
      if (record.promised || (!config_.admission && job.spec->deadline)) {
        book_.enter(book_.party(job, record.levels), std::move(record.plan));
      } else if (!std::binary_search(arrived_.begin(), arrived_.end(), record.job)) {
        guests_.push_back(book_.party(job, record.levels));
      }
    }
    return same;
  }

  // Another estimate, or a clock that was set, may give a lost promise back. Not by what has
  // changed since the last decision: whoever is loaded from a saved state must decide the same.
  [[nodiscard]] bool somebody_hopes() const {
    return std::any_of(guests_.begin(), guests_.end(), [&](const Party& p) { return hopes(p); });
  }
  [[nodiscard]] bool hopes(const Party& party) const {
    return party.traveller.deadline != kNever && party.traveller.deadline > now_;
  }

  // Jobs that lost a promise which can be given again.
  void promise_again() {
    std::vector<Party> rest;
    for (Party& party : guests_) {
      if (!hopes(party) || !book_.squeeze_in(party)) rest.push_back(std::move(party));
    }
    guests_ = std::move(rest);
  }

  void admit(JobId id) {
    const JobView& job = *snapshot_.jobs.find(id);
    const auto record = record_of(id);
    Party party = book_.party(job, record->levels);
    if (book_.admit(party)) return;
    if (job.accepted()) {  // taken in before: it goes on without a promise
      guests_.push_back(std::move(party));
      return;
    }
    Reject reject{id, "no plan keeps this deadline and all those promised before", std::nullopt};
    reject.earliest = book_.earliest(std::move(party));
    if (!reject.earliest) reject.reason = "cannot be finished with the GPUs that are up";
    rejected_.push_back(std::move(reject));
    state_.records.erase(record);  // those that move take their levels with them
  }

  [[nodiscard]] std::vector<FlowRecord>::iterator record_of(JobId id) {
    return std::lower_bound(state_.records.begin(), state_.records.end(), id,
                            [](const FlowRecord& r, JobId j) { return r.job < j; });
  }

  // A member's next level, and what it saves.
  struct Offer {
    bool idle = false;  // has no GPUs yet
    bool first = false;
    double saved = 0;  // GPU-seconds per GPU-second added
    Time deadline = kNever;
    JobId id;
    Party* party = nullptr;
    const Level* level = nullptr;
    std::optional<SharePlan> plan;

    friend bool operator<(const Offer& a, const Offer& b) {  // a is worse
      if (a.idle != b.idle) return b.idle;
      if (a.first != b.first) return b.first;
      if (!a.idle && a.saved != b.saved) return a.saved < b.saved;
      return std::pair(a.deadline, a.id) > std::pair(b.deadline, b.id);
    }
  };

  std::optional<Offer> offer(Party& m, int idle) {
    const auto next = std::find_if(m.traveller.levels.begin(), m.traveller.levels.end(),
                                   [&](const Level& level) { return level.gpus > m.gpus; });
    if (next == m.traveller.levels.end() || next->gpus - m.gpus > idle) return std::nullopt;
    Offer offer;
    offer.idle = m.gpus == 0;
    offer.first = m.view->spec->goes_first;
    offer.deadline = m.traveller.deadline;
    offer.id = m.view->id;
    offer.party = &m;
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
    auto growth = book_.growth(m, idle);
    if (!growth) return std::nullopt;
    offer.plan = std::move(growth->plan);
    offer.saved = growth->saved;
    return offer;
  }

  void hand_out_leftovers() {
    for (Party& m : book_.promised()) m.gpus = m.plan.gpus_at(now_);
    int idle = book_.idle();
    std::priority_queue<Offer> offers;
    const auto put = [&](Party& m) {
      if (idle == 0) return;
      if (auto made = offer(m, idle)) offers.push(std::move(*made));
    };
    for (Party& m : book_.promised()) put(m);
    for (Party& m : guests_) put(m);
    while (idle > 0 && !offers.empty()) {
      Party& m = *offers.top().party;
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
      if (made->plan) book_.replace(m, std::move(*made->plan));
      put(m);
    }
  }

  Decision conclude() {
    Decision decision;
    decision.reject = std::move(rejected_);
    Time again = kNever;
    for (FlowRecord& record : state_.records) record.promised = false;
    for (Party& m : book_.promised()) {
      if (m.gpus > 0) decision.run.push_back({m.view->id, Count{GpuType(), m.gpus}});
      again = std::min(again, m.plan.next_change(now_));
      if (config_.admission) {
        decision.promise.push_back(
            {m.view->id, m.plan.finish, m.plan.steps, PromiseBook::movable(m)});
        const auto record = record_of(m.view->id);
        record->promised = true;
        record->plan = std::move(m.plan);
      }
    }
    for (const Party& m : guests_) {
      if (m.gpus > 0) decision.run.push_back({m.view->id, Count{GpuType(), m.gpus}});
    }
    if (again != kNever) decision.again_at = again;
    return decision;
  }

  const ElasticFlow::Config& config_;
  const Snapshot& snapshot_;
  ElasticFlow::State& state_;
  Time now_;
  PromiseBook book_;
  std::vector<Party> guests_;
  std::vector<JobId> arrived_;
  std::vector<Reject> rejected_;
};

}  // namespace

Decision ElasticFlow::decide(const Snapshot& snapshot, State& state) const {
  return ElasticFlowRound(config, snapshot, state).decide();
}

int ElasticFlow::least_gpus(const JobSpec& spec, const SpeedModel& speed) const {
  const auto levels = levels_of(spec, speed, std::numeric_limits<int>::max());
  return levels.empty() ? spec.requested : levels.front().gpus;
}

Json ElasticFlow::State::save() const {
  Json json = {{"gpus", gpus}, {"jobs", Json::array()}};
  for (const FlowRecord& record : records) {
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
      FlowRecord record;
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
      const auto out_of_order = [](const GpuStep& a, const GpuStep& b) { return a.from >= b.from; };
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

std::vector<PolicyEntry> elasticflow_rows() {
  PolicyEntry entry;
  entry.name = "elasticflow";
  entry.paper = "Gu et al., ASPLOS'23";
  entry.summary =
      "promises deadlines and keeps them with as few GPUs as will do; grows on leftovers";
  entry.knows = "deadline, work left, speed curve, restart cost";
  entry.elastic = true;
  entry.one_type = true;
  entry.work_conserving = false;
  entry.admits = true;
  entry.admission_key = "admission";
  entry.keys = {choice_key("admission", {"on", "off"},
                           "off: take every job in and promise nothing, for comparison")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    return erase(ElasticFlow{{values.text("admission") == "on"}});
  };
  return {entry};
}

}  // namespace rubato::policy
