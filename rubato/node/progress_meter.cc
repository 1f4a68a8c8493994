#include "rubato/node/progress_meter.h"

#include <algorithm>
#include <limits>

namespace rubato::node {
namespace {

constexpr Duration kWindow = std::chrono::seconds(5);
constexpr double kSmoothing = 0.2;

}  // namespace

bool ProgressMeter::report(Time now, int round, const wire::StepReport& report) {
  const bool again = any_ && round != round_;
  if (any_ && !again && report.step <= newest_.step) return false;
  if (again) {
    started_again_ = true;
    told_.clear();
  }
  measure_pause(now, report);
  any_ = true;
  finished_ = false;
  round_ = round;
  const double batch = report.samples.value_or(0);
  newest_.step = report.step;
  newest_.loss = report.loss;
  newest_.workers = report.workers.value_or(newest_.workers);
  newest_.batch = batch <= std::numeric_limits<int>::max() ? static_cast<int>(batch) : 0;
  newest_.per_gpu = report.per_gpu;
  newest_.accumulation = report.accumulation;
  newest_.noise = report.noise;
  newest_.learning_rate = report.learning_rate;
  newest_.tuning = report.tuning;
  for (const auto& [name, value] : report.metrics) {
    if (!value) {
      newest_.metrics.erase(name);
    } else if (newest_.metrics.size() < wire::kMostReportedMetrics ||
               newest_.metrics.contains(name)) {
      newest_.metrics[name] = *value;
    }
  }
  if (report.skew) newest_.skew = report.skew;
  const double epoch = report.epoch.value_or(0);
  const double size = report.epoch_samples.value_or(0);
  if (size > 0) {
    newest_.samples = epoch * size + std::min(size, report.cursor.value_or(0) + batch);
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

void ProgressMeter::measure_pause(Time now, const wire::StepReport& report) {
  const std::int64_t step = report.step;
  const auto& applied_at = report.applied_at;
  if (any_) {
    const bool exact = applied_at && applied_at_ && step == newest_.step + 1;
    const double took =
        std::max(0.0, exact ? *applied_at - *applied_at_ : seconds(now - reported_at_));
    const bool changes = started_again_ || (changes_at_ && step >= *changes_at_);
    if (changes) {
      pause_ += started_again_ ? took : std::max(0.0, took - step_seconds_);
      step_seconds_ = 0;  // with other workers the speed is another
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
  if (asked_at_) return;  // a resize that replaces an unsettled one counts as the same
  asked_at_ = now;
  pause_ = 0;
}

void ProgressMeter::resize_settled(Time now) {
  if (!asked_at_) return;
  // A job that reports no steps has stood still all the time.
  pauses_.push_back(any_ ? pause_ : seconds(now - *asked_at_));
  if (pauses_.size() > kPausesKept) pauses_.erase(pauses_.begin());
  asked_at_.reset();
}

JobProgress ProgressMeter::progress(Time now) const {
  JobProgress progress = newest_;
  if (told_.size() < 2) return progress;
  const Told& first = told_.front();
  const Told& last = told_.back();
  // The speed falls if there is no report for longer than a step takes.
  const double steps = static_cast<double>(last.step - first.step);
  const double span = seconds(last.at - first.at);
  const double silence = seconds(now - last.at) - (steps > 0 ? span / steps : 0);
  const double time = span + (finished_ ? 0.0 : std::max(0.0, silence));
  if (time <= 0) return progress;
  progress.step_rate = steps / time;
  progress.rate = std::max(0.0, last.samples - first.samples) / time;
  return progress;
}

}  // namespace rubato::node
