#include "rubato/policy/promise_books.h"

#include <algorithm>
#include <utility>

namespace rubato::policy {
namespace {}  // namespace

void Standing::set_levels(const JobView& job, const Cluster& cluster) {
  levels.clear();
  for (int t = 0; t < cluster.types(); ++t) {
    const GpuType type = type_at(static_cast<std::size_t>(t));
    levels.push_back(levels_of(*job.spec, *job.speed, cluster.installed(type), type));
  }
}

Json to_json(const Standing& standing) {
  Json steps = Json::array();
  for (const auto& step : standing.plan.steps)
    steps.push_back({step.from.time_since_epoch().count(), step.gpus});
  return {{"type", standing.type.value()},
          {"finish", standing.plan.finish.time_since_epoch().count()},
          {"margin", standing.plan.margin.count()},
          {"steps", std::move(steps)}};
}

Result<Standing> standing_of(const Json& json) {
  Standing standing;
  standing.promised = true;
  standing.type = GpuType(json.at("type").get<GpuType::rep>());
  standing.plan.finish = Time(Duration(json.at("finish").get<std::int64_t>()));
  standing.plan.margin = Duration(json.at("margin").get<std::int64_t>());
  auto& steps = standing.plan.steps;
  for (const auto& step : json.at("steps"))
    steps.push_back({Time(Duration(step.at(0).get<std::int64_t>())), step.at(1).get<int>()});
  const auto out_of_order = [](const GpuStep& a, const GpuStep& b) { return a.from >= b.from; };
  if (steps.empty() || std::adjacent_find(steps.begin(), steps.end(), out_of_order) != steps.end())
    return Error{"a promised job has no plan, or one out of order"};
  return standing;
}

PromiseBooks::PromiseBooks(const Snapshot& snapshot) : snapshot_(snapshot) {
  for (int t = 0; t < snapshot.cluster.types(); ++t) {
    const GpuType type = type_at(static_cast<std::size_t>(t));
    books_.push_back(std::make_unique<PromiseBook>(snapshot, type, snapshot.cluster.usable(type)));
  }
}

void PromiseBooks::enter(const JobView& job, Standing& standing) {
  PromiseBook& at = book(standing.type);
  at.enter(at.party(job, standing.levels[standing.type.index()]), std::move(standing.plan));
  standing_[job.id] = &standing;
}

bool PromiseBooks::keep(std::vector<int>& usable) {
  usable.resize(books_.size());
  bool as_planned = true;
  for (std::size_t t = 0; t < books_.size(); ++t) {
    const int now = snapshot_.cluster.usable(type_at(t));
    const bool same_machines = std::exchange(usable[t], now) == now;
    std::vector<Party> lost;
    as_planned = books_[t]->keep(same_machines, lost) && same_machines && as_planned;
    for (const Party& party : lost) {
      standing_.at(party.view->id)->promised = false;
      standing_.erase(party.view->id);
    }
  }
  return as_planned;
}

bool PromiseBooks::admit(const JobView& job, Standing& standing, const std::vector<GpuType>& types,
                         bool beside) {
  for (const GpuType type : types) {
    PromiseBook& at = book(type);
    Party party = at.party(job, standing.levels[type.index()]);
    if (!(beside ? at.squeeze_in(party) : at.admit(party))) continue;
    standing.promised = true;
    standing.type = type;
    standing_[job.id] = &standing;
    return true;
  }
  return false;
}

std::optional<Time> PromiseBooks::earliest(const JobView& job, Standing& standing) {
  std::optional<Time> earliest;
  for (std::size_t t = 0; t < books_.size(); ++t) {
    const auto here = books_[t]->earliest(books_[t]->party(job, standing.levels[t]));
    if (here && (!earliest || *here < *earliest)) earliest = here;
  }
  return earliest;
}

void PromiseBooks::settle() {
  for (auto& at : books_) {
    for (Party& party : at->promised()) parties_[party.view->id] = &party;
  }
}

int PromiseBooks::planned(JobId job) const { return parties_.at(job)->plan.gpus_at(snapshot_.now); }

void PromiseBooks::conclude(Decision& decision) {
  Time again = kNever;
  for (auto& at : books_) {
    for (Party& party : at->promised()) {
      again = std::min(again, party.plan.next_change(snapshot_.now));
      decision.promise.push_back(
          {party.view->id, party.plan.finish, party.plan.steps, PromiseBook::movable(party)});
      standing_.at(party.view->id)->plan = std::move(party.plan);
    }
  }
  if (again != kNever) decision.again_at = again;
}

}  // namespace rubato::policy
