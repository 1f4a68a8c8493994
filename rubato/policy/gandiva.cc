#include "rubato/policy/gandiva.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

namespace rubato::policy {
namespace {

std::tuple<JobId, JobId, GpuType> pair_of(JobId a, JobId b, GpuType type) {
  return {std::min(a, b), std::max(a, b), type};
}

// Since when the job has trained on its present GPUs; nullopt while it waits or its GPUs change.
std::optional<Time> trains_since(const JobView& job) {
  if (job.held.empty() || !(job.held == job.target)) return std::nullopt;
  return job.progress.at;
}

bool trains(const JobView& job, Time now) {
  const auto since = trains_since(job);
  return since && *since <= now;
}

// Whether it has trained like now for this long.
bool trained_for(const Gandiva::State& state, const JobView& job, Time now, Duration time) {
  if (!job.spec->tries_pairs) return trains(job, now - time);
  const auto found = state.settled.find(job.id);
  return found != state.settled.end() && found->second.since <= now - time;
}

// Whether the two jobs fit on the same GPUs, by the estimate.
bool fit_together(const JobView& a, const JobView& b, GpuType type) {
  if (a.spec->tries_pairs && b.spec->tries_pairs) return true;  // found out by trying
  const Shape shape{type, a.spec->requested, 0, 0};
  return a.speed->beside(shape, *b.speed) > 0 && b.speed->beside(shape, *a.speed) > 0;
}

std::uint64_t lowest_bits(std::uint64_t mask, int count) {
  std::uint64_t taken = 0;
  for (; count > 0; --count) {
    const std::uint64_t bit = mask & (~mask + 1);
    taken |= bit;
    mask ^= bit;
  }
  return taken;
}

}  // namespace

bool Gandiva::pays(const JobView& job, WorkRate now, WorkRate then) const {
  return then > now &&
         (then - now) * kPayback * seconds(config.quantum) > then * seconds(job.spec->restart_cost);
}

void Gandiva::meet(const Snapshot& snapshot, State& state) const {
  const auto gone = [&](JobId id) { return snapshot.jobs.find(id) == nullptr; };
  for (JobId& id : state.order) {  // a guest takes the place of its host if that has ended
    const auto pair = gone(id) ? state.guest_of.find(id) : state.guest_of.end();
    if (pair == state.guest_of.end()) continue;
    id = pair->second;
    state.guest_of.erase(pair);
  }
  std::erase_if(state.order, gone);
  std::erase_if(state.guest_of,
                [&](const auto& pair) { return gone(pair.first) || gone(pair.second); });
  std::erase_if(state.tried, [&](const auto& pair) {
    return gone(std::get<0>(pair)) || gone(std::get<1>(pair));
  });
  std::erase_if(state.alone, [&](const auto& entry) { return gone(entry.first); });
  std::erase_if(state.grown, [&](const auto& entry) { return gone(entry.first); });
  std::erase_if(state.outgrown, gone);
  std::erase_if(state.settled, [&](const auto& entry) { return gone(entry.first); });

  std::set<JobId> known(state.order.begin(), state.order.end());
  for (const auto& [host, guest] : state.guest_of) known.insert(guest);
  for (const JobView& job : snapshot.jobs) {
    if (!known.contains(job.id)) state.order.push_back(job.id);
  }
}

// Live jobs: since when each trains on its GPUs, alone or beside the same job.
void Gandiva::settle(const Snapshot& snapshot, State& state) {
  const auto runs = [](const JobView& job) {
    return !job.held.empty() && job.held == job.target && job.phase == Phase::running;
  };
  for (const JobView& job : snapshot.jobs) {
    if (!job.spec->tries_pairs) continue;
    const JobView* other = job.shares_with ? snapshot.jobs.find(*job.shares_with) : nullptr;
    if (!runs(job) || (other != nullptr && !runs(*other))) {
      state.settled.erase(job.id);
      continue;
    }
    // A job trains at the time of its progress, and a pair when both do.
    const Time since = std::max(job.progress.at, other != nullptr ? other->progress.at : kStart);
    const Settled now{job.generation, job.shares_with, since};
    Settled& known = state.settled.try_emplace(job.id, now).first->second;
    if (known.generation != now.generation || known.beside != now.beside) known = now;
  }
}

// Learns from the running jobs: speeds alone, pairs that do not pay off, growth that did not help.
void Gandiva::measure(const Snapshot& snapshot, State& state) const {
  const Time now = snapshot.now;
  for (const JobView& job : snapshot.jobs) {
    const Duration least = job.spec->tries_pairs ? config.trial : Duration(0);
    if (trained_for(state, job, now, least) && !job.shares_with &&
        job.held.gpus() == job.spec->requested)
      state.alone[job.id] = {job.held.type(), job.progress.rate};
  }
  const auto slowdown = [&](const JobView& job) {
    const GpuType type = job.held.type();
    const auto alone = state.alone.find(job.id);
    const bool measured = alone != state.alone.end() && alone->second.first == type;
    return job.progress.rate /
           (measured ? alone->second.second : job.speed->on(type, job.spec->requested));
  };
  for (auto pair = state.guest_of.begin(); pair != state.guest_of.end();) {
    const JobView& host = *snapshot.jobs.find(pair->first);
    const JobView& guest = *snapshot.jobs.find(pair->second);
    const bool measured = host.shares_with == guest.id &&
                          trained_for(state, host, now, config.trial) &&
                          trained_for(state, guest, now, config.trial);
    if (!measured || slowdown(host) + slowdown(guest) > 1) {
      ++pair;
      continue;
    }
    state.tried.insert(pair_of(host.id, guest.id, host.held.type()));
    state.order.insert(state.order.begin(), guest.id);
    pair = state.guest_of.erase(pair);
  }
  std::erase_if(state.grown, [&](const auto& entry) {
    const JobView& job = *snapshot.jobs.find(entry.first);
    if (job.held.gpus() != entry.second.gpus || !trains(job, now - config.trial)) return false;
    if (job.progress.rate > entry.second.before) return false;
    state.outgrown.insert(job.id);
    return true;
  });
}

// One decision in progress.
class Gandiva::Round {
 public:
  Round(const Gandiva& policy, const Snapshot& snapshot, State& state)
      : policy_(policy), snapshot_(snapshot), state_(state) {
    for (int t = 0; t < snapshot.cluster.types(); ++t)
      free_.push_back(snapshot.cluster.usable(GpuType(static_cast<GpuType::rep>(t))));
  }

