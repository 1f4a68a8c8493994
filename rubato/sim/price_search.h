// Prices for GPUs by type and period, and a search for those that say most about a limit (bound.h,
// deadline_bound.h). Any prices prove a limit; good ones are dear where jobs want more GPUs than
// there are.
//
// The search is a subgradient method with two additions. Equal jobs change their minds all at once,
// so it goes by what the jobs wanted on average at the prices tried so far, the newest counting
// most; and it always starts from the best prices, with steps that become longer after a success
// and shorter after failures (much as in the volume algorithm of Barahona and Anbil, 2000). A step
// multiplies prices. Pure and deterministic.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::sim {

// `gpu_second[t][i]` from start_s[i] to start_s[i + 1], nothing after the last. Seconds from the
// first submission, ascending from 0; one price less than starts.
struct Prices {
  std::vector<double> start_s;
  std::vector<std::vector<double>> gpu_second;

  [[nodiscard]] std::size_t periods() const { return start_s.size() - 1; }
  [[nodiscard]] double length_s(std::size_t period) const {
    return start_s[period + 1] - start_s[period];
  }
  // What all GPUs earn if they are held all the time.
  [[nodiscard]] double earnings(const std::vector<double>& gpus) const;
};

using Demand = std::vector<std::vector<double>>;  // GPU-seconds by type and period

struct PriceSearch {
  std::vector<double> gpus;   // by type
  std::vector<double> least;  // by type: lower prices are 0, and 0 rises to this
  int steps = 0;
  // How much the prices prove, the more the better, and what the jobs want at them.
  std::function<double(const Prices&, Demand&)> judge;

  // The best of all prices that were judged, the first ones included.
  [[nodiscard]] Prices best_from(Prices prices) const;

 private:
  void adjust(Prices& prices, const Demand& demand, double step) const;
};

}  // namespace rubato::sim
