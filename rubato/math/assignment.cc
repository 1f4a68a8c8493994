#include "rubato/math/assignment.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace rubato::math {
namespace {

// Costs are integer multiples of 2^-40 of the largest cost. So sums are exact, and rounding cannot
// make a cycle look like a gain.
using Steps = std::int64_t;
constexpr Steps kNever = std::numeric_limits<Steps>::max() / 4;
constexpr double kStepsOfLargest = 1LL << 40;

class Transport {
 public:
  Transport(std::size_t items, const std::vector<std::size_t>& capacity,
            const std::function<double(std::size_t, std::size_t)>& cost)
      : bins_(capacity.size()),
        capacity_(capacity),
        cost_(items * capacity.size()),
        bin_of_(items, kNoBin),
        members_(capacity.size()),
        step_(capacity.size() * capacity.size()) {
    std::vector<double> given(items * bins_);
    double largest = 0;
    for (std::size_t item = 0; item < items; ++item) {
      for (std::size_t bin = 0; bin < bins_; ++bin) {
        const double here = given[item * bins_ + bin] = cost(item, bin);
        if (std::isfinite(here)) largest = std::max(largest, std::abs(here));
      }
    }
    const double step = largest > 0 ? largest / kStepsOfLargest : 1;
    for (std::size_t i = 0; i < given.size(); ++i)
      cost_[i] = std::isfinite(given[i]) ? std::llround(given[i] / step) : kNever;
  }

  std::vector<std::size_t> run() {
    for (std::size_t item = 0; item < bin_of_.size(); ++item) insert(item);
    return std::move(bin_of_);
  }

 private:
  // The cheapest move from one bin to another, and the item that moves.
  struct Step {
    Steps cost = kNever;
    std::size_t item = kNoBin;
  };

  [[nodiscard]] Steps cost(std::size_t item, std::size_t bin) const {
    return cost_[item * bins_ + bin];
  }

  // Bellman-Ford with a queue: single steps may have negative cost, cycles do not.
  void insert(std::size_t item) {
    std::vector<Steps> distance(bins_);
    std::vector<std::size_t> before(bins_, kNoBin);
    std::vector<std::size_t> queue;
    std::vector<bool> queued(bins_, false);
    for (std::size_t bin = 0; bin < bins_; ++bin) {
      distance[bin] = cost(item, bin);
      if (distance[bin] < kNever && members_[bin].size() >= capacity_[bin]) {
        queue.push_back(bin);
        queued[bin] = true;
      }
    }
    for (std::size_t head = 0; head < queue.size(); ++head) {
      const std::size_t from = queue[head];
      queued[from] = false;
      for (std::size_t to = 0; to < bins_; ++to) {
        const Step& step = step_[from * bins_ + to];
        const Steps reached = distance[from] + step.cost;
        if (step.item == kNoBin || reached >= distance[to]) continue;
        distance[to] = reached;
        before[to] = from;
        if (!queued[to] && members_[to].size() >= capacity_[to]) {
          queue.push_back(to);
          queued[to] = true;
        }
      }
    }
    std::size_t last = kNoBin;
    for (std::size_t bin = 0; bin < bins_; ++bin) {
      if (members_[bin].size() >= capacity_[bin] || distance[bin] == kNever) continue;
      if (last == kNoBin || distance[bin] < distance[last]) last = bin;
    }
    if (last == kNoBin) return;
    std::vector<std::size_t> changed = {last};
    while (before[last] != kNoBin) {
      const std::size_t from = before[last];
      move(step_[from * bins_ + last].item, last);
      changed.push_back(last = from);
    }
    move(item, last);
    for (const std::size_t bin : changed) look_at(bin);
  }

  void move(std::size_t item, std::size_t to) {
    const std::size_t from = bin_of_[item];
    if (from != kNoBin) {
      auto& members = members_[from];
      members.erase(std::find(members.begin(), members.end(), item));
    }
    members_[to].push_back(item);
    bin_of_[item] = to;
  }

  void look_at(std::size_t bin) {
    Step* steps = &step_[bin * bins_];
    std::fill(steps, steps + bins_, Step());
    for (const std::size_t item : members_[bin]) {
      for (std::size_t to = 0; to < bins_; ++to) {
        if (to == bin || cost(item, to) == kNever) continue;
        const Steps gain = cost(item, to) - cost(item, bin);
        if (gain < steps[to].cost) steps[to] = {gain, item};
      }
    }
  }

  std::size_t bins_;
  const std::vector<std::size_t>& capacity_;
  std::vector<Steps> cost_;  // by item and bin
  std::vector<std::size_t> bin_of_;
  std::vector<std::vector<std::size_t>> members_;
  std::vector<Step> step_;  // by bin and bin
};

}  // namespace

std::vector<std::size_t> assign(std::size_t items, const std::vector<std::size_t>& capacity,
                                const std::function<double(std::size_t, std::size_t)>& cost) {
  return Transport(items, capacity, cost).run();
}

}  // namespace rubato::math
