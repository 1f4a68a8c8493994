#include "rubato/policy/length_estimate.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rubato::policy {
namespace {

constexpr std::size_t kMostSizes = 256;              // of a kind
constexpr std::size_t kMostSizesOfAllKinds = 16384;  // then kinds are forgotten
constexpr double kTailWeight = 64;                   // jobs
constexpr double kFirstMeanSeconds = 600;
constexpr double kOthers = 4;       // jobs, for everybody together
constexpr double kLeastTry = 3600;  // seconds

// What may be left of a job, and the least time to spend for an end.
class Chances {
 public:
  // `tail` jobs of a heavy tail with this mean, and with `sum` seconds left in all `jobs` others.
  Chances(double tail, double mean, double jobs, double sum)
      : tail_(tail), mean_(mean), longer_(jobs), least_((sum + tail * mean) / (jobs + tail)) {}

  // Those with so much left, ascending; how many.
  void add(double left_s, double jobs) {
    if (left_s > kLeastTry) try_once();
    longer_ -= jobs;
    ended_ += jobs;
    spent_ += jobs * left_s;
    if (left_s >= kLeastTry) try_for(left_s);
  }

  [[nodiscard]] double least() {
    try_once();
    return least_;
  }

 private:
  void try_once() {
    if (!std::exchange(tried_, true)) try_for(kLeastTry);
  }
  void try_for(double d) {
    const double stay = mean_ / (mean_ + d);  // Lomax with exponent 2
    const double spent = spent_ + longer_ * d + tail_ * d * stay;
    least_ = std::min(least_, spent / (ended_ + tail_ * (1 - stay * stay)));
  }

  double tail_, mean_;
  double longer_, ended_ = 0, spent_ = 0;
  double least_;
  bool tried_ = false;
};

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

std::span<const double> LengthEstimate::Sizes::longer(double done_s) const {
  return {std::upper_bound(sorted_.begin(), sorted_.end(), done_s), sorted_.end()};
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
  const double done_s = seen.done_s;
  const auto [all_s, ends] = all_.beyond(0);
  const double mean_s = (all_s + kTailWeight * kFirstMeanSeconds) / (ends + kTailWeight);

  const auto [others_s, others] = all_.beyond(done_s);
  const double each = kOthers / (others + kTailWeight);  // one of the others counts so much
  const auto kind = of_kind_.find(seen.kind);
  const auto [alike_s, alike] =
      kind == of_kind_.end() ? std::pair(0.0, 0.0) : kind->second.sizes.beyond(done_s);
  Chances chances(kTailWeight * each, done_s + mean_s, alike + others * each,
                  alike_s + others_s * each);

  std::span<const double> one, all = all_.longer(done_s);
  if (kind != of_kind_.end()) one = kind->second.sizes.longer(done_s);
  while (!one.empty() || !all.empty()) {
    const bool is_alike = all.empty() || (!one.empty() && one.front() <= all.front());
    std::span<const double>& next = is_alike ? one : all;
    chances.add(next.front() - done_s, is_alike ? 1 : each);
    next = next.subspan(1);
  }
  return chances.least();
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
