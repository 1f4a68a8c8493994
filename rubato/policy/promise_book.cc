#include "rubato/policy/promise_book.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace rubato::policy {
namespace {

// How many orders are tried to make all plans fit, and how many plans may be made for one arrival
// in all; with thousands of jobs fewer orders must do. Counts, so that decisions are reproducible.
constexpr std::size_t kMostOrders = 4;
constexpr std::size_t kMostPlans = 6000;
constexpr std::size_t kMostHalvings = 10;
// With so many promises an arrival is fitted between the plans, or at most so many of them change.
constexpr std::size_t kManyPromises = 500;
constexpr std::size_t kMostStretched = 1024;

Time deadline_of(const JobView& job) { return job.spec->deadline.value_or(kNever); }

bool due_before(const Party& a, const Party& b) {
  return std::pair(a.traveller.deadline, a.view->id) < std::pair(b.traveller.deadline, b.view->id);
}

// To the GPUs it should have: on a real clock that takes a while, in which its progress is what
// it was before.
bool is_on_the_way(const JobView& job) {
  if (job.target.empty()) return false;
  const bool changes = job.phase == Phase::resizing || job.held.gpus() != job.target.gpus();
  return changes || !(job.progress.rate > 0);
}

// Whether all counts of the plan are still ones the job can have.
bool allows(const Traveller& traveller, const SharePlan& plan) {
  return std::all_of(plan.steps.begin(), plan.steps.end(), [&](const GpuStep& step) {
    return step.gpus == 0 || std::any_of(traveller.levels.begin(), traveller.levels.end(),
                                         [&](const Level& l) { return l.gpus == step.gpus; });
  });
}

// By a move now, to end no later than is reserved.
Duration margin_needed(const Party& m) {
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

}  // namespace

PromiseBook::PromiseBook(const Snapshot& snapshot, GpuType type, int gpus)
    : snapshot_(snapshot),
      type_(type),
      now_(snapshot.now),
      gpus_(gpus),
      planner_(free_, snapshot.interval) {
  free_.reset(now_, gpus_);
}

Party PromiseBook::party(const JobView& job, std::span<const Level> levels) const {
  Party party;
  party.view = &job;
  Traveller& traveller = party.traveller;
  traveller.levels = levels;
  traveller.restart = job.spec->restart_cost;
  traveller.deadline = deadline_of(job);
  traveller.moves = snapshot_.jobs_move;
  traveller.lateness = snapshot_.lateness;
  traveller.course = {job.target.gpus(), job.progress};
  if (!job.target.empty() && job.target.type() != type_) {  // it would have to come here
    traveller.course = {0, {job.progress.left(now_), now_, 0}};
  } else if (is_on_the_way(job)) {
    if (!(job.progress.rate > 0)) traveller.course.gpus = 0;
    for (const Level& level : levels) {
      if (level.gpus != job.target.gpus()) continue;
      traveller.course.gpus = 0;
      traveller.course.turn(now_, level.gpus, level.rate, traveller.restart);
    }
  }
  return party;
}

void PromiseBook::enter(Party party, SharePlan plan) {
  party.plan = std::move(plan);
  promised_.push_back(std::move(party));
}

void PromiseBook::add(Party party, SharePlan plan) {
  plan.reserve(free_);
  enter(std::move(party), std::move(plan));
}

bool PromiseBook::keep_plans(bool same_machines, std::vector<Party>& lost) {
  const bool on_course = check_courses() && reserve_all();
  if (!on_course || !same_machines) keep_what_can_be(lost);
  return on_course;
}

bool PromiseBook::keep(bool same_machines, std::vector<Party>& lost) {
  const bool on_course = check_courses() && reserve_all();
  if (!on_course || !same_machines) {
    mend(lost);
  } else if (moved_) {  // margins are used up: new ones if possible
    if (auto plans = plans_for_all()) {
      take(std::move(*plans));
    } else {
      reserve_all();
    }
  }
  return on_course;
}

// Follows every plan from where its job really is. Whether all will be done by the time for which
// GPUs are reserved.
bool PromiseBook::check_courses() {
  bool all = true;
  for (Party& m : promised_) {
    m.plan.begin_at(now_);
    const Time finish = SharePlanner::finish_of(m.traveller, m.plan.steps);
    const Time reserved = m.plan.finish + m.plan.margin;
    // Its owner may have changed its limits, and a clock that was set its deadline.
    const bool in_time = finish >= now_ && finish <= reserved && reserved <= m.traveller.deadline &&
                         allows(m.traveller, m.plan);
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

// Whether there are enough GPUs. There are not if others are gone; or if a job was to end just now
// and is still here, because its end is told after this decision.
bool PromiseBook::reserve_all() {
  free_.reset(now_, gpus_);
  for (const Party& m : promised_) m.plan.reserve(free_);
  return free_.first_below(now_, 0) == kNever;
}

std::vector<std::size_t> PromiseBook::by_deadline() const {
  std::vector<std::size_t> order(promised_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return due_before(promised_[a], promised_[b]); });
  return order;
}

// New plans for all, in an order in which all fit, and reserved. If there is none, free_ is
// spoilt until reserve_all().
std::optional<std::vector<SharePlan>> PromiseBook::plans_for_all() {
  std::vector<std::size_t> order = by_deadline();
  std::vector<SharePlan> plans(promised_.size());
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

void PromiseBook::take(std::vector<SharePlan> plans) {
  for (std::size_t i = 0; i < plans.size(); ++i) promised_[i].plan = std::move(plans[i]);
}

// After a fault or a wrong estimate: new plans for all if possible; else whoever's plan can be
// neither kept nor replaced goes on as best effort.
void PromiseBook::mend(std::vector<Party>& lost) {
  if (auto plans = plans_for_all()) return take(std::move(*plans));
  keep_what_can_be(lost);
}

void PromiseBook::keep_what_can_be(std::vector<Party>& lost) {
  free_.reset(now_, gpus_);
  std::vector<bool> kept(promised_.size(), false);
  for (const std::size_t i : by_deadline()) {
    Party& m = promised_[i];
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
  std::vector<Party> still;
  for (std::size_t i = 0; i < promised_.size(); ++i) {
    if (!kept[i]) promised_[i].plan = SharePlan();
    (kept[i] ? still : lost).push_back(std::move(promised_[i]));
  }
  promised_ = std::move(still);
}

// A step function may fall below 0, where plans that stand need what is held back.
void PromiseBook::hold_back_now(int sign) {
  if (held_back_ > 0) free_.add(now_, kNever, -sign * held_back_);
}

bool PromiseBook::squeeze_in(Party& party) {
  hold_back_now(1);
  auto plan = planner_.least_share(party.traveller, now_);
  hold_back_now(-1);
  if (!plan) return false;
  add(std::move(party), std::move(*plan));
  return true;
}

bool PromiseBook::admit(Party& party) {
  promised_.push_back(std::move(party));
  if (find_room_for_last()) return true;
  party = std::move(promised_.back());
  party.plan = SharePlan();
  promised_.pop_back();
  return false;
}

// Whether the last of promised_ can be promised its deadline; then its plan is reserved.
bool PromiseBook::find_room_for_last() {
  if (held_back_ > 0) return find_room_between_plans();
  if (promised_.size() > kManyPromises)
    return find_room_between_plans() || find_room_by_stretching();
  if (auto plans = plans_for_all()) {
    take(std::move(*plans));
    return true;
  }
  promised_.back().plan = SharePlan();
  reserve_all();
  return find_room_between_plans();
}

// New plans for the last and for those who have most time to spare; the others' stand.
bool PromiseBook::find_room_by_stretching() {
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
bool PromiseBook::plan_some(std::vector<std::size_t> order) {
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return due_before(promised_[a], promised_[b]); });
  std::vector<SharePlan> old;
  for (const std::size_t i : order) {
    promised_[i].plan.give_back(free_);
    old.push_back(std::exchange(promised_[i].plan, SharePlan()));
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
bool PromiseBook::find_room_between_plans() {
  Party& last = promised_.back();
  hold_back_now(1);
  auto plan = planner_.least_share(last.traveller, now_);
  hold_back_now(-1);
  if (!plan) return false;
  plan->reserve(free_);
  last.plan = std::move(*plan);
  return true;
}

// Its soonest end beside the plans that stand is one; if others can make room there are earlier
// ones, which are looked for by halving.
std::optional<Time> PromiseBook::earliest(Party party) {
  promised_.push_back(std::move(party));
  Traveller& last = promised_.back().traveller;
  hold_back_now(1);
  const auto soonest = planner_.soonest(last, now_);
  hold_back_now(-1);
  if (!soonest) {
    promised_.pop_back();
    return std::nullopt;
  }
  Time refused = last.deadline;
  Time possible = soonest->finish + soonest->margin;
  const std::vector<SharePlan> standing = [&] {
    std::vector<SharePlan> plans;
    for (const Party& m : promised_) plans.push_back(m.plan);
    return plans;
  }();
  const std::size_t cost = kMostOrders * (promised_.size() + 1);
  for (std::size_t i = 0; i < kMostHalvings && (i + 2) * cost <= kMostPlans; ++i) {
    if (possible - refused <= std::chrono::seconds(1)) break;
    last.deadline = refused + (possible - refused) / 2;
    const bool found = find_room_for_last();
    take(standing);
    reserve_all();
    (found ? possible : refused) = last.deadline;
  }
  promised_.pop_back();
  return possible;
}

void PromiseBook::plan_all() {
  free_.reset(now_, gpus_);
  for (const std::size_t i : by_deadline()) {
    Party& m = promised_[i];
    auto plan = planner_.least_share(m.traveller, now_);
    if (!plan) plan = planner_.soonest(m.traveller, now_);
    m.plan = plan ? std::move(*plan) : SharePlan();
    m.plan.reserve(free_);
  }
}

// A plan that begins with this level now and ends sooner.
std::optional<SharePlan> PromiseBook::begun_with(Party& party, const Level& level) {
  party.plan.give_back(free_);
  auto plan = planner_.begun_with(party.traveller, level, now_);
  party.plan.reserve(free_);
  if (plan && plan->finish >= party.plan.finish) plan.reset();
  return plan;
}

std::optional<PromiseBook::Growth> PromiseBook::growth(Party& party, int gpus) {
  const auto& levels = party.traveller.levels;
  const auto next = std::find_if(levels.begin(), levels.end(),
                                 [&](const Level& level) { return level.gpus > party.gpus; });
  if (next == levels.end() || next->gpus - party.gpus > gpus) return std::nullopt;
  auto plan = begun_with(party, *next);
  if (!plan) return std::nullopt;
  const Time until = std::min(plan->next_change(now_), plan->finish);
  const double added = (next->gpus - party.gpus) * seconds(until - now_);
  const double saved = (party.plan.gpu_seconds(until) - plan->gpu_seconds(until)) / added;
  return Growth{&*next, std::move(*plan), saved};
}

void PromiseBook::replace(Party& party, SharePlan plan) {
  party.plan.give_back(free_);
  party.plan = std::move(plan);
  party.plan.reserve(free_);
}

namespace {

// A promised job's growth, among those of others.
struct Offer {
  Party* party = nullptr;
  PromiseBook::Growth growth;

  friend bool operator<(const Offer& a, const Offer& b) {  // a is worse
    const bool idle = a.party->gpus == 0;
    if (idle != (b.party->gpus == 0)) return !idle;
    if (!idle && a.growth.saved != b.growth.saved) return a.growth.saved < b.growth.saved;
    return due_before(*b.party, *a.party);
  }
};

}  // namespace

void PromiseBook::grow(int gpus) {
  std::priority_queue<Offer> offers;
  const auto put = [&](Party& party) {
    if (gpus == 0) return;
    if (auto made = growth(party, gpus)) offers.push({&party, std::move(*made)});
  };
  for (Party& party : promised_) {
    party.gpus = party.plan.gpus_at(now_);
    put(party);
  }
  while (gpus > 0 && !offers.empty()) {
    Party& party = *offers.top().party;
    const double hoped = offers.top().growth.saved;
    offers.pop();
    auto made = growth(party, gpus);  // others have taken GPUs meanwhile
    if (!made) continue;
    Offer offer{&party, std::move(*made)};
    if (offer.growth.saved < hoped && !offers.empty() && offer < offers.top()) {
      offers.push(std::move(offer));
      continue;
    }
    gpus -= offer.growth.level->gpus - party.gpus;
    party.gpus = offer.growth.level->gpus;
    replace(party, std::move(offer.growth.plan));
    put(party);
  }
}

bool PromiseBook::movable(const Party& party) { return party.plan.margin >= margin_needed(party); }

}  // namespace rubato::policy
