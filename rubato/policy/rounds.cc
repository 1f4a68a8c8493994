#include "rubato/policy/rounds.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/random.h"
#include "rubato/policy/staying.h"

namespace rubato::policy {
std::vector<GpuType> all_types(const Cluster& cluster) {
  std::vector<GpuType> types;
  types.reserve(static_cast<std::size_t>(cluster.types()));
  for (int t = 0; t < cluster.types(); ++t) types.emplace_back(static_cast<GpuType::rep>(t));
  return types;
}

std::vector<int> usable_gpus(const Cluster& cluster) {
  std::vector<int> usable;
  for (const GpuType type : all_types(cluster)) usable.push_back(cluster.usable(type));
  return usable;
}

namespace {

bool runs_on(const Snapshot& snapshot, JobId id, std::optional<JobId> beside, GpuType type) {
  const JobView& job = *snapshot.jobs.find(id);
  const Shape shape{type, job.spec->requested, 0, 0};
  if (!beside) return job.speed->rate(shape) > 0;
  const JobView& other = *snapshot.jobs.find(*beside);
  return job.speed->beside(shape, *other.speed) > 0 && other.speed->beside(shape, *job.speed) > 0;
}

// Between 0 and 1, and far apart for consecutive ids.
double spread_of(JobId job) {
  constexpr double kGoldenRatio = 0.6180339887498949;
  const double turned = (static_cast<double>(job.value()) + 0.5) * kGoldenRatio;
  return turned - std::floor(turned);
}

}  // namespace

Decision Rounds::decide(const Snapshot& snapshot, const Settings& settings, const Solve& solve) {
  drop_ended(snapshot);
  if (over(snapshot)) {
    for (const auto& running : running_) account(running, snapshot.now);
    running_.clear();
    if (shares_due(snapshot, settings)) make_shares(snapshot, settings, solve);
    begin(snapshot, settings);
    if (running_.empty() && stale(snapshot)) {  // jobs with a share cannot use it
      make_shares(snapshot, settings, solve);
      begin(snapshot, settings);
    }
  }
  return present(snapshot, settings);
}

bool Rounds::over(const Snapshot& snapshot) const {
  return !end_ || snapshot.now >= *end_ || running_.empty() || disturbed(snapshot);
}

// Whether a failure took GPUs or jobs, or a repair brought GPUs back.
bool Rounds::disturbed(const Snapshot& snapshot) const {
  if (usable_ != usable_gpus(snapshot.cluster)) return true;
  return std::any_of(running_.begin(), running_.end(), [&](const Running& running) {
    return snapshot.jobs.find(running.job)->target.empty();
  });
}

void Rounds::account(const Running& running, Time until) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.job == running.job && e.beside == running.beside;
  });
  const double passed = seconds(until - running.since);
  if (entry != entries_.end()) entry->account[running.type.index()] += passed;
}

void Rounds::drop_ended(const Snapshot& snapshot) {
  const auto gone = [&](std::optional<JobId> id) {
    return id && snapshot.jobs.find(*id) == nullptr;
  };
  for (auto& running : running_) {
    if (!gone(running.job) && !gone(running.beside)) continue;
    account(running, snapshot.now);
    running.since = snapshot.now;
    if (gone(running.job)) running.job = running.beside.value_or(running.job);
    running.beside.reset();  // the other job continues alone until the round ends
  }
  std::erase_if(running_, [&](const Running& running) { return gone(running.job); });
  std::erase_if(entries_, [&](const Entry& e) { return gone(e.job) || gone(e.beside); });
}

// Whether the shares were made for other jobs or other GPUs.
bool Rounds::stale(const Snapshot& snapshot) const {
  std::vector<JobId> present;
  for (const JobView& job : snapshot.jobs) present.push_back(job.id);
  return !present.empty() && (present != known_ || solved_for_ != usable_gpus(snapshot.cluster));
}

bool Rounds::shares_due(const Snapshot& snapshot, const Settings& settings) const {
  if (!stale(snapshot)) return false;
  return !solved_at_ || entries_.empty() || snapshot.now - *solved_at_ >= settings.resolve ||
         solved_for_ != usable_gpus(snapshot.cluster);
}

