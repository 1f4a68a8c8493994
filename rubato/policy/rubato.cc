#include "rubato/policy/rubato.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <tuple>

#include "rubato/model/goodput_estimate.h"

namespace rubato::policy {
namespace {

using Record = Rubato::Record;

// A second of a promised job's time costs so much less: it is in time anyway.
constexpr double kPromisedWeight = 0.1;
// Who needs all of the time until its fair end weighs 1 + kHurry x fairness times as much, if
// nobody is late. The powers say how soon less need, and others who are late, make that less.
constexpr double kHurry = 4;
constexpr double kNeedPower = 8;
constexpr double kInTimePower = 64;
// A turn is this part of the patience, or so many restarts, whichever is longer.
constexpr int kTurns = 1440;
constexpr int kRestarts = 10;
// Turns take this part of all GPU-time at most.
constexpr double kTurnShare = 0.005;

// One decision.
class RubatoRound {
 public:
  RubatoRound(const Rubato::Config& config, const Snapshot& snapshot, Rubato::State& state)
      : config_(config), snapshot_(snapshot), state_(state), now_(snapshot.now) {
    for (int t = 0; t < snapshot.cluster.types(); ++t)
      gpus_.push_back(snapshot.cluster.usable(type_at(static_cast<std::size_t>(t))));
  }

  Decision decide() {
    count_time();
    meet();
    if (promises()) promise();
    enter_market();
    trade();
    return conclude();
  }

 private:
  // ---- who is there ----

  void count_time() {
    const double passed = std::max(0.0, seconds(now_ - state_.at));
    state_.crowd += passed * static_cast<double>(state_.records.size());
    state_.turn_debt = std::max(0.0, state_.turn_debt - passed * turn_pace());
    state_.at = now_;
  }

  // GPU-seconds a second that turns may take.
  [[nodiscard]] double turn_pace() const {
    return kTurnShare * std::accumulate(gpus_.begin(), gpus_.end(), 0);
  }

  void meet() {
    std::vector<Record> records;
    records.reserve(snapshot_.jobs.size());
    jobs_.reserve(snapshot_.jobs.size());
    auto known = state_.records.begin();
    const auto gone = [&] {
      state_.lengths.ended(known->progress, now_);
      ++known;
    };
    for (const JobView& job : snapshot_.jobs) {
      while (known != state_.records.end() && known->job < job.id) gone();
      if (known != state_.records.end() && known->job == job.id) {
        records.push_back(std::move(*known++));
      } else {
        records.emplace_back();
        records.back().job = job.id;
        records.back().crowd_before = state_.crowd;
        if (may_promise(job)) arrived_.push_back(jobs_.size());
      }
      look_at(job, records.back());
      jobs_.push_back(&job);
    }
    while (known != state_.records.end()) gone();
    state_.records = std::move(records);
  }

  // What is not known cannot be promised.
  [[nodiscard]] bool promises() const { return config_.promises && !hides(); }
  [[nodiscard]] bool may_promise(const JobView& job) const {
    return job.spec->deadline && promises() && !job.spec->work_guessed;
  }
  // Whether it must not use what jobs tell of their length.
  [[nodiscard]] bool hides() const { return config_.lengths != Rubato::Lengths::told; }

  void look_at(const JobView& job, Record& record) const {
    if (record.speed != job.speed || record.spec != job.spec) {
      record.spec = job.spec;
      record.speed = job.speed;
      record.menu = Menu(*job.spec, *job.speed, snapshot_.cluster);
      record.progress.kind = LengthEstimate::kind_of(*job.spec);
      if (may_promise(job)) record.standing.set_levels(job, snapshot_.cluster);
    }
    if (job.spec->work_guessed) {
      LengthEstimate::go_on(record.progress, job, alone(record.menu), now_);
    } else if (hides()) {
      LengthEstimate::look(record.progress, job, alone(record.menu), now_);
    } else {
      LengthEstimate::told(record.progress, job, alone(record.menu));
    }
  }

