#include "rubato/daemon/what_if_past.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>
#include <utility>

#include "rubato/daemon/job_model.h"
#include "rubato/jobfile/times.h"
#include "rubato/journal/journal.h"
#include "rubato/loop/follow.h"

namespace rubato::daemon {
namespace {

using Reports = JobTruth::Reports;

// Facts say of the last millionth of a job's work that it is left (daemon/measuring.cc).
constexpr double kNearlyDone = 1e-6;
constexpr double kAbove = 1.001;

// Masters report twice a second, and a report needs a moment until it is stored. So what it says of
// the work of its job is so old on average.
constexpr Duration kReportAge = std::chrono::milliseconds(300);

// Sooner than people act.
constexpr Duration kAtOnce = std::chrono::milliseconds(100);

// More parts of a job's work are joined two by two.
constexpr std::size_t kMostPaces = 1000;

double in_own_unit(const JobProgress& progress, Reports reports) {
  switch (reports) {
    case Reports::nothing:
      return 0;
    case Reports::steps:
      return static_cast<double>(progress.step);
    case Reports::samples:
      return progress.samples;
    case Reports::epochs:
      return progress.epoch;
  }
  return 0;
}

double own_rate(const JobProgress& progress, Reports reports) {
  if (reports == Reports::steps) return progress.step_rate;
  if (reports == Reports::samples) return progress.rate;
  return progress.samples > 0 ? progress.rate * progress.epoch / progress.samples : 0;
}

// In what unit a job reports its progress.
Reports unit_of(const JobFile& file, const JobProgress& progress) {
  if (!file.work) {
    return progress.samples > 0 ? Reports::samples
           : progress.step > 0  ? Reports::steps
                                : Reports::nothing;
  }
  switch (file.work->unit) {
    case WorkUnit::steps:
      return progress.step > 0 ? Reports::steps : Reports::nothing;
    case WorkUnit::samples:
      return progress.samples > 0 ? Reports::samples : Reports::nothing;
    case WorkUnit::epochs:
      return progress.epoch > 0 ? Reports::epochs : Reports::nothing;
  }
  return Reports::nothing;
}

struct Trained {
  double work = 0;
  double seconds = 0;
};
// The first progress after a start.
struct FirstProgress {
  int gpus = 0;
  int workers = 0;  // that trained
  double work = 0;
  double seconds = 0;
};
// A part of a job's work between two reports of as many workers.
struct Stretch {
  double from = 0;
  double to = 0;
  int workers = 0;
  double seconds = 0;
};

// How long something took, by GPUs. If another command came before it was done, it is only known
// that it would have taken longer. The estimate is that of waiting times without memory: all the
// time that was waited, for each time that it was done; twice the waited time if it never was.
class Took {
 public:
  void add(int gpus, double seconds) {
    sums_[gpus].seconds += seconds;
    ++sums_[gpus].done;
  }
  void cut(int gpus, double seconds) {
    sums_[gpus].seconds += seconds;
    ++sums_[gpus].cut;
  }
  [[nodiscard]] Delays averages() const {
    Delays found;
    for (const auto& [gpus, sum] : sums_) {
      found[gpus] = from_seconds(sum.done > 0 ? sum.seconds / sum.done : 2 * sum.seconds / sum.cut);
    }
    return found;
  }
  void add(const Took& other) {
    for (const auto& [gpus, sum] : other.sums_) {
      sums_[gpus].seconds += sum.seconds;
      sums_[gpus].done += sum.done;
      sums_[gpus].cut += sum.cut;
    }
  }
  [[nodiscard]] bool empty() const { return sums_.empty(); }

