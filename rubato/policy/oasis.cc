#include "rubato/policy/oasis.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "rubato/policy/promise_book.h"
#include "rubato/policy/promise_books.h"

namespace rubato::policy {
namespace {

using OasisRecord = Oasis::Record;

bool wants_a_plan(const JobSpec& spec) { return spec.deadline || spec.utility; }

// The length of a slot must be one of decisions.
Duration slot_of(Duration wished, Duration interval) {
  if (interval == Duration(0)) return wished;
  return (wished + interval - Duration(1)) / interval * interval;
}

// One decision.
class OasisRound {
 public:
  OasisRound(const Oasis::Config& config, const Snapshot& snapshot, Oasis::State& state)
      : config_(config),
        snapshot_(snapshot),
        state_(state),
        now_(snapshot.now),
        slot_(slot_of(config.slot, snapshot.interval)),
        gpus_(snapshot.cluster.usable()),
        book_(snapshot, GpuType(), gpus_) {}

  Decision decide() {
    meet();
    book_.keep_plans(std::exchange(state_.gpus, gpus_) == gpus_, guests_);
    promise_again();
    for (const JobId id : arrived_) admit(id);
    return conclude();
  }

 private:
  void meet() {
    std::vector<OasisRecord> records;
    records.reserve(snapshot_.jobs.size());
    auto known = state_.records.begin();
    for (const JobView& job : snapshot_.jobs) {
      while (known != state_.records.end() && known->job < job.id) ++known;
      if (known != state_.records.end() && known->job == job.id) {
        records.push_back(std::move(*known++));
      } else {
        records.emplace_back();
        records.back().job = job.id;
        if (wants_a_plan(*job.spec)) arrived_.push_back(job.id);
      }
      OasisRecord& record = records.back();
      if (record.speed != job.speed || record.spec != job.spec) {
        record.spec = job.spec;
        record.speed = job.speed;
        record.levels = levels_of(*job.spec, *job.speed, snapshot_.cluster.installed());
      }
    }
    state_.records = std::move(records);
    for (OasisRecord& record : state_.records) {
      const JobView& job = *snapshot_.jobs.find(record.job);
      if (record.promised) {
        Party party = book_.party(job, record.levels);
        if (job.spec->utility) party.traveller.deadline = record.due;
        book_.enter(std::move(party), std::move(record.plan));
      } else if (!std::binary_search(arrived_.begin(), arrived_.end(), record.job)) {
        guests_.push_back(book_.party(job, record.levels));
      }
    }
  }

  [[nodiscard]] Worth worth_of(const JobView& job) const {
    return {[&job](Time end) { return job.spec->worth(job.submitted, end); },
            job.spec->utility ? kNever : job.spec->deadline.value_or(kNever)};
  }
  // Nobody looks further than the horizon, except for who has more time.
  [[nodiscard]] Time latest_end(const JobView& job) const {
    const auto& utility = job.spec->utility;
    const Time wished =
        utility ? job.submitted + 2 * utility->target : job.spec->deadline.value_or(now_);
    return std::max(now_ + config_.horizon, wished);
  }
  [[nodiscard]] PriceRange range() const {
    if (config_.range.low > 0) return config_.range;
    return state_.seen.range(gpus_ * (seconds(config_.horizon) / seconds(slot_)));
  }
  [[nodiscard]] SlotPlanner planner() const { return {book_.free(), gpus_, slot_, range()}; }

  void see(const JobView& job, const Party& party) {
    const auto& levels = party.traveller.levels;
    if (levels.empty()) return;
    const double needed = std::max(1.0, planner().least_gpu_slots(party.traveller, now_));
    const double alone = job.progress.left(now_) / levels.back().rate;
    const Time soonest = now_ + job.spec->restart_cost + from_seconds(alone);
    const auto& utility = job.spec->utility;
    const double latest = utility ? utility->value / 2 : job.spec->weight;
    state_.seen.see(std::max(latest, job.spec->worth(job.submitted, soonest)), latest, needed);
  }

  // Promises the best plan, or gives the party back.
  [[nodiscard]] bool promise(Party& party) {
    const JobView& job = *party.view;
    auto offer = planner().best(party.traveller, now_, worth_of(job), latest_end(job));
    if (!offer) return false;
    if (job.spec->utility) {
      party.traveller.deadline = offer->plan.finish + offer->plan.margin;
      record_of(job.id)->due = party.traveller.deadline;
    }
    book_.add(std::move(party), std::move(offer->plan));
    return true;
  }

  // Those who lost a promise.
  void promise_again() {
    std::vector<Party> rest;
    for (Party& party : guests_) {
      const JobSpec& spec = *party.view->spec;
      const bool hopes = spec.utility || (spec.deadline && *spec.deadline > now_);
      if (!hopes || !promise(party)) rest.push_back(std::move(party));
    }
    guests_ = std::move(rest);
  }

  void admit(JobId id) {
    const JobView& job = *snapshot_.jobs.find(id);
    const auto record = record_of(id);
    Party party = book_.party(job, record->levels);
    see(job, party);
    if (promise(party)) return;
    if (job.accepted()) {  // taken in before: it goes on without a promise
      guests_.push_back(std::move(party));
      return;
    }
    Reject reject{id, "no plan until then is worth more than its GPUs cost", std::nullopt};
    if (!job.spec->utility) {
      reject.earliest = planner().first_end(party.traveller, now_, job.spec->weight,
                                            *job.spec->deadline, latest_end(job) + config_.horizon);
    }
    rejected_.push_back(std::move(reject));
    state_.records.erase(record);
  }