  // On its smallest count.
  [[nodiscard]] static WorkRate alone(const Menu& menu) {
    return menu.corners().empty() ? 0 : menu.corners().front().rate;
  }

  // ---- deadlines ----

  void promise() {
    const bool any = std::any_of(state_.records.begin(), state_.records.end(),
                                 [](const Record& record) { return record.standing.promised; });
    const bool deadlines =
        any || !arrived_.empty() || std::any_of(jobs_.begin(), jobs_.end(), [&](const JobView* j) {
          return may_promise(*j) && *j->spec->deadline > now_;
        });
    if (!deadlines) {
      state_.usable = gpus_;
      return;
    }
    books_.emplace(snapshot_);
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (state_.records[i].standing.promised) books_->enter(*jobs_[i], state_.records[i].standing);
    }
    books_->keep(state_.usable);
    hold_back();
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      const bool hopes = may_promise(*jobs_[i]) && *jobs_[i]->spec->deadline > now_;
      if (hopes && !state_.records[i].standing.promised && !is_arriving(i))
        books_->admit(*jobs_[i], state_.records[i].standing, types_for(i), true);
    }
    for (const std::size_t i : arrived_) admit(i);
    books_->settle();
  }

  [[nodiscard]] bool is_arriving(std::size_t i) const {
    return std::binary_search(arrived_.begin(), arrived_.end(), i);
  }

  // The cheapest first.
  [[nodiscard]] std::vector<GpuType> types_for(std::size_t i) const {
    std::vector<std::pair<double, GpuType>> ranked;
    const Record& record = state_.records[i];
    for (std::size_t t = 0; t < gpus_.size(); ++t) {
      double best = 0;
      for (const Level& level : record.standing.levels[t]) {
        const double price = t < state_.prices.size() ? state_.prices[t] : 1;
        const double cost = (kPromisedWeight + price * level.gpus) / level.rate;
        if (best == 0 || cost < best) best = cost;
      }
      if (best > 0) ranked.emplace_back(best, type_at(t));
    }
    std::sort(ranked.begin(), ranked.end());
    std::vector<GpuType> types;
    types.reserve(ranked.size());
    for (const auto& [cost, type] : ranked) types.push_back(type);
    return types;
  }

  void admit(std::size_t i) {
    Record& record = state_.records[i];
    const JobView& job = *jobs_[i];
    if (books_->admit(job, record.standing, types_for(i), false) || job.accepted()) return;
    Reject reject{job.id, "no plan keeps this deadline and all those promised before",
                  books_->earliest(job, record.standing)};
    if (!reject.earliest) reject.reason = "cannot be finished with the GPUs that are up";
    rejected_.push_back(std::move(reject));
    is_rejected_.resize(jobs_.size());
    is_rejected_[i] = true;
  }

  [[nodiscard]] bool is_rejected(std::size_t i) const {
    return i < is_rejected_.size() && is_rejected_[i];
  }

  // ---- turns ----

  [[nodiscard]] Duration turn(const JobView& job) const {
    return std::max(config_.patience / kTurns, kRestarts * job.spec->restart_cost);
  }
  [[nodiscard]] bool waits(std::size_t i) const {
    return jobs_[i]->target.empty() && !state_.records[i].standing.promised && !is_rejected(i);
  }
  [[nodiscard]] Time waits_since(std::size_t i) const {
    return std::max(jobs_[i]->last_ran, jobs_[i]->submitted);
  }
  [[nodiscard]] bool is_overdue(std::size_t i) const {
    return waits(i) && now_ - waits_since(i) >= config_.patience;
  }
  [[nodiscard]] bool has_turn(std::size_t i) const {
    return state_.records[i].turn_until > now_ && !state_.records[i].standing.promised;
  }
  // The smallest count on this type; 0 GPUs if there is none with so many.
  [[nodiscard]] Choice smallest(std::size_t i, std::size_t t) const {
    return state_.records[i].menu.first(type_at(t), 1, gpus_[t]).value_or(Choice{type_at(t), 0, 0});
  }