 private:
  struct Sum {
    double seconds = 0;
    int done = 0;
    int cut = 0;
  };
  std::map<int, Sum> sums_;
};

struct Latencies {
  Took trains;
  Took runs;
  Took grows;
  Took shrinks;
  Took stops;
  Took halts;  // stops of jobs that had not trained
  void add(const Latencies& other) {
    trains.add(other.trains);
    runs.add(other.runs);
    grows.add(other.grows);
    shrinks.add(other.shrinks);
    stops.add(other.stops);
    halts.add(other.halts);
  }
};

// The last command to a job, until it is carried out.
struct Told {
  CommandKind what = CommandKind::start;
  Time at = kStart;
  int gpus = 0;
};

// What the journal shows of one job.
struct Seen {
  Reports reports = Reports::nothing;
  std::map<int, Trained> trained;  // by workers, when there was one on each GPU
  std::map<int, Trained> partly;   // by workers, while others were still to join or to leave
  std::map<int, double> reported;  // speeds, by workers
  std::map<int, double> reported_partly;
  std::vector<FirstProgress> firsts;
  std::optional<int> few;  // workers that trained before all of a start had joined
  double samples_each = 0;
  double done = 0;
  double pause = 0;
  double ran = 0;  // seconds
  std::vector<double> fails_at;
  std::string fails_why;
  bool completed = false;
  std::vector<Stretch> stretches;  // in order, and none over another
  Latencies took;
  std::optional<Told> told;
  EpisodeWriter episodes;

  // The present run.
  std::optional<Time> started;  // no progress since then
  double done_at_start = 0;
  std::optional<Time> running;
  std::optional<std::pair<Time, double>> last;  // progress of the present workers
  int workers = 0;
  Generation generation;
  bool newest_steady = false;
  Trained newest;  // the part of `trained` or `partly` that the last row added

  [[nodiscard]] std::map<int, double> rates() const {
    std::map<int, double> found = speeds(trained, reported);
    found.merge(speeds(partly, reported_partly));
    return found;
  }

 private:
  [[nodiscard]] static std::map<int, double> speeds(const std::map<int, Trained>& trained,
                                                    std::map<int, double> found) {
    for (const auto& [workers, sum] : trained) {
      if (sum.seconds > 0 && sum.work > 0) found[workers] = sum.work / sum.seconds;
    }
    return found;
  }
};

// How much faster jobs are with other numbers of workers: the mean over the jobs that were measured
// with both.
class Scaling {
 public:
  void add(const std::map<int, double>& rates) {
    for (const auto& [a, rate_a] : rates) {
      for (const auto& [b, rate_b] : rates) {
        if (a == b || !(rate_a > 0) || !(rate_b > 0)) continue;
        Sum& sum = sums_[{a, b}];
        sum.logs += std::log(rate_b / rate_a);
        ++sum.jobs;
      }
    }
  }
  // Adds the counts on which the job was not measured, from the nearest one on which it was.
  void complete(std::map<int, double>& rates) const {
    const std::map<int, double> own = rates;
    for (const auto& [pair, sum] : sums_) {
      const auto [from, to] = pair;
      if (own.contains(to) || !own.contains(from) || from != nearest(own, to, sums_)) continue;
      rates[to] = own.at(from) * std::exp(sum.logs / sum.jobs);
    }
  }

 private:
  struct Sum {
    double logs = 0;
    int jobs = 0;
  };
  using Sums = std::map<std::pair<int, int>, Sum>;
  [[nodiscard]] static int nearest(const std::map<int, double>& own, int to, const Sums& sums) {
    int found = 0;
    for (const auto& [from, rate] : own) {
      if (sums.contains({from, to}) && (found == 0 || std::abs(from - to) < std::abs(found - to)))
        found = from;
    }
    return found;
  }
  Sums sums_;
};

class PastReader {
 public:
  PastReader(const WhatIfRange& range, const DaemonStateOptions& options)
      : state_(std::make_unique<DaemonState>(options)) {
    const auto resolve = [&](const Moment& moment) {
      const auto* time = std::get_if<WallTime>(&moment);
      return time != nullptr ? *time : range.now - std::get<Duration>(moment);
    };
    past_.since = resolve(range.since);
    past_.until = range.until ? resolve(*range.until) : range.now;
  }

  [[nodiscard]] WallTime since() const { return past_.since; }
  [[nodiscard]] WallTime until() const { return past_.until; }
  [[nodiscard]] bool begun() const { return begun_; }
  [[nodiscard]] bool over() const { return over_; }

  Result<void> load(const JournalSnapshot& snapshot) {
    if (auto ok = state_->load(snapshot); !ok) return ok;
    return state_->load_policy();
  }

