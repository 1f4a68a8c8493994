#include "rubato/daemon/measuring.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "rubato/daemon/job_model.h"
#include "rubato/model/fit.h"

namespace rubato::daemon {
namespace {

// A policy is told a new speed if it differs by this share from the last one, and new progress if
// it differs by this share of the whole work.
constexpr double kMaterialRate = 0.05;
constexpr double kMaterialProgress = 0.02;
// The weight of a new measurement in the moving average, because the speed of programs varies.
constexpr double kNewShare = 0.5;

// Whether a machine can have this speed. Programs may report any number, and computing with
// impossible ones soon gives infinities.
bool plausible(double rate) { return rate >= 1e-12 && rate <= 1e15; }

// What a program reported about its batch, as it is stored: limits and noise always, the step time
// only if the GPUs on which it was measured are known.
std::optional<Tuning> tuning_in(const JobProgress& progress, const Allocation& gpus, bool steady) {
  if (!progress.tuning) return std::nullopt;
  const JobTuning& told = *progress.tuning;
  Tuning tuning{told.initial, told.largest, told.largest_per_gpu, progress.noise, {}};
  if (!steady || !progress.per_gpu) return tuning;
  const StepMeasurement step{{gpus.nodes(), gpus.gpus()},
                             {*progress.per_gpu, progress.accumulation.value_or(0)},
                             told.step_seconds,
                             told.pass_seconds};
  if (check_measurement(step)) tuning.steps.push_back({step, gpus.type()});
  return tuning;
}

void tell_estimate(Transaction& tx, JobId id, std::shared_ptr<const SpeedModel> speed) {
  const Event told = Estimated{id, std::move(speed), nullptr, tx.state().job(id)->rates.skew};
  if (encode(told)) tx.post(told);  // else the fit is not finite
}

// Tells a new fit only if it differs from the last one.
void tell_goodput(Transaction& tx, JobId id) {
  const DaemonState& state = tx.state();
  const JobView* view = state.view(id);
  if (!state.policy().tunes_batches()) return;
  const auto now = estimate_of(*state.job(id), view->spec->limits, state.policy());
  if (tells_more(*view->speed, *now, view->spec->limits)) tell_estimate(tx, id, now);
}

// How far the job is and how fast it trains now, if the difference to what was told matters.
void tell_progress(Transaction& tx, const Reports& reports, JobId id, WorkRate rate) {
  const JobView* view = tx.state().view(id);
  const Progress progress = progress_of(tx, reports, id, rate);
  const bool ahead =
      std::abs(view->progress.left(tx.now()) - progress.work_left) > kMaterialProgress * view->work;
  if (ahead || std::abs(rate - view->progress.rate) > kMaterialRate * view->progress.rate)
    tx.post(Running{id, view->generation, progress});
}

// A model does not change, so this is told once.
void tell_skew(Transaction& tx, JobId id, double skew) {
  const JobView* view = tx.state().view(id);
  if (view->spec->skew != skew) tell_estimate(tx, id, view->speed);
}

// Tells only what matters, because each report makes the policy decide again.
void tell_speed(Transaction& tx, const Reports& reports, JobId id, int gpus, WorkRate rate) {
  const DaemonState& state = tx.state();
  const JobView* view = state.view(id);
  if (!is_goodput(*view->speed)) {
    const auto told = view->speed->measured();
    const WorkRate before = view->speed->on(view->held.type(), gpus);
    const bool known = std::find(told.begin(), told.end(), gpus) != told.end();
    if (!known || std::abs(rate - before) > kMaterialRate * before) estimate(tx, id);
  }
  tell_progress(tx, reports, id, rate);
}

}  // namespace

void estimate(Transaction& tx, JobId id) {
  const DaemonState& state = tx.state();
  const JobRecord* job = state.job(id);
  const JobView* view = state.view(id);
  if (job == nullptr || view == nullptr) return;
  tell_estimate(tx, id, estimate_of(*job, view->spec->limits, state.policy()));
}

Progress progress_of(const Transaction& tx, const Reports& reports, JobId id, WorkRate rate) {
  const DaemonState& state = tx.state();
  const JobRecord* job = state.job(id);
  const JobView* view = state.view(id);
  const JobStatus* status = reports.of(id);
  const JobProgress& progress = status != nullptr ? status->progress : job->progress;
  const double done = done_by(*job, progress);
  const bool known = done > 0 && std::isfinite(done);
  const Work left = known ? job->work - done : view->progress.left(tx.now());
  // A job is done when its program ends. Until then, some work is always left.
  const Work least = std::max(rate, (job->file.work ? 1e-6 : 0.1) * job->work);
  return {std::max(left, least), tx.now(), rate};
}

// (An agent's status for a master that has not reported yet is neither silent nor running.)
void look_if_plain(Transaction& tx, const JobStatus& status) {
  const DaemonState& state = tx.state();
  const JobRecord* job = state.job(status.job);
  const JobView* view = state.view(status.job);
  if (job == nullptr || view == nullptr || job->leaves_as || job->measures_for) return;
  const GpuLimits limits = view->spec->limits;
  if (status.silent && !job->plain && limits.max > 1) {
    tx.touch(status.job);
    tx.put("plain", {{"job", status.job.value()}, {"limits", write_record(limits).value()}});
    if (status.ended) return;
    Limited limited{status.job, {1, 1, {}}};
    const auto in_use = allocation_of(status.in_use, state.now().cluster);
    if (in_use && common(view->target, *in_use).gpus() == 1)
      limited.keeps = common(view->target, *in_use);
    tx.post(limited);
    estimate(tx, status.job);
  } else if (job->plain && status.running && !status.silent) {
    const GpuLimits before = *job->plain;
    tx.put("plain", {{"job", status.job.value()}});
    tx.post(Limited{status.job, before});
    estimate(tx, status.job);
  }
}

void measure(Transaction& tx, Reports& reports, const JobStatus& status,
             const CoreOptions& options) {
  const DaemonState& state = tx.state();
  const JobRecord* job = state.job(status.job);
  const JobView* view = state.view(status.job);
  if (job == nullptr || view == nullptr) {
    reports.forget(status.job);
    return;
  }
  if (job->measured_at && tx.now() - *job->measured_at < options.measure_every && !status.ended) {
    reports.postpone(status.job);
    return;
  }
  JobProgress progress = status.progress;
  progress.tuning.reset();  // it is stored with the rates
  Json body = {{"job", status.job.value()}, {"progress", to_json(progress)}};
  const int gpus = view->held.gpus();
  const bool steady = status.running && status.generation == view->generation &&
                      view->phase == Phase::running && status.progress.workers == gpus &&
                      tx.now() - job->running_since >= options.settle;
  // Beside another job on the same GPUs, its speed says nothing about its speed alone.
  const bool shares = view->shares_with.has_value();
  JobRecord scaled = *job;  // the first measurement gives guessed work its scale
  if (steady && !shares && scaled.scale == 0) {
    scaled.scale = 1;
    const double raw = rate_by(scaled, status.progress);
    const double scale = rate_held(*job, *view) / raw;
    scaled.scale = plausible(raw) && plausible(scale) ? scale : 0;
    if (scaled.scale > 0) body["scale"] = scaled.scale;
  }
  Rates rates;
  const WorkRate rate = steady ? rate_by(scaled, status.progress) : 0;
  if (plausible(rate) && !shares) {
    const auto known = job->rates.by_gpus.find(gpus);
    rates.by_gpus[gpus] = known == job->rates.by_gpus.end()
                              ? rate
                              : known->second + kNewShare * (rate - known->second);
  }
  if (!status.pauses.empty() && status.pauses.back() > 0) rates.pause = status.pauses.back();
  if (job->file.batch.mode == BatchMode::adaptive)
    rates.tuning = tuning_in(status.progress, view->held, steady && !shares);
  if (status.progress.skew != job->rates.skew) rates.skew = status.progress.skew;
  if (status.failures > 0) body["failures"] = status.failures;
  if (!rates.by_gpus.empty() || rates.pause > 0 || rates.tuning || rates.skew)
    body["rates"] = write_record(rates).value();
  tx.touch(status.job);
  tx.put("measured", body);
  if (rates.skew) tell_skew(tx, status.job, *rates.skew);
  if (rates.tuning) tell_goodput(tx, status.job);
  if (shares && plausible(rate)) tell_progress(tx, reports, status.job, rate);
  if (rates.by_gpus.empty()) return;
  tell_speed(tx, reports, status.job, gpus, rates.by_gpus.begin()->second);
}

}  // namespace rubato::daemon