  // By when the waiting began.
  [[nodiscard]] std::vector<std::size_t> overdue() const {
    std::vector<std::size_t> queue;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (is_overdue(i) && !has_turn(i)) queue.push_back(i);
    }
    std::sort(queue.begin(), queue.end(), [&](std::size_t a, std::size_t b) {
      return std::tuple(waits_since(a), a) < std::tuple(waits_since(b), b);
    });
    return queue;
  }

  // New promises may not take what turns use, nor what the first in the queue waits for.
  void hold_back() {
    const auto queue = overdue();
    for (std::size_t t = 0; t < gpus_.size(); ++t) {
      int gpus = queue.empty() ? 0 : smallest(queue.front(), t).gpus;
      for (std::size_t i = 0; i < jobs_.size(); ++i) {
        if (has_turn(i) && !jobs_[i]->target.empty() && jobs_[i]->target.type().index() == t)
          gpus += smallest(i, t).gpus;
      }
      if (gpus > 0) books_->hold_back(type_at(t), gpus);
    }
  }

  // Those who have a turn keep it if they can; then the queue, whose head lets nobody pass.
  void give_turns() {
    std::vector<int> used(gpus_.size(), 0);
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (!has_turn(i)) continue;
      const std::size_t t = jobs_[i]->target.empty() ? 0 : jobs_[i]->target.type().index();
      if (!jobs_[i]->target.empty() && take_turn(i, t, used)) continue;
      state_.records[i].turn_until = now_;
    }
    for (const std::size_t i : overdue()) {
      if (state_.turn_debt > 0)  // one microsecond more, so that it is paid off then
        return again_at(now_ + from_seconds(state_.turn_debt / turn_pace()) + Duration(1));
      const auto ranked = types_by_price();
      const bool possible = std::any_of(ranked.begin(), ranked.end(),
                                        [&](std::size_t t) { return smallest(i, t).gpus > 0; });
      if (!possible) continue;
      const bool began = std::any_of(ranked.begin(), ranked.end(), [&](std::size_t t) {
        const int gpus = smallest(i, t).gpus;
        const bool share = used[t] == 0 || 2 * (used[t] + gpus) <= gpus_[t];
        const Time until = now_ + turn(*jobs_[i]);
        const bool lasts = !books_ || books_->free_until(type_at(t), used[t] + gpus, until);
        return gpus > 0 && share && lasts && take_turn(i, t, used);
      });
      if (!began) return;
      state_.records[i].turn_until = now_ + turn(*jobs_[i]);
      state_.turn_debt += traders_[i].floor.gpus * seconds(turn(*jobs_[i]));
    }
  }

  bool take_turn(std::size_t i, std::size_t t, std::vector<int>& used) {
    const Choice choice = smallest(i, t);
    if (choice.gpus == 0 || choice.gpus > free_[t]) return false;
    free_[t] -= choice.gpus;
    used[t] += choice.gpus;
    traders_[i].tied = true;
    traders_[i].floor = choice;
    again_at(state_.records[i].turn_until > now_ ? state_.records[i].turn_until
                                                 : now_ + turn(*jobs_[i]));
    return true;
  }

  [[nodiscard]] std::vector<std::size_t> types_by_price() const {
    std::vector<std::size_t> types(gpus_.size());
    for (std::size_t t = 0; t < types.size(); ++t) types[t] = t;
    if (state_.prices.size() == types.size()) {
      std::stable_sort(types.begin(), types.end(), [&](std::size_t a, std::size_t b) {
        return state_.prices[a] < state_.prices[b];
      });
    }
    return types;
  }

  void again_at(Time when) {
    if (when > now_ && (!again_ || when < *again_)) again_ = when;
  }

  // ---- the market ----

  void enter_market() {
    free_ = gpus_;
    for (std::size_t i = 0; i < jobs_.size(); ++i)
      traders_.push_back(trader(*jobs_[i], state_.records[i]));
    weigh_fairness();
    if (config_.by_user) divide_weights();
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (is_rejected(i)) {
        traders_[i].tied = traders_[i].frozen = true;
      } else if (state_.records[i].standing.promised) {
        tie_to_plan(i);
      }
    }
    give_turns();
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i]->spec->goes_first && !traders_[i].tied) let_first(i);
    }
  }

  // A user has the largest weight of their jobs; each job has its part of that. A job without a
  // user is a user of its own. The sum of all weights stays, and so do the units of prices.
  void divide_weights() {
    struct User {
      double most = 0, sum = 0;
    };
    std::map<std::string_view, User> users;
    double before = 0, after = 0;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      const double weight = traders_[i].weight;
      before += weight;
      if (jobs_[i]->spec->user.empty()) {
        after += weight;
        continue;
      }
      User& user = users[jobs_[i]->spec->user];
      user.most = std::max(user.most, weight);
      user.sum += weight;
    }
    for (const auto& [name, user] : users) after += user.most;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      traders_[i].weight *= before / after;
      if (jobs_[i]->spec->user.empty()) continue;
      const User& user = users[jobs_[i]->spec->user];
      traders_[i].weight *= user.most / user.sum;
    }
  }

  // On its smallest count, where that is free.
  void let_first(std::size_t i) {
    for (const std::size_t t : types_by_price()) {
      const Choice choice = smallest(i, t);
      if (choice.gpus == 0 || choice.gpus > free_[t]) continue;
      free_[t] -= choice.gpus;
      traders_[i].tied = true;
      traders_[i].floor = choice;
      return;
    }
  }

  void tie_to_plan(std::size_t i) {
    Trader& trader = traders_[i];
    const GpuType type = state_.records[i].standing.type;
    const int gpus = books_->planned(jobs_[i]->id);
    trader.tied = true;
    trader.floor = {type, gpus, gpus > 0 ? trader.menu->rate_at(type, gpus) : 0};
    trader.weight *= kPromisedWeight;
    free_[type.index()] -= gpus;
  }

  [[nodiscard]] Trader trader(const JobView& job, const Record& record) const {
    Trader trader;
    trader.menu = &record.menu;
    if (!job.target.empty()) {
      const GpuType type = job.target.type();
      const int gpus = job.target.gpus();
      trader.now = {type, gpus, record.menu.rate_at(type, gpus)};
    }
    trader.left = job.progress.left(now_);
    if (!is_told(job, record)) {
      trader.certain = false;
      trader.left = state_.lengths.left_s(record.progress) * alone(record.menu);
    }
    trader.weight = job.spec->weight;
    trader.restart_s = seconds(job.spec->restart_cost);
    return trader;
  }

  [[nodiscard]] bool is_told(const JobView& job, const Record& record) const {
    if (job.spec->work_guessed) return false;
    switch (config_.lengths) {
      case Rubato::Lengths::told:
        return true;
      case Rubato::Lengths::fraction:
        return record.progress.done_s > 0;
      case Rubato::Lengths::unknown:
        return false;
    }
    return true;
  }

  // Finish-time fairness: who is behind its fair share weighs more, and so does who can still end
  // by its fair end, but only if it gets its best GPUs soon. The more are too late for that, the
  // less it is worth to hurry others.
  void weigh_fairness() {
    if (config_.fairness == 0) return;
    std::vector<double> needs(traders_.size(), 0);
    int known = 0, late = 0;
    for (std::size_t i = 0; i < traders_.size(); ++i) {
      // Of a length that is only expected, nobody can say whether it is behind.
      if (!traders_[i].certain) continue;
      const auto fair = fair_course(i);
      if (!fair) continue;
      traders_[i].weight *= std::pow(std::max(1.0, fair->rho), config_.fairness);
      needs[i] = fair->need;
      ++known;
      if (fair->need >= 1) ++late;
    }
    if (known == late) return;
    const double in_time = 1 - static_cast<double>(late) / known;
    const double most = kHurry * config_.fairness * std::pow(in_time, kInTimePower);
    for (std::size_t i = 0; i < traders_.size(); ++i) {
      if (needs[i] < 1) traders_[i].weight *= 1 + most * std::pow(needs[i], kNeedPower);
    }
  }

  struct FairCourse {
    double rho = 0;   // if it has its fair share from now on
    double need = 0;  // share of the time until its fair end that it takes at its best; 1: too late
  };
  [[nodiscard]] std::optional<FairCourse> fair_course(std::size_t i) const {
    const JobView& job = *jobs_[i];
    const Record& record = state_.records[i];
    const double age = seconds(now_ - job.submitted);
    const auto present = static_cast<double>(jobs_.size());
    const double crowd = age > 0 ? (state_.crowd - record.crowd_before) / age : present;
    const WorkRate fair = fair_rate(record.menu, std::max(crowd, 1.0));
    if (!(fair > 0)) return std::nullopt;
    const double ideal = seconds(job.spec->restart_cost) + job.work / fair;
    if (!(ideal > 0)) return std::nullopt;
    const double until_fair_end = ideal - age;
    const double left_s = traders_[i].left / best_rate(record.menu);
    const double need = left_s < until_fair_end ? left_s / until_fair_end : 1;
    return FairCourse{(age + traders_[i].left / fair) / ideal, need};
  }

  [[nodiscard]] WorkRate best_rate(const Menu& menu) const {
    WorkRate best = 0;
    for (const Choice& choice : menu.corners()) {
      if (choice.gpus <= gpus_[choice.type.index()]) best = std::max(best, choice.rate);
    }
    return best;
  }

  // Alone on such a part of every type.
  [[nodiscard]] WorkRate fair_rate(const Menu& menu, double crowd) const {
    double all = 0;
    for (std::size_t t = 0; t < gpus_.size(); ++t) all += snapshot_.cluster.installed(type_at(t));
    double sum = 0;
    for (std::size_t t = 0; t < gpus_.size(); ++t) {
      const GpuType type = type_at(t);
      sum += snapshot_.cluster.installed(type) / all * menu.rate_on(type, all / crowd);
    }
    return sum;
  }

  // Of what is free now.
  [[nodiscard]] Market the_market() const {
    const bool newcomers = !state_.records.empty() && state_.records.back().crowd_before > 0;
    return {gpus_, free_, seconds(snapshot_.interval), newcomers};
  }

  void trade() {
    Market market = the_market();
    market.divide(traders_, state_.prices);
    if (books_) trade_beside_plans();
    remember_quotes(market);
  }

  // The market has said how much more than their plans promised jobs should have together. Among
  // them it goes as in elasticflow, because they are in time anyway: to plans that then need less.
  // Then they are out of the market, and the others trade what is left.
  void trade_beside_plans() {
    std::vector<int> more(gpus_.size(), 0);
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (!state_.records[i].standing.promised) continue;
      traders_[i].frozen = true;
      more[traders_[i].floor.type.index()] += traders_[i].won.gpus - traders_[i].floor.gpus;
    }
    grow_promised(more);
    std::vector<double> prices = state_.prices;
    the_market().divide(traders_, prices);
    grow_promised(idle());  // what nobody in the market wants
  }

  void grow_promised(const std::vector<int>& gpus) {
    for (std::size_t t = 0; t < gpus.size(); ++t) {
      if (gpus[t] > 0) books_->grow(type_at(t), gpus[t]);
    }
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (!state_.records[i].standing.promised) continue;
      Choice& floor = traders_[i].floor;
      const int has = books_->planned(jobs_[i]->id);
      free_[floor.type.index()] -= has - floor.gpus;
      floor = {floor.type, has, has > 0 ? traders_[i].menu->rate_at(floor.type, has) : 0};
      traders_[i].won = floor;
    }
  }

  // GPUs by type that nobody has won.
  [[nodiscard]] std::vector<int> idle() const {
    std::vector<int> idle = free_;
    for (const Trader& trader : traders_) {
      if (trader.won.gpus > 0 && !trader.frozen)
        idle[trader.won.type.index()] -= trader.won.gpus - (trader.tied ? trader.floor.gpus : 0);
    }
    return idle;
  }

  void remember_quotes(const Market& market) {
    std::vector<Quote> quotes;
    quotes.reserve(jobs_.size());
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (is_rejected(i)) continue;
      Quote quote = market.quote(traders_[i], state_.prices);
      quote.job = jobs_[i]->id;
      quote.promised = state_.records[i].standing.promised;
      quote.turn = has_turn(i);
      quote.guessed = !traders_[i].certain;
      quotes.push_back(quote);
    }
    state_.quotes = std::make_shared<const Quotes>(std::move(quotes));
  }

  // ---- the answer ----

  // Who is without GPUs from now on is asked about again when its patience ends.
  void wake_for_patience() {
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (traders_[i].won.gpus > 0 || is_rejected(i) || state_.records[i].standing.promised)
        continue;
      const Time since = jobs_[i]->target.empty() ? waits_since(i) : now_;
      again_at(since + config_.patience);
    }
  }

  Decision conclude() {
    wake_for_patience();
    Decision decision;
    if (books_) {
      books_->conclude(decision);
      if (decision.again_at) again_at(*decision.again_at);
    }
    decision.again_at = again_;
    decision.reject = std::move(rejected_);
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      const Choice& won = traders_[i].won;
      if (won.gpus == 0) continue;
      decision.run.push_back({jobs_[i]->id, Count{won.type, won.gpus}, batch_for(*jobs_[i], won)});
    }
    return decision;
  }

  [[nodiscard]] std::optional<Batch> batch_for(const JobView& job, const Choice& won) const {
    const auto* estimate = dynamic_cast<const GoodputEstimate*>(job.speed.get());
    if (estimate == nullptr || !job.spec->adaptive_batch) return std::nullopt;
    const int node = std::max(snapshot_.cluster.node_size(won.type), 1);
    const Footprint place{(won.gpus + node - 1) / node, won.gpus};
    const auto best = estimate->batch_at(won.type, place);
    const bool stays = job.target.gpus() == won.gpus && job.target.type() == won.type;
    if (!best || !stays || !job.batch || !estimate->seen()) return best;
    const Goodput goodput = estimate->goodput(won.type);
    return worth_switching(goodput.at(place, *job.batch), goodput.at(place, *best)) ? best
                                                                                    : job.batch;
  }

  const Rubato::Config& config_;
  const Snapshot& snapshot_;
  Rubato::State& state_;
  Time now_;
  std::vector<int> gpus_, free_;  // by type: usable, and free for the market
  std::vector<const JobView*> jobs_;
  std::vector<std::size_t> arrived_;  // with a deadline; places in jobs_
  std::optional<PromiseBooks> books_;
  std::vector<Reject> rejected_;
  std::vector<bool> is_rejected_;  // by place in jobs_
  std::vector<Trader> traders_;    // as jobs_
  std::optional<Time> again_;
};

}  // namespace

