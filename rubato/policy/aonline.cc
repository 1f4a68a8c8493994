#include "rubato/policy/aonline.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <utility>

#include "rubato/policy/promise_books.h"
#include "rubato/policy/slot_plan.h"

namespace rubato::policy {
namespace {

using AonlineRecord = Aonline::Record;

constexpr int kMostBatchSlots = 64;
// Batches of more units than this do not get longer.
constexpr int kMostDoublings = 30;

// One batch: its slots, by type.
class BatchOfJobs {
 public:
  BatchOfJobs(const Snapshot& snapshot, Duration length, int slots)
      : snapshot_(snapshot), now_(snapshot.now), slot_(length / slots) {
    const auto types = static_cast<std::size_t>(snapshot.cluster.types());
    room_.assign(types, std::vector<int>(static_cast<std::size_t>(slots)));
    for (std::size_t t = 0; t < types; ++t)
      std::fill(room_[t].begin(), room_[t].end(), snapshot.cluster.usable(type_at(t)));
    prices_.assign(types, std::vector<double>(static_cast<std::size_t>(slots)));
  }

  // GPUs of a job that runs, or of an earlier plan.
  void occupy(GpuType type, int gpus, Time from, Time until) {
    auto& room = room_[type.index()];
    for (std::size_t s = slot_at(from); s < room.size() && begin_of(s) < until; ++s)
      room[s] -= gpus;
  }

  struct Entry {
    const JobView* job = nullptr;
    Standing standing;  // its levels
    double gpu_slots = 0;
    AonlineRecord* record = nullptr;
  };
  void add(const JobView& job, AonlineRecord& record) {
    Entry entry{&job, {}, std::numeric_limits<double>::infinity(), &record};
    entry.standing.set_levels(job, snapshot_.cluster);
    for (const auto& levels : entry.standing.levels) {
      for (const Level& level : levels)
        entry.gpu_slots = std::min(
            entry.gpu_slots, level.gpus * job.progress.left(now_) / level.rate / seconds(slot_));
    }
    entry.gpu_slots = std::max(1.0, entry.gpu_slots);
    seen_.see(job.spec->weight, job.spec->weight, entry.gpu_slots);
    entries_.push_back(std::move(entry));
  }

  void plan() {
    double all = 0;
    for (const auto& room : room_)
      for (const int gpus : room) all += std::max(0, gpus);
    range_ = seen_.range(all);
    for (std::size_t t = 0; t < room_.size(); ++t)
      for (std::size_t s = 0; s < room_[t].size(); ++s) price(t, s);
    std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return a.job->spec->weight / a.gpu_slots > b.job->spec->weight / b.gpu_slots;
    });
    for (Entry& entry : entries_) {
      if (const auto best = cheapest(entry)) take(entry, *best);
    }
  }

 private:
  struct Choice {
    double cost = 0;
    std::size_t type = 0, first = 0, slots = 0;
    int gpus = 0;
  };

  [[nodiscard]] Time begin_of(std::size_t s) const {
    return now_ + slot_ * static_cast<Duration::rep>(s);
  }
  [[nodiscard]] std::size_t slot_at(Time when) const {
    return when <= now_ ? 0 : static_cast<std::size_t>((when - now_) / slot_);
  }
  void price(std::size_t t, std::size_t s) {
    const int all = snapshot_.cluster.usable(type_at(t));
    prices_[t][s] =
        range_.at(all > 0 ? 1 - static_cast<double>(std::max(0, room_[t][s])) / all : 1);
  }

  // How many slots the job has a count, whole ones.
  [[nodiscard]] std::size_t slots_of(const JobView& job, const Level& level) const {
    const Duration length =
        job.spec->restart_cost + from_seconds(job.progress.left(now_) / level.rate);
    return std::max<std::size_t>(1,
                                 static_cast<std::size_t>((length + slot_ - Duration(1)) / slot_));
  }

  [[nodiscard]] std::optional<Choice> cheapest(const Entry& entry) const {
    std::optional<Choice> best;
    for (std::size_t t = 0; t < room_.size(); ++t) {
      for (const Level& level : entry.standing.levels[t]) {
        const std::size_t slots = slots_of(*entry.job, level);
        double sum = 0;           // of the prices of the last `slots` slots
        std::size_t fitting = 0;  // slots in a row, up to here, that have room
        for (std::size_t s = 0; s < room_[t].size(); ++s) {
          sum += prices_[t][s] - (s >= slots ? prices_[t][s - slots] : 0);
          fitting = room_[t][s] >= level.gpus ? fitting + 1 : 0;
          if (fitting < slots) continue;
          const double cost = sum * level.gpus;
          const std::size_t end = s + 1;
          const bool better = !best || cost < best->cost * (1 - 1e-9) ||
                              (cost <= best->cost && end < best->first + best->slots);
          if (better) best = Choice{cost, t, end - slots, slots, level.gpus};
        }
      }
    }
    if (best && !(entry.job->spec->weight > best->cost)) best.reset();
    return best;
  }

