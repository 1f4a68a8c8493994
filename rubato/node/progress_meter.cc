#include "rubato/node/progress_meter.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rubato::node {
namespace {

constexpr Duration kWindow = std::chrono::seconds(5);
constexpr double kSmoothing = 0.2;

std::optional<double> real(const Json& content, const char* name) {
  const auto found = content.find(name);
  if (found == content.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<int> whole(const Json& content, const char* name, int least) {
  const auto value = real(content, name);
  if (!value || *value < least || *value > std::numeric_limits<int>::max()) return std::nullopt;
  return static_cast<int>(*value);
}

}  // namespace

bool ProgressMeter::report(Time now, int round, const Json& content) {
  if (!content.is_object()) return true;
  const auto step = real(content, "step");
  constexpr double kMost = 9e15;  // steps are counted exactly up to it
  if (!step || *step < 0 || *step > kMost) return true;
  const auto number = static_cast<std::int64_t>(*step);
  const bool again = any_ && round != round_;
  if (any_ && !again && number <= newest_.step) return false;
  if (again) {
    started_again_ = true;
    told_.clear();
  }
  measure_pause(now, number, content);
  any_ = true;
  round_ = round;
  const double batch = std::max(0.0, real(content, "samples").value_or(0));
  newest_.step = number;
  newest_.loss = real(content, "loss");
  newest_.workers = whole(content, "workers", 0).value_or(newest_.workers);
  newest_.batch = whole(content, "samples", 0).value_or(0);
  newest_.per_gpu = whole(content, "per_gpu", 1);
  newest_.accumulation = whole(content, "accumulation", 0);
  const auto noise = real(content, "noise");
  newest_.noise = noise && *noise >= 0 ? noise : std::nullopt;
  newest_.tuning.reset();
  if (const auto told = content.find("tuning"); told != content.end()) {
    if (const auto tuning = parse_job_tuning(*told)) newest_.tuning = *tuning;
  }
  const double epoch = std::max(0.0, real(content, "epoch").value_or(0));
  const double size = std::max(0.0, real(content, "epoch_samples").value_or(0));
  const double cursor = std::max(0.0, real(content, "cursor").value_or(0));
  if (size > 0) {
    newest_.samples = epoch * size + std::min(size, cursor + batch);
    newest_.epoch = newest_.samples / size;
  } else {
    newest_.samples += batch;
    newest_.epoch = epoch;
  }
  told_.push_back({now, newest_.step, newest_.samples});
  while (told_.size() > 2 && told_[1].at < now - kWindow) told_.pop_front();
  reported_at_ = now;
  return true;
}

void ProgressMeter::measure_pause(Time now, std::int64_t step, const Json& content) {
  const auto applied_at = real(content, "applied_at");
  if (any_) {
    const bool exact = applied_at && applied_at_ && step == newest_.step + 1;
    const double took =
        std::max(0.0, exact ? *applied_at - *applied_at_ : seconds(now - reported_at_));
    const bool changes = started_again_ || (changes_at_ && step >= *changes_at_);
    if (changes) {
      pause_ += started_again_ ? took : std::max(0.0, took - step_seconds_);
      step_seconds_ = 0;  // other workers, another speed
    } else {
      step_seconds_ =
          step_seconds_ == 0 ? took : step_seconds_ + kSmoothing * (took - step_seconds_);
    }
    if (changes) changes_at_.reset();
  }
  started_again_ = false;
  applied_at_ = applied_at;
}

void ProgressMeter::members_changed(std::int64_t first_step) { changes_at_ = first_step; }

void ProgressMeter::resize_asked(Time now) {
  if (asked_at_) return;  // one that replaces another before it is settled is one with it
  asked_at_ = now;
  pause_ = 0;
}

void ProgressMeter::resize_settled(Time now) {
  if (!asked_at_) return;
  // Who tells no steps has stood still all the while.
  pauses_.push_back(any_ ? pause_ : seconds(now - *asked_at_));
  if (pauses_.size() > kPausesKept) pauses_.erase(pauses_.begin());
  asked_at_.reset();
}

JobProgress ProgressMeter::progress(Time now) const {
  JobProgress progress = newest_;
  if (told_.size() < 2) return progress;
  const Told& first = told_.front();
  const Told& last = told_.back();
  // Silence longer than a step would have taken slows it down.
  const double steps = static_cast<double>(last.step - first.step);
  const double span = seconds(last.at - first.at);
  const double silence = seconds(now - last.at) - (steps > 0 ? span / steps : 0);
  const double time = span + std::max(0.0, silence);
  if (time <= 0) return progress;
  progress.step_rate = steps / time;
  progress.rate = std::max(0.0, last.samples - first.samples) / time;
  return progress;
}

}  // namespace rubato::node
