#include "rubato/policy/market.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "rubato/policy/exchange.h"

namespace rubato::policy {
namespace {

constexpr double kInfinitePrice = std::numeric_limits<double>::infinity();

// A restart is set against what a job does in so many seconds: until then, on average, others have
// come and gone and the GPUs are divided anew.
constexpr double kHorizonSeconds = 600;
constexpr double kMostLost = 0.9;
constexpr double kLeastLost = 1e-9;  // so that nobody is moved by a rounding error
// Where jobs keep coming, more weight is there when a job ends than the jobs of now say, and what
// is there costs more, because those who will come wait behind it.
constexpr double kLater = 0.5;      // f becomes f to this power
constexpr double kNewcomers = 1.5;  // the sum of all m p is so many times the weight of those here
// Before there is a market, a price as of jobs whose speed is the root of their GPUs.
constexpr double kFirstPrice = 0.5;

}  // namespace

// ---- what work is worth ----

void Market::set_costs(std::vector<Trader>& traders, std::span<const double> prices) const {
  for (Trader& trader : traders) {
    double best = kInfinitePrice;
    WorkRate rate = 0;
    for (const Choice& choice : trader.menu->corners()) {
      if (choice.gpus > gpus_[choice.type.index()]) continue;
      const double cost = (trader.weight + prices[choice.type.index()] * choice.gpus) / choice.rate;
      if (cost < best) {
        best = cost;
        rate = choice.rate;
      }
    }
    trader.cost = best < kInfinitePrice ? best * trader.left : kInfinitePrice;
    trader.loses = 0;
    if (trader.now.gpus == 0) continue;
    const double ahead =
        std::min(std::max(kHorizonSeconds, interval_s_), rate > 0 ? trader.left / rate : 0);
    const double lost = trader.restart_s > 0 ? trader.restart_s / ahead : 0;
    trader.loses = std::clamp(lost, kLeastLost, kMostLost);
  }
}

void Market::set_worths(std::vector<Trader>& traders, std::span<const double> prices) const {
  for (Trader& trader : traders) {
    const double later = newcomers_ ? std::pow(trader.later, kLater) : trader.later;
    double best = kInfinitePrice;
    for (const Choice& choice : trader.menu->corners()) {
      if (choice.gpus > gpus_[choice.type.index()]) continue;
      const double price = later * prices[choice.type.index()];
      best = std::min(best, (trader.weight + price * choice.gpus) / choice.rate);
    }
    trader.worth = best < kInfinitePrice ? best : 0;
  }
}

namespace {

// Costs in classes that are a factor of 2^(1/8) apart, so that n jobs are compared with a few
// hundred classes and not with each other.
class CostClasses {
 public:
  void add(double cost, double weight) { weight_[place(cost)] += weight; }

  // The weight of those that end after a job of this cost, if either may end first.
  [[nodiscard]] double after(double cost) {
    const std::size_t at = place(cost);
    if (after_[at] < 0) {
      double sum = 0;
      for (std::size_t i = 0; i < kClasses; ++i) {
        if (weight_[i] == 0) continue;
        const double ratio = std::exp2((static_cast<double>(i) - static_cast<double>(at)) / kFine);
        sum += weight_[i] * ratio / (1 + ratio);
      }
      after_[at] = sum;
    }
    return after_[at];
  }

  CostClasses() { after_.fill(-1); }

 private:
  static constexpr std::size_t kClasses = 640;
  static constexpr double kFine = 8;
  static constexpr double kLeast = -20;  // log2 of the smallest cost that is told apart

  [[nodiscard]] static std::size_t place(double cost) {
    if (!(cost > 0)) return 0;
    const double at = (std::log2(cost) - kLeast) * kFine;
    return static_cast<std::size_t>(std::clamp(at, 0.0, static_cast<double>(kClasses - 1)));
  }

