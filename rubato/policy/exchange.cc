#include "rubato/policy/exchange.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>

namespace rubato::policy {
namespace {

constexpr double kNoGain = -std::numeric_limits<double>::infinity();
constexpr double kLeastEdgeGain = 1e-9;  // of the sum of the edges' sizes; less is rounding
constexpr std::size_t kMostTypes = 6;    // beyond, cycles are too many to look at
constexpr int kMostRounds = 200;         // for a count, so that a decision has an end

constexpr std::uint32_t kIdle = static_cast<std::uint32_t>(-1);

// Places of so many GPUs each.
class Places {
 public:
  Places(const Market& market, std::vector<Trader>& traders, std::vector<int>& room, int gpus)
      : market_(market), traders_(traders), room_(room), gpus_(gpus), waiting_(room.size()) {
    for (std::size_t i = 0; i < traders.size(); ++i) {
      const int has = traders[i].won.gpus;
      if (traders[i].tied) continue;
      if (has == gpus || has == 0) members_.push_back(static_cast<std::uint32_t>(i));
    }
  }

  void improve() {
    for (int round = 0; round < kMostRounds; ++round) {
      draw_edges();
      best_.clear();
      best_gain_ = 0;
      path_.clear();
      for (std::size_t first = 0; first <= waiting_; ++first) walk(first, first, 0, 0);
      if (best_.empty()) return;
      go_round();
    }
  }

 private:
  struct Edge {
    double gain = kNoGain;
    std::uint32_t trader = kIdle;
  };

  [[nodiscard]] std::size_t place_of(const Trader& trader) const {
    return trader.won.gpus == 0 ? waiting_ : trader.won.type.index();
  }
  [[nodiscard]] Choice choice(const Trader& trader, std::size_t place) const {
    if (place == waiting_) return {};
    const GpuType type(static_cast<GpuType::rep>(place));
    if (trader.now.gpus == gpus_ && trader.now.type == type) return trader.now;
    return trader.menu->between(type, gpus_, gpus_, 0).value_or(Choice{});
  }
  [[nodiscard]] double value(const Trader& trader, const Choice& choice) const {
    return choice.gpus == 0 ? market_.worth_of_none(trader) : market_.worth_of(trader, choice);
  }

  void draw_edges() {
    edges_.assign((waiting_ + 1) * (waiting_ + 1), {});
    for (const std::uint32_t i : members_) {
      const Trader& trader = traders_[i];
      const std::size_t from = place_of(trader);
      const double now = value(trader, trader.won);
      for (std::size_t to = 0; to <= waiting_; ++to) {
        if (to == from) continue;
        const Choice there = choice(trader, to);
        if (to != waiting_ && there.gpus == 0) continue;
        const double gain = value(trader, there) - now;
        Edge& edge = edges_[from * (waiting_ + 1) + to];
        if (gain > edge.gain) edge = {gain, i};
      }
    }
    for (std::size_t from = 0; from < waiting_; ++from) {
      if (room_[from] < gpus_) continue;
      for (std::size_t to = 0; to <= waiting_; ++to) {
        Edge& edge = edges_[from * (waiting_ + 1) + to];
        if (to != from && edge.gain < 0) edge = {0, kIdle};
      }
    }
  }

  // All cycles whose smallest place is `first`.
  void walk(std::size_t first, std::size_t at, double gain, double size) {
    for (std::size_t to = first; to <= waiting_; ++to) {
      const Edge& edge = edges_[at * (waiting_ + 1) + to];
      if (to == at || edge.gain == kNoGain) continue;
      const double sum = gain + edge.gain;
      const double of = size + std::abs(edge.gain);
      path_.push_back({at, to, edge.trader});
      if (to == first) {
        if (sum > best_gain_ && sum > kLeastEdgeGain * of) {
          best_gain_ = sum;
          best_ = path_;
        }
      } else if (std::none_of(path_.begin(), path_.end(),
                              [&](const Step& step) { return step.from == to; })) {
        walk(first, to, sum, of);
      }
      path_.pop_back();
    }
  }

  void go_round() {
    for (const Step& step : best_) {
      if (step.trader != kIdle) {
        traders_[step.trader].won = choice(traders_[step.trader], step.to);
        continue;
      }
      room_[step.from] -= gpus_;
      if (step.to != waiting_) room_[step.to] += gpus_;
    }
  }