  Result<void> take(RowNumber number, const JournalRow& row) {
    if (!begun_ && ready_for(row)) {
      if (auto ok = begin(row.time); !ok) return ok;
    }
    // A turn takes all its inputs before the policy is asked.
    const bool asks = row.type == "decided" || row.type == "undecided" || row.type == "asked";
    turn_ += asks || row.type == "commands" ? 1 : 0;
    if (begun_ && state_->wall(row.time) > past_.until) {
      over_ = true;
      return Error{"over"};
    }
    try {
      const Json body = look_before(row);
      if (auto ok = state_->apply(number, row); !ok) return ok;
      look_after(row, body);
    } catch (const nlohmann::json::exception& problem) {
      return Error{fmt::format("row {} ({}): {}", number.value(), row.type, problem.what())};
    }
    return {};
  }

  Result<Past> finish() {
    if (!begun_) {
      if (!state_->begun()) return Error{"the journal is empty"};
      if (auto ok = begin(state_->time()); !ok) return ok.error();
    }
    make_truths();
    past_.real = std::move(state_);
    return std::move(past_);
  }

 private:
  // The what-if begins before the first row of its range. The first rows of a journal, which make
  // the cluster, come in any case before it. So does the rest of a turn.
  [[nodiscard]] bool ready_for(const JournalRow& row) const {
    return state_->begun() && state_->clock_set() && state_->policy().entry != nullptr &&
           row.time > state_->time() && state_->issued().empty() &&
           state_->wall(row.time) >= past_.since;
  }

  Result<void> begin(Time next) {
    begun_ = true;
    auto body = state_->snapshot();
    if (!body) return body.error();
    past_.snapshot = std::move(*body);
    past_.start = std::clamp(state_->loop_time(past_.since), state_->time(), next);
    past_.since = state_->wall(past_.start);
    past_.policy = state_->policy().text;
    for (const JobView& view : state_->now().jobs) past_.done[view.id] = seen_[view.id].done;
    return {};
  }

  // Rows of requests are recognised by the state before them.
  Json look_before(const JournalRow& row) {
    static const std::set<std::string, std::less<>> looked_at = {
        "job",      "submitted",  "ended",    "held",     "limited", "node",  "policy",
        "measured", "node-added", "reserved", "plain",    "verdict", "quota", "commands",
        "running",  "finished",   "failed",   "released", "cells"};
    if (!looked_at.contains(row.type)) return nullptr;
    auto body = parse_json(row.body, "a row");
    if (!body) return nullptr;
    const JobRecord* job = job_in(*body);
    if (row.type == "released" || row.type == "failed") note_end(row, *body);
    if (row.type == "finished") note_finish(row, *body);
    if (row.type == "commands") note_told(row, *body);
    if (!begun_ || (job != nullptr && job->measures_for)) return std::move(*body);
    const WallTime at = state_->wall(row.time);
    const auto ask = [&](Ask what) {
      add_input({at, PastRequest{job->id, {job->user, true}, std::move(what)}});
    };
    if (row.type == "ended" && job != nullptr && !job->gone()) {
      JobEnding ending;
      if (read_record(body->at("ending"), ending) && ending.how == Ending::cancelled)
        ask(CancelJob{job->id});
    } else if (row.type == "held" && job != nullptr && !body->contains("until")) {
      const bool by_owner = !job->measured_by && verdict_at_[job->id] != row.time &&
                            !state_->pausing().contains(job->id);
      if (by_owner) ask(HoldJob{job->id, body->value("on", true)});
    } else if (row.type == "limited" && job != nullptr && plain_at_[job->id] != row.time) {
      GpuLimits limits;
      if (read_record(body->at("limits"), limits)) ask(ResizeJob{job->id, limits});
    }
    return std::move(*body);
  }