  void slice(bool quantum_over) {
    const auto waits = [&](JobId id) { return view(id).target.empty(); };
    const auto runs = [&](JobId id) { return !waits(id); };
    std::vector<JobId> visits = state_.order;
    if (quantum_over) {
      std::stable_partition(visits.begin(), visits.end(), waits);
      state_.order = visits;
    } else {
      std::stable_partition(visits.begin(), visits.end(), runs);
    }
    for (const JobId id : visits) {
      const auto type = room_for(view(id));
      if (!type) {
        waiting_.push_back(id);
        continue;
      }
      take(id, *type);
    }
    separate_misfits();
  }

  // Separates a pair if the two do not fit together on its type. The guest comes first in the
  // queue.
  void separate_misfits() {
    for (auto pair = state_.guest_of.begin(); pair != state_.guest_of.end();) {
      const auto [host, guest] = *pair;
      const auto at = granted_.find(host);
      if (at == granted_.end() || fit_together(view(host), view(guest), at->second.type)) {
        ++pair;
        continue;
      }
      pair = state_.guest_of.erase(pair);
      part(guest);
    }
  }

  // No job has to share while GPUs are idle.
  void unpack() {
    if (!waiting_.empty()) return;
    for (auto pair = state_.guest_of.begin(); pair != state_.guest_of.end();) {
      const JobId guest = pair->second;
      if (!room_for(view(guest))) {
        ++pair;
        continue;
      }
      pair = state_.guest_of.erase(pair);
      part(guest);
    }
  }

