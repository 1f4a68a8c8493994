#include "rubato/policy/gandiva_fair.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace rubato::policy {
namespace {

using User = GandivaFair::User;
using TypeShares = GandivaFair::Shares;

constexpr double kLittle = 1e-9;

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double speedup(const User& user, std::size_t fast, std::size_t slow) {
  return user.rates[fast] / std::max(user.rates[slow], kLittle);
}

// A user with their active jobs, ordered by turn.
struct Household {
  User user;
  std::vector<const JobView*> jobs;
};

// A job without a user counts as a user.
std::string owner(const JobView& job) {
  return job.spec->user.empty() ? fmt::format("#{}", job.id.value()) : job.spec->user;
}

std::map<std::string, Household> households(const Snapshot& snapshot) {
  const auto types = static_cast<std::size_t>(snapshot.cluster.types());
  std::map<std::string, Household> all;
  for (const JobView& job : snapshot.jobs) {
    auto [at, first] = all.try_emplace(owner(job));
    Household& house = at->second;
    if (first) {
      house.user.tickets = 0;
      house.user.rates.assign(types, 0);
    }
    const int gpus = job.spec->requested;
    house.jobs.push_back(&job);
    house.user.tickets = std::max(house.user.tickets, job.spec->weight);
    house.user.demand += gpus;
    WorkRate best = 0;
    for (std::size_t type = 0; type < types; ++type)
      best = std::max(best, job.speed->on(type_at(type), gpus));
    for (std::size_t type = 0; type < types && best > 0; ++type)
      house.user.rates[type] += gpus * job.speed->on(type_at(type), gpus) / best;
  }
  for (auto& [name, house] : all) {
    for (double& rate : house.user.rates) rate /= house.user.demand;
    house.user.tickets = std::max(house.user.tickets, kLittle);
  }
  return all;
}

// The types from the fastest to the slowest, for these users.
std::vector<std::size_t> by_speed(const std::vector<User>& users, std::size_t types) {
  std::vector<double> speed(types, 0);
  for (const User& user : users) {
    for (std::size_t type = 0; type < types; ++type) speed[type] += user.demand * user.rates[type];
  }
  std::vector<std::size_t> order(types);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return speed[a] > speed[b]; });
  return order;
}

// The free GPUs of each server during a quantum, and the tickets of the jobs placed there.
class Servers {
 public:
  explicit Servers(const Cluster& cluster)
      : cluster_(cluster), by_type_(static_cast<std::size_t>(cluster.types())) {
    for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
      const Node& node = cluster.nodes()[i];
      servers_.push_back({std::popcount(node.usable()), 0});
      if (node.state == NodeState::up) by_type_[node.type.index()].push_back(i);
    }
  }

  // The job's present GPUs, if it can continue there.
  std::optional<Spread> stay(const JobView& job, double tickets) {
    if (job.target.gpus() != job.spec->requested) return std::nullopt;
    Spread spread;
    for (const auto& slice : job.target.slices()) {
      if (servers_[slice.node.index()].free < slice.gpus()) return std::nullopt;
      spread.gpus.emplace_back(slice.node, slice.gpus());
    }
    put(spread, tickets);
    return spread;
  }

  // The job's present GPUs, whatever the state of its servers.
  void stay_in_any_case(const JobView& job, double tickets) {
    for (const auto& slice : job.target.slices()) {
      Server& server = servers_[slice.node.index()];
      server.free = std::max(0, server.free - slice.gpus());
      server.tickets += tickets / job.target.nodes();
    }
  }

  std::optional<Spread> place(const JobView& job, GpuType type, double tickets) {
    if (!job.target.empty() && job.target.type() == type) {
      if (auto spread = stay(job, tickets)) return spread;
    }
    const int gpus = job.spec->requested;
    auto spread = gpus <= cluster_.node_size(type) ? on_one(gpus, type) : over_several(gpus, type);
    if (spread) put(*spread, tickets);
    return spread;
  }

 private:
  struct Server {
    int free = 0;
    double tickets = 0;
  };

  static NodeId node_at(std::size_t i) { return NodeId(static_cast<NodeId::rep>(i)); }

  [[nodiscard]] std::optional<Spread> on_one(int gpus, GpuType type) const {
    std::optional<std::size_t> best;
    double least = std::numeric_limits<double>::infinity();
    for (const std::size_t i : by_type_[type.index()]) {
      const double crowd = servers_[i].tickets / cluster_.nodes()[i].gpus;
      if (servers_[i].free < gpus || !(crowd < least)) continue;
      best = i;
      least = crowd;
    }
    if (!best) return std::nullopt;
    return Spread{{{node_at(*best), gpus}}};
  }

  [[nodiscard]] std::optional<Spread> over_several(int gpus, GpuType type) const {
    std::vector<std::size_t> emptiest = by_type_[type.index()];
    std::stable_sort(emptiest.begin(), emptiest.end(), [&](std::size_t a, std::size_t b) {
      return servers_[a].free > servers_[b].free;
    });
    Spread spread;
    for (const std::size_t i : emptiest) {
      const int here = std::min(gpus, servers_[i].free);
      if (here == 0) break;
      spread.gpus.emplace_back(node_at(i), here);
      gpus -= here;
    }
    if (gpus > 0) return std::nullopt;
    std::sort(spread.gpus.begin(), spread.gpus.end());
    return spread;
  }

  void put(const Spread& spread, double tickets) {
    for (const auto& [node, gpus] : spread.gpus) {
      servers_[node.index()].free -= gpus;
      servers_[node.index()].tickets += tickets / static_cast<double>(spread.gpus.size());
    }
  }

  const Cluster& cluster_;
  std::vector<std::vector<std::size_t>> by_type_;  // servers that are up
  std::vector<Server> servers_;
};

