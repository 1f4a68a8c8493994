#include "rubato/node/guest_control.h"

#include <algorithm>
#include <vector>

namespace rubato::node {
namespace {

constexpr std::size_t kAloneKept = 5;
constexpr std::size_t kSharedKept = 3;
constexpr int kLongestPause = 32;
// Of the allowed loss: below the first the share rises, above the second it falls.
constexpr double kRises = 0.5;
constexpr double kFalls = 0.9;
constexpr double kAim = 0.7;
constexpr double kFastestRise = 1.5;
constexpr double kFastestFall = 0.25;

double median(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

void keep(std::deque<double>& values, double value, std::size_t most) {
  values.push_back(value);
  if (values.size() > most) values.pop_front();
}

}  // namespace

std::optional<double> GuestControl::alone() const {
  return alone_.empty() ? std::nullopt : std::optional(median(alone_));
}

double GuestControl::share(Time now, const Seen& seen) {
  if (!began_ || seen.form != form_) {  // what was measured is of another host, or of none
    *this = GuestControl(config_);
    began_ = true;
    form_ = seen.form;
    newest_step_ = seen.step;
    stepped_ = now;
    begin(now, seen, 0);
  }
  const bool stepped = seen.step != newest_step_;
  const bool fell_back = seen.step < newest_step_;  // to its checkpoint
  if (stepped) {
    newest_step_ = seen.step;
    stepped_ = now;
  }
  if (seen.step == 0) return share_;
  if (fell_back || (idle_ && stepped)) {
    idle_ = false;
    begin(now, seen, 0);
  }
  if (idle_) return share_;
  if (stands(now)) {
    if (share_ > 0) {
      begin(now, seen, 0);  // is it the guest that stops it?
    } else if (now - window_begin_ >= config_.idle) {
      idle_ = true;
      share_ = 1;
    }
    return share_;
  }
  // The guest ends the step that it has begun. Only then is the host alone.
  if (share_ == 0 && seen.guest_step != guest_step_) {
    guest_step_ = seen.guest_step;
    first_.reset();
    step_at_begin_ = seen.step;
  }
  if (seen.applied_at && seen.step > step_at_begin_) {
    last_ = Point{seen.step, *seen.applied_at};
    if (!first_) first_ = last_;
  }
  next_window(now, seen);
  return share_;
}

// Whether the host has made no step for so long that it cannot be by chance.
bool GuestControl::stands(Time now) const {
  const double typical = alone().value_or(0);
  return now - stepped_ >= std::max(config_.idle, from_seconds(config_.idle_steps * typical));
}

void GuestControl::begin(Time now, const Seen& seen, double share) {
  share_ = share;
  window_begin_ = now;
  step_at_begin_ = seen.step;
  guest_step_ = seen.guest_step;
  first_.reset();
  last_.reset();
}

void GuestControl::next_window(Time now, const Seen& seen) {
  if (!first_ || now - window_begin_ < config_.window) return;
  if (last_->step - first_->step < config_.steps || !(last_->at > first_->at)) return;
  learn((last_->at - first_->at) / static_cast<double>(last_->step - first_->step));
  if (wanted_ == 0 && --pause_ > 0) return begin(now, seen, 0);
  if (wanted_ == 0) wanted_ = config_.least;
  if (shared_left_ == 0) {
    if (share_ > 0) return begin(now, seen, 0);
    shared_left_ = config_.shared_windows;
  }
  --shared_left_;
  begin(now, seen, wanted_);
}

// The window is over: what does it say?
void GuestControl::learn(double step_seconds) {
  if (share_ == 0) {
    keep(alone_, step_seconds, kAloneKept);
    if (wanted_ < 0) wanted_ = config_.first;
    return;
  }
  const double kept = std::min(1.0, *alone() / step_seconds);
  keep(kept_, kept, kSharedKept);
  const double lost = 1 - median(kept_);
  if (1 - kept > 2 * config_.may_lose) {
    lower(kept);
  } else if (lost > kFalls * config_.may_lose) {
    lower(1 - lost);
  } else if (lost < kRises * config_.may_lose && kept_.size() == kSharedKept) {
    wanted_ = std::min(1.0, wanted_ * kFastestRise);
    kept_.clear();
    next_pause_ = 2;
  }
}

// The loss is proportional to the share (model/guest.h).
void GuestControl::lower(double kept) {
  wanted_ *= std::clamp(kAim * config_.may_lose / (1 - kept), kFastestFall, kFalls);
  kept_.clear();
  shared_left_ = 0;  // the host alone may have changed, too
  if (wanted_ >= config_.least) return;
  wanted_ = 0;
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
}

}  // namespace rubato::node
