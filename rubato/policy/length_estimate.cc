#include "rubato/policy/length_estimate.h"

#include <algorithm>
#include <cmath>

namespace rubato::policy {
namespace {

constexpr std::size_t kMostSizes = 256;              // of a kind
constexpr std::size_t kMostSizesOfAllKinds = 16384;  // then kinds are forgotten
constexpr double kTailWeight = 16;                   // jobs
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

std::string LengthEstimate::kind_of(const JobSpec& spec) { return spec.user + "\n" + spec.model; }

void LengthEstimate::told(Seen& seen, const JobView& job, WorkRate alone) {
  seen.done_s = job.has_run() && alone > 0 ? job.work / alone : 0;
}

void LengthEstimate::look(Seen& seen, const JobView& job, WorkRate alone, Time now) {
  seen.at = now;
  seen.done_s = seen.pace = 0;
  if (!(alone > 0)) return;
  // In whole milliseconds: the last bits of what is done would betray what is left.
  seen.done_s = std::round((job.work - job.progress.left(now)) / alone * 1e3) / 1e3;
  seen.pace = now < job.progress.at ? 0 : job.progress.rate / alone;
}

void LengthEstimate::go_on(Seen& seen, const JobView& job, WorkRate alone, Time now) {
  const bool is_new = seen.at == kStart;
  seen.done_s = is_new ? seconds(job.ran(now))
                       : seen.done_s + seen.pace * std::max(0.0, seconds(now - seen.at));
  seen.at = now;
  const bool trains = alone > 0 && !job.held.empty() && now >= job.progress.at;
  seen.pace = trains ? job.progress.rate / alone : 0;
}

void LengthEstimate::ended(const Seen& last, Time now) {
  const double size = last.done_s + last.pace * std::max(0.0, seconds(now - last.at));
  if (!(size > 0)) return;
  all_.add(size);
  Kind& kind = of_kind_[last.kind];
  kept_ -= kind.sizes.in_order().size();
  kind.sizes.add(size);
  kind.newest = ++ends_;
  kept_ += kind.sizes.in_order().size();
  while (kept_ > kMostSizesOfAllKinds) forget_oldest_kind();
}

void LengthEstimate::forget_oldest_kind() {
  const auto oldest = std::min_element(
      of_kind_.begin(), of_kind_.end(),
      [](const auto& a, const auto& b) { return a.second.newest < b.second.newest; });
  kept_ -= oldest->second.sizes.in_order().size();
  of_kind_.erase(oldest);
}

double LengthEstimate::left_s(const Seen& seen) const {
  const auto [all_s, ends] = all_.beyond(0);
  const double tail_s = (all_s + kTailWeight * kFirstTailSeconds) / (ends + kTailWeight);
  const auto known = of_kind_.find(seen.kind);
  const Sizes& alike = known == of_kind_.end() ? all_ : known->second.sizes;
  const auto [left_s, longer] = alike.beyond(seen.done_s);
  return (left_s + kTailWeight * (seen.done_s + tail_s)) / (longer + kTailWeight);
}

Json LengthEstimate::save() const {
  Json kinds = Json::array();
  for (const auto& [name, kind] : of_kind_)
    kinds.push_back({name, kind.sizes.in_order(), kind.newest});
  return {{"all", all_.in_order()}, {"kinds", std::move(kinds)}};
}

LengthEstimate LengthEstimate::load(const Json& json) {
  LengthEstimate estimate;
  for (const auto& size : json.at("all")) estimate.all_.add(size.get<double>());
  for (const auto& row : json.at("kinds")) {
    Kind& kind = estimate.of_kind_[row.at(0).get<std::string>()];
    for (const auto& size : row.at(1)) kind.sizes.add(size.get<double>());
    kind.newest = row.at(2).get<std::uint64_t>();
    estimate.kept_ += kind.sizes.in_order().size();
    estimate.ends_ = std::max(estimate.ends_, kind.newest);
  }
  return estimate;
}

}  // namespace rubato::policy