  [[nodiscard]] std::vector<OasisRecord>::iterator record_of(JobId id) {
    return std::lower_bound(state_.records.begin(), state_.records.end(), id,
                            [](const OasisRecord& r, JobId j) { return r.job < j; });
  }

  // First a GPU count for each, then larger ones in turn.
  void feed_guests() {
    int idle = book_.idle();
    std::stable_sort(guests_.begin(), guests_.end(), [](const Party& a, const Party& b) {
      const bool first = a.view->spec->goes_first;
      return first != b.view->spec->goes_first ? first : a.view->id < b.view->id;
    });
    bool grew = true;
    while (idle > 0 && grew) {
      grew = false;
      for (Party& guest : guests_) {
        for (const Level& level : guest.traveller.levels) {
          if (level.gpus <= guest.gpus) continue;
          if (level.gpus - guest.gpus > idle) break;
          idle -= level.gpus - guest.gpus;
          guest.gpus = level.gpus;
          grew = true;
          break;
        }
      }
    }
  }

  Decision conclude() {
    feed_guests();
    Decision decision;
    decision.reject = std::move(rejected_);
    const auto grant = [&](const Party& party) {
      if (party.gpus > 0) decision.run.push_back({party.view->id, Count{GpuType(), party.gpus}});
    };
    for (OasisRecord& record : state_.records) record.promised = false;
    Time again = kNever;
    for (Party& party : book_.promised()) {
      party.gpus = party.plan.gpus_at(now_);
      grant(party);
      again = std::min(again, party.plan.next_change(now_));
      decision.promise.push_back(
          {party.view->id, party.plan.finish, party.plan.steps, PromiseBook::movable(party)});
      const auto record = record_of(party.view->id);
      record->promised = true;
      record->plan = std::move(party.plan);
    }
    for (const Party& party : guests_) grant(party);
    if (again != kNever) decision.again_at = again;
    return decision;
  }

  const Oasis::Config& config_;
  const Snapshot& snapshot_;
  Oasis::State& state_;
  Time now_;
  Duration slot_;
  int gpus_;
  PromiseBook book_;
  std::vector<Party> guests_;
  std::vector<JobId> arrived_;
  std::vector<Reject> rejected_;
};

}  // namespace

Decision Oasis::decide(const Snapshot& snapshot, State& state) const {
  return OasisRound(config, snapshot, state).decide();
}

int Oasis::least_gpus(const JobSpec& spec, const SpeedModel& speed) const {
  const auto levels = levels_of(spec, speed, std::numeric_limits<int>::max());
  return levels.empty() ? spec.requested : levels.front().gpus;
}

Json Oasis::State::save() const {
  Json json = {{"gpus", gpus}, {"seen", seen.save()}, {"jobs", Json::array()}};
  for (const OasisRecord& record : records) {
    Json row = {{"job", record.job.value()}};
    if (record.promised) {
      row["plan"] = to_json(Standing{true, GpuType(), record.plan, {}});
      row["due"] = record.due.time_since_epoch().count();
    }
    json["jobs"].push_back(std::move(row));
  }
  return json;
}

Result<Oasis::State> Oasis::State::load(const Json& json) {
  try {
    State state;
    state.gpus = json.at("gpus").get<int>();
    state.seen = SeenJobs::load(json.at("seen"));
    for (const auto& row : json.at("jobs")) {
      OasisRecord record;
      record.job = JobId(row.at("job").get<JobId::rep>());
      if (row.contains("plan")) {
        auto standing = standing_of(row.at("plan"));
        if (!standing) return Error{fmt::format("saved OASiS state: {}", standing.error().message)};
        record.promised = true;
        record.plan = std::move(standing->plan);
        record.due = Time(Duration(row.at("due").get<std::int64_t>()));
      }
      if (!state.records.empty() && !(state.records.back().job < record.job))
        return Error{"saved OASiS state: the jobs are not in order"};
      state.records.push_back(std::move(record));
    }
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved OASiS state: {}", problem.what())};
  }
}

std::vector<PolicyEntry> oasis_rows() {
  PolicyEntry entry;
  entry.name = "oasis";
  entry.paper = "Bao et al., INFOCOM'18";
  entry.summary =
      "prices GPUs of future slots, takes jobs in whose end is worth more than their cheapest "
      "plan, and keeps the plan";
  entry.knows = "deadline and weight or utility, work left, speed curve, restart cost";
  entry.elastic = true;
  entry.one_type = true;
  entry.work_conserving = false;
  entry.admits = true;
  entry.keys = {
      number_key("slot", 900, 0.001, 1e6, "seconds of a slot: counts change only between slots"),
      number_key("horizon", 48, 0.001, 1e5,
                 "hours over which prices are meant; a plan may be longer if the deadline is"),
      number_key("low", 0, 0, 1e12,
                 "the price of a GPU for a slot while none is taken; 0: by the jobs so far"),
      number_key("high", 0, 0, 1e12, "the price when all are taken; 0: by the jobs so far")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    const PriceRange range{values.number("low"), values.number("high")};
    if ((range.low > 0) != (range.high > 0) || range.high < range.low)
      return Error{"policy oasis: low and high go together, and low is not above high"};
    return erase(Oasis{{from_seconds(values.number("slot")),
                        from_seconds(3600 * values.number("horizon")), range}});
  };
  return {entry};
}

}  // namespace rubato::policy