  void pack() {
    std::vector<JobId> still;
    for (const JobId id : waiting_) {
      const auto host = state_.guest_of.contains(id) ? std::nullopt : host_for(view(id));
      if (!host) {
        still.push_back(id);
        continue;
      }
      state_.guest_of.emplace(*host, id);
      std::erase(state_.order, id);
    }
    waiting_ = std::move(still);
  }

  void grow() {
    if (!waiting_.empty()) {
      state_.grown.clear();
      return;
    }
    std::erase_if(state_.grown, [&](const auto& entry) {
      const auto at = granted_.find(entry.first);
      if (at == granted_.end() || state_.guest_of.contains(entry.first)) return true;
      const int more = entry.second.gpus - at->second.gpus;
      int& left = free_[at->second.type.index()];
      if (view(entry.first).target.gpus() != entry.second.gpus || left < more) return true;
      left -= more;
      at->second.gpus = entry.second.gpus;
      return false;
    });
    while (const auto best = best_growth()) {
      Count& count = granted_.at(best->job);
      const JobView& job = view(best->job);
      const auto [at, first] = state_.grown.try_emplace(best->job);
      if (first) at->second.before = rate_now(job, count);
      free_[count.type.index()] -= best->gpus - count.gpus;
      count.gpus = at->second.gpus = best->gpus;
    }
  }

  // Moves a job to idle GPUs of a type on which it is faster.
  void change_types() {
    if (!waiting_.empty()) return;
    for (auto& [id, count] : granted_) {
      const JobView& job = view(id);
      if (!settled(job, count)) continue;
      WorkRate best = job.progress.rate;
      std::size_t to = count.type.index();
      for (std::size_t type = 0; type < free_.size(); ++type) {
        const WorkRate then = job.speed->on(GpuType(static_cast<GpuType::rep>(type)), count.gpus);
        if (free_[type] < count.gpus || then <= best || !policy_.pays(job, job.progress.rate, then))
          continue;
        best = then;
        to = type;
      }
      if (to == count.type.index()) continue;
      free_[to] -= count.gpus;
      free_[count.type.index()] += count.gpus;
      count.type = GpuType(static_cast<GpuType::rep>(to));
    }
  }

  // Moves a job to fewer nodes, onto GPUs that are free after this decision.
  void consolidate() {
    std::vector<std::uint64_t> idle;
    for (const Node& node : snapshot_.cluster.nodes()) idle.push_back(node.usable());
    for (const auto& [id, count] : granted_) {
      for (const auto& slice : view(id).target.slices()) idle[slice.node.index()] &= ~slice.mask;
    }
    for (const auto& [host, guest] : state_.guest_of) {
      for (const auto& slice : view(guest).target.slices()) idle[slice.node.index()] &= ~slice.mask;
    }
    for (const auto& [id, count] : granted_) {
      const JobView& job = view(id);
      if (!settled(job, count) || job.target.nodes() < 2) continue;
      auto better = fewer_nodes(job, idle);
      if (!better) continue;
      for (const auto& slice : better->slices()) idle[slice.node.index()] &= ~slice.mask;
      moved_.emplace(id, std::move(*better));
    }
  }

  [[nodiscard]] bool anybody_waits() const { return !waiting_.empty(); }

  [[nodiscard]] std::vector<Grant> grants() const {
    std::vector<Grant> grants;
    for (const auto& [id, count] : granted_) {
      const auto exact = moved_.find(id);
      grants.push_back({id, exact == moved_.end() ? Want(count) : Want(Exact{exact->second})});
    }
    for (const auto& [host, guest] : state_.guest_of) {
      if (granted_.contains(host)) grants.push_back({guest, Beside{host}});
    }
    return grants;
  }

