#include "rubato/policy/menu.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rubato/model/goodput_estimate.h"

namespace rubato::policy {
namespace {

constexpr double kGuessedExponent = 0.7;
constexpr int kMostGrowth = 2;   // times what is known
constexpr int kEveryCount = 16;  // up to here each count is looked at, then in steps
constexpr double kStep = 1.09;

// The smallest concave curve above the points and the origin; points by GPUs, rates rising.
void push_corner(std::vector<Choice>& corners, std::size_t first, const Choice& point) {
  const auto slope = [](const Choice& a, const Choice& b) {
    return (b.rate - a.rate) / (b.gpus - a.gpus);
  };
  if (corners.size() > first && point.rate <= corners.back().rate) return;
  while (corners.size() > first) {
    const Choice before =
        corners.size() > first + 1 ? corners[corners.size() - 2] : Choice{point.type, 0, 0};
    if (slope(corners.back(), point) < slope(before, corners.back())) break;
    corners.pop_back();
  }
  corners.push_back(point);
}

}  // namespace

Menu::Menu(const JobSpec& spec, const SpeedModel& speed, const Cluster& cluster)
    : spec_(&spec), speed_(&speed), most_(spec.limits.max) {
  const auto known = speed.measured();
  const auto* goodput = dynamic_cast<const GoodputEstimate*>(&speed);
  if (!known.empty()) {
    known_least_ = known.front();
    known_most_ = known.back();
    most_ = std::min(most_, kMostGrowth * known_most_);
  } else if (goodput != nullptr) {
    const int seen = goodput->seen() ? goodput->seen()->most_gpus : 0;
    most_ = std::min(most_, std::max(kMostGrowth * seen, spec.limits.smallest()));
    for (int t = 0; t < cluster.types(); ++t)
      node_size_.push_back(cluster.node_size(GpuType(static_cast<GpuType::rep>(t))));
  }
  rigid_ = known.empty() && goodput == nullptr;
  for (int t = 0; t < cluster.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    first_.push_back(corners_.size());
    if (rigid_) {
      if (spec.requested <= cluster.installed(type)) add_corners(type, {spec.requested});
    } else {
      add_corners(type, counts(type, cluster.installed(type), cluster.node_size(type)));
    }
  }
  first_.push_back(corners_.size());
}

bool Menu::legal(int gpus) const {
  if (rigid_) return gpus == spec_->requested;
  return spec_->limits.legal(gpus) && gpus <= most_;
}

// Those worth looking at, ascending.
std::vector<int> Menu::counts(GpuType type, int most, int node) const {
  const GpuLimits& limits = spec_->limits;
  std::vector<int> counts;
  if (!limits.allowed.empty()) {
    counts = limits.allowed;
  } else {
    const int top = std::min({most, most_, limits.max});
    for (int gpus = std::max(limits.min, 1); gpus <= top;
         gpus = gpus < kEveryCount ? gpus + 1 : static_cast<int>(std::ceil(gpus * kStep)))
      counts.push_back(gpus);
    counts.push_back(top);
    for (const int gpus : speed_->measured()) counts.push_back(gpus);
    for (int gpus = node; !node_size_.empty() && gpus <= top; gpus += node) counts.push_back(gpus);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  std::erase_if(counts, [&](int gpus) {
    return gpus < 1 || gpus > most || !legal(gpus) || !fills_nodes(type, gpus);
  });
  return counts;
}

void Menu::add_corners(GpuType type, const std::vector<int>& counts) {
  const std::size_t first = first_.back();
  for (const int gpus : counts) {
    const Choice point{type, gpus, rate_at(type, gpus)};
    if (point.rate > 0) push_corner(corners_, first, point);
  }
}

WorkRate Menu::rate_at(GpuType type, int gpus) const {
  Shape shape{type, gpus, 0, 0};
  if (!node_size_.empty()) {
    const int node = std::max(node_size_[type.index()], 1);
    shape.nodes = shape.least_nodes = (gpus + node - 1) / node;
  }
  const WorkRate said = speed_->rate(shape);
  if (known_most_ == 0 || !(said > 0)) return said;
  const auto guess = [&](int known) {
    return speed_->on(type, known) * std::pow(1.0 * gpus / known, kGuessedExponent);
  };
  if (gpus > known_most_) return std::min(said, guess(known_most_));
  if (gpus < known_least_) return std::max(said, guess(known_least_));
  return said;
}

std::optional<Choice> Menu::between(GpuType type, int least, int most, WorkRate than) const {
  if (corners(type).empty()) return std::nullopt;
  most = std::min(most, corners(type).back().gpus);
  least = std::max(least, rigid_ ? spec_->requested : spec_->limits.smallest());
  for (int gpus = most; gpus >= least; --gpus) {
    if (!fills_nodes(type, gpus) || !legal(gpus)) continue;
    const WorkRate rate = rate_at(type, gpus);
    if (rate > than) return Choice{type, gpus, rate};
  }
  return std::nullopt;
}

std::optional<Choice> Menu::first(GpuType type, int least, int most) const {
  if (corners(type).empty()) return std::nullopt;
  most = std::min(most, corners(type).back().gpus);
  std::optional<int> gpus = rigid_ ? spec_->requested : spec_->limits.above(least - 1);
  for (; gpus && *gpus <= most; gpus = spec_->limits.above(*gpus)) {
    if (*gpus < least) return std::nullopt;
    if (!fills_nodes(type, *gpus)) continue;
    const WorkRate rate = rate_at(type, *gpus);
    if (rate > 0) return Choice{type, *gpus, rate};
  }
  return std::nullopt;
}

// Above one node, jobs whose speed depends on it use whole ones.
bool Menu::fills_nodes(GpuType type, int gpus) const {
  if (node_size_.empty()) return true;
  const int node = std::max(node_size_[type.index()], 1);
  return gpus <= node || gpus % node == 0;
}

WorkRate Menu::rate_on(GpuType type, double gpus) const {
  Choice before{type, 0, 0};
  for (const Choice& corner : corners(type)) {
    if (gpus < corner.gpus) {
      return before.rate +
             (corner.rate - before.rate) * (gpus - before.gpus) / (corner.gpus - before.gpus);
    }
    before = corner;
  }
  return before.rate;
}

}  // namespace rubato::policy