// One quantum of gang-aware stride.
class Quantum {
 public:
  Quantum(const Snapshot& snapshot, const GandivaFair::State& state, double quantum_seconds)
      : state_(state),
        quantum_seconds_(quantum_seconds),
        houses_(households(snapshot)),
        servers_(snapshot.cluster) {}

  [[nodiscard]] std::vector<User> users() const {
    std::vector<User> users;
    for (const auto& [name, house] : houses_) users.push_back(house.user);
    return users;
  }
  void set_tickets(const TypeShares& shares) {
    std::size_t u = 0;
    for (const auto& [name, house] : houses_) tickets_[name] = shares[u++];
  }
  [[nodiscard]] const auto& tickets() const { return tickets_; }

  // Within a quantum, running jobs continue. Jobs that may not be preempted always continue.
  void keep_running(bool quantum_over) {
    for (auto& [name, house] : houses_) {
      for (const JobView* job : house.jobs) {
        if (job->target.empty()) continue;
        const GpuType type = job->target.type();
        const double tickets = job_tickets(*job, house.user, type);
        if (job->stays()) {
          servers_.stay_in_any_case(*job, tickets);
          run(*job, type, Exact{job->target});
        } else if (!quantum_over) {
          if (const auto spread = servers_.stay(*job, tickets)) run(*job, type, *spread);
        }
      }
    }
  }

  // Users by ascending pass, each with the job whose turn it is. Users without tickets for the type
  // come after all others and are not charged.
  void fill(std::size_t type) {
    std::vector<Visit> visits;
    for (auto& [name, house] : houses_) {
      Visit visit{tickets_.at(name)[type] > kLittle ? 0 : 1,
                  state_.pass.at(name)[type],
                  &name,
                  &house,
                  waiting_on(house, type),
                  0};
      if (!visit.jobs.empty()) visits.push_back(std::move(visit));
    }
    while (!visits.empty()) {
      const auto next = std::min_element(visits.begin(), visits.end());
      const JobView& job = *next->jobs[next->at++];
      const double user_tickets = tickets_.at(*next->name)[type];
      const double tickets = job_tickets(job, next->house->user, type_at(type));
      if (const auto spread = servers_.place(job, type_at(type), tickets)) {
        run(job, type_at(type), *spread);
        if (next->without_tickets == 0)
          next->pass += job.spec->requested * quantum_seconds_ / user_tickets;
      }
      if (next->at == next->jobs.size()) visits.erase(next);
    }
  }

  [[nodiscard]] double length() const { return quantum_seconds_; }
  [[nodiscard]] bool runs(const JobView& job) const { return granted_.contains(job.id); }
  [[nodiscard]] const auto& houses() const { return houses_; }
  [[nodiscard]] std::map<JobId, GandivaFair::Charge> charges() const { return charges_; }
  [[nodiscard]] std::vector<Grant> grants() const {
    std::vector<Grant> grants;
    for (const auto& [job, want] : granted_) grants.push_back({job, want});
    return grants;
  }