  void take(Entry& entry, const Choice& choice) {
    for (std::size_t s = choice.first; s < choice.first + choice.slots; ++s) {
      room_[choice.type][s] -= choice.gpus;
      price(choice.type, s);
    }
    *entry.record = {entry.job->id, true, type_at(choice.type), choice.gpus,
                     begin_of(choice.first)};
  }

  const Snapshot& snapshot_;
  Time now_;
  Duration slot_;
  std::vector<std::vector<int>> room_;       // by type and slot
  std::vector<std::vector<double>> prices_;  // the same
  std::vector<Entry> entries_;
  SeenJobs seen_;
  PriceRange range_;
};

// One decision.
class AonlineRound {
 public:
  AonlineRound(const Aonline::Config& config, const Snapshot& snapshot, Aonline::State& state)
      : config_(config), snapshot_(snapshot), state_(state), now_(snapshot.now) {
    for (int t = 0; t < snapshot.cluster.types(); ++t)
      idle_.push_back(snapshot.cluster.usable(type_at(static_cast<std::size_t>(t))));
  }

  Decision decide() {
    meet();
    go_on();
    start_planned();
    if (has_unplanned() && now_ >= batch_time()) {
      plan_batch();
      start_planned();
    }
    if (has_unplanned()) again_ = std::min(again_, batch_time());
    if (again_ != kNever) decision_.again_at = again_;
    return std::move(decision_);
  }

 private:
  // Who has GPUs needs no record; who has lost them has no plan.
  void meet() {
    std::vector<AonlineRecord> records;
    bool empty = true;  // nobody is here who was here before
    auto known = state_.records.begin();
    for (const JobView& job : snapshot_.jobs) {
      while (known != state_.records.end() && known->job < job.id) ++known;
      const bool here = known != state_.records.end() && known->job == job.id;
      empty = empty && !here && job.target.empty() && !job.has_run();
      if (!job.target.empty()) continue;
      records.push_back(here ? *known : AonlineRecord{job.id, false, {}, 0, kNever});
      AonlineRecord& record = records.back();
      if (record.planned && record.gpus > snapshot_.cluster.usable(record.type))
        record.planned = false;
    }
    state_.records = std::move(records);
    if (!empty) return;
    state_.origin = now_;
    state_.batch = 0;
  }

  void grant(JobId job, GpuType type, int gpus) {
    decision_.run.push_back({job, Count{type, gpus}});
    idle_[type.index()] -= gpus;
  }

  void go_on() {
    for (const JobView& job : snapshot_.jobs) {
      if (job.target.empty()) continue;
      // Some of its GPUs may be on a node that is leaving.
      const int gpus = job.target.gpus();
      if (gpus <= idle_[job.target.type().index()]) grant(job.id, job.target.type(), gpus);
    }
  }

  void start_planned() {
    std::vector<AonlineRecord*> due;
    for (AonlineRecord& record : state_.records) {
      if (record.planned && record.start <= now_) due.push_back(&record);
    }
    std::stable_sort(due.begin(), due.end(), [](const AonlineRecord* a, const AonlineRecord* b) {
      return a->start < b->start;
    });
    for (AonlineRecord* record : due) {
      if (record->gpus > idle_[record->type.index()]) continue;
      grant(record->job, record->type, record->gpus);
      record->planned = false;  // if it has no GPUs the next time, it has lost them
      started_.push_back(record->job);
    }
    again_ = kNever;
    for (const AonlineRecord& record : state_.records) {
      if (record.planned && record.start > now_) again_ = std::min(again_, record.start);
    }
  }

