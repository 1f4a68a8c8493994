#include "rubato/policy/allox.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <tuple>

#include "rubato/math/assignment.h"
#include "rubato/policy/staying.h"

namespace rubato::policy {
namespace {

// A job without a user counts as a user. No name in a trace contains this character.
std::string user_of(const JobView& job) {
  return job.spec->user.empty() ? "\n" + fmt::format("{:010}", job.id.value()) : job.spec->user;
}

double length(const JobView& job, GpuType type, Time now) {
  const WorkRate rate = job.speed->on(type, job.spec->requested);
  return rate > 0 ? job.progress.left(now) / rate : std::numeric_limits<double>::infinity();
}

}  // namespace

void Allox::count_service(const Snapshot& snapshot, State& state) {
  for (auto entry = state.seen.begin(); entry != state.seen.end();) {
    if (snapshot.jobs.find(entry->first) != nullptr) {
      ++entry;
      continue;
    }
    // A user without any other job is forgotten.
    if (entry->second.first.front() != '\n')
      state.served[entry->second.first] += entry->second.second;
    entry = state.seen.erase(entry);
  }
  for (const JobView& job : snapshot.jobs)
    state.seen[job.id] = {user_of(job), job.attained(snapshot.now).gpu_seconds()};
}

std::vector<const JobView*> Allox::candidates(const Snapshot& snapshot, const State& state,
                                              int idle) const {
  std::map<std::string, double> served = state.served;
  for (const auto& [job, entry] : state.seen) served[entry.first] += entry.second;
  struct User {
    double served = 0;
    JobId first;
    std::vector<const JobView*> waiting;
  };
  std::map<std::string, User> users;
  for (const JobView& job : snapshot.jobs) {
    if (!job.target.empty()) continue;
    const std::string name = user_of(job);
    auto [at, fresh] = users.try_emplace(name);
    if (fresh) at->second = {served[name], job.id, {}};
    at->second.waiting.push_back(&job);
  }
  std::vector<const User*> order;
  order.reserve(users.size());
  for (const auto& [name, user] : users) order.push_back(&user);
  std::sort(order.begin(), order.end(), [](const User* a, const User* b) {
    return std::tuple(a->served, a->first) < std::tuple(b->served, b->first);
  });
  const auto enter =
      static_cast<std::size_t>(std::ceil(config.alpha * static_cast<double>(order.size()) - 1e-9));
  std::vector<const JobView*> chosen;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i >= enter && chosen.size() >= static_cast<std::size_t>(idle)) break;
    chosen.insert(chosen.end(), order[i]->waiting.begin(), order[i]->waiting.end());
  }
  std::sort(chosen.begin(), chosen.end(),
            [](const JobView* a, const JobView* b) { return a->id < b->id; });
  return chosen;
}

std::vector<Allox::Queue> Allox::queues(const Snapshot& snapshot, const std::vector<int>& idle) {
  constexpr std::size_t kMostClasses = 8;
  std::vector<std::vector<std::pair<double, int>>> busy(idle.size());  // until its end, GPUs
  for (const JobView& job : snapshot.jobs) {
    if (job.target.empty()) continue;
    const double left = length(job, job.target.type(), snapshot.now);
    if (std::isfinite(left))
      busy[job.target.type().index()].emplace_back(left, job.spec->requested);
  }
  std::vector<Queue> queues;
  for (std::size_t t = 0; t < idle.size(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    if (idle[t] > 0) queues.push_back({type, idle[t], 0});
    auto& jobs = busy[t];
    std::sort(jobs.begin(), jobs.end());
    const std::size_t classes = std::min(kMostClasses, jobs.size());
    for (std::size_t c = 0; c < classes; ++c) {
      Queue queue{type, 0, 0};
      const std::size_t from = c * jobs.size() / classes, to = (c + 1) * jobs.size() / classes;
      for (std::size_t i = from; i < to; ++i) {
        queue.gpus += jobs[i].second;
        queue.free_in += jobs[i].first / static_cast<double>(to - from);
      }
      queues.push_back(queue);
    }
  }
  return queues;
}

std::vector<std::optional<GpuType>> Allox::match(const std::vector<const JobView*>& candidates,
                                                 const std::vector<Queue>& queues, Time now) {
  struct Place {
    std::size_t queue = 0;
    std::size_t from_last = 1;
  };
  std::map<GpuType, std::size_t> gpus_of;
  for (const auto& queue : queues) gpus_of[queue.type] += static_cast<std::size_t>(queue.gpus);
  std::vector<Place> places;
  std::vector<std::size_t> capacity;
  for (std::size_t q = 0; q < queues.size(); ++q) {
    const auto gpus = static_cast<std::size_t>(queues[q].gpus);
    const auto rounds = [&](std::size_t size) { return (candidates.size() + size - 1) / size; };
    const std::size_t most = std::min(rounds(gpus), 2 * rounds(gpus_of[queues[q].type]) + 4);
    for (std::size_t k = 1; k <= most; ++k) {
      places.push_back({q, k});
      capacity.push_back(gpus);
    }
  }
  const auto place_of = assign(candidates.size(), capacity, [&](std::size_t i, std::size_t p) {
    const Queue& queue = queues[places[p].queue];
    if (candidates[i]->spec->requested > static_cast<int>(gpus_of[queue.type]))
      return std::numeric_limits<double>::infinity();
    return static_cast<double>(places[p].from_last) * length(*candidates[i], queue.type, now) +
           queue.free_in;
  });
  // On each GPU the job furthest from last runs first. So as many jobs start as there are jobs in a
  // last place: those with the furthest places, and on a tie the shortest.
  std::vector<std::optional<GpuType>> starts(candidates.size());
  for (std::size_t q = 0; q < queues.size(); ++q) {
    if (queues[q].free_in > 0) continue;
    const GpuType type = queues[q].type;
    std::vector<std::size_t> here;
    std::size_t gpus_used = 0;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (place_of[i] == kNoBin || places[place_of[i]].queue != q) continue;
      here.push_back(i);
      gpus_used += places[place_of[i]].from_last == 1 ? 1 : 0;
    }
    std::sort(here.begin(), here.end(), [&](std::size_t a, std::size_t b) {
      return std::tuple(-static_cast<double>(places[place_of[a]].from_last),
                        length(*candidates[a], type, now), candidates[a]->id) <
             std::tuple(-static_cast<double>(places[place_of[b]].from_last),
                        length(*candidates[b], type, now), candidates[b]->id);
    });
    for (std::size_t i = 0; i < std::min(gpus_used, here.size()); ++i) starts[here[i]] = type;
  }
  return starts;
}