 private:
  struct Visit {
    int without_tickets = 0;
    double pass = 0;
    const std::string* name = nullptr;
    Household* house = nullptr;
    std::vector<const JobView*> jobs;
    std::size_t at = 0;
    friend bool operator<(const Visit& a, const Visit& b) {
      return std::tie(a.without_tickets, a.pass, *a.name) <
             std::tie(b.without_tickets, b.pass, *b.name);
    }
  };

  // A user's tickets are split over the user's jobs by gang size.
  [[nodiscard]] double job_tickets(const JobView& job, const User& user, GpuType type) const {
    return tickets_.at(owner(job))[type.index()] * job.spec->requested / user.demand;
  }

  // The user's jobs that could run on the type, by turn; on a tie, those that already run there.
  [[nodiscard]] std::vector<const JobView*> waiting_on(const Household& house,
                                                       std::size_t type) const {
    std::vector<const JobView*> jobs;
    for (const JobView* job : house.jobs) {
      if (!runs(*job) && job->speed->on(type_at(type), job->spec->requested) > 0)
        jobs.push_back(job);
    }
    const auto key = [&](const JobView* job) {
      const bool elsewhere = job->target.empty() || job->target.type() != type_at(type);
      return std::tuple(state_.turn.at(job->id), elsewhere, job->id);
    };
    std::sort(jobs.begin(), jobs.end(),
              [&](const JobView* a, const JobView* b) { return key(a) < key(b); });
    return jobs;
  }

  void run(const JobView& job, GpuType type, Want want) {
    granted_.emplace(job.id, std::move(want));
    charges_[job.id] = {owner(job), type, job.spec->requested};
  }

  const GandivaFair::State& state_;
  double quantum_seconds_;
  std::map<std::string, Household> houses_;
  std::map<std::string, std::vector<double>> tickets_;
  Servers servers_;
  std::map<JobId, Want> granted_;
  std::map<JobId, GandivaFair::Charge> charges_;
};

// Limits the credit of users without waiting jobs: their pass stays within one stride of the users
// who wait. One stride is the order of turns; more would be credit. Returns whether any user waits.
bool limit_credit(const Quantum& quantum, GandivaFair::State& state) {
  std::vector<std::string> content;
  std::vector<std::pair<std::string, int>> waiting;  // with the largest gang that waits
  for (const auto& [name, house] : quantum.houses()) {
    int largest = 0;
    for (const JobView* job : house.jobs) {
      if (!quantum.runs(*job)) largest = std::max(largest, job->spec->requested);
    }
    if (largest == 0) {
      content.push_back(name);
    } else {
      waiting.emplace_back(name, largest);
    }
  }
  const std::size_t types =
      quantum.tickets().empty() ? 0 : quantum.tickets().begin()->second.size();
  for (std::size_t type = 0; type < types; ++type) {
    double least = std::numeric_limits<double>::infinity(), stride = 0;
    for (const auto& [name, gang] : waiting) {
      const double tickets = quantum.tickets().at(name)[type];
      if (tickets <= kLittle) continue;
      least = std::min(least, state.pass.at(name)[type]);
      stride = std::max(stride, gang * quantum.length() / tickets);
    }
    if (stride == 0) continue;
    for (const auto& name : content) {
      double& pass = state.pass.at(name)[type];
      pass = std::max(pass, least - stride);
    }
  }
  return !waiting.empty();
}

}  // namespace

double GandivaFair::worth(const User& user, const std::vector<double>& share) {
  return std::inner_product(share.begin(), share.end(), user.rates.begin(), 0.0);
}