Decision Rubato::decide(const Snapshot& snapshot, State& state) const {
  return RubatoRound(config, snapshot, state).decide();
}

int Rubato::least_gpus(const JobSpec& spec, const SpeedModel& speed) const {
  const bool rigid =
      speed.measured().empty() && dynamic_cast<const GoodputEstimate*>(&speed) == nullptr;
  return rigid ? spec.requested : spec.limits.smallest();
}

Json Rubato::State::save() const {
  Json json = {{"at", at.time_since_epoch().count()},
               {"crowd", crowd},
               {"turn_debt", turn_debt},
               {"prices", prices},
               {"usable", usable},
               {"lengths", lengths.save()}};
  json["jobs"] = Json::array();
  for (const Record& record : records) {
    Json row = {{"job", record.job.value()},
                {"crowd", record.crowd_before},
                {"turn", record.turn_until.time_since_epoch().count()}};
    const auto& seen = record.progress;
    if (!seen.kind.empty())
      row["seen"] = {seen.kind, seen.done_s, seen.pace, seen.at.time_since_epoch().count()};
    if (record.standing.promised) row["promise"] = to_json(record.standing);
    json["jobs"].push_back(std::move(row));
  }
  return json;
}

Result<Rubato::State> Rubato::State::load(const Json& json) {
  const auto time = [](const Json& number) { return Time(Duration(number.get<std::int64_t>())); };
  try {
    State state;
    state.at = time(json.at("at"));
    state.crowd = json.at("crowd").get<double>();
    state.turn_debt = json.at("turn_debt").get<double>();
    state.prices = json.at("prices").get<std::vector<double>>();
    state.usable = json.at("usable").get<std::vector<int>>();
    state.lengths = LengthEstimate::load(json.at("lengths"));
    for (const auto& row : json.at("jobs")) {
      Record record;
      record.job = JobId(row.at("job").get<JobId::rep>());
      record.crowd_before = row.at("crowd").get<double>();
      record.turn_until = time(row.at("turn"));
      if (row.contains("seen")) {
        const auto& seen = row["seen"];
        record.progress = {seen.at(0).get<std::string>(), seen.at(1).get<double>(),
                           seen.at(2).get<double>(), time(seen.at(3))};
      }
      if (row.contains("promise")) {
        auto standing = standing_of(row["promise"]);
        if (!standing) return standing.error();
        record.standing = std::move(*standing);
      }
      if (!state.records.empty() && !(state.records.back().job < record.job))
        return Error{"saved state of rubato: the jobs are not in order"};
      state.records.push_back(std::move(record));
    }
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved state of rubato: {}", problem.what())};
  }
}