  // When the next pair or growth has been measured.
  [[nodiscard]] std::optional<Time> next_measurement() const {
    std::optional<Time> next;
    const auto consider = [&](Time from) {
      const Time at = from + policy_.config.trial;
      if (at > snapshot_.now && (!next || at < *next)) next = at;
    };
    const auto restarted = [&](const JobView& job) {
      return snapshot_.now + job.spec->restart_cost;
    };
    for (const auto& [host, guest] : state_.guest_of) {
      if (!granted_.contains(host)) continue;
      const JobView &a = view(host), &b = view(guest);
      const auto since_a = since(a), since_b = since(b);
      const bool together = a.shares_with == guest && since_a && since_b;
      consider(together ? std::max(*since_a, *since_b) : std::max(restarted(a), restarted(b)));
    }
    for (const auto& [id, count] : granted_) {  // live jobs that are to be measured alone
      if (!waiting_.empty() && !may_try(view(id)))
        consider(since(view(id)).value_or(snapshot_.now));
    }
    for (const auto& [id, growth] : state_.grown) {
      const JobView& job = view(id);
      const auto from = since(job);
      consider(job.held.gpus() == growth.gpus && from ? *from : restarted(job));
    }
    return next;
  }

 private:
  struct Step {
    JobId job;
    int gpus = 0;
    double gain = 0;  // of speed per GPU, relative
  };

  [[nodiscard]] const JobView& view(JobId id) const { return *snapshot_.jobs.find(id); }

  // Since when it trains like now.
  [[nodiscard]] std::optional<Time> since(const JobView& job) const {
    if (!job.spec->tries_pairs) return trains_since(job);
    const auto found = state_.settled.find(job.id);
    return found == state_.settled.end() ? std::nullopt : std::optional(found->second.since);
  }

  // A live pair can be judged only if both were measured alone.
  [[nodiscard]] bool may_try(const JobView& job) const {
    return !job.spec->tries_pairs || state_.alone.contains(job.id);
  }

  // Whether the job trains alone on its GPUs and continues unchanged.
  [[nodiscard]] bool settled(const JobView& job, const Count& count) const {
    return trains(job, snapshot_.now) && job.target.gpus() == count.gpus &&
           job.target.type() == count.type && !job.shares_with && !state_.guest_of.contains(job.id);
  }

  // Its present type if there is room, else the first type with room.
  [[nodiscard]] std::optional<GpuType> room_for(const JobView& job) const {
    const int gpus = job.spec->requested;
    const auto fits = [&](std::size_t type) {
      return free_[type] >= gpus &&
             job.speed->on(GpuType(static_cast<GpuType::rep>(type)), gpus) > 0;
    };
    if (!job.target.empty() && fits(job.target.type().index())) return job.target.type();
    for (std::size_t type = 0; type < free_.size(); ++type) {
      if (fits(type)) return GpuType(static_cast<GpuType::rep>(type));
    }
    return std::nullopt;
  }

  void take(JobId id, GpuType type) {
    const int gpus = view(id).spec->requested;
    free_[type.index()] -= gpus;
    granted_.emplace(id, Count{type, gpus});
  }

  // Separates a guest from its host. The guest gets its own GPUs if there are any.
  void part(JobId guest) {
    state_.order.insert(state_.order.begin(), guest);
    if (const auto type = room_for(view(guest))) {
      take(guest, *type);
    } else {
      waiting_.insert(waiting_.begin(), guest);
    }
  }

  // A job that may not be preempted could not be separated again, so it is not tried.
  [[nodiscard]] std::optional<JobId> host_for(const JobView& job) const {
    if (!job.spec->preemptible || !may_try(job)) return std::nullopt;
    for (const JobId id : state_.order) {
      const auto at = granted_.find(id);
      if (at == granted_.end() || state_.guest_of.contains(id)) continue;
      const JobView& host = view(id);
      if (host.spec->requested != job.spec->requested || !host.spec->preemptible) continue;
      if (!may_try(host)) continue;
      if (state_.tried.contains(pair_of(id, job.id, at->second.type))) continue;
      if (fit_together(host, job, at->second.type)) return id;
    }
    return std::nullopt;
  }

  [[nodiscard]] static WorkRate rate_now(const JobView& job, const Count& count) {
    const bool as_now = job.held.gpus() == count.gpus && job.held.type() == count.type;
    return as_now && job.progress.rate > 0 ? job.progress.rate
                                           : job.speed->on(count.type, count.gpus);
  }