  void look_after(const JournalRow& row, const Json& body) {
    const WallTime at = state_->wall(row.time);
    if (row.type == "verdict") verdict_at_[JobId(body.at("job").get<JobId::rep>())] = row.time;
    if (row.type == "verdict" || row.type == "finished") note_awaited(row, body);
    if (row.type == "plain" || row.type == "quota")
      plain_at_[JobId(body.at("job").get<JobId::rep>())] = row.time;
    if (row.type == "measured") note_measured(row, body);
    if (row.type == "commands") note_commands(row, body);
    if (row.type == "running" || row.type == "released") note_progress(row, body);
    if (row.type == "running") note_running(row, body);
    if (row.type == "released") note_shrunk(row, body);
    if (row.type == "policy")
      past_.measuring = std::max(state_->policy().measuring, Duration(0)) > Duration(0)
                            ? state_->policy().measuring
                            : past_.measuring;
    if (row.type == "job") note_job(at, body);
    if (const JobRecord* job = row.type == "submitted" ? job_in(body) : nullptr;
        job != nullptr && job->rates.pause == 0)
      past_.restart_cost = Duration(body.at("spec").at("restart_cost").get<std::int64_t>());
    if (!begun_) return;
    if (row.type == "policy") add_input({at, PastSwitch{state_->policy().text}});
    if (row.type == "cells") {
      const auto tenant = body.at("tenant").get<std::string>();
      const auto cells = body.at("cells").get<std::string>();
      Ask ask = RemoveCells{tenant};
      if (!cells.empty())
        ask = SetCells{tenant, cells, body.at("members").get<std::vector<std::string>>()};
      add_input({at, PastRequest{JobId(), {"operator", true}, std::move(ask)}});
    }
    if (row.type == "node-added" || row.type == "reserved") note_machines(at, row);
    if (row.type != "node") return;
    const NodeId node(body.at("node").get<NodeId::rep>());
    if (body.contains("wish"))
      add_input({at, PastRequest{JobId(), {"operator", true}, SetNode{node, state_->wish(node)}}});
    if (body.contains("reported")) add_input({at, NodeChanged{node, state_->reported(node), ""}});
  }

  void note_awaited(const JournalRow& row, const Json& body) {
    const JobId id(body.at("job").get<JobId::rep>());
    if (measures_.contains(id)) return;
    awaited_ = {id, row.type == "verdict"};
    awaited_at_ = state_->wall(row.time);
  }

  void note_machines(WallTime at, const JournalRow& row) {
    SpeedPool pool;
    const auto event = decode_event({row.type, row.version, row.body}, pool);
    if (!event) return;
    if (const auto* added = std::get_if<NodeAdded>(&*event)) add_input({at, *added});
    if (const auto* reserved = std::get_if<Reserved>(&*event)) add_input({at, *reserved});
  }

  void add_input(PastInput input) {
    input.turn = turn_;
    const Duration later = input.at - awaited_at_;
    const bool asks = std::holds_alternative<PastRequest>(input.what);
    if (asks && awaited_ && later > Duration(0) && later <= kAtOnce) {
      input.after = awaited_;
      input.later = later;
    }
    past_.inputs.push_back(std::move(input));
  }

  [[nodiscard]] const JobRecord* job_in(const Json& body) const {
    const auto id = body.find("job");
    return id != body.end() && id->is_number_unsigned() ? state_->job(JobId(id->get<JobId::rep>()))
                                                        : nullptr;
  }

  void note_job(WallTime at, const Json& body) {
    const JobRecord* job = state_->job(JobId(body.at("id").get<JobId::rep>()));
    if (job == nullptr) return;
    files_[job->id] = job->file;
    profiles_[job->id] = job->profile();
    rates_[job->id] = job->rates;
    if (job->measures_for) measures_[job->id] = *job->measures_for;
    if (!begun_ || job->measures_for) return;
    JobFile file = job->file;
    if (file.name.empty()) file.name = job->name;
    add_input(
        {at, PastRequest{job->id,
                         {job->user, true},
                         SubmitJob{std::move(file), fmt::format("what-if-{}", job->id.value())}}});
  }

  // Rows of commands are looked at before they are folded: a shrinking job still has its last
  // command then.
  void note_told(const JournalRow& row, const Json& body) {
    for (const Json& one : body.at("commands")) {
      Command command;
      if (!read_record(one, command)) continue;
      const JobId id = std::visit([](const auto& c) { return c.job; }, command);
      const JobRecord* job = state_->job(id);
      const Allocation* before = job != nullptr && job->told ? gpus_of(*job->told) : nullptr;
      const Allocation* to = gpus_of(command);
      Told told{CommandKind::stop, row.time, to != nullptr ? to->gpus() : 0};
      if (std::holds_alternative<Start>(command)) told.what = CommandKind::start;
      if (std::holds_alternative<Resize>(command)) {
        const bool grows = before == nullptr || !minus(*to, *before).empty();
        told.what = grows ? CommandKind::grow : CommandKind::shrink;
      }
      Seen& seen = seen_[id];
      seen.episodes.told(row.time, told.what, told.gpus);
      if (seen.told && seen.told->what == CommandKind::start && told.what != CommandKind::stop) {
        seen.told->gpus = told.gpus;  // it still starts, on others
        continue;
      }
      if (seen.told) note_cut(seen.took, *seen.told, seconds(row.time - seen.told->at));
      seen.told = told;
    }
  }