  std::array<double, kClasses> weight_{};
  std::array<double, kClasses> after_{};
};

}  // namespace

void set_later(std::vector<Trader>& traders) {
  std::vector<std::uint32_t> order;  // those that are certain
  CostClasses certain, uncertain;
  bool any_uncertain = false;
  double all = 0;
  double rest = 0;  // weight of those certain that have not ended
  for (std::size_t i = 0; i < traders.size(); ++i) {
    const Trader& trader = traders[i];
    all += trader.weight;
    if (trader.certain) {
      order.push_back(static_cast<std::uint32_t>(i));
      rest += trader.weight;
      certain.add(trader.cost, trader.weight);
    } else {
      any_uncertain = true;
      uncertain.add(trader.cost, trader.weight);
    }
  }
  const auto soon = [&](std::uint32_t a, std::uint32_t b) {
    const double of_a = traders[a].cost * traders[b].weight;
    const double of_b = traders[b].cost * traders[a].weight;
    return of_a != of_b ? of_a < of_b : a < b;
  };
  std::sort(order.begin(), order.end(), soon);
  for (const std::uint32_t i : order) {
    Trader& trader = traders[i];
    const double other = any_uncertain ? uncertain.after(trader.cost) : 0;
    trader.later = (rest - trader.weight / 2 + other) / all;
    rest -= trader.weight;
  }
  for (Trader& trader : traders) {
    if (trader.certain) continue;
    trader.later = (certain.after(trader.cost) + uncertain.after(trader.cost)) / all;
  }
}

double Market::worth_of(const Trader& trader, const Choice& choice) const {
  const bool as_now = choice.gpus == trader.now.gpus && choice.type == trader.now.type;
  const double kept = as_now ? 1 : 1 - trader.loses;
  if (interval_s_ <= 0) return kept * trader.worth * choice.rate;
  // Whoever ends between two decisions leaves its GPUs idle for the rest, but is done that sooner.
  const double until_end = trader.left / choice.rate + (as_now ? 0 : trader.restart_s);
  if (until_end >= interval_s_) return kept * trader.worth * choice.rate;
  return (trader.worth * trader.left + trader.weight * (interval_s_ - until_end)) / interval_s_;
}

// To be thrown off costs the restart that will be needed.
double Market::worth_of_none(const Trader& trader) const {
  return trader.now.gpus > 0 ? -trader.loses * trader.worth * trader.now.rate : 0;
}

// ---- one type ----

void Market::make_bid(std::uint32_t bidder, const Trader& trader, GpuType type, double outside) {
  const int least = trader.tied ? trader.floor.gpus : 0;
  if (trader.tied && (trader.frozen || trader.floor.type != type)) return;
  const int most = least + free_[type.index()];
  points_.clear();
  points_.push_back({least, least > 0 ? worth_of(trader, trader.floor) : outside});
  const auto offer = [&](const Choice& choice) {
    if (choice.gpus <= least || choice.gpus > most) return;
    points_.push_back({choice.gpus, worth_of(trader, choice)});
  };
  for (const Choice& choice : trader.menu->corners(type)) offer(choice);
  const std::size_t corners = points_.size();
  if (trader.now.gpus > 0 && trader.now.type == type) offer(trader.now);
  if (interval_s_ > 0) {
    if (const auto enough = enough_until_next(trader, type)) offer(*enough);
  }
  if (points_.size() > corners) {
    std::stable_sort(points_.begin(), points_.end(), [](const auto& a, const auto& b) {
      return a.gpus != b.gpus ? a.gpus < b.gpus : a.worth > b.worth;
    });
    points_.erase(std::unique(points_.begin(), points_.end(),
                              [](const auto& a, const auto& b) { return a.gpus == b.gpus; }),
                  points_.end());
  }
  auction_.bid(bidder, points_);
}

// The fewest GPUs with which the job is done before the next decision; nullopt if none are enough.
std::optional<Choice> Market::enough_until_next(const Trader& trader, GpuType type) const {
  const double usable_s = interval_s_ - trader.restart_s;
  if (!(usable_s > 0)) return std::nullopt;
  const WorkRate needed = trader.left / usable_s;
  Choice before{type, 0, 0};
  for (const Choice& corner : trader.menu->corners(type)) {
    if (corner.rate >= needed) {
      const double share = (needed - before.rate) / (corner.rate - before.rate);
      const double gpus = before.gpus + std::max(0.0, share) * (corner.gpus - before.gpus);
      return trader.menu->first(type, std::max(1, static_cast<int>(std::ceil(gpus))), corner.gpus);
    }
    before = corner;
  }
  return std::nullopt;
}

void Market::take_floors(const std::vector<Trader>& traders, GpuType type) {
  won_.assign(traders.size(), 0);
  for (std::size_t i = 0; i < traders.size(); ++i) {
    if (traders[i].tied && traders[i].floor.type == type) won_[i] = traders[i].floor.gpus;
  }
}

int Market::smaller(const Trader& trader, GpuType type, int has, int wanted, int room) const {
  const double present = has > 0 ? trader.menu->rate_at(type, has) : 0;
  const auto choice =
      trader.menu->between(type, has + 1, std::min(wanted - 1, has + room), present);
  return choice ? choice->gpus : has;
}

void Market::divide_one_type(std::vector<Trader>& traders, std::vector<double>& prices) {
  auction_.clear();
  for (std::size_t i = 0; i < traders.size(); ++i)
    make_bid(static_cast<std::uint32_t>(i), traders[i], GpuType(), worth_of_none(traders[i]));
  take_floors(traders, GpuType());
  prices[0] =
      auction_.give_out(free_[0], won_, [&](std::uint32_t bidder, int has, int wanted, int room) {
        return smaller(traders[bidder], GpuType(), has, wanted, room);
      });
  for (std::size_t i = 0; i < traders.size(); ++i) {
    Trader& trader = traders[i];
    trader.won = {GpuType(), won_[i], won_[i] > 0 ? trader.menu->rate_at(GpuType(), won_[i]) : 0};
  }
}

// The sum of all m p follows from the weight of all: else all worths, and with them the prices,
// were off by a common factor.
void Market::balance(std::span<const Trader> traders, std::vector<double>& prices) const {
  double weight = 0;
  double sum = 0;
  for (const Trader& trader : traders) {
    weight += trader.weight;
    sum += trader.worth * trader.won.rate;
  }
  if (!(sum > 0)) return;
  const double all = newcomers_ ? kNewcomers * weight : weight;
  for (double& price : prices) price *= all / sum;
}

void Market::divide(std::vector<Trader>& traders, std::vector<double>& prices) {
  if (traders.empty()) return;
  if (prices.size() != gpus_.size()) {
    double weight = 0;
    for (const Trader& trader : traders) weight += trader.weight;
    const int all = std::accumulate(gpus_.begin(), gpus_.end(), 0);
    prices.assign(gpus_.size(), all > 0 ? kFirstPrice * weight / all : 0);
  }
  const std::vector<double> before = prices;
  divide_at(traders, prices);
  // Where GPUs were free, their price said nothing of a crowd that has come since.
  for (std::size_t t = 0; t < prices.size(); ++t) {
    if (before[t] == 0 && prices[t] > 0) return divide_at(traders, prices);
  }
}

void Market::divide_at(std::vector<Trader>& traders, std::vector<double>& prices) {
  set_costs(traders, prices);
  set_later(traders);
  set_worths(traders, prices);
  gpus_.size() == 1 ? divide_one_type(traders, prices) : divide_types(traders, prices);
  balance(traders, prices);
}

Quote Market::quote(const Trader& trader, std::span<const double> prices) const {
  Quote quote;
  quote.gpus = trader.won.gpus;
  quote.type = trader.won.type;
  const double has = trader.won.gpus > 0 ? worth_of(trader, trader.won) : worth_of_none(trader);
  for (const Choice& choice : trader.menu->corners()) {
    const bool same_type = trader.won.gpus == 0 || choice.type == trader.won.type;
    if (!same_type || choice.gpus <= trader.won.gpus) continue;
    const double bid = (worth_of(trader, choice) - has) / (choice.gpus - trader.won.gpus);
    if (bid <= quote.bid) continue;
    quote.bid = bid;
    quote.type = choice.type;
  }
  quote.price = prices[quote.type.index()];
  return quote;
}

// ---- several types ----

namespace {
// Among many traders one more or less changes little, and prices are nearly those of the last time.
constexpr std::size_t kManyInMarket = 1024;
constexpr int kSweeps = 6;
constexpr int kSweepsOfMany = 2;
}  // namespace

// Each type in turn is auctioned, while the others' prices stand.
void Market::find_prices(const std::vector<Trader>& traders, std::vector<double>& prices) {
  const int sweeps = traders.size() > kManyInMarket ? kSweepsOfMany : kSweeps;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    for (std::size_t t = 0; t < gpus_.size(); ++t) {
      auction_.clear();
      for (std::size_t i = 0; i < traders.size(); ++i) {
        const Trader& trader = traders[i];
        double best = worth_of_none(trader);
        const auto consider = [&](const Choice& choice) {
          if (choice.type.index() == t || choice.gpus > free_[choice.type.index()]) return;
          best =
              std::max(best, worth_of(trader, choice) - prices[choice.type.index()] * choice.gpus);
        };
        for (const Choice& choice : trader.menu->corners()) consider(choice);
        if (trader.now.gpus > 0) consider(trader.now);
        make_bid(static_cast<std::uint32_t>(i), trader, type_at(t), best);
      }
      take_floors(traders, type_at(t));
      prices[t] =
          auction_.give_out(free_[t], won_, [](std::uint32_t, int has, int, int) { return has; });
    }
  }
}

