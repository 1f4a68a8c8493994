#include "rubato/sim/price_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rubato::sim {
namespace {

// Relative change of a price where all GPUs are idle or twice as many are wanted: at first, after a
// step that was better than all before, and after so many in a row that were not.
constexpr double kFirstStep = 0.5;
constexpr double kLonger = 1.1;
constexpr double kShorter = 0.9;
constexpr int kPatience = 2;

// The share of the newest demand in the average.
constexpr double kNewest = 0.1;

void mix(Demand& demand, const Demand& newest, double share) {
  for (std::size_t t = 0; t < demand.size(); ++t) {
    for (std::size_t i = 0; i < demand[t].size(); ++i)
      demand[t][i] += share * (newest[t][i] - demand[t][i]);
  }
}

}  // namespace

double Prices::earnings(const std::vector<double>& gpus) const {
  double sum = 0;
  for (std::size_t t = 0; t < gpus.size(); ++t) {
    for (std::size_t i = 0; i < periods(); ++i) sum += gpus[t] * gpu_second[t][i] * length_s(i);
  }
  return sum;
}

Prices PriceSearch::best_from(Prices prices) const {
  Prices best = prices;
  double most = -std::numeric_limits<double>::infinity();
  double step = kFirstStep;
  int worse = 0;
  Demand demand, averaged;
  for (int i = 0; i < steps; ++i) {
    demand.assign(gpus.size(), std::vector<double>(prices.periods(), 0));
    const double proven = judge(prices, demand);
    if (i == 0) averaged = demand;
    mix(averaged, demand, kNewest);
    if (proven > most) {
      most = proven;
      best = prices;
      step *= kLonger;
      worse = 0;
    } else if (++worse == kPatience) {
      step *= kShorter;
      worse = 0;
    }
    prices = best;
    adjust(prices, averaged, step);
  }
  return best;
}

// Dearer where more is wanted than there is, cheaper where less.
void PriceSearch::adjust(Prices& prices, const Demand& demand, double step) const {
  for (std::size_t t = 0; t < gpus.size(); ++t) {
    for (std::size_t i = 0; i < prices.periods(); ++i) {
      const double supply = gpus[t] * prices.length_s(i);
      const double excess = std::clamp(demand[t][i] / supply - 1, -1.0, 1.0);
      double& price = prices.gpu_second[t][i];
      price = std::max(price, least[t]) * std::exp(step * excess);
      if (price < least[t]) price = 0;
    }
  }
}

}  // namespace rubato::sim