  static void note_cut(Latencies& took, const Told& told, double seconds) {
    if (told.what == CommandKind::start) took.runs.cut(told.gpus, seconds);
    if (told.what == CommandKind::grow) took.grows.cut(told.gpus, seconds);
    if (told.what == CommandKind::shrink) took.shrinks.cut(told.gpus, seconds);
  }

  static void note_took(Took& took, const Told& told, double seconds) {
    took.add(told.gpus, seconds);
  }

  void note_commands(const JournalRow& row, const Json& body) {
    for (const Json& one : body.at("commands")) {
      Command command;
      if (!read_record(one, command)) continue;
      Seen& seen = seen_[std::visit([](const auto& c) { return c.job; }, command)];
      seen.last.reset();
      if (!std::holds_alternative<Start>(command)) {
        seen.started.reset();
        continue;
      }
      seen.started = row.time;
      seen.done_at_start = seen.done;
      seen.running.reset();
    }
  }

  // Facts say how much work was left then. Of a job that is nearly done, they only say that it is.
  void note_progress(const JournalRow& row, const Json& body) {
    const JobRecord* job = job_in(body);
    if (job == nullptr || !job->file.work) return;
    const Json& told = body.at("progress");
    const auto left = told.at("work_left").get<double>();
    const double least = std::max(told.at("rate").get<double>(), kNearlyDone * job->work);
    if (left > least * kAbove) seen_[job->id].episodes.did(row.time, job->work - left);
  }

  void note_running(const JournalRow& row, const Json& body) {
    if (!body.contains("job")) return;
    Seen& seen = seen_[JobId(body.at("job").get<JobId::rep>())];
    if (!seen.running) seen.running = row.time;
    seen.episodes.running(row.time);
    if (!seen.told) return;
    const double took = seconds(row.time - seen.told->at);
    if (seen.told->what == CommandKind::start) note_took(seen.took.runs, *seen.told, took);
    if (seen.told->what == CommandKind::grow) note_took(seen.took.grows, *seen.told, took);
    if (seen.told->what != CommandKind::stop) seen.told.reset();
  }

  void note_measured(const JournalRow& row, const Json& body) {
    const JobRecord* job = job_in(body);
    if (job == nullptr) return;
    const JobView* view = state_->view(job->id);
    Seen& seen = seen_[job->id];
    const JobProgress& progress = job->progress;
    const Reports unit = unit_of(job->file, progress);
    seen.episodes.report(
        {row.time, in_own_unit(progress, unit),
         unit == Reports::nothing ? 0 : own_rate(progress, unit), with_tuning(progress, body)},
        past_.distance());
    if (unit == Reports::nothing) return;
    seen.reports = unit;
    const double done = in_own_unit(progress, unit);
    if (progress.samples > 0 && done > 0 && unit != Reports::samples)
      seen.samples_each = progress.samples / done;
    if (job->last_pause) seen.pause = *job->last_pause;
    seen.newest = {};
    const int gpus = view != nullptr ? view->held.gpus() : 0;
    const int workers = std::min(progress.workers, gpus);
    const bool steady = view != nullptr && view->phase == Phase::running && workers == gpus;
    if (workers > 0) {
      if (seen.generation != view->generation || seen.workers != workers) seen.last.reset();
      seen.generation = view->generation;
      seen.workers = workers;
      if (seen.started && done > seen.done_at_start) {
        seen.firsts.push_back(
            {gpus, workers, done - seen.done_at_start, seconds(row.time - *seen.started)});
        seen.started.reset();
      }
      if (!seen.running && workers < gpus && !seen.few) seen.few = workers;
      if (seen.last && done > seen.last->second && row.time > seen.last->first) {
        seen.newest_steady = steady;
        seen.newest = {done - seen.last->second, seconds(row.time - seen.last->first)};
        add((steady ? seen.trained : seen.partly)[workers], seen.newest, 1);
        if (seen.stretches.empty() || seen.stretches.back().to <= seen.last->second)
          seen.stretches.push_back({seen.last->second, done, workers, seen.newest.seconds});
      }
      if (const double rate = own_rate(progress, unit); rate > 0)
        (steady ? seen.reported : seen.reported_partly)[workers] = rate;
      seen.last = {row.time, done};
    } else {
      seen.last.reset();
    }
    seen.done = std::max(seen.done, done);
    measured_at_[job->id] = row.time;
  }