TypeShares GandivaFair::entitle(const std::vector<User>& users, const std::vector<int>& gpus) {
  const double all = std::accumulate(gpus.begin(), gpus.end(), 0.0);
  std::vector<double> fraction(users.size(), 0);
  std::vector<bool> sated(users.size(), all == 0);
  double left = 1;
  for (bool changed = true; changed;) {
    changed = false;
    double tickets = 0;
    for (std::size_t u = 0; u < users.size(); ++u) tickets += sated[u] ? 0 : users[u].tickets;
    if (tickets == 0) break;
    const double each = left / tickets;  // in this round; users with enough leave more to others
    for (std::size_t u = 0; u < users.size(); ++u) {
      if (sated[u] || users[u].tickets * each * all <= users[u].demand) continue;
      fraction[u] = users[u].demand / all;
      left = std::max(0.0, left - fraction[u]);
      sated[u] = changed = true;
    }
    if (changed) continue;
    for (std::size_t u = 0; u < users.size(); ++u) {
      if (!sated[u]) fraction[u] = users[u].tickets * each;
    }
  }
  TypeShares shares;
  for (const double f : fraction) {
    auto& row = shares.emplace_back();
    for (const int count : gpus) row.push_back(f * count);
  }
  return shares;
}

void GandivaFair::trade(const std::vector<User>& users, TypeShares& shares) {
  if (users.size() < 2) return;
  const std::size_t types = shares.front().size();
  const std::vector<std::size_t> order = by_speed(users, types);
  for (std::size_t a = 0; a < types; ++a) {
    for (std::size_t b = a + 1; b < types; ++b) {
      const std::size_t fast = order[a], slow = order[b];
      // By speedup: sellers are searched from the front, buyers from the back.
      std::vector<std::size_t> by_speedup(users.size());
      std::iota(by_speedup.begin(), by_speedup.end(), 0);
      std::stable_sort(by_speedup.begin(), by_speedup.end(), [&](std::size_t u, std::size_t v) {
        return speedup(users[u], fast, slow) < speedup(users[v], fast, slow);
      });
      std::size_t seller = 0, buyer = users.size() - 1;
      while (seller < buyer) {
        const std::size_t sells = by_speedup[seller], buys = by_speedup[buyer];
        const double price = speedup(users[by_speedup[buyer - 1]], fast, slow);
        if (!(speedup(users[buys], fast, slow) > speedup(users[sells], fast, slow) + kLittle))
          break;
        double amount =
            price > kLittle ? std::min(shares[sells][fast], shares[buys][slow] / price) : 0;
        // The user who ends with more GPUs must be able to use them.
        const std::size_t gains = price > 1 ? sells : buys;
        const double can_use = std::max(0.0, users[gains].demand - sum_of(shares[gains]));
        if (price != 1) amount = std::min(amount, can_use / std::abs(price - 1));
        shares[sells][fast] -= amount;
        shares[buys][fast] += amount;
        shares[sells][slow] += amount * price;
        shares[buys][slow] = std::max(0.0, shares[buys][slow] - amount * price);
        // A user who has nothing more to give, or cannot use more, is done.
        const bool buyer_done = shares[buys][slow] <= kLittle || price <= kLittle ||
                                (price < 1 && sum_of(shares[buys]) >= users[buys].demand - kLittle);
        buyer_done ? --buyer : ++seller;
      }
    }
  }
}

void GandivaFair::charge(const Snapshot& snapshot, State& state) const {
  const double passed = seconds(snapshot.now - state.seen);
  state.seen = snapshot.now;
  if (passed == 0) return;
  for (const auto& [job, used] : state.running) {
    const double tickets = state.tickets.at(used.user)[used.type.index()];
    if (tickets > kLittle)
      state.pass.at(used.user)[used.type.index()] += used.gpus * passed / tickets;
    state.turn.at(job) += passed;
  }
}

// Newcomers start at the lowest pass: new users at that of the users, new jobs at that of the
// user's jobs.
void GandivaFair::meet(const Snapshot& snapshot, State& state) const {
  std::map<std::string, double> least_turn;
  for (const JobView& job : snapshot.jobs) {
    const auto known = state.turn.find(job.id);
    if (known == state.turn.end()) continue;
    const auto [at, first] = least_turn.emplace(owner(job), known->second);
    if (!first) at->second = std::min(at->second, known->second);
  }
  std::map<std::string, bool> present;
  for (const JobView& job : snapshot.jobs) present[owner(job)] = true;
  std::erase_if(state.pass, [&](const auto& entry) { return !present.contains(entry.first); });
  std::erase_if(state.turn,
                [&](const auto& entry) { return snapshot.jobs.find(entry.first) == nullptr; });
  const auto types = static_cast<std::size_t>(snapshot.cluster.types());
  // Nobody has used a type that has just joined the cluster.
  for (auto& [user, pass] : state.pass) pass.resize(types, 0);
  std::vector<double> least_pass;
  for (const auto& [user, pass] : state.pass) {
    if (least_pass.empty()) least_pass = pass;
    for (std::size_t type = 0; type < pass.size(); ++type)
      least_pass[type] = std::min(least_pass[type], pass[type]);
  }
  least_pass.resize(types, 0);
  for (const JobView& job : snapshot.jobs) {
    state.pass.emplace(owner(job), least_pass);
    const auto turn = least_turn.find(owner(job));
    state.turn.emplace(job.id, turn == least_turn.end() ? 0 : turn->second);
  }
}