  [[nodiscard]] std::optional<Step> best_growth() const {
    std::optional<Step> best;
    for (const auto& [id, count] : granted_) {
      if (state_.outgrown.contains(id) || state_.guest_of.contains(id)) continue;
      const JobView& job = view(id);
      const auto next = job.spec->limits.above(count.gpus);
      if (!next || *next - count.gpus > free_[count.type.index()]) continue;
      const WorkRate now = job.speed->on(count.type, count.gpus);
      const WorkRate then = job.speed->on(count.type, *next);
      if (!policy_.pays(job, now, then)) continue;
      const double gain = (then - now) / now / (*next - count.gpus);
      if (!best || gain > best->gain) best = Step{id, *next, gain};
    }
    return best;
  }

  [[nodiscard]] std::optional<Allocation> fewer_nodes(
      const JobView& job, const std::vector<std::uint64_t>& idle) const {
    const int gpus = job.target.gpus();
    const GpuType type = job.target.type();
    const int size = snapshot_.cluster.node_size(type);
    const int least = (gpus + size - 1) / size;
    const auto usable = [&](std::size_t node) {
      const NodeId id(static_cast<NodeId::rep>(node));
      return idle[node] | (snapshot_.cluster.node(id).usable() & job.target.mask_on(id));
    };
    std::vector<std::size_t> nodes;
    for (std::size_t node = 0; node < idle.size(); ++node) {
      if (snapshot_.cluster.nodes()[node].type == type && usable(node) != 0) nodes.push_back(node);
    }
    std::stable_sort(nodes.begin(), nodes.end(), [&](std::size_t a, std::size_t b) {
      return std::popcount(usable(a)) > std::popcount(usable(b));
    });
    Allocation better(type);
    for (const std::size_t node : nodes) {
      const int missing = gpus - better.gpus();
      if (missing == 0) break;
      const NodeId id(static_cast<NodeId::rep>(node));
      const std::uint64_t own = usable(node) & job.target.mask_on(id);
      const int kept = std::min(missing, std::popcount(own));
      const int more = std::min(missing - kept, std::popcount(usable(node) & ~own));
      better.add({id, lowest_bits(own, kept) | lowest_bits(usable(node) & ~own, more)});
    }
    if (better.gpus() < gpus || better.nodes() >= job.target.nodes()) return std::nullopt;
    const WorkRate then = job.speed->rate({type, gpus, better.nodes(), least});
    if (!policy_.pays(job, job.progress.rate, then)) return std::nullopt;
    return better;
  }