std::vector<PolicyEntry> rubato_rows() {
  PolicyEntry entry;
  entry.name = "rubato";
  entry.group = "elastic";
  entry.paper = "ours (docs/rubato-policy.md)";
  entry.summary = "a market for GPUs: each job bids what a GPU would save it and all others";
  entry.knows = "speed by count and type, work left, deadline, restart cost, weight";
  entry.elastic = true;
  entry.tunes_batches = true;
  entry.explores = true;
  entry.admits = true;
  entry.admission_key = "promises";
  entry.work_conserving = false;
  entry.keys = {
      number_key("fairness", 0.5, 0, 1,
                 "how much more who is behind its fair share bids; 0 = only the mean completion "
                 "time counts"),
      choice_key("promises", {"on", "off"},
                 "on: promise deadlines and keep them; off: deadlines do not count"),
      number_key("patience", 259200, 1, 1e9, "seconds without GPUs after which a job gets a turn"),
      choice_key("lengths", {"told", "fraction", "unknown"},
                 "what is known of a job's work: all, all from its first step on, or only what is "
                 "done"),
      choice_key("shares", {"jobs", "users"},
                 "who has a weight: each job, or each user, however many jobs they have")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    Rubato::Config config;
    config.fairness = values.number("fairness");
    config.promises = values.text("promises") == "on";
    config.patience = from_seconds(values.number("patience"));
    const std::string& lengths = values.text("lengths");
    config.lengths = lengths == "told"       ? Rubato::Lengths::told
                     : lengths == "fraction" ? Rubato::Lengths::fraction
                                             : Rubato::Lengths::unknown;
    config.by_user = values.text("shares") == "users";
    return erase(Rubato{config});
  };
  return {entry};
}

}  // namespace rubato::policy