// Who gains most for a GPU, at these prices, chooses first.
void Market::round(std::vector<Trader>& traders, std::span<const double> prices,
                   std::vector<int>& room) const {
  struct Wish {
    double gain = 0;  // for a GPU
    double all = 0;   // for all of them
    std::uint32_t trader = 0;
    Choice choice;
  };
  std::vector<Wish> wishes;
  for (std::size_t i = 0; i < traders.size(); ++i) {
    const Trader& trader = traders[i];
    if (trader.tied) continue;
    const double none = worth_of_none(trader);
    const std::size_t first = wishes.size();
    const auto consider = [&](const Choice& choice) {
      const double gain =
          worth_of(trader, choice) - prices[choice.type.index()] * choice.gpus - none;
      if (!(gain > 0)) return;
      const Wish wish{gain / choice.gpus, gain, static_cast<std::uint32_t>(i), choice};
      const bool same_type = wishes.size() > first && wishes.back().choice.type == choice.type;
      if (traders.size() <= kManyInMarket || !same_type) {
        wishes.push_back(wish);
      } else if (gain > wishes.back().all) {  // of many, each has one wish a type
        wishes.back() = wish;
      }
    };
    for (const Choice& choice : trader.menu->corners()) consider(choice);
    if (trader.now.gpus > 0) consider(trader.now);
  }
  std::stable_sort(wishes.begin(), wishes.end(),
                   [](const Wish& a, const Wish& b) { return a.gain > b.gain; });
  for (const Wish& wish : wishes) {
    Trader& trader = traders[wish.trader];
    int& left = room[wish.choice.type.index()];
    if (trader.won.gpus > 0 || wish.choice.gpus > left) continue;
    left -= wish.choice.gpus;
    trader.won = wish.choice;
  }
}