  // What a job measured of its steps is stored with its rates.
  [[nodiscard]] static JobProgress with_tuning(JobProgress progress, const Json& body) {
    Rates rates;
    if (!body.contains("rates") || !read_record(body.at("rates"), rates) || !rates.tuning)
      return progress;
    const Tuning& told = *rates.tuning;
    progress.tuning = JobTuning{told.initial, told.largest, told.largest_per_gpu, 0, 0};
    if (!told.steps.empty()) {
      progress.tuning->step_seconds = told.steps.back().step.step_seconds;
      progress.tuning->pass_seconds = told.steps.back().step.grad_seconds;
    }
    return progress;
  }

  static void add(Trained& sum, const Trained& more, int sign) {
    sum.work += sign * more.work;
    sum.seconds += sign * more.seconds;
  }

  // The last report of a job comes with its end. Its work counts, but not its time.
  void note_finish(const JournalRow& row, const Json& body) {
    const JobId id(body.at("job").get<JobId::rep>());
    Seen& seen = seen_[id];
    seen.completed = true;
    if (seen.told) note_cut(seen.took, *seen.told, seconds(row.time - seen.told->at));
    seen.told.reset();
    if (measured_at_[id] == row.time && seen.newest.seconds > 0) {
      add((seen.newest_steady ? seen.trained : seen.partly)[seen.workers], seen.newest, -1);
      if (!seen.stretches.empty() && seen.stretches.back().to >= seen.done)
        seen.stretches.pop_back();
    }
    end_run(seen, row.time);
  }

  void note_end(const JournalRow& row, const Json& body) {
    const JobId id(body.at("job").get<JobId::rep>());
    Seen& seen = seen_[id];
    if (row.type == "released") {
      if (!body.value("stopped", false)) return;
      if (seen.told && seen.told->what == CommandKind::stop) {
        const bool trained = seen.running || seen.done > seen.done_at_start;
        note_took(trained ? seen.took.stops : seen.took.halts, *seen.told,
                  seconds(row.time - seen.told->at));
        seen.told.reset();
      }
      seen.episodes.released(row.time, gpus_released(row));
      end_run(seen, row.time);
      return;
    }
    end_run(seen, row.time);
    if (body.value("infrastructure", false)) return;
    const double at = seen.reports == Reports::nothing ? seen.ran : seen.done;
    seen.fails_at.push_back(std::max(at, seen.fails_at.empty() ? 0 : seen.fails_at.back()));
    seen.fails_why = body.value("why", "its program failed");
    ++past_.failures;
  }

  [[nodiscard]] static Allocation gpus_released(const JournalRow& row) {
    SpeedPool pool;
    const auto event = decode_event({row.type, row.version, row.body}, pool);
    const auto* released = event ? std::get_if<Released>(&*event) : nullptr;
    return released != nullptr ? released->gpus : Allocation();
  }

  // Workers leave one after another.
  void note_shrunk(const JournalRow& row, const Json& body) {
    const JobId id(body.at("job").get<JobId::rep>());
    const JobView* view = state_->view(id);
    Seen& seen = seen_[id];
    if (view == nullptr) return;
    seen.episodes.released(row.time, gpus_released(row));
    // Once all is released, the fold issues the next command, which may be to release more.
    const bool next = view->generation != Generation(body.at("generation").get<Generation::rep>());
    if (view->release_due > 0 && !next) return;
    if (!seen.told || seen.told->what != CommandKind::shrink) return;
    note_took(seen.took.shrinks, *seen.told, seconds(row.time - seen.told->at));
    seen.told.reset();
  }

  static void end_run(Seen& seen, Time now) {
    seen.episodes.ended(now, seen.completed);
    if (seen.running) seen.ran += seconds(now - *seen.running);
    seen.running.reset();
    seen.started.reset();
    seen.last.reset();
  }

  // --- how fast they were ---