void Rounds::make_shares(const Snapshot& snapshot, const Settings& settings, const Solve& solve) {
  const std::size_t types = static_cast<std::size_t>(snapshot.cluster.types());
  const double elapsed = solved_at_ ? seconds(snapshot.now - *solved_at_) : 0;
  const double round = seconds(settings.length);
  const auto key = [](const Entry& e) {
    return std::tuple(e.job, e.beside.has_value(), e.beside.value_or(e.job));
  };
  const std::vector<Entry> before = std::exchange(entries_, {});
  std::vector<TimeShare> shares = solve(snapshot);
  entries_.reserve(shares.size());
  for (auto& share : shares) {
    CHECK(share.of_type.size() == types);
    const double first = round * spread_of(share.job);
    entries_.push_back(
        {share.job, share.beside, std::move(share.of_type), std::vector<double>(types, first)});
  }
  std::sort(entries_.begin(), entries_.end(),
            [&](const Entry& a, const Entry& b) { return key(a) < key(b); });
  auto old = before.begin();
  for (auto& entry : entries_) {
    while (old != before.end() && key(*old) < key(entry)) ++old;
    if (old == before.end() || key(*old) != key(entry)) continue;
    // A node that has joined may have a type that was not there before.
    for (std::size_t t = 0; t < std::min(types, old->account.size()); ++t) {
      const double first = entry.account[t];
      const double ahead = old->account[t] - first - old->share[t] * elapsed;
      entry.account[t] += std::clamp(ahead, -round, round);
    }
  }
  solved_at_ = snapshot.now;
  solved_for_ = usable_gpus(snapshot.cluster);
  known_.clear();
  for (const JobView& job : snapshot.jobs) known_.push_back(job.id);
}

std::vector<GpuType> Rounds::order(const Snapshot& snapshot, const Settings& settings) const {
  std::vector<GpuType> types = all_types(snapshot.cluster);
  if (!settings.fastest_first) {
    Random random = Random(settings.seed).split(count_);
    for (std::size_t left = types.size(); left > 1; --left)
      std::swap(types[left - 1], types[random.below(left)]);
    return types;
  }
  std::vector<double> speed(types.size(), 0);  // each job's rates, relative to its best
  for (const JobView& job : snapshot.jobs) {
    double best = 0;
    for (const GpuType type : types)
      best = std::max(best, job.speed->on(type, job.spec->requested));
    for (const GpuType type : types) {
      if (best > 0) speed[type.index()] += job.speed->on(type, job.spec->requested) / best;
    }
  }
  std::stable_sort(types.begin(), types.end(),
                   [&](GpuType a, GpuType b) { return speed[a.index()] > speed[b.index()]; });
  return types;
}

void Rounds::begin(const Snapshot& snapshot, const Settings& settings) {
  usable_ = usable_gpus(snapshot.cluster);
  std::vector<JobId> taken;  // ascending
  std::vector<int> room = usable_;
  if (snapshot.jobs.unpreemptible() > 0) go_on_with_staying(snapshot, room, taken);
  for (const GpuType type : order(snapshot, settings))
    fill(snapshot, type, room[type.index()], settings.spare, taken);
  end_ = snapshot.now + settings.length;
  ++count_;
}

void Rounds::go_on_with_staying(const Snapshot& snapshot, std::vector<int>& room,
                                std::vector<JobId>& taken) {
  for (const JobView& job : snapshot.jobs) {
    if (!job.stays()) continue;
    const GpuType type = job.target.type();
    room[type.index()] -= usable_part(job.target, snapshot.cluster);
    taken.push_back(job.id);
    running_.push_back({job.id, std::nullopt, type, job.target.gpus(), snapshot.now});
  }
}

