#include "rubato/daemon/timeline.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "rubato/base/text.h"
#include "rubato/core/node_states.h"
#include "rubato/daemon/phrases.h"
#include "rubato/daemon/views.h"
#include "rubato/jobfile/times.h"

namespace rubato::daemon {
namespace {

struct Range {
  WallTime now{};
  WallTime since{};
  WallTime until{};
};

WallTime resolve(const Moment& moment, WallTime now) {
  if (const auto* time = std::get_if<WallTime>(&moment)) return *time;
  return now - std::get<Duration>(moment);
}

Result<Range> range_of(const ShowTimeline& ask, WallTime now) {
  const Range range{now, resolve(ask.since, now), ask.until ? resolve(*ask.until, now) : now};
  if (range.since < range.until) return range;
  return Error{fmt::format("since ({}) must be before until ({})", jobfile::to_text(range.since),
                           jobfile::to_text(range.until))};
}

double milliseconds(Duration span) { return static_cast<double>(span.count()) / 1e3; }

bool overlaps(const Span& span, const Range& range) {
  return span.from < range.until && (!span.until || *span.until > range.since);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json show_mark(const Mark& mark) {
  return {{"job", mark.job.value()},
          {"time", iso(mark.at)},
          {"kind", std::string(to_text(mark.kind))},
          {"gpus", mark.gpus},
          {"reason", text_or_null(mark.reason)},
          {"pause_ms", mark.pause ? Json(milliseconds(*mark.pause)) : Json(nullptr)}};
}

Json show_report(const PastReport& report) {
  return {{"time", iso(report.at)},
          {"step", report.step},
          {"loss", number_or_null(report.loss)},
          {"rate", report.rate},
          {"batch", report.batch > 0 ? Json(report.batch) : Json(nullptr)},
          {"learning_rate", number_or_null(report.learning_rate)},
          {"gpus", report.gpus}};
}

Json show_promise(const PromiseNote& note) {
  return {{"time", iso(note.at)},
          {"kind", std::string(to_text(note.kind))},
          {"by", iso(note.by)},
          {"planned", iso(note.planned)},
          {"policy", text_or_null(note.policy)}};
}

// The GPUs that a promise plans for the time from `now` on, within the range.
void add_plan(Json& plans, const DaemonState& state, const JobRecord& job, const Range& range) {
  const auto& plan = job.promise->plan;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Time end = i + 1 < plan.size() ? plan[i + 1].from : job.promise->finish;
    if (plan[i].gpus == 0 || end == kNever) continue;
    const WallTime from = std::max(state.wall(plan[i].from), range.now);
    const WallTime until = state.wall(end);
    if (from >= until) continue;
    plans.push_back({{"job", job.id.value()},
                     {"gpus", plan[i].gpus},
                     {"from", iso(from)},
                     {"until", iso(until)}});
  }
}

Json show_job_of_timeline(const DaemonState& state, const JobRecord& job) {
  Json shown = {{"job", job.id.value()}, {"name", job.name}, {"user", job.user}};
  if (job.deadline) shown["deadline"] = iso(job.deadline);
  if (job.promise && job.honoured && !job.gone())
    shown["finish_by"] = iso_of(state, job.promise->finish);
  return shown;
}

// --- use ---

struct Idle {
  std::string reason;
  int gpus = 0;
};

// Why GPUs that no job has and no job is about to get are left on nodes that are up. It names no
// job, because everybody may read it.
std::string why_left(const DaemonState& state, int left) {
  int waiting = 0;
  int least = 0;
  bool growable = false;
  bool away = false;
  for (const JobView& job : state.now().jobs) {
    if (job.stays_away()) {
      away = away || job.held.empty();
      continue;
    }
    if (!job.target.empty()) {
      growable = growable || job.spec->limits.above(job.target.gpus()).has_value();
      continue;
    }
    ++waiting;
    const int needs = job.spec->limits.smallest();
    least = least == 0 ? needs : std::min(least, needs);
  }
  if (waiting > 0 && least > left) {
    return fmt::format("{} and need{} at least {} at once",
                       waiting == 1 ? "one job waits" : fmt::format("{} jobs wait", waiting),
                       waiting == 1 ? "s" : "", plural(least, "GPU"));
  }
  if (waiting > 0)
    return "jobs wait, but the policy or the placement does not use these GPUs for them";
  if (growable) return "no job waits, and the policy gives running jobs no more";
  if (away) return "all waiting jobs are on hold, are measured, or pause after a failure";
  return "no job needs them";
}

std::vector<Idle> idle_gpus(const DaemonState& state, int& held) {
  const Cluster& cluster = state.now().cluster;
  std::vector<std::uint64_t> used(cluster.nodes().size(), 0);
  std::vector<std::uint64_t> wanted(cluster.nodes().size(), 0);
  for (const JobView& job : state.now().jobs) {
    for (const Slice& slice : job.held.slices()) used[slice.node.index()] |= slice.mask;
    for (const Slice& slice : job.target.slices()) wanted[slice.node.index()] |= slice.mask;
  }
  std::vector<Idle> idle;
  int soon = 0;
  int others = 0;
  int left = 0;
  held = 0;
  for (std::size_t i = 0; i < used.size(); ++i) {
    const Node& node = cluster.nodes()[i];
    const int busy = std::popcount(used[i]);
    held += busy;
    const int free = node.gpus - busy;
    if (free <= 0) continue;
    if (node.state != NodeState::up) {
      idle.push_back({node_text(state, NodeId(static_cast<NodeId::rep>(i))), free});
      continue;
    }
    const int waited_for = std::popcount(wanted[i] & ~used[i]);
    const int of_others = std::popcount(node.reserved & ~used[i]);
    soon += waited_for;
    others += of_others;
    left += free - waited_for - of_others;
  }
  if (others > 0) idle.push_back({"others use them", others});
  if (soon > 0) idle.push_back({"a job gets them as soon as others have released the rest", soon});
  if (left > 0) idle.push_back({why_left(state, left), left});
  return idle;
}

// GPU-hours by user.
std::map<std::string, double> gpu_hours(const DaemonState& state, const Range& range) {
  std::map<std::string, double> hours;
  const Chronicle& chronicle = state.chronicle();
  chronicle.each_span([&](const Span& span) {
    const WallTime from = std::max(span.from, range.since);
    const WallTime until = std::min(span.until.value_or(range.now), range.until);
    if (from < until)
      hours[chronicle.user(span.user)] += span.gpus.gpus() * seconds(Duration{until - from}) / 3600;
  });
  return hours;
}

Json show_users(const Caller& caller, const DaemonState& state, const Range& range) {
  const std::map<std::string, double> hours = gpu_hours(state, range);
  std::map<std::string, double> weights;  // the largest of the jobs that have not ended
  for (const JobView& job : state.now().jobs) {
    double& weight = weights[job.spec->user];
    weight = std::max(weight, job.spec->weight);
  }
  double all = 0;
  std::set<std::string> names;
  for (const auto& [user, used] : hours) {
    all += used;
    names.insert(user);
  }
  for (const auto& [user, weight] : weights) names.insert(user);
  if (!caller.admin) names = {caller.user};
  Json users = Json::array();
  for (const std::string& user : names) {
    const auto used = hours.find(user);
    const auto weight = weights.find(user);
    const double own = used == hours.end() ? 0 : used->second;
    users.push_back({{"user", user},
                     {"gpu_hours", own},
                     {"weight", weight == weights.end() ? Json(nullptr) : Json(weight->second)},
                     {"share", all > 0 ? own / all : 0}});
  }
  return users;
}

Json count_deadlines(const Caller& caller, const DaemonState& state, const Range& range) {
  int kept = 0;
  int missed = 0;
  int open = 0;
  for (const auto& [id, job] : state.jobs()) {
    if (!job.deadline || job.measures_for) continue;
    if (!caller.admin && job.user != caller.user) continue;
    if (!job.gone()) {
      ++(*job.deadline < range.now ? missed : open);
      continue;
    }
    if (!job.ended || *job.ended < range.since) continue;
    const Ending how = job.ending->how;
    // A job that was refused or cancelled has kept nobody waiting.
    if (how == Ending::refused || how == Ending::cancelled) continue;
    ++(how == Ending::completed && *job.ended <= *job.deadline ? kept : missed);
  }
  return {{"kept", kept}, {"missed", missed}, {"open", open}};
}

Json show_pauses(const Sight& sight, const Chronicle& chronicle, const Range& range) {
  std::vector<double> pauses;
  for (const Mark& mark : chronicle.marks()) {
    const bool resized =
        mark.kind == MarkKind::grow || mark.kind == MarkKind::shrink || mark.kind == MarkKind::move;
    if (resized && mark.pause && mark.at >= range.since && sight.sees(mark.user))
      pauses.push_back(milliseconds(*mark.pause));
  }
  std::sort(pauses.begin(), pauses.end());
  // The smallest value that at least this share of all do not exceed.
  const auto at = [&](double share) -> Json {
    if (pauses.empty()) return nullptr;
    const auto rank =
        static_cast<std::size_t>(std::ceil(share * static_cast<double>(pauses.size())));
    return pauses[std::max<std::size_t>(rank, 1) - 1];
  };
  return {{"p50_ms", at(0.5)}, {"p99_ms", at(0.99)}, {"count", pauses.size()}};
}

}  // namespace

void DecisionTimes::add(RowNumber number, double seconds) {
  // After a turn that was rolled back, numbers come again.
  while (!seconds_.empty() && seconds_.back().first >= number) seconds_.pop_back();
  seconds_.emplace_back(number, seconds);
  if (seconds_.size() > kKept) seconds_.pop_front();
}

std::optional<double> DecisionTimes::of(RowNumber number) const {
  const auto at = std::lower_bound(seconds_.begin(), seconds_.end(), number,
                                   [](const auto& one, RowNumber n) { return one.first < n; });
  return at != seconds_.end() && at->first == number ? std::optional(at->second) : std::nullopt;
}

Json Sight::job(JobId id, std::uint32_t user) const {
  if (!sees(user)) return nullptr;
  return measured_job(state_, id).value();
}

bool thin_out(std::vector<Span>& spans, std::size_t most, WallTime now) {
  if (spans.size() <= most) return false;
  const auto length = [&](const Span& span) { return span.until.value_or(now) - span.from; };
  std::vector<Duration> lengths;
  lengths.reserve(spans.size());
  for (const Span& span : spans) lengths.push_back(length(span));
  const auto nth = lengths.begin() + static_cast<std::ptrdiff_t>(most - 1);
  std::nth_element(lengths.begin(), nth, lengths.end(), std::greater<>());
  std::erase_if(spans, [&](const Span& span) { return span.until && length(span) < *nth; });
  if (spans.size() > most)
    spans.erase(spans.begin(), spans.end() - static_cast<std::ptrdiff_t>(most));
  return true;
}

Json show_span(const Span& span, Json job) {
  Json gpus = Json::array();
  for (int gpu = 0; gpu < kMaxGpusPerNode; ++gpu) {
    if ((span.gpus.mask >> static_cast<unsigned>(gpu) & 1U) != 0) gpus.push_back(gpu);
  }
  return {{"job", std::move(job)},
          {"node", span.gpus.node.value()},
          {"gpus", std::move(gpus)},
          {"from", iso(span.from)},
          {"until", iso(span.until)}};
}

Answer timeline_for(const Caller& caller, const ShowTimeline& ask, const DaemonState& state,
                    Time now) {
  const auto range = range_of(ask, state.wall(now));
  if (!range) return refusal(400, range.error().message);
  const Chronicle& chronicle = state.chronicle();
  const Sight sight(caller, state);
  std::vector<Span> spans;
  chronicle.each_span([&](const Span& span) {
    if (overlaps(span, *range)) spans.push_back(span);
  });
  bool truncated = chronicle.forgot() && range->since < chronicle.since();
  truncated = thin_out(spans, kMostSpansShown, range->now) || truncated;
  std::set<JobId, std::greater<>> shown;  // the newest first
  Json bars = Json::array();
  for (const Span& span : spans) {
    Json job = sight.job(span.job, span.user);
    if (!job.is_null()) shown.insert(JobId(job.get<JobId::rep>()));
    bars.push_back(show_span(span, std::move(job)));
  }
  std::vector<Json> marks;
  const auto& all = chronicle.marks();
  for (std::size_t left = all.size(); left > 0; --left) {
    const Mark& mark = all[left - 1];
    if (mark.at < range->since || mark.at > range->until || !sight.sees(mark.user)) continue;
    if (marks.size() == kMostMarksShown) {
      truncated = true;
      break;
    }
    marks.push_back(show_mark(mark));
    shown.insert(mark.job);
  }
  std::reverse(marks.begin(), marks.end());
  Json plans = Json::array();
  for (const JobView& view : state.now().jobs) {
    const JobRecord* job = state.job(view.id);
    if (job == nullptr || !job->promise || !job->honoured) continue;
    if (!caller.admin && job->user != caller.user) continue;
    add_plan(plans, state, *job, *range);
    shown.insert(job->id);
  }
  Json jobs = Json::array();
  for (const JobId id : shown) {
    if (jobs.size() == kMostJobsShown) {
      truncated = true;
      break;
    }
    if (const JobRecord* job = state.job(id)) {
      jobs.push_back(show_job_of_timeline(state, *job));
    } else {
      jobs.push_back({{"job", id.value()}});  // it ended so long ago that it is forgotten
    }
  }
  return {200,
          {{"now", iso(range->now)},
           {"since", iso(range->since)},
           {"until", iso(range->until)},
           {"complete_since", iso(std::max(range->since, chronicle.since()))},
           {"truncated", truncated},
           {"jobs", std::move(jobs)},
           {"spans", std::move(bars)},
           {"plans", std::move(plans)},
           {"marks", std::move(marks)}}};
}

Json show_past(const JobRecord& job, const DaemonState& state) {
  const Chronicle& chronicle = state.chronicle();
  Json spans = Json::array();
  chronicle.each_span([&](const Span& span) {
    const JobRecord* holder = span.job == job.id ? nullptr : state.job(span.job);
    const bool measures = holder != nullptr && holder->measures_for == job.id;
    if (span.job == job.id || measures) spans.push_back(show_span(span, job.id.value()));
  });
  Json marks = Json::array();
  for (const Mark& mark : chronicle.marks()) {
    if (mark.job == job.id) marks.push_back(show_mark(mark));
  }
  Json reports = Json::array();
  Json promises = Json::array();
  if (const JobPast* past = state.pasts().of(job.id)) {
    for (const PastReport& report : past->reports) reports.push_back(show_report(report));
    for (const PromiseNote& note : past->promises) promises.push_back(show_promise(note));
  }
  return {{"job", job.id.value()},
          {"complete_since", iso(std::max(job.submitted, chronicle.since()))},
          {"spans", std::move(spans)},
          {"marks", std::move(marks)},
          {"reports", std::move(reports)},
          {"promises", std::move(promises)}};
}

Json show_decision(const Caller& caller, const DecisionNote& note, const DaemonState& state,
                   const DecisionTimes& took) {
  const Sight sight(caller, state);
  Json changes = Json::array();
  for (const DecidedChange& change : note.changes) {
    Json job = sight.job(change.job, change.user);
    const bool own = !job.is_null();
    changes.push_back({{"job", std::move(job)},
                       {"kind", std::string(to_text(change.kind))},
                       {"from", change.from},
                       {"to", change.to},
                       {"reason", own ? text_or_null(change.reason) : Json(nullptr)}});
  }
  const auto seconds = took.of(note.number);
  return {{"id", note.number.value()},
          {"time", iso(note.at)},
          {"policy", note.policy},
          {"took_ms", seconds ? Json(*seconds * 1e3) : Json(nullptr)},
          {"changes", std::move(changes)}};
}

Answer decisions_for(const Caller& caller, const ShowDecisions& ask, const DaemonState& state,
                     Time now, const DecisionTimes& took) {
  const auto since = ask.since ? std::optional(resolve(*ask.since, state.wall(now))) : std::nullopt;
  const auto& all = state.chronicle().decisions();
  auto note = all.rbegin();
  if (ask.before) {
    while (note != all.rend() && note->number.value() >= *ask.before) ++note;
  }
  Json list = Json::array();
  for (; note != all.rend() && list.size() < static_cast<std::size_t>(ask.limit); ++note) {
    if (since && note->at < *since) break;
    list.push_back(show_decision(caller, *note, state, took));
  }
  return {200, {{"decisions", std::move(list)}}};
}

Answer use_for(const Caller& caller, const ShowUse& ask, const DaemonState& state, Time now) {
  const auto range = range_of({ask.since, std::nullopt}, state.wall(now));
  if (!range) return refusal(400, range.error().message);
  int held = 0;
  const std::vector<Idle> idle = idle_gpus(state, held);
  int training = 0;
  int all = 0;
  for (const Node& node : state.now().cluster.nodes()) all += node.gpus;
  for (const JobView& job : state.now().jobs) {
    if (job.phase == Phase::running) training += job.held.gpus();
  }
  Json why = Json::array();
  int unused = 0;
  for (const Idle& one : idle) {
    why.push_back({{"reason", one.reason}, {"gpus", one.gpus}});
    unused += one.gpus;
  }
  return {200,
          {{"now", iso(range->now)},
           {"since", iso(std::max(range->since, state.chronicle().since()))},
           {"gpus", all},
           {"held", held},
           {"training", std::min(training, held)},  // two jobs may share a GPU
           {"idle", unused},
           {"why_idle", std::move(why)},
           {"users", show_users(caller, state, *range)},
           {"deadlines", count_deadlines(caller, state, *range)},
           {"pauses", show_pauses(Sight(caller, state), state.chronicle(), *range)}}};
}

}  // namespace rubato::daemon