  struct Step {
    std::size_t from = 0, to = 0;
    std::uint32_t trader = kIdle;
  };

  const Market& market_;
  std::vector<Trader>& traders_;
  std::vector<int>& room_;
  int gpus_;
  std::size_t waiting_;  // the place of those who wait
  std::vector<std::uint32_t> members_;
  std::vector<Edge> edges_;
  std::vector<Step> path_, best_;
  double best_gain_ = 0;
};

constexpr int kMostPasses = 8;
constexpr std::size_t kFew = 256;           // among more, one place more or less is worth little
constexpr std::size_t kManyTraders = 1024;  // beyond, cycles are left alone, too

// One trader takes a better place, and those who lose least make room for it.
class Displacing {
 public:
  Displacing(const Market& market, std::vector<Trader>& traders, std::vector<int>& room)
      : market_(market), traders_(traders), room_(room) {}

  void improve() {
    for (int pass = 0; pass < kMostPasses; ++pass) {
      bool improved = false;
      for (Trader& trader : traders_) {
        if (trader.tied) continue;
        for (const Choice& choice : trader.menu->corners())
          improved = try_to_take(trader, choice) || improved;
      }
      if (!improved) return;
    }
  }

 private:
  [[nodiscard]] double value(const Trader& trader, const Choice& choice) const {
    return choice.gpus == 0 ? market_.worth_of_none(trader) : market_.worth_of(trader, choice);
  }

  // The best that a trader who must leave its type finds elsewhere.
  [[nodiscard]] Choice elsewhere(const Trader& trader, const std::vector<int>& room) const {
    Choice best;
    double most = value(trader, best);
    for (const Choice& choice : trader.menu->corners()) {
      if (choice.type == trader.won.type || choice.gpus > room[choice.type.index()]) continue;
      const double worth = value(trader, choice);
      if (worth > most) {
        most = worth;
        best = choice;
      }
    }
    return best;
  }

  struct Victim {
    double loss = 0;  // for a GPU
    Trader* trader = nullptr;
  };
  [[nodiscard]] std::vector<Victim> victims(const Trader& taker, GpuType type) {
    std::vector<Victim> victims;
    for (Trader& trader : traders_) {
      if (&trader == &taker || trader.tied || trader.won.gpus == 0 || trader.won.type != type)
        continue;
      const double loss = value(trader, trader.won) - value(trader, elsewhere(trader, room_));
      victims.push_back({loss / trader.won.gpus, &trader});
    }
    std::stable_sort(victims.begin(), victims.end(),
                     [](const Victim& a, const Victim& b) { return a.loss < b.loss; });
    return victims;
  }

  bool try_to_take(Trader& trader, const Choice& choice) {
    const double gain = value(trader, choice) - value(trader, trader.won);
    if (!(gain > 0)) return false;
    std::vector<int> room = room_;
    if (trader.won.gpus > 0) room[trader.won.type.index()] += trader.won.gpus;
    int& here = room[choice.type.index()];
    std::vector<std::pair<Trader*, Choice>> moves;
    double loss = 0;
    if (here < choice.gpus) {
      for (const Victim& victim : victims(trader, choice.type)) {
        Trader& other = *victim.trader;
        const Choice then = elsewhere(other, room);
        loss += value(other, other.won) - value(other, then);
        if (loss >= gain) return false;
        here += other.won.gpus;
        if (then.gpus > 0) room[then.type.index()] -= then.gpus;
        moves.emplace_back(&other, then);
        if (here >= choice.gpus) break;
      }
    }
    if (here < choice.gpus || !(gain - loss > kLeastEdgeGain * (gain + loss))) return false;
    here -= choice.gpus;
    trader.won = choice;
    for (auto& [other, then] : moves) other->won = then;
    room_ = room;
    return true;
  }

  const Market& market_;
  std::vector<Trader>& traders_;
  std::vector<int>& room_;
};

}  // namespace

void exchange(const Market& market, std::vector<Trader>& traders, std::vector<int>& room) {
  if (traders.size() <= kFew) Displacing(market, traders, room).improve();
  if (room.size() > kMostTypes || traders.size() > kManyTraders) return;
  std::set<int> counts;
  for (const Trader& trader : traders) {
    if (trader.won.gpus > 0) counts.insert(trader.won.gpus);
  }
  for (const int gpus : counts) Places(market, traders, room, gpus).improve();
}

}  // namespace rubato::policy