  void make_truths() {
    for (auto& [id, seen] : seen_) {
      if (seen.running) end_run(seen, state_->time());
    }
    for (const auto& [run, job] : measures_) {
      Seen& its = seen_[job];
      const Seen& of_run = seen_[run];
      if (its.reports == Reports::nothing) its.reports = of_run.reports;
      if (its.samples_each == 0) its.samples_each = of_run.samples_each;
      for (const auto& [gpus, sum] : of_run.trained) its.trained.emplace(gpus, sum);
      for (const auto& [gpus, rate] : of_run.reported) its.reported.emplace(gpus, rate);
      if (its.firsts.empty()) its.firsts = of_run.firsts;
      its.took.add(of_run.took);
    }
    std::map<std::string, std::map<int, double>> of_profile;
    for (const auto& [id, file] : files_) {
      Seen& seen = seen_[id];
      for (const auto& [gpus, rate] : seen.rates()) {
        if (!profiles_[id].empty() && file.work) of_profile[profiles_[id]].emplace(gpus, rate);
      }
      scaling_.add(seen.rates());
      note_loads(seen);
      took_.add(seen.took);
    }
    for (const auto& [id, file] : files_) {
      if (!measures_.contains(id)) past_.truths[id] = truth_of(id, file, of_profile);
    }
    for (const auto& [run, job] : measures_) {
      JobTruth truth = past_.truths[job];
      truth.episodes = seen_[run].episodes.finish(past_.start);
      past_.runs[job].push_back(std::move(truth));
    }
  }

  // When a job began to train after a start follows from its first progress.
  static void note_loads(Seen& seen) {
    const auto rates = seen.rates();
    for (const FirstProgress& first : seen.firsts) {
      const auto rate = rates.find(first.workers);
      if (rate == rates.end()) continue;
      const double took = std::max(0.0, first.seconds - first.work / rate->second);
      seen.took.trains.add(first.gpus, took);
    }
  }

  [[nodiscard]] static Delays own_or(const Took& own, const Took& all) {
    return (own.empty() ? all : own).averages();
  }

  // How fast the job was in each part of its work.
  [[nodiscard]] static std::vector<Pace> paces_of(const std::vector<Stretch>& stretches,
                                                  const std::map<int, double>& rates) {
    std::vector<Pace> paces;
    for (const Stretch& one : stretches) {
      const auto rate = rates.find(one.workers);
      if (rate == rates.end()) continue;
      paces.push_back({one.from, one.to, (one.to - one.from) / one.seconds / rate->second});
    }
    while (paces.size() > kMostPaces) {
      std::vector<Pace> fewer;
      for (std::size_t i = 0; i < paces.size(); i += 2)
        fewer.push_back(i + 1 < paces.size() ? joined(paces[i], paces[i + 1]) : paces[i]);
      paces = std::move(fewer);
    }
    return paces;
  }

  // The same time for the work of both. What is between them counts as average.
  [[nodiscard]] static Pace joined(const Pace& a, const Pace& b) {
    const double time = (a.to - a.from) / a.share + (b.from - a.to) + (b.to - b.from) / b.share;
    return {a.from, b.to, (b.to - a.from) / time};
  }