Decision GandivaFair::decide(const Snapshot& snapshot, State& state) const {
  charge(snapshot, state);
  meet(snapshot, state);
  const auto types = static_cast<std::size_t>(snapshot.cluster.types());
  Quantum quantum(snapshot, state, seconds(config.quantum));
  const std::vector<User> users = quantum.users();
  std::vector<int> gpus;
  for (std::size_t type = 0; type < types; ++type)
    gpus.push_back(snapshot.cluster.usable(type_at(type)));
  TypeShares shares = entitle(users, gpus);
  if (config.trade && types > 1) trade(users, shares);
  quantum.set_tickets(shares);

  quantum.keep_running(snapshot.now >= state.quantum_end);
  for (const std::size_t type : by_speed(users, types)) quantum.fill(type);

  const bool waiting = limit_credit(quantum, state);

  state.running = quantum.charges();
  state.tickets = quantum.tickets();
  Decision decision;
  decision.run = quantum.grants();
  if (snapshot.now >= state.quantum_end) {
    Duration restart{};
    for (const JobView& job : snapshot.jobs) restart = std::max(restart, job.spec->restart_cost);
    state.quantum_end = snapshot.now + config.quantum + restart;
  }
  // Users take turns on the fast types even when nobody waits.
  if (waiting || (types > 1 && users.size() > 1)) decision.again_at = state.quantum_end;
  return decision;
}

Json GandivaFair::State::save() const {
  Json json = {{"seen", seen.time_since_epoch().count()},
               {"quantum_end", quantum_end.time_since_epoch().count()},
               {"pass", pass},
               {"tickets", tickets},
               {"turn", Json::array()},
               {"running", Json::array()}};
  for (const auto& [job, at] : turn) json["turn"].push_back({job.value(), at});
  for (const auto& [job, used] : running)
    json["running"].push_back({job.value(), used.user, used.type.value(), used.gpus});
  return json;
}

Result<GandivaFair::State> GandivaFair::State::load(const Json& json) {
  try {
    State state;
    state.seen = Time(Duration(json.at("seen").get<std::int64_t>()));
    state.quantum_end = Time(Duration(json.at("quantum_end").get<std::int64_t>()));
    json.at("pass").get_to(state.pass);
    json.at("tickets").get_to(state.tickets);
    for (const auto& row : json.at("turn"))
      state.turn[JobId(row.at(0).get<JobId::rep>())] = row.at(1).get<double>();
    for (const auto& row : json.at("running")) {
      state.running[JobId(row.at(0).get<JobId::rep>())] = {row.at(1).get<std::string>(),
                                                           GpuType(row.at(2).get<GpuType::rep>()),
                                                           row.at(3).get<int>()};
    }
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved Gandiva_fair state: {}", problem.what())};
  }
}

std::vector<PolicyEntry> gandiva_fair_rows() {
  PolicyEntry entry;
  entry.name = "gandiva-fair";
  entry.group = "fair";
  entry.paper = "Chaudhary et al., EuroSys'20";
  entry.summary = "GPU-time by tickets of users: gang-aware stride, trading of GPU types";
  entry.knows = "user, weight, GPUs asked for, speed on each type";
  entry.work_conserving = false;  // a gang that fits on one server waits for one
  entry.keys = {number_key("quantum", 60, 1, 1e9, "seconds of a time slice, without the restart"),
                choice_key("trade", {"on", "off"}, "let users trade fast GPUs for slow ones")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    return erase(
        GandivaFair{{from_seconds(values.number("quantum")), values.text("trade") == "on"}});
  };
  return {entry};
}

}  // namespace rubato::policy