void Rounds::fill(const Snapshot& snapshot, GpuType type, int room, bool spare,
                  std::vector<JobId>& taken) {
  const std::size_t t = type.index();
  struct Candidate {
    double turn, share;
    std::size_t entry;
  };
  std::vector<Candidate> queue;
  queue.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const double share = entries_[i].share[t];
    if (share > 0) {
      queue.push_back({entries_[i].account[t] / share, share, i});
    } else if (spare) {
      queue.push_back({std::numeric_limits<double>::infinity(), 0, i});
    }
  }
  std::sort(queue.begin(), queue.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(a.turn, -a.share, a.entry) < std::tuple(b.turn, -b.share, b.entry);
  });
  const auto place_of = [&](JobId id) { return std::lower_bound(taken.begin(), taken.end(), id); };
  const auto is_taken = [&](JobId id) {
    const auto at = place_of(id);
    return at != taken.end() && *at == id;
  };
  for (const auto& candidate : queue) {
    if (room <= 0) return;
    const Entry& entry = entries_[candidate.entry];
    const int gpus = snapshot.jobs.find(entry.job)->spec->requested;
    if (gpus > room || is_taken(entry.job) || (entry.beside && is_taken(*entry.beside))) continue;
    if (!runs_on(snapshot, entry.job, entry.beside, type)) continue;
    room -= gpus;
    taken.insert(place_of(entry.job), entry.job);
    if (entry.beside) taken.insert(place_of(*entry.beside), *entry.beside);
    running_.push_back({entry.job, entry.beside, type, gpus, snapshot.now});
  }
}

Decision Rounds::present(const Snapshot& snapshot, const Settings& settings) const {
  Decision decision;
  for (const auto& running : running_) {
    const JobView& job = *snapshot.jobs.find(running.job);
    const Count count{running.type, running.gpus};
    decision.run.push_back({running.job, job.stays() ? Want(Exact{job.target}) : Want(count)});
    if (running.beside) decision.run.push_back({*running.beside, Beside{running.job}});
  }
  if (!running_.empty()) {
    decision.again_at = end_;
  } else if (solved_at_ && std::any_of(snapshot.jobs.begin(), snapshot.jobs.end(),
                                       [&](const JobView& job) { return !is_known(job.id); })) {
    decision.again_at = std::max(*solved_at_ + settings.resolve, *end_);
  }
  return decision;
}

Json Rounds::save() const {
  const auto pair = [](const std::optional<JobId>& id) {
    return id ? Json(id->value()) : Json(nullptr);
  };
  const auto micros = [](Time t) { return t.time_since_epoch().count(); };
  Json json = {{"usable", usable_}, {"solved_for", solved_for_}, {"count", count_}};
  json["solved_at"] = solved_at_ ? Json(micros(*solved_at_)) : Json(nullptr);
  json["end"] = end_ ? Json(micros(*end_)) : Json(nullptr);
  json["known"] = Json::array();
  for (const JobId id : known_) json["known"].push_back(id.value());
  json["entries"] = Json::array();
  for (const auto& e : entries_)
    json["entries"].push_back({e.job.value(), pair(e.beside), e.share, e.account});
  json["running"] = Json::array();
  for (const auto& r : running_) {
    json["running"].push_back(
        {r.job.value(), pair(r.beside), r.type.value(), r.gpus, micros(r.since)});
  }
  return json;
}

Result<Rounds> Rounds::load(const Json& json) {
  try {
    Rounds rounds;
    const auto time = [](const Json& value) { return Time(Duration(value.get<std::int64_t>())); };
    const auto pair = [](const Json& value) {
      return value.is_null() ? std::nullopt : std::optional(JobId(value.get<JobId::rep>()));
    };
    rounds.usable_ = json.at("usable").get<std::vector<int>>();
    rounds.solved_for_ = json.at("solved_for").get<std::vector<int>>();
    rounds.count_ = json.at("count").get<std::uint64_t>();
    if (!json.at("solved_at").is_null()) rounds.solved_at_ = time(json.at("solved_at"));
    if (!json.at("end").is_null()) rounds.end_ = time(json.at("end"));
    for (const auto& id : json.at("known")) rounds.known_.emplace_back(id.get<JobId::rep>());
    for (const auto& row : json.at("entries")) {
      rounds.entries_.push_back({JobId(row.at(0).get<JobId::rep>()), pair(row.at(1)),
                                 row.at(2).get<std::vector<double>>(),
                                 row.at(3).get<std::vector<double>>()});
    }
    for (const auto& row : json.at("running")) {
      rounds.running_.push_back({JobId(row.at(0).get<JobId::rep>()), pair(row.at(1)),
                                 GpuType(row.at(2).get<GpuType::rep>()), row.at(3).get<int>(),
                                 time(row.at(4))});
    }
    return rounds;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved rounds: {}", problem.what())};
  }
}

}  // namespace rubato::policy
