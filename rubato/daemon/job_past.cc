#include "rubato/daemon/job_past.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <utility>

#include "rubato/daemon/numbers_text.h"

namespace rubato::daemon {
namespace {

constexpr std::array<std::string_view, 7> kPromiseKinds{"made", "changed", "dropped", "taken_up",
                                                        "kept", "broken",  "ended"};
// Fewer speeds say nothing about how they vary.
constexpr std::size_t kLeastSpeeds = 5;
constexpr int kMaterialPart = 50;
constexpr Duration kMaterialMove = std::chrono::seconds(1);
constexpr std::int64_t kMostInAReport = INT32_MAX;

std::optional<double> finite(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// The number that this share of them do not exceed, without interpolation. Changes their order.
double quantile(std::vector<double>& values, double share) {
  const auto rank = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<std::size_t>(rank)];
}

// Keeps the first, and of the others every second one.
void halve(std::vector<PastReport>& reports) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < reports.size(); i += 2) reports[kept++] = reports[i];
  reports.resize(kept);
}

void put_optional(NumbersWriter& out, const std::optional<double>& value) {
  out.put(value ? 1 : 0);
  if (value) out.put_real(*value);
}

std::optional<double> read_optional(NumbersReader& in) {
  return in.number_in<int>(1) == 1 ? std::optional(in.real()) : std::nullopt;
}

void write(NumbersWriter& out, const PastReport& report) {
  out.put(report.at);
  out.put(report.step);
  put_optional(out, report.loss);
  out.put_real(report.rate);
  out.put(report.batch);
  put_optional(out, report.learning_rate);
  out.put(report.gpus);
  out.put(report.steady ? 1 : 0);
}

PastReport read_report(NumbersReader& in) {
  PastReport report;
  report.at = in.time();
  report.step = in.number();
  report.loss = read_optional(in);
  report.rate = in.real();
  report.batch = in.number_in<int>(kMostInAReport);
  report.learning_rate = read_optional(in);
  report.gpus = in.number_in<int>(kMostInAReport);
  report.steady = in.number_in<int>(1) == 1;
  return report;
}

void write(NumbersWriter& out, const PromiseNote& note) {
  out.put(note.at);
  out.put(static_cast<std::int64_t>(note.kind));
  out.put(note.by);
  out.put(note.planned ? 1 : 0);
  out.put(note.planned.value_or(WallTime()));
  out.put(note.policy);
}

PromiseNote read_promise(NumbersReader& in) {
  PromiseNote note;
  note.at = in.time();
  note.kind = in.number_in<PromiseKind>(std::ssize(kPromiseKinds) - 1);
  note.by = in.time();
  const bool known = in.number_in<int>(1) == 1;
  const WallTime planned = in.time();
  if (known) note.planned = planned;
  note.policy = in.text();
  return note;
}

struct NumberedPast {
  JobId job;
  bool over = false;
  const JobPast& past;
};

void write(NumbersWriter& out, const NumberedPast& one) {
  out.put(one.job.value());
  out.put(one.over ? 1 : 0);
  out.put(one.past.apart.count());
  out.put(std::ssize(one.past.reports));
  for (const PastReport& report : one.past.reports) write(out, report);
  out.put(std::ssize(one.past.promises));
  for (const PromiseNote& note : one.past.promises) write(out, note);
}

JobPast read_past(NumbersReader& in) {
  JobPast past;
  past.apart = Duration(in.number());
  for (auto left = in.number_in<std::size_t>(JobPasts::kMostReports); left > 0; --left)
    past.reports.push_back(read_report(in));
  for (auto left = in.number_in<std::size_t>(JobPasts::kMostPromises); left > 0; --left)
    past.promises.push_back(read_promise(in));
  return past;
}

std::size_t size_of(const JobPast& past) { return past.reports.size() + past.promises.size(); }

}  // namespace

std::string_view to_text(PromiseKind kind) {
  return kPromiseKinds.at(static_cast<std::size_t>(kind));
}