// What nobody wanted at these prices goes to who wants it at lower ones.
void Market::fill(std::vector<Trader>& traders, std::vector<int>& room) {
  for (std::size_t t = 0; t < gpus_.size(); ++t) {
    if (room[t] == 0) continue;
    auction_.clear();
    won_.assign(traders.size(), 0);
    const GpuType type = type_at(t);
    for (std::size_t i = 0; i < traders.size(); ++i) {
      const Trader& trader = traders[i];
      if (trader.frozen) continue;
      if (trader.won.gpus == 0 && !trader.tied) {
        make_bid(static_cast<std::uint32_t>(i), trader, type, worth_of_none(trader));
      } else if (trader.won.type == type) {  // also who is tied and has none
        points_.clear();
        points_.push_back({trader.won.gpus, trader.won.gpus > 0 ? worth_of(trader, trader.won)
                                                                : worth_of_none(trader)});
        for (const Choice& choice : trader.menu->corners(type)) {
          if (choice.gpus > trader.won.gpus)
            points_.push_back({choice.gpus, worth_of(trader, choice)});
        }
        auction_.bid(static_cast<std::uint32_t>(i), points_);
        won_[i] = trader.won.gpus;
      }
    }
    auction_.give_out(room[t], won_, [&](std::uint32_t bidder, int has, int wanted, int left) {
      return smaller(traders[bidder], type, has, wanted, left);
    });
    for (std::size_t i = 0; i < traders.size(); ++i) {
      Trader& trader = traders[i];
      const int had = trader.won.type == type ? trader.won.gpus : 0;
      if (won_[i] <= had) continue;
      room[t] -= won_[i] - had;
      trader.won = {type, won_[i], trader.menu->rate_at(type, won_[i])};
    }
  }
}

void Market::divide_types(std::vector<Trader>& traders, std::vector<double>& prices) {
  find_prices(traders, prices);
  std::vector<int> room = free_;
  for (Trader& trader : traders) trader.won = trader.tied ? trader.floor : Choice{};
  round(traders, prices, room);
  fill(traders, room);
  exchange(*this, traders, room);
  fill(traders, room);
}

}  // namespace rubato::policy