Decision Allox::decide(const Snapshot& snapshot, State& state) const {
  count_service(snapshot, state);
  Decision decision;
  std::vector<int> idle;
  idle.reserve(static_cast<std::size_t>(snapshot.cluster.types()));
  for (int t = 0; t < snapshot.cluster.types(); ++t)
    idle.push_back(snapshot.cluster.usable(GpuType(static_cast<GpuType::rep>(t))));
  std::vector<const JobView*> shrunk;  // others use GPUs that it had
  for (const JobView& job : snapshot.jobs) {
    if (job.target.empty()) continue;
    const int usable = usable_part(job.target, snapshot.cluster);
    const bool leaves = usable < job.target.gpus();  // its node is leaving; the job may end there
    const bool as_it_is = leaves || job.stays();
    if (!as_it_is && job.target.gpus() < job.spec->requested) {
      shrunk.push_back(&job);
      continue;
    }
    idle[job.target.type().index()] -= as_it_is ? usable : job.spec->requested;
    const Count count{job.target.type(), job.spec->requested};
    decision.run.push_back({job.id, as_it_is ? Want(Exact{job.target}) : Want(count)});
  }
  for (const JobView* job : shrunk) {
    int& left = idle[job->target.type().index()];
    if (left < job->spec->requested) continue;
    left -= job->spec->requested;
    decision.run.push_back({job->id, Count{job->target.type(), job->spec->requested}});
  }
  // A job that was matched but needs more GPUs than are idle must not block the others. They are
  // matched again without it.
  std::vector<const JobView*> waiting =
      candidates(snapshot, state, std::accumulate(idle.begin(), idle.end(), 0));
  for (bool again = true; again && !waiting.empty();) {
    again = false;
    const auto starts = match(waiting, queues(snapshot, idle), snapshot.now);
    std::vector<const JobView*> rest;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const JobView& job = *waiting[i];
      if (!starts[i]) {
        rest.push_back(&job);
      } else if (job.spec->requested <= idle[starts[i]->index()]) {
        idle[starts[i]->index()] -= job.spec->requested;
        decision.run.push_back({job.id, Count{*starts[i], job.spec->requested}});
      } else {
        again = true;
      }
    }
    waiting = std::move(rest);
  }
  return decision;
}

Json Allox::State::save() const {
  Json json = {{"served", Json::array()}, {"seen", Json::array()}};
  for (const auto& [user, service] : served) json["served"].push_back({user, service});
  for (const auto& [job, entry] : seen)
    json["seen"].push_back({job.value(), entry.first, entry.second});
  return json;
}

Result<Allox::State> Allox::State::load(const Json& json) {
  try {
    State state;
    for (const auto& row : json.at("served"))
      state.served[row.at(0).get<std::string>()] = row.at(1).get<double>();
    for (const auto& row : json.at("seen")) {
      state.seen[JobId(row.at(0).get<JobId::rep>())] = {row.at(1).get<std::string>(),
                                                        row.at(2).get<double>()};
    }
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved AlloX state: {}", problem.what())};
  }
}

std::vector<PolicyEntry> allox_rows() {
  PolicyEntry entry;
  entry.name = "allox";
  entry.group = "heterogeneous";
  entry.paper = "Le et al., EuroSys'20";
  entry.summary = "matching of jobs to places in the queues of GPUs; no preemption";
  entry.work_conserving = false;  // a job may wait for a GPU of a faster type
  entry.knows = "GPUs asked for, speed by type, work left, user";
  entry.keys = {number_key("alpha", 0.3, 0.001, 1,
                           "share of the users that enter the matching, the least served ones")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    return erase(Allox{{values.number("alpha")}});
  };
  return {entry};
}

}  // namespace rubato::policy