  const Gandiva& policy_;
  const Snapshot& snapshot_;
  State& state_;
  std::vector<int> free_;           // by type
  std::map<JobId, Count> granted_;  // without guests
  std::map<JobId, Allocation> moved_;
  std::vector<JobId> waiting_;
};

Decision Gandiva::decide(const Snapshot& snapshot, State& state) const {
  meet(snapshot, state);
  settle(snapshot, state);
  measure(snapshot, state);
  const bool quantum_over = state.quantum_end && snapshot.now >= *state.quantum_end;
  Round round(*this, snapshot, state);
  round.slice(quantum_over);
  round.unpack();
  if (config.packing) round.pack();
  if (config.grow) round.grow();
  if (config.migrate) {
    round.change_types();
    round.consolidate();
  }

  Decision decision;
  decision.run = round.grants();
  if (!round.anybody_waits()) {
    state.quantum_end.reset();
  } else if (!state.quantum_end || quantum_over) {
    Duration restart{};
    for (const JobView& job : snapshot.jobs) restart = std::max(restart, job.spec->restart_cost);
    state.quantum_end = snapshot.now + config.quantum + restart;
  }
  decision.again_at = state.quantum_end;
  const auto measured = round.next_measurement();
  if (measured && (!decision.again_at || *measured < *decision.again_at))
    decision.again_at = measured;
  return decision;
}

Json Gandiva::State::save() const {
  Json json = {{"order", Json::array()}, {"pairs", Json::array()}, {"tried", Json::array()},
               {"alone", Json::array()}, {"grown", Json::array()}, {"outgrown", Json::array()},
               {"quantum_end", nullptr}};
  for (const JobId id : order) json["order"].push_back(id.value());
  for (const auto& [host, guest] : guest_of) json["pairs"].push_back({host.value(), guest.value()});
  for (const auto& [a, b, type] : tried)
    json["tried"].push_back({a.value(), b.value(), type.value()});
  for (const auto& [id, measured] : alone)
    json["alone"].push_back({id.value(), measured.first.value(), measured.second});
  for (const auto& [id, growth] : grown)
    json["grown"].push_back({id.value(), growth.gpus, growth.before});
  for (const JobId id : outgrown) json["outgrown"].push_back(id.value());
  for (const auto& [id, entry] : settled) {
    const Json beside = entry.beside ? Json(entry.beside->value()) : Json(nullptr);
    json["settled"].push_back(
        {id.value(), entry.generation.value(), beside, entry.since.time_since_epoch().count()});
  }
  if (quantum_end) json["quantum_end"] = quantum_end->time_since_epoch().count();
  return json;
}

Result<Gandiva::State> Gandiva::State::load(const Json& json) {
  const auto job = [](const Json& value) { return JobId(value.get<JobId::rep>()); };
  const auto type = [](const Json& value) { return GpuType(value.get<GpuType::rep>()); };
  try {
    State state;
    for (const auto& id : json.at("order")) state.order.push_back(job(id));
    for (const auto& row : json.at("pairs")) state.guest_of[job(row.at(0))] = job(row.at(1));
    for (const auto& row : json.at("tried"))
      state.tried.emplace(job(row.at(0)), job(row.at(1)), type(row.at(2)));
    for (const auto& row : json.at("alone"))
      state.alone[job(row.at(0))] = {type(row.at(1)), row.at(2).get<double>()};
    for (const auto& row : json.at("grown"))
      state.grown[job(row.at(0))] = {row.at(1).get<int>(), row.at(2).get<double>()};
    for (const auto& id : json.at("outgrown")) state.outgrown.insert(job(id));
    if (json.contains("settled")) {  // not without live jobs, nor in older states
      for (const auto& row : json.at("settled")) {
        Settled& entry = state.settled[job(row.at(0))];
        entry.generation = Generation(row.at(1).get<Generation::rep>());
        if (!row.at(2).is_null()) entry.beside = job(row.at(2));
        entry.since = Time(Duration(row.at(3).get<std::int64_t>()));
      }
    }
    if (const auto& end = json.at("quantum_end"); !end.is_null())
      state.quantum_end = Time(Duration(end.get<std::int64_t>()));
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved Gandiva state: {}", problem.what())};
  }
}

std::vector<PolicyEntry> gandiva_rows() {
  PolicyEntry entry;
  entry.name = "gandiva";
  entry.paper = "Xiao et al., OSDI'18";
  entry.summary = "time slicing, packing by trial, migration, growth on idle GPUs";
  entry.knows = "GPUs asked for, measured rate, speed estimates";
  entry.keys = {
      number_key("quantum", 60, 1, 1e9, "seconds of a time slice, without the restart"),
      number_key("trial", 10, 0, 1e9, "seconds for which a pair or a growth is measured"),
      choice_key("packing", {"on", "off"}, "try pairs of jobs on the same GPUs while jobs wait"),
      choice_key("migrate", {"on", "off"},
                 "move jobs to fewer nodes, and to a faster type while nobody waits"),
      choice_key("grow", {"on", "off"}, "grow elastic jobs on idle GPUs")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    Gandiva::Config config;
    config.quantum = from_seconds(values.number("quantum"));
    config.trial = from_seconds(values.number("trial"));
    config.packing = values.text("packing") == "on";
    config.migrate = values.text("migrate") == "on";
    config.grow = values.text("grow") == "on";
    return erase(Gandiva{config});
  };
  return {entry};
}

}  // namespace rubato::policy