  [[nodiscard]] bool unplanned(const AonlineRecord& record) const {
    return !record.planned &&
           std::find(started_.begin(), started_.end(), record.job) == started_.end();
  }
  [[nodiscard]] bool has_unplanned() const {
    return std::any_of(state_.records.begin(), state_.records.end(),
                       [&](const AonlineRecord& record) { return unplanned(record); });
  }
  [[nodiscard]] Duration length() const {
    return config_.unit * (Duration::rep{1} << std::min(state_.batch, kMostDoublings));
  }
  // Of the next batch. Batches that do not get longer follow each other.
  [[nodiscard]] Time batch_time() const {
    const auto longest = std::max(0, state_.batch - kMostDoublings);
    return state_.origin + length() * (longest + 1);
  }

  void plan_batch() {
    // A time that no decision was taken at is passed over, and so are its slots.
    while (batch_time() + length() <= now_) ++state_.batch;
    const int slots = std::min(kMostBatchSlots, 1 << std::min(state_.batch, kMostDoublings));
    BatchOfJobs batch(snapshot_, length(), slots);
    for (const JobView& job : snapshot_.jobs) {
      if (job.target.empty()) continue;
      const Time end =
          job.progress.rate > 0
              ? job.progress.at + from_seconds(job.progress.work_left / job.progress.rate)
              : now_ + length();
      batch.occupy(job.target.type(), job.target.gpus(), now_, std::max(end, now_ + Duration(1)));
    }
    for (AonlineRecord& record : state_.records) {
      const JobView& job = *snapshot_.jobs.find(record.job);
      if (unplanned(record)) {
        batch.add(job, record);
      } else {
        const WorkRate rate = job.speed->on(record.type, record.gpus);
        const Time from = record.planned ? std::max(now_, record.start) : now_;
        batch.occupy(record.type, record.gpus, from,
                     from + job.spec->restart_cost + from_seconds(job.progress.left(now_) / rate));
      }
    }
    batch.plan();
    ++state_.batch;
  }

  const Aonline::Config& config_;
  const Snapshot& snapshot_;
  Aonline::State& state_;
  Time now_;
  std::vector<int> idle_;  // by type
  std::vector<JobId> started_;
  Time again_ = kNever;
  Decision decision_;
};

}  // namespace

Decision Aonline::decide(const Snapshot& snapshot, State& state) const {
  return AonlineRound(config, snapshot, state).decide();
}

int Aonline::least_gpus(const JobSpec& spec, const SpeedModel& speed) const {
  const auto levels = levels_of(spec, speed, std::numeric_limits<int>::max());
  return levels.empty() ? spec.requested : levels.front().gpus;
}

Json Aonline::State::save() const {
  Json json = {
      {"origin", origin.time_since_epoch().count()}, {"batch", batch}, {"jobs", Json::array()}};
  for (const AonlineRecord& record : records) {
    Json row = {{"job", record.job.value()}};
    if (record.planned) {
      row["type"] = record.type.value();
      row["gpus"] = record.gpus;
      row["start"] = record.start.time_since_epoch().count();
    }
    json["jobs"].push_back(std::move(row));
  }
  return json;
}

Result<Aonline::State> Aonline::State::load(const Json& json) {
  try {
    State state;
    state.origin = Time(Duration(json.at("origin").get<std::int64_t>()));
    state.batch = json.at("batch").get<int>();
    for (const auto& row : json.at("jobs")) {
      AonlineRecord record;
      record.job = JobId(row.at("job").get<JobId::rep>());
      record.planned = row.contains("start");
      if (record.planned) {
        record.type = GpuType(row.at("type").get<GpuType::rep>());
        record.gpus = row.at("gpus").get<int>();
        record.start = Time(Duration(row.at("start").get<std::int64_t>()));
      }
      if (!state.records.empty() && !(state.records.back().job < record.job))
        return Error{"saved AOnline state: the jobs are not in order"};
      state.records.push_back(record);
    }
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved AOnline state: {}", problem.what())};
  }
}

std::vector<PolicyEntry> aonline_rows() {
  PolicyEntry entry;
  entry.name = "aonline";
  entry.group = "heterogeneous";
  entry.paper = "Zhou et al., TCC'22";
  entry.summary =
      "plans jobs in batches of doubling length, each with its window, GPU count and type; for "
      "weighted completion time";
  entry.knows = "weight, work left, speed by type and count, restart cost";
  entry.elastic = true;
  entry.work_conserving = false;
  entry.not_live =
      "a job starts only in a batch that is longer than the job, and the length of a job that was "
      "never measured is a guess of an hour";
  entry.keys = {number_key("unit", 60, 0.001, 1e6,
                           "seconds of the first batch; each further one is twice as long")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    return erase(Aonline{{from_seconds(values.number("unit"))}});
  };
  return {entry};
}

}  // namespace rubato::policy
