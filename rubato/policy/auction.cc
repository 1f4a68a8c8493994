#include "rubato/policy/auction.h"

#include <algorithm>
#include <tuple>

namespace rubato::policy {
namespace {

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

void Auction::sort() {
  std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) {
    return a.slope != b.slope ? a.slope > b.slope
                              : std::tie(a.bidder, a.from) < std::tie(b.bidder, b.from);
  });
}

double Auction::give_out(int gpus, std::vector<int>& won, const Smaller& smaller) {
  sort();
  given_.clear();
  double price = 0;
  int tries = 0;
  for (std::size_t at = 0; at < steps_.size(); ++at) {
    if (gpus == 0 && price > 0) break;
    const Step& step = steps_[at];
    if (won[step.bidder] != step.from) continue;
    if (step.gpus() <= gpus) {
      give(at, step.to, gpus, won);
      continue;
    }
    if (price == 0) price = step.slope;
    if (gpus == 0) break;
    if (tries++ < kMostTries && make_room(at, gpus, won)) continue;
    give(at, smaller(step.bidder, step.from, step.to, gpus), gpus, won);
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
    const Step& step = steps_[at];
    if (won[step.bidder] != step.from || step.gpus() > gpus) continue;
    worth += step.slope * step.gpus();
    give(at, step.to, gpus, won);
  }
  return worth;
}

// The step does not fit. The last ones that were given make room for it, if that is worth more than
// to pass it over.
bool Auction::make_room(std::size_t at, int& gpus, std::vector<int>& won) {
  const Step& step = steps_[at];
  const std::size_t end = steps_.size();
  std::size_t kept = given_.size();
  double without = give_what_fits(at + 1, end, gpus, won);
  take_back(kept, gpus, won);
  for (int room = gpus; room < step.gpus();
       room += given_[kept].to - steps_[given_[kept].step].from) {
    if (kept == 0 || steps_[given_[kept - 1].step].bidder == step.bidder) return false;
    const Given& last = given_[--kept];
    without += steps_[last.step].slope * (last.to - steps_[last.step].from);
  }
  const std::vector<Given> lost(given_.begin() + static_cast<std::ptrdiff_t>(kept), given_.end());
  take_back(kept, gpus, won);
  give(at, step.to, gpus, won);
  double with = step.slope * step.gpus() + give_what_fits(lost.front().step, at, gpus, won);
  const std::size_t before_rest = given_.size();
  with += give_what_fits(at + 1, end, gpus, won);
  const bool better = with > without * (1 + kLeastGain);
  take_back(better ? before_rest : kept, gpus, won);
  if (better) return true;
  for (const Given& again : lost) give(again.step, again.to, gpus, won);
  return false;
}

}  // namespace rubato::policy
