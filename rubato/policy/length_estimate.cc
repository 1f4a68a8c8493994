#include "rubato/policy/length_estimate.h"

#include <algorithm>
#include <cmath>

namespace rubato::policy {
namespace {

constexpr std::size_t kMostSizes = 256;  // of a kind
constexpr double kTailWeight = 16;       // jobs
constexpr double kFirstTailSeconds = 600;

}  // namespace

void LengthEstimate::Sizes::add(double size) {
  in_order_.push_back(size);
  sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), size), size);
  if (in_order_.size() > kMostSizes) {
    sorted_.erase(std::lower_bound(sorted_.begin(), sorted_.end(), in_order_.front()));
    in_order_.pop_front();
  }
  sums_.resize(sorted_.size());
  double sum = 0;
  for (std::size_t i = sorted_.size(); i-- > 0;) sums_[i] = sum += sorted_[i];
}

std::pair<double, double> LengthEstimate::Sizes::beyond(double done_s) const {
  const auto first = std::upper_bound(sorted_.begin(), sorted_.end(), done_s);
  if (first == sorted_.end()) return {0, 0};
  const auto many = static_cast<double>(sorted_.end() - first);
  return {sums_[static_cast<std::size_t>(first - sorted_.begin())] - many * done_s, many};
}

LengthEstimate::Seen LengthEstimate::look(const JobView& job, WorkRate alone, Time now) {
  Seen seen;
  seen.kind = job.spec->user + "\n" + job.spec->model;
  seen.at = now;
  if (!(alone > 0)) return seen;
  // In whole milliseconds: the last bits of what is done would betray what is left.
  seen.done_s = std::round((job.work - job.progress.left(now)) / alone * 1e3) / 1e3;
  seen.pace = now < job.progress.at ? 0 : job.progress.rate / alone;
  return seen;
}

void LengthEstimate::ended(const Seen& last, Time now) {
  const double size = last.done_s + last.pace * std::max(0.0, seconds(now - last.at));
  if (!(size > 0)) return;
  all_.add(size);
  of_kind_[last.kind].add(size);
}

double LengthEstimate::left_s(const Seen& seen) const {
  const auto [all_s, ends] = all_.beyond(0);
  const double tail_s = (all_s + kTailWeight * kFirstTailSeconds) / (ends + kTailWeight);
  const auto known = of_kind_.find(seen.kind);
  const Sizes& alike = known == of_kind_.end() ? all_ : known->second;
  const auto [left_s, longer] = alike.beyond(seen.done_s);
  return (left_s + kTailWeight * (seen.done_s + tail_s)) / (longer + kTailWeight);
}

Json LengthEstimate::save() const {
  Json kinds = Json::array();
  for (const auto& [kind, sizes] : of_kind_) kinds.push_back({kind, sizes.in_order()});
  return {{"all", all_.in_order()}, {"kinds", std::move(kinds)}};
}

LengthEstimate LengthEstimate::load(const Json& json) {
  LengthEstimate estimate;
  for (const auto& size : json.at("all")) estimate.all_.add(size.get<double>());
  for (const auto& row : json.at("kinds")) {
    Sizes& sizes = estimate.of_kind_[row.at(0).get<std::string>()];
    for (const auto& size : row.at(1)) sizes.add(size.get<double>());
  }
  return estimate;
}

}  // namespace rubato::policy
