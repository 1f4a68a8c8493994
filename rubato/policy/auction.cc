#include "rubato/policy/auction.h"

#include <algorithm>
#include <tuple>

namespace rubato::policy {

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

double Auction::give_out(int gpus, std::vector<int>& won, const Smaller& smaller) {
  std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) {
    return a.slope != b.slope ? a.slope > b.slope
                              : std::tie(a.bidder, a.from) < std::tie(b.bidder, b.from);
  });
  double price = 0;
  for (const Step& step : steps_) {
    if (gpus == 0 && price > 0) break;
    int& has = won[step.bidder];
    if (has != step.from) continue;
    if (step.to - step.from <= gpus) {
      gpus -= step.to - step.from;
      has = step.to;
      continue;
    }
    if (price == 0) price = step.slope;
    if (gpus == 0) break;
    const int more = smaller(step.bidder, step.from, step.to, gpus);
    gpus -= more - has;
    has = more;
  }
  return price;
}

}  // namespace rubato::policy
