#include "rubato/policy/themis.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

namespace rubato::policy {
namespace {

using Bid = Themis::Bid;
using FreeByType = Themis::Offer;
using Allotment = Themis::Allotment;

// Keeps the bids of jobs that end at once finite.
constexpr double kShortestTime = 1e-3;

// Gain of an option over getting nothing.
double gain(const Bid& bid, const Themis::Option& option) {
  return option.log_value - bid.log_nothing;
}

// All ways to use up to the offered GPUs of each type, numbered in mixed radix.
std::size_t subsets(const FreeByType& offer) {
  std::size_t product = 1;
  for (const int gpus : offer) {
    product *= static_cast<std::size_t>(gpus) + 1;
    if (product > Themis::kExactOffers) return product;
  }
  return product;
}

Allotment exact_auction(const std::vector<Bid>& bids, const FreeByType& offer) {
  std::vector<std::size_t> weight;
  std::size_t states = 1;
  for (const int gpus : offer) {
    weight.push_back(states);
    states *= static_cast<std::size_t>(gpus) + 1;
  }
  const auto free_of = [&](std::size_t state, std::size_t type) {
    return static_cast<int>(state / weight[type] % (static_cast<std::size_t>(offer[type]) + 1));
  };
  constexpr std::int16_t kNothing = -1;
  std::vector<double> best(states, 0);  // by free GPUs, over the bids so far
  std::vector<std::vector<std::int16_t>> choice(bids.size(),
                                                std::vector<std::int16_t>(states, kNothing));
  for (std::size_t b = 0; b < bids.size(); ++b) {
    const Bid& bid = bids[b];
    std::vector<double> next = best;
    for (std::size_t o = 0; o < bid.options.size(); ++o) {
      const double more = gain(bid, bid.options[o]);
      const std::size_t type = bid.options[o].type.index();
      if (!(more > 0)) continue;
      for (std::size_t state = 0; state < states; ++state) {
        if (free_of(state, type) < bid.gpus) continue;
        const double with = best[state - weight[type] * static_cast<std::size_t>(bid.gpus)] + more;
        if (!(with > next[state])) continue;
        next[state] = with;
        choice[b][state] = static_cast<std::int16_t>(o);
      }
    }
    best = std::move(next);
  }
  Allotment allotment{std::vector<std::optional<GpuType>>(bids.size()), best[states - 1]};
  std::size_t state = states - 1;
  for (std::size_t b = bids.size(); b-- > 0;) {
    allotment.log_product += bids[b].log_nothing;
    const std::int16_t chosen = choice[b][state];
    if (chosen == kNothing) continue;
    const GpuType type = bids[b].options[static_cast<std::size_t>(chosen)].type;
    allotment.won[b] = type;
    state -= weight[type.index()] * static_cast<std::size_t>(bids[b].gpus);
  }
  return allotment;
}

// Greedy by gain per GPU; each app gets the best type that is left.
Allotment greedy_auction(const std::vector<Bid>& bids, FreeByType offer) {
  struct Candidate {
    double density;
    std::size_t bid, option;
  };
  std::vector<Candidate> candidates;
  for (std::size_t b = 0; b < bids.size(); ++b) {
    for (std::size_t o = 0; o < bids[b].options.size(); ++o) {
      const double more = gain(bids[b], bids[b].options[o]);
      if (more > 0) candidates.push_back({more / bids[b].gpus, b, o});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.density > b.density; });
  Allotment allotment{std::vector<std::optional<GpuType>>(bids.size()), 0};
  for (const Bid& bid : bids) allotment.log_product += bid.log_nothing;
  for (const auto& [density, b, o] : candidates) {
    const Bid& bid = bids[b];
    const Themis::Option& option = bid.options[o];
    if (allotment.won[b] || offer[option.type.index()] < bid.gpus) continue;
    offer[option.type.index()] -= bid.gpus;
    allotment.won[b] = option.type;
    allotment.log_product += gain(bid, option);
  }
  return allotment;
}

// The best type with enough GPUs left, taken from the offer.
std::optional<GpuType> take_leftover(const Bid& bid, FreeByType& offer) {
  for (const auto& option : bid.options) {
    if (offer[option.type.index()] < bid.gpus) continue;
    offer[option.type.index()] -= bid.gpus;
    return option.type;
  }
  return std::nullopt;
}

}  // namespace

Allotment Themis::auction(const std::vector<Bid>& bids, const FreeByType& offer) {
  return subsets(offer) <= kExactOffers ? exact_auction(bids, offer) : greedy_auction(bids, offer);
}

double Themis::kept_fraction(const std::vector<Bid>& bids, const FreeByType& offer,
                             const Allotment& best, std::size_t i) {
  double others = best.log_product;
  const auto own = std::find_if(bids[i].options.begin(), bids[i].options.end(),
                                [&](const Option& o) { return o.type == best.won[i]; });
  others -= own == bids[i].options.end() ? bids[i].log_nothing : own->log_value;
  std::vector<Bid> without = bids;
  without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
  // At most 1, in spite of rounding, and also if the greedy rule does better with more bids.
  return std::min(1.0, std::exp(others - auction(without, offer).log_product));
}

void Themis::count_apps(const Snapshot& snapshot, State& state) const {
  state.app_seconds +=
      static_cast<double>(state.joined.size()) * seconds(snapshot.now - state.seen);
  state.seen = snapshot.now;
  std::erase_if(state.joined,
                [&](const auto& entry) { return snapshot.jobs.find(entry.first) == nullptr; });
  for (const JobView& app : snapshot.jobs) state.joined.emplace(app.id, state.app_seconds);
}

FreeByType Themis::keep_leases(const Snapshot& snapshot, State& state, Decision& decision) const {
  FreeByType offer;
  for (int t = 0; t < snapshot.cluster.types(); ++t)
    offer.push_back(snapshot.cluster.usable(GpuType(static_cast<GpuType::rep>(t))));
  const bool round_over = snapshot.now >= state.round_end;
  std::erase_if(state.lease_end, [&](const auto& lease) {
    const JobView* app = snapshot.jobs.find(lease.first);
    if (round_over || lease.second <= snapshot.now || app == nullptr || app->target.empty())
      return true;
    const int gpus = app->spec->requested;
    int& left = offer[app->target.type().index()];
    if (left < gpus) return true;  // its nodes are leaving
    left -= gpus;
    decision.run.push_back({app->id, Count{app->target.type(), gpus}});
    return false;
  });
  return offer;
}

// The time alone on 1/N of the cluster. If the slice is smaller than the gang, the app shares time
// on it. A slice has its part of every type.
double Themis::ideal_seconds(const JobView& app, const Snapshot& snapshot,
                             const State& state) const {
  const double elapsed = seconds(snapshot.now - app.submitted);
  const double apps_now = static_cast<double>(snapshot.jobs.size());
  const double apps = elapsed > 0
                          ? std::max(1.0, (state.app_seconds - state.joined.at(app.id)) / elapsed)
                          : apps_now;
  double rate = 0;
  for (int t = 0; t < snapshot.cluster.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    rate += snapshot.cluster.installed(type) * app.speed->on(type, app.spec->requested);
  }
  const double gpus = snapshot.cluster.installed();
  const double share = std::min(1.0, gpus / apps / app.spec->requested);
  return std::max(kShortestTime,
                  seconds(app.spec->restart_cost) + app.work / (rate / gpus * share));
}

Bid Themis::bid(const JobView& app, const Snapshot& snapshot, const State& state) const {
  Bid bid;
  bid.app = &app;
  bid.gpus = app.spec->requested;
  const double elapsed = seconds(snapshot.now - app.submitted);
  const double restart = seconds(app.spec->restart_cost);
  const double ideal = ideal_seconds(app, snapshot, state);
  const Work left = app.progress.left(snapshot.now);
  double shortest = std::numeric_limits<double>::infinity();
  for (int t = 0; t < snapshot.cluster.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    const WorkRate rate = app.speed->on(type, bid.gpus);
    if (!(rate > 0) || snapshot.cluster.installed(type) < bid.gpus) continue;
    const bool stays = !app.target.empty() && app.target.type() == type;
    const double shared = std::max(kShortestTime, elapsed + left / rate + (stays ? 0 : restart));
    shortest = std::min(shortest, elapsed + left / rate + restart);
    bid.options.push_back({type, std::log(ideal / shared)});
  }
  const double waiting = std::max(kShortestTime, shortest) + seconds(config.lease);
  bid.rho = waiting / ideal;
  bid.log_nothing = -std::log(bid.rho);
  std::stable_sort(bid.options.begin(), bid.options.end(),
                   [](const Option& a, const Option& b) { return a.log_value > b.log_value; });
  return bid;
}

Decision Themis::decide(const Snapshot& snapshot, State& state) const {
  Decision decision;
  count_apps(snapshot, state);
  FreeByType offer = keep_leases(snapshot, state, decision);
  if (snapshot.now >= state.round_end) {
    Duration restart{};
    for (const JobView& app : snapshot.jobs) restart = std::max(restart, app.spec->restart_cost);
    state.round_end = snapshot.now + config.lease + restart;
  }

  std::vector<Bid> bids;
  for (const JobView& app : snapshot.jobs) {
    if (!state.lease_end.contains(app.id)) bids.push_back(bid(app, snapshot, state));
  }
  std::stable_sort(bids.begin(), bids.end(),
                   [](const Bid& a, const Bid& b) { return a.rho > b.rho; });
  const auto invited = static_cast<std::size_t>(
      std::ceil((1 - config.fairness) * static_cast<double>(snapshot.jobs.size())));
  const auto in_auction = bids.begin() + static_cast<std::ptrdiff_t>(std::min(
                                             bids.size(), std::max<std::size_t>(1, invited)));
  const std::vector<Bid> worst(bids.begin(), in_auction);

  const auto lease = [&](const Bid& bid, GpuType type, double fraction) {
    decision.run.push_back({bid.app->id, Count{type, bid.gpus}});
    const Duration round = state.round_end - snapshot.now;
    const Duration restart = std::min(round, bid.app->spec->restart_cost);
    state.lease_end[bid.app->id] =
        snapshot.now + restart +
        std::max(Duration(1), from_seconds(seconds(round - restart) * fraction));
  };
  const Allotment best = auction(worst, offer);
  FreeByType left = offer;
  for (std::size_t i = 0; i < worst.size(); ++i) {
    if (!best.won[i]) continue;
    left[best.won[i]->index()] -= worst[i].gpus;
    lease(worst[i], *best.won[i], kept_fraction(worst, offer, best, i));
  }
  for (auto other = in_auction; other != bids.end(); ++other) {
    if (const auto type = take_leftover(*other, left)) lease(*other, *type, 1);
  }
  for (std::size_t i = 0; i < worst.size(); ++i) {
    if (best.won[i]) continue;
    if (const auto type = take_leftover(worst[i], left)) lease(worst[i], *type, 1);
  }
  for (const auto& [app, end] : state.lease_end) {
    if (!decision.again_at || end < *decision.again_at) decision.again_at = end;
  }
  return decision;
}

Json Themis::State::save() const {
  Json json = {{"app_seconds", app_seconds},
               {"seen", seen.time_since_epoch().count()},
               {"round_end", round_end.time_since_epoch().count()},
               {"joined", Json::array()},
               {"leases", Json::array()}};
  for (const auto& [app, before] : joined) json["joined"].push_back({app.value(), before});
  for (const auto& [app, end] : lease_end)
    json["leases"].push_back({app.value(), end.time_since_epoch().count()});
  return json;
}

Result<Themis::State> Themis::State::load(const Json& json) {
  try {
    State state;
    state.app_seconds = json.at("app_seconds").get<double>();
    state.seen = Time(Duration(json.at("seen").get<std::int64_t>()));
    state.round_end = Time(Duration(json.at("round_end").get<std::int64_t>()));
    for (const auto& row : json.at("joined"))
      state.joined[JobId(row.at(0).get<JobId::rep>())] = row.at(1).get<double>();
    for (const auto& row : json.at("leases")) {
      state.lease_end[JobId(row.at(0).get<JobId::rep>())] =
          Time(Duration(row.at(1).get<std::int64_t>()));
    }
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved Themis state: {}", problem.what())};
  }
}

std::vector<PolicyEntry> themis_rows() {
  PolicyEntry entry;
  entry.name = "themis";
  entry.group = "fair";
  entry.paper = "Mahajan et al., NSDI'20";
  entry.summary = "leases auctioned among those with the worst finish-time fairness";
  entry.knows = "GPUs asked for, work left, speed on each type";
  entry.keys = {number_key("f", 0.8, 0, 1, "fairness knob: the worst 1-f share of jobs takes part"),
                number_key("lease", 1200, 1, 1e9, "seconds of a lease, without the restart")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    return erase(Themis{{values.number("f"), from_seconds(values.number("lease"))}});
  };
  return {entry};
}

}  // namespace rubato::policy
