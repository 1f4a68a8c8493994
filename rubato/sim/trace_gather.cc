#include "rubato/sim/trace_gather.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include <utility>

#include "rubato/base/text.h"
#include "rubato/base/time.h"
#include "rubato/sim/text_file.h"

namespace rubato::sim {
namespace {

// The first job in the file with a repeated id, and the earlier job with that id.
std::optional<std::pair<std::size_t, std::size_t>> find_duplicate(
    const std::vector<TraceJob>& jobs) {
  struct Key {
    std::size_t hash;
    std::uint32_t job;
  };
  std::vector<Key> keys;
  keys.reserve(jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    keys.push_back({std::hash<std::string>()(jobs[i].name), static_cast<std::uint32_t>(i)});
  }
  std::sort(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
    if (a.hash != b.hash) return a.hash < b.hash;
    const int order = jobs[a.job].name.compare(jobs[b.job].name);
    return order != 0 ? order < 0 : a.job < b.job;
  });
  std::optional<std::pair<std::size_t, std::size_t>> first;
  for (std::size_t i = 1; i < keys.size(); ++i) {
    if (keys[i].hash != keys[i - 1].hash || jobs[keys[i].job].name != jobs[keys[i - 1].job].name)
      continue;
    if (!first || keys[i].job < first->second) first = {keys[i - 1].job, keys[i].job};
  }
  return first;
}

// Times become relative to the earliest timestamp.
TraceProblem rebase(std::vector<TraceJob>& jobs) {
  const auto by_submit = [](const TraceJob& a, const TraceJob& b) {
    return a.submit_s < b.submit_s;
  };
  const auto [first, last] = std::minmax_element(jobs.begin(), jobs.end(), by_submit);
  const double origin = first->submit_s;
  if (last->submit_s - origin > kLongestSeconds) return "its times span more than 1,000 years";
  for (auto& job : jobs) job.submit_s -= origin;
  return std::nullopt;
}

void sort_by_submission(std::vector<TraceJob>& jobs) {
  const auto by_submit = [](const TraceJob& a, const TraceJob& b) {
    return a.submit_s < b.submit_s;
  };
  if (!std::is_sorted(jobs.begin(), jobs.end(), by_submit)) {
    std::stable_sort(jobs.begin(), jobs.end(), by_submit);
  }
}

}  // namespace

Gathered::Gathered(const GatherOptions& options, std::string source)
    : options_(options), source_(std::move(source)) {
  trace_.name = file_name(source_);
  trace_.format = options.format;
}

TraceDraft Gathered::draft() const {
  TraceDraft draft;
  if (options_.numbered) draft.job.name = fmt::to_string(trace_.jobs.size());
  return draft;
}

TraceProblem Gathered::add(TraceDraft draft, std::size_t place) {
  return options_.logged ? add_record(draft, place) : keep(draft, place);
}

TraceProblem Gathered::add_record(TraceDraft& draft, std::size_t place) {
  const auto why = drop(draft.record);
  count(draft.record.state, why.value_or(""));
  if (why) return std::nullopt;
  take_record(draft.record, draft.job);
  if (states_otherwise(draft.record)) ++stated_otherwise_;
  if (draft.record.part) {
    const auto [whole, is_first] = wholes_.try_emplace(draft.job.name, trace_.jobs.size());
    if (!is_first) return merge(draft.job, trace_.jobs[whole->second]);
  }
  return keep(draft, place);
}

TraceProblem Gathered::keep(TraceDraft& draft, std::size_t place) {
  if (auto bad = finish_trace_job(draft)) return bad;
  if (draft.slo && !draft.job.duration_s) ++slo_without_duration_;
  trace_.jobs.push_back(std::move(draft.job));
  places_.push_back(static_cast<std::uint32_t>(place));
  return std::nullopt;
}

// The parts of a heterogeneous job start together.
TraceProblem Gathered::merge(const TraceJob& part, TraceJob& whole) const {
  whole.gpus += part.gpus;
  whole.submit_s = std::min(whole.submit_s, part.submit_s);
  whole.duration_s = std::max(whole.duration_s, part.duration_s);
  if (whole.gpus <= kMostGpus) return std::nullopt;
  return fmt::format("the job {} has more than {} GPUs", base::quoted(whole.name), kMostGpus);
}

void Gathered::count(const std::string& state, const std::string& why) {
  const auto same = std::find_if(trace_.rows.begin(), trace_.rows.end(), [&](const TraceRows& r) {
    return r.state == state && r.why == why;
  });
  constexpr std::size_t kMostKinds = 200;  // a wrong column must not make the list long
  if (same != trace_.rows.end()) {
    ++same->rows;
  } else if (trace_.rows.size() < kMostKinds) {
    trace_.rows.push_back({state, why, 1});
  }
}

void Gathered::warn_ignored(std::vector<std::string> names, std::string_view what) {
  if (names.empty()) return;
  constexpr std::size_t kShown = 10;
  const std::size_t all = names.size();
  if (all > kShown) names.resize(kShown);
  for (auto& each : names) each = base::quoted(each);
  trace_.warnings.push_back(
      fmt::format("{}: {} ignored: {}{}", trace_.name, what, fmt::join(names, ", "),
                  all > kShown ? fmt::format(" and {} more", all - kShown) : ""));
}

Error Gathered::no_jobs() const {
  std::string reasons;
  for (const auto& [state, why, rows] : trace_.rows) {
    reasons += fmt::format("{}{} rows {}", reasons.empty() ? ": " : "; ", rows, why);
  }
  return Error{fmt::format("{}: no jobs{}", source_, reasons)};
}

TraceProblem Gathered::repeated_id() const {
  const auto twice = find_duplicate(trace_.jobs);
  if (!twice) return std::nullopt;
  const auto name = base::quoted(trace_.jobs[twice->second].name);
  const auto earlier = places_[twice->first];
  const auto later = places_[twice->second];
  if (options_.json) {
    return fmt::format("{}: jobs[{}]: the job id {} was used by jobs[{}]", source_, later, name,
                       earlier);
  }
  return fmt::format("{}:{}: the job id {} was used on line {}", source_, later, name, earlier);
}

void Gathered::warn() {
  const auto say = [this](std::size_t jobs, std::string_view what) {
    if (jobs > 0) trace_.warnings.push_back(fmt::format("{}: {} jobs {}", trace_.name, jobs, what));
  };
  say(slo_without_duration_,
      "have an SLO, which is a multiple of a duration the format does not give: they get no "
      "deadline");
  say(stated_otherwise_,
      "have a duration that is not the time from their start to their end: that time counts");
}

Result<Trace> Gathered::finish() && {
  if (trace_.jobs.empty()) return no_jobs();
  if (options_.stamped) {
    if (auto bad = rebase(trace_.jobs)) return Error{fmt::format("{}: {}", source_, *bad)};
  }
  if (!options_.numbered) {
    if (auto bad = repeated_id()) return Error{*bad};
  }
  sort_by_submission(trace_.jobs);
  std::stable_sort(trace_.rows.begin(), trace_.rows.end(),
                   [](const TraceRows& a, const TraceRows& b) { return a.rows > b.rows; });
  warn();
  return std::move(trace_);
}

}  // namespace rubato::sim
