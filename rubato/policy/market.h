// A market for GPUs, whose prices come from what waiting costs. docs/rubato-policy.md derives it.
//
// Let V be the sum of all weighted completion times that are still to come, and m_j = dV/d(left_j)
// what one more unit of job j's work would add to it. The best division of the GPUs is the one with
// the largest sum of m_j p_j(k_j); that sum is the weight W of all jobs present (the equation of
// Hamilton, Jacobi and Bellman), and the price c of a GPU is what one more would add to it.
//
// One more unit of work at a job's end takes 1/p of its own time and k/p GPU-seconds at the price
// of that moment. Prices are in proportion to the jobs present, of which f_j W are left then:
//
//     m_j = min over (type, k) of (w_j + f_j c_t k) / p
//
// For speeds k^q and known lengths these are heSRPT's shares in the limit of many jobs.
//
// Where jobs keep coming, newcomers will be there too: then f is replaced by its root, and the sum
// of m p is 1.5 W.
//
// Pure: prices go in, and prices come out.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "rubato/policy/auction.h"
#include "rubato/policy/menu.h"
#include "rubato/policy/quote.h"

namespace rubato::policy {

// A job in the market.
struct Trader {
  const Menu* menu = nullptr;
  Choice now;            // 0 GPUs: it waits
  Work left = 0;         // or what is expected
  bool certain = true;   // `left` is known, not expected
  double weight = 1;     // what a second of its time costs
  double restart_s = 0;  // lost when its GPUs change
  // Somebody else has decided that it gets these at least, on this type; 0 GPUs if it gets none.
  bool tied = false;
  Choice floor;
  bool frozen = false;  // and no more than these

  // Found by the market.
  double cost = 0;   // what it would cost to bring it to its end, in time and GPUs
  double later = 0;  // f: share of the weight that is still there when it ends
  double worth = 0;  // m: of a unit of its work
  double loses = 0;  // phi: share of the next while that a change of GPUs takes
  Choice won;
};

class Market {
 public:
  // By type: all GPUs, and those that nobody is tied to. `interval_s`: GPUs change hands only so
  // often; 0 = at any time. `newcomers`: jobs keep coming.
  Market(std::vector<int> gpus, std::vector<int> free, double interval_s, bool newcomers)
      : gpus_(std::move(gpus)),
        free_(std::move(free)),
        interval_s_(interval_s),
        newcomers_(newcomers) {}

  // Divides the GPUs; `prices` by type are those of the last time, or empty, and the new ones.
  void divide(std::vector<Trader>& traders, std::vector<double>& prices);

  // What the trader would gain a second, in weighted seconds, by having these instead of nothing.
  [[nodiscard]] double worth_of(const Trader& trader, const Choice& choice) const;
  [[nodiscard]] double worth_of_none(const Trader& trader) const;

  // What the trader bids for its next step, if all is as it was divided.
  [[nodiscard]] Quote quote(const Trader& trader, std::span<const double> prices) const;

 private:
  void set_costs(std::vector<Trader>& traders, std::span<const double> prices) const;
  void set_worths(std::vector<Trader>& traders, std::span<const double> prices) const;
  void take_floors(const std::vector<Trader>& traders, GpuType type);
  void make_bid(std::uint32_t bidder, const Trader& trader, GpuType type, double outside);
  [[nodiscard]] std::optional<Choice> enough_until_next(const Trader& trader, GpuType type) const;
  [[nodiscard]] int smaller(const Trader& trader, GpuType type, int has, int wanted,
                            int room) const;

  void divide_at(std::vector<Trader>& traders, std::vector<double>& prices);
  void divide_one_type(std::vector<Trader>& traders, std::vector<double>& prices);
  void divide_types(std::vector<Trader>& traders, std::vector<double>& prices);
  void find_prices(const std::vector<Trader>& traders, std::vector<double>& prices);
  void round(std::vector<Trader>& traders, std::span<const double> prices,
             std::vector<int>& room) const;
  void fill(std::vector<Trader>& traders, std::vector<int>& room);
  void balance(std::span<const Trader> traders, std::vector<double>& prices) const;

  std::vector<int> gpus_, free_;  // by type
  double interval_s_;
  bool newcomers_;
  Auction auction_;
  std::vector<Auction::Point> points_;
  std::vector<int> won_;
};

// f for each trader: the share of all weight that is still there when it ends. Known lengths end in
// order of cost; of two unknown ones, or one of each, either may end first, in proportion.
void set_later(std::vector<Trader>& traders);

}  // namespace rubato::policy
