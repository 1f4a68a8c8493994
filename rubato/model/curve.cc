#include "rubato/model/curve.h"

#include <cmath>

#include "rubato/base/check.h"

namespace rubato::model {

CurveSpeed::CurveSpeed(std::span<const CurvePoint> points, double network) : network_(network) {
  CHECK(!points.empty());
  CHECK(points.back().gpus <= 4096);
  rate_by_gpus_.push_back(0);
  CurvePoint from{0, 0};
  for (const auto& to : points) {
    CHECK(to.gpus > from.gpus && to.rate > 0);
    for (int k = from.gpus + 1; k <= to.gpus; ++k) {
      const double share = static_cast<double>(k - from.gpus) / (to.gpus - from.gpus);
      rate_by_gpus_.push_back(k == to.gpus ? to.rate : from.rate + share * (to.rate - from.rate));
    }
    measured_.push_back(to.gpus);
    from = to;
  }
}

WorkRate CurveSpeed::rate(const Shape& shape) const {
  if (shape.gpus < 0 || static_cast<std::size_t>(shape.gpus) >= rate_by_gpus_.size()) return 0;
  const WorkRate best = rate_by_gpus_[static_cast<std::size_t>(shape.gpus)];
  if (shape.nodes <= shape.least_nodes) return best;
  return best / (1 + network_ * (1 - static_cast<double>(shape.least_nodes) / shape.nodes));
}

std::vector<CurvePoint> CurveSpeed::points() const {
  std::vector<CurvePoint> points;
  points.reserve(measured_.size());
  for (const int gpus : measured_)
    points.push_back({gpus, rate_by_gpus_[static_cast<std::size_t>(gpus)]});
  return points;
}

PowerSpeed::PowerSpeed(double q, int most, WorkRate one) : q_(q), most_(most), one_(one) {
  CHECK(q > 0 && q <= 1 && most >= 1 && one > 0);
  for (int k = 1; k <= most / 2; k *= 2) measured_.push_back(k);
  measured_.push_back(most);
}

WorkRate PowerSpeed::rate(const Shape& shape) const {
  if (shape.gpus < 1 || shape.gpus > most_) return 0;
  return one_ * std::pow(shape.gpus, q_);
}

}  // namespace rubato::model