std::optional<SpeedSpread> spread_of(const JobPast& past, int gpus) {
  std::vector<double> speeds;
  for (const PastReport& report : past.reports) {
    if (report.steady && report.gpus == gpus && report.rate > 0) speeds.push_back(report.rate);
  }
  if (speeds.size() < kLeastSpeeds) return std::nullopt;
  const double median = quantile(speeds, 0.5);
  return SpeedSpread{quantile(speeds, 0.1) / median, quantile(speeds, 0.9) / median};
}

void JobPasts::report(JobId job, WallTime at, const JobProgress& progress, bool steady) {
  if (progress.step == 0 && !(progress.samples > 0)) return;  // it has not trained yet
  JobPast& past = pasts_[job];
  auto& reports = past.reports;
  if (!reports.empty() && at - reports.back().at < past.apart) return;
  reports.push_back({at, progress.step, finite(progress.loss), finite(progress.rate).value_or(0),
                     progress.batch, finite(progress.learning_rate), progress.workers, steady});
  if (reports.size() <= kMostReports) return;
  const Duration span = reports.back().at - reports.front().at;
  past.apart = 2 * span / static_cast<std::int64_t>(reports.size());
  halve(reports);
}

void JobPasts::promise(JobId job, PromiseNote note) {
  auto& notes = pasts_[job].promises;
  if (note.kind == PromiseKind::changed && !notes.empty()) {
    const auto& before = notes.back().planned;
    const Duration moved = before && note.planned
                               ? std::chrono::abs(Duration{*note.planned - *before})
                               : Duration::max();
    const Duration ahead = before ? Duration{*before - note.at} : Duration();
    if (moved < std::max(kMaterialMove, ahead / kMaterialPart)) return;
  }
  notes.push_back(std::move(note));
  if (notes.size() <= kMostPromises) return;
  const auto least = std::find_if(notes.begin(), notes.end(), [](const PromiseNote& one) {
    return one.kind == PromiseKind::changed;
  });
  notes.erase(least == notes.end() ? notes.begin() + 1 : least);
}

void JobPasts::over(JobId job) {
  const auto found = pasts_.find(job);
  if (found == pasts_.end()) return;
  JobPast& past = found->second;
  while (past.reports.size() > kReportsOfEnded) halve(past.reports);
  of_ended_ += size_of(past);
  ended_.push_back(job);
  while (of_ended_ > kMostOfEnded) {
    const JobId oldest = ended_.front();
    ended_.pop_front();
    const auto at = pasts_.find(oldest);
    if (at == pasts_.end()) continue;
    of_ended_ -= size_of(at->second);
    pasts_.erase(at);
  }
}

void JobPasts::forget(JobId job) {
  const auto found = pasts_.find(job);
  if (found == pasts_.end()) return;
  of_ended_ -= size_of(found->second);
  pasts_.erase(found);
  if (ended_.size() > 2 * pasts_.size())
    std::erase_if(ended_, [this](JobId one) { return !pasts_.contains(one); });
}

const JobPast* JobPasts::of(JobId job) const {
  const auto found = pasts_.find(job);
  return found == pasts_.end() ? nullptr : &found->second;
}

Json JobPasts::save() const {
  std::vector<NumberedPast> all;
  std::map<JobId, bool> over;
  for (const JobId job : ended_) {
    const JobPast* past = of(job);
    if (past == nullptr || !over.emplace(job, true).second) continue;
    all.push_back({job, true, *past});
  }
  for (const auto& [job, past] : pasts_) {
    if (!over.contains(job)) all.push_back({job, false, past});
  }
  return numbers_text(all, [](NumbersWriter& out, const NumberedPast& one) { write(out, one); });
}

Result<void> JobPasts::load(const Json& saved) {
  JobPasts fresh;
  try {
    NumbersReader in(saved);
    while (!in.done() && !in.broken()) {
      const JobId job = in.job();
      const bool over = in.number_in<int>(1) == 1;
      fresh.pasts_[job] = read_past(in);
      if (over) fresh.over(job);
    }
    if (in.broken()) return Error{"the past of jobs has a number that cannot be"};
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("the past of jobs: {}", problem.what())};
  }
  *this = std::move(fresh);
  return {};
}

}  // namespace rubato::daemon
