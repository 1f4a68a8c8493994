#include "rubato/policy/auction.h"

#include <algorithm>
#include <tuple>

namespace rubato::policy {
namespace {

constexpr std::size_t kFirstSorted = 64;
constexpr int kMostTries = 4;        // to make room, in an auction
constexpr double kLeastGain = 1e-9;  // less is rounding

}  // namespace

void Auction::bid(std::uint32_t bidder, const std::vector<Point>& points) {
  const auto slope = [](const Point& a, const Point& b) {
    return (b.worth - a.worth) / (b.gpus - a.gpus);
  };
  curve_.clear();
  for (const Point& point : points) {
    if (!curve_.empty() && point.worth <= curve_.back().worth) continue;
    while (curve_.size() > 1 &&
           slope(curve_.back(), point) >= slope(curve_[curve_.size() - 2], curve_.back()))
      curve_.pop_back();
    curve_.push_back(point);
  }
  for (std::size_t i = 1; i < curve_.size(); ++i) {
    steps_.push_back({slope(curve_[i - 1], curve_[i]), bidder, curve_[i - 1].gpus, curve_[i].gpus});
  }
}

// Mostly few of many steps are looked at, so they are put in order as far as they are.
const Auction::Step& Auction::step(std::size_t at) {
  if (at < sorted_) return steps_[at];
  const auto steeper = [](const Step& a, const Step& b) {
    return a.slope != b.slope ? a.slope > b.slope
                              : std::tie(a.bidder, a.from) < std::tie(b.bidder, b.from);
  };
  const auto first = steps_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  sorted_ = std::min(steps_.size(), std::max(kFirstSorted, 4 * sorted_));
  const auto last = steps_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  if (last != steps_.end()) std::nth_element(first, last, steps_.end(), steeper);
  std::sort(first, last, steeper);
  return steps_[at];
}

double Auction::give_out(int gpus, std::vector<int>& won, const Smaller& smaller) {
  sorted_ = 0;
  given_.clear();
  double price = 0;
  int tries = 0;
  for (std::size_t at = 0; at < steps_.size(); ++at) {
    if (gpus == 0 && price > 0) break;
    const Step next = step(at);
    if (won[next.bidder] != next.from) continue;
    if (next.gpus() <= gpus) {
      give(at, next.to, gpus, won);
      continue;
    }
    if (price == 0) price = next.slope;
    if (gpus == 0) break;
    if (tries++ < kMostTries && make_room(at, gpus, won)) continue;
    give(at, smaller(next.bidder, next.from, next.to, gpus), gpus, won);
  }
  return price;
}

void Auction::give(std::size_t at, int to, int& gpus, std::vector<int>& won) {
  const Step& step = steps_[at];
  if (to == step.from) return;
  gpus -= to - step.from;
  won[step.bidder] = to;
  given_.push_back({at, to});
}

void Auction::take_back(std::size_t kept, int& gpus, std::vector<int>& won) {
  for (; given_.size() > kept; given_.pop_back()) {
    const Step& step = steps_[given_.back().step];
    gpus += given_.back().to - step.from;
    won[step.bidder] = step.from;
  }
}

// Whole steps from one place to another that fit; what they are worth.
double Auction::give_what_fits(std::size_t from, std::size_t to, int& gpus, std::vector<int>& won) {
  double worth = 0;
  for (std::size_t at = from; at < to && gpus > 0; ++at) {
    const Step next = step(at);
    if (won[next.bidder] != next.from || next.gpus() > gpus) continue;
    worth += next.slope * next.gpus();
    give(at, next.to, gpus, won);
  }
  return worth;
}

// The step does not fit. The last ones that were given make room for it, if that is worth more than
// to pass it over.
bool Auction::make_room(std::size_t at, int& gpus, std::vector<int>& won) {
  const Step wanted = steps_[at];
  const std::size_t end = steps_.size();
  std::size_t kept = given_.size();
  double without = give_what_fits(at + 1, end, gpus, won);
  take_back(kept, gpus, won);
  for (int room = gpus; room < wanted.gpus();
       room += given_[kept].to - steps_[given_[kept].step].from) {
    if (kept == 0 || steps_[given_[kept - 1].step].bidder == wanted.bidder) return false;
    const Given& last = given_[--kept];
    without += steps_[last.step].slope * (last.to - steps_[last.step].from);
  }
  const std::vector<Given> lost(given_.begin() + static_cast<std::ptrdiff_t>(kept), given_.end());
  take_back(kept, gpus, won);
  give(at, wanted.to, gpus, won);
  double with = wanted.slope * wanted.gpus() + give_what_fits(lost.front().step, at, gpus, won);
  const std::size_t before_rest = given_.size();
  with += give_what_fits(at + 1, end, gpus, won);
  const bool better = with > without * (1 + kLeastGain);
  take_back(better ? before_rest : kept, gpus, won);
  if (better) return true;
  for (const Given& again : lost) give(again.step, again.to, gpus, won);
  return false;
}

}  // namespace rubato::policy