  JobTruth truth_of(JobId id, const JobFile& file,
                    const std::map<std::string, std::map<int, double>>& of_profile) {
    Seen& seen = seen_[id];
    JobTruth truth;
    truth.reports = seen.reports;
    truth.samples_each = seen.samples_each;
    truth.elastic = file.elastic;
    truth.fails_at = seen.fails_at;
    truth.fails_why = seen.fails_why;
    truth.trains = own_or(seen.took.trains, took_.trains);
    truth.runs = own_or(seen.took.runs, took_.runs);
    truth.grows = own_or(seen.took.grows, took_.grows);
    truth.shrinks = own_or(seen.took.shrinks, took_.shrinks);
    const auto stops = own_or(seen.took.stops, took_.stops);
    if (!stops.empty()) truth.stops = stops.begin()->second;
    const auto halts = own_or(seen.took.halts, took_.halts);
    if (!halts.empty()) truth.halts = halts.begin()->second;
    // Of a job that reports nothing, the time that it ran is its work.
    truth.ends = truth.reports == Reports::nothing
                     ? Duration(0)
                     : std::max(Duration(0), truth.stops - kReportAge);
    if (seen.pause > 0) truth.pause = from_seconds(seen.pause);
    if (const JobRecord* job = state_->job(id)) truth.tuning = job->rates.tuning;
    truth.rates = seen.rates();
    truth.few = seen.few.value_or(0);
    truth.paces = paces_of(seen.stretches, truth.rates);
    past_.one_count += truth.rates.size() == 1 ? 1 : 0;
    past_.adaptive += file.batch.mode == BatchMode::adaptive ? 1 : 0;
    if (const auto mates = of_profile.find(profiles_[id]); mates != of_profile.end()) {
      for (const auto& [gpus, rate] : mates->second) truth.rates.emplace(gpus, rate);
    }
    if (file.work) {
      for (const auto& [gpus, rate] : rates_[id].by_gpus) truth.rates.emplace(gpus, rate);
    }
    scaling_.complete(truth.rates);
    if (file.work) truth.amount = file.work->amount;
    if (seen.completed && seen.done > 0) truth.amount = seen.done;
    if (truth.reports == Reports::nothing && !truth.rates.empty() && file.work)
      truth.reports = reports_in(file.work->unit);
    if (!truth.rates.empty() && truth.reports != Reports::nothing) {
      truth.episodes = seen.episodes.finish(past_.start);
      past_.endless += truth.amount ? 0 : 1;
      return truth;
    }
    // Nobody knows its speed. A second is its unit of work.
    truth.reports = Reports::nothing;
    truth.ends = Duration(0);
    truth.rates = {{1, 1.0}, {2, 1.0}};
    truth.paces.clear();
    truth.amount.reset();
    const bool ran = seen.ran > 0;
    if (seen.completed) {
      truth.amount = seen.ran;
      ++past_.timed;
    } else if (!ran) {
      truth.amount = kGuessedSeconds;
      ++past_.guessed;
    } else {
      ++past_.endless;
    }
    return truth;
  }

  static Reports reports_in(WorkUnit unit) {
    return unit == WorkUnit::steps     ? Reports::steps
           : unit == WorkUnit::samples ? Reports::samples
                                       : Reports::epochs;
  }

  std::unique_ptr<DaemonState> state_;
  Past past_;
  bool begun_ = false;
  bool over_ = false;
  int turn_ = 0;
  std::optional<PastInput::Awaited> awaited_;  // what happened last
  WallTime awaited_at_{};
  std::map<JobId, Seen> seen_;
  Latencies took_;   // by all jobs
  Scaling scaling_;  // of all jobs
  std::map<JobId, JobFile> files_;
  std::map<JobId, std::string> profiles_;
  std::map<JobId, Rates> rates_;  // at the submission
  std::map<JobId, JobId> measures_;
  std::map<JobId, Time> verdict_at_;
  std::map<JobId, Time> plain_at_;
  std::map<JobId, Time> measured_at_;
};

}  // namespace

Duration Past::distance() const {
  constexpr int kReportsInRange = 1000;
  constexpr Duration kOftenest = std::chrono::seconds(1);
  constexpr Duration kSeldomest = std::chrono::minutes(1);
  return std::clamp<Duration>((until - since) / kReportsInRange, kOftenest, kSeldomest);
}

Result<Past> read_past(const std::filesystem::path& directory, const WhatIfRange& range,
                       const DaemonStateOptions& options,
                       const std::function<void(double)>& progress) {
  PastReader reader(range, options);
  if (reader.since() >= reader.until()) {
    return Error{fmt::format("the range must begin before it ends: since is {}, until is {}",
                             jobfile::to_text(reader.since()), jobfile::to_text(reader.until()))};
  }
  const auto extent = look_at_journal(directory);
  if (!extent) return extent.error();
  RowNumber after;
  if (extent->first > RowNumber(1)) {
    if (!extent->begin)
      return Error{
          "the first rows of the journal are gone, and there is no snapshot to begin with"};
    if (auto ok = reader.load(*extent->begin); !ok) return ok.error();
    after = extent->begin->number;
  }
  const auto rows = static_cast<double>(extent->last.value() - after.value());
  auto read =
      read_journal(directory, after, [&](RowNumber number, const JournalRow& row) -> Result<void> {
        if (progress && number.value() % 1024 == 0)
          progress(static_cast<double>(number.value() - after.value()) / std::max(rows, 1.0));
        return reader.take(number, row);
      });
  if (!read && !reader.over()) return read.error();
  return reader.finish();
}

}  // namespace rubato::daemon
