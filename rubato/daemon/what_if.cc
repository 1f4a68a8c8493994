#include "rubato/daemon/what_if.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <system_error>
#include <utility>

#include "rubato/base/text.h"
#include "rubato/daemon/core.h"
#include "rubato/daemon/job_model.h"
#include "rubato/daemon/phrases.h"
#include "rubato/daemon/timeline.h"
#include "rubato/daemon/views.h"

namespace rubato::daemon {
namespace {

constexpr std::string_view kKey = "what-if-";
constexpr std::size_t kMostSpans = 5'000;
constexpr std::size_t kMostJobs = 5'000;
// After the end of the range, jobs get as long again as the range, but at least this long.
constexpr Duration kLeastAfter = std::chrono::minutes(10);
// A core that takes so many turns without time passing would never end.
constexpr int kMostTurnsAtOnce = 100'000;
// Between two looks of a daemon (daemon.cc).
constexpr Duration kTick = std::chrono::milliseconds(100);
// So much later may happen what a program waited for before it asked for something.
constexpr Duration kPatience = std::chrono::seconds(1);
constexpr Duration kNeverAgain = std::chrono::hours(24) * 36'525;

// A journal that nobody keeps, in memory where there is such a place.
class PassingDirectory {
 public:
  PassingDirectory() {
    std::error_code ignored;
    const std::filesystem::path memory = "/dev/shm";
    const auto above = std::filesystem::exists(memory, ignored)
                           ? memory
                           : std::filesystem::temp_directory_path(ignored);
    std::string name = (above / "rubato-what-if-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~PassingDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  PassingDirectory(const PassingDirectory&) = delete;
  PassingDirectory& operator=(const PassingDirectory&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The number that the journal gave a job of the what-if.
JobId original(const JobRecord& job) {
  if (!job.key.starts_with(kKey)) return job.id;
  const std::string_view key = job.key;
  const auto number = parse_integer(key.substr(kKey.size()));
  return number ? JobId(static_cast<JobId::rep>(*number)) : job.id;
}

class WhatIfRun {
 public:
  WhatIfRun(const Past& past, const WhatIfOrder& order) : past_(past), order_(order) {}

  Result<void> run(const std::string& policy, const std::function<void(double)>& progress) {
    if (auto ok = open(policy); !ok) return ok;
    const bool as_run = policy == kAsRun;
    const Duration after = std::max<Duration>(past_.until - past_.since, kLeastAfter);
    const Time end = loop_time(past_.until) + after;
    Time now = past_.start;
    std::size_t next_input = 0;
    int turns = 0;
    for (;;) {
      Time next = std::min(world_->next(), core_->again_at());
      if (next_input < past_.inputs.size())
        next = std::min(next, time_of(past_.inputs[next_input]));
      if (next > end || (next == kNever)) break;
      turns = next > now ? 0 : turns + 1;
      if (turns > kMostTurnsAtOnce) return Error{"the simulated daemon does not come to rest"};
      now = std::max(now, next);
      std::vector<Input> inputs;
      const std::size_t first = next_input;
      for (; next_input < past_.inputs.size(); ++next_input) {
        const PastInput& input = past_.inputs[next_input];
        if (time_of(input) > now || input.turn != past_.inputs[first].turn) break;
        take(now, input, as_run, inputs);
      }
      const auto stores = [&](JobId id) { return stored_from(id) <= now; };
      for (JobStatus& status : world_->reports(now, stores)) inputs.emplace_back(std::move(status));
      // Nobody sees what happens inside of a job.
      if (!world_->advance(now) && inputs.empty() && core_->again_at() > now) continue;
      const Turn turn = core_->turn(now, wall(now), std::move(inputs));
      if (!turn.trouble.empty()) return Error{turn.trouble};
      for (const JobId id : turn.gone) world_->forget(id);
      report_when_stored(now);
      if (next_input < past_.inputs.size()) look_for_awaited(now, past_.inputs[next_input]);
      if (progress) progress(share(now));
      const bool rest = next_input == past_.inputs.size() && now > loop_time(past_.until);
      if (rest && (!turn.gone.empty() || turns == 0) && all_ended()) break;
      if (next_input == past_.inputs.size() && core_->state().alive() == 0) break;
    }
    ended_ = now;
    return {};
  }

  [[nodiscard]] const DaemonState& state() const { return core_->state(); }
  [[nodiscard]] WallTime ended() const { return wall(ended_); }

 private:
  [[nodiscard]] Time loop_time(WallTime at) const { return past_.start + (at - past_.since); }
  [[nodiscard]] WallTime wall(Time now) const { return past_.since + (now - past_.start); }
  // A program that waited for something waits for it here, too, if that is only a little later.
  [[nodiscard]] Time time_of(const PastInput& input) const {
    const Time then = loop_time(input.at);
    if (!input.after) return then;
    if (const auto found = late_.find(*input.after); found != late_.end())
      return then + found->second;
    return has_happened(*input.after) ? then : then + kPatience;
  }
  [[nodiscard]] bool has_happened(const PastInput::Awaited& awaited) const {
    const JobRecord* real = past_.real->job(awaited.job);
    const auto id = real != nullptr ? here(awaited.job, real->user) : std::nullopt;
    const JobRecord* job = id ? core_->state().job(*id) : nullptr;
    return job == nullptr || job->gone() || (awaited.verdict && !job->measured_by);
  }
  void look_for_awaited(Time now, const PastInput& input) {
    if (!input.after || late_.contains(*input.after) || !has_happened(*input.after)) return;
    late_[*input.after] = std::max(Duration(0), now + input.later - loop_time(input.at));
  }
  [[nodiscard]] double share(Time now) const {
    return std::min(1.0, seconds(now - past_.start) / seconds(Duration{past_.until - past_.since}));
  }

  Result<void> open(const std::string& policy) {
    if (directory_.path().empty()) return Error{"cannot make a temporary directory"};
    const JournalSnapshot begin{RowNumber(), DaemonState::kSnapshotVersion, past_.snapshot};
    DaemonState then(order_.state);
    if (auto ok = then.load(begin); !ok) return ok;
    JournalOptions journal;
    journal.directory = directory_.path();
    journal.types = DaemonState::row_types();
    journal.snapshot_version = DaemonState::kSnapshotVersion;
    auto opened = Journal::open(journal);
    if (!opened) return opened.error();
    opened->snapshot = begin;
    CoreOptions options;
    options.cluster_of_journal = true;
    options.placement = then.placement();
    options.interval = then.now().interval;
    options.lateness = then.now().lateness;
    options.measuring = past_.measuring;
    options.restart_cost = past_.restart_cost;
    options.state = order_.state;
    options.judge_trials = false;  // simulated jobs report no metric
    options.most_jobs = options.most_jobs_of_user = SIZE_MAX;
    options.snapshot_rows = UINT64_MAX / 4;
    options.snapshot_every = kNeverAgain;
    options.switch_policy = policy != kAsRun;
    options.policy = policy == kAsRun ? past_.policy : policy;
    measure_every_ = options.measure_every;
    Cluster cluster = then.now().cluster;
    world_ = std::make_unique<WhatIfWorld>(
        std::move(cluster), [this](JobId id) { return truth_of(id); }, past_.distance());
    auto core = Core::recover(std::move(*opened), options, *world_, past_.since);
    if (!core) return core.error();
    core_ = std::move(*core);
    for (const auto& [id, done] : past_.done) world_->has_done(id, done);
    for (const KnownJob& known : core_->told()) {
      const JobView* view = core_->state().view(known.job);
      world_->adopt(past_.start, known, view->phase == Phase::running, done_before(known.job));
    }
    return {};
  }

  [[nodiscard]] double done_before(JobId id) const {
    const auto found = past_.done.find(id);
    return found == past_.done.end() ? 0 : found->second;
  }

  const JobTruth* truth_of(JobId id) const {
    const JobRecord* job = core_->state().job(id);
    if (job != nullptr && job->measures_for) {
      if (const JobTruth* run = truth_of_run(*job)) return run;
      job = core_->state().job(*job->measures_for);
    }
    const auto found = past_.truths.find(job != nullptr ? original(*job) : id);
    return found == past_.truths.end() ? &nothing_known_ : &found->second;
  }

  // From when on the daemon stores what a job reports; kNever: the job is gone.
  [[nodiscard]] Time stored_from(JobId id) const {
    const JobRecord* job = core_->state().job(id);
    if (job == nullptr || job->gone()) return kNever;
    return job->measured_at ? *job->measured_at + measure_every_ : kStart;
  }
  // A report that comes too soon after the last one is stored when the daemon looks at its jobs for
  // the first time after it may be.
  void report_when_stored(Time now) {
    for (const JobId id : world_->due()) {
      const Time at = stored_from(id);
      if (at > now && at < now + measure_every_) world_->report_by(id, at + kTick / 2);
    }
  }

  // The n-th run that measures a job does what the n-th really did.
  const JobTruth* truth_of_run(const JobRecord& run) const {
    const JobRecord* job = core_->state().job(*run.measures_for);
    const auto found = past_.runs.find(job != nullptr ? original(*job) : *run.measures_for);
    if (found == past_.runs.end()) return nullptr;
    const auto& all = core_->state().jobs();
    const auto before =
        static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](const auto& one) {
          return one.second.measures_for == run.measures_for && one.second.id < run.id;
        }));
    return before < found->second.size() ? &found->second[before] : nullptr;
  }

  // The job's number in this core; nullopt if it has no such job.
  [[nodiscard]] std::optional<JobId> here(JobId id, const std::string& user) const {
    const auto found = core_->state().by_key(user, fmt::format("{}{}", kKey, id.value()));
    if (found) return found;
    const JobRecord* job = past_.done.contains(id) ? core_->state().job(id) : nullptr;
    return job != nullptr ? std::optional(id) : std::nullopt;
  }

  void take(Time now, const PastInput& input, bool as_run, std::vector<Input>& inputs) {
    if (const auto* node = std::get_if<NodeChanged>(&input.what))
      return world_->change_node(now, node->node, node->state);
    if (const auto* added = std::get_if<NodeAdded>(&input.what)) return world_->add_node(*added);
    if (const auto* reserved = std::get_if<Reserved>(&input.what))
      return world_->reserve(*reserved);
    Request request;
    if (const auto* change = std::get_if<PastSwitch>(&input.what)) {
      if (!as_run) return;
      request = {{"operator", true}, SwitchPolicy{change->policy}};
    } else {
      const auto& past = std::get<PastRequest>(input.what);
      request = {past.caller, past.ask};
      if (past.job != JobId() && !std::holds_alternative<SubmitJob>(past.ask)) {
        const auto id = here(past.job, past.caller.user);
        if (!id) return;
        std::visit(
            [&](auto& ask) {
              if constexpr (requires { ask.job = JobRef(*id); }) ask.job = JobRef(*id);
            },
            request.ask);
      }
    }
    inputs.emplace_back(Asked{++asked_, std::move(request)});
  }

  // Whether all jobs that really ended have ended here, too.
  [[nodiscard]] bool all_ended() const {
    for (const auto& [number, job] : core_->state().jobs()) {
      if (job.gone() || job.measures_for) continue;
      const JobRecord* real = past_.real->job(original(job));
      if (real != nullptr && real->gone()) return false;
    }
    return true;
  }

  const Past& past_;
  const WhatIfOrder& order_;
  PassingDirectory directory_;
  std::unique_ptr<WhatIfWorld> world_;
  std::unique_ptr<Core> core_;
  JobTruth nothing_known_;
  Duration measure_every_{0};
  std::map<PastInput::Awaited, Duration> late_;  // how much later it happened
  std::uint64_t asked_ = 0;
  Time ended_ = kStart;
};

// --- results -------------------------------------------------------------------------------------

// A job as it went, really or in a what-if.
struct Went {
  const JobRecord* job = nullptr;
  GpuTime attained;
  [[nodiscard]] bool completed() const {
    return job->ending && job->ending->how == Ending::completed;
  }
};
using AllWent = std::map<JobId, Went>;  // by the number in the journal

AllWent all_went(const DaemonState& state, const Past& past, WallTime now) {
  AllWent all;
  for (const auto& [number, job] : state.jobs()) {
    if (job.measures_for || (job.ended && *job.ended < past.since)) continue;
    const JobView* view = job.gone() ? nullptr : state.view(job.id);
    all[original(job)] = {&job,
                          view != nullptr ? view->attained(state.loop_time(now)) : job.attained};
  }
  return all;
}

double jct_of(const JobRecord& job, const Past& past) {
  return seconds(Duration{*job.ended - std::max(job.submitted, past.since)});
}

Json percentile_of(std::vector<double> values, double share) {
  if (values.empty()) return nullptr;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<std::size_t>(rank, 1) - 1];
}

Json mean_of(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

Json show_went(JobId id, const Went& went, const DaemonState& state) {
  const JobRecord& job = *went.job;
  return {{"job", id.value()},
          {"name", job.name},
          {"user", job.user},
          {"state", std::string(to_text(state_of(state, job)))},
          {"submitted", iso(job.submitted)},
          {"start", iso(job.started)},
          {"end", iso(job.ended)},
          {"deadline", iso(job.deadline)},
          {"gpu_seconds", went.attained.gpu_seconds()},
          {"resizes", job.resizes},
          {"reason", job.ending ? Json(job.ending->why) : Json("")}};
}

// `common`: jobs that completed really and in every what-if, so their averages can be compared.
Json summary_of(const AllWent& all, const Past& past, const std::set<JobId>& common) {
  std::map<std::string, int> ends;
  std::vector<double> jcts;
  std::vector<double> common_jcts;
  std::vector<double> waits;
  double gpu_hours = 0;
  int kept = 0;
  int missed = 0;
  int resizes = 0;
  WallTime last = past.since;
  for (const auto& [id, went] : all) {
    const JobRecord& job = *went.job;
    ++ends[job.ending ? std::string(to_text(job.ending->how)) : "unfinished"];
    gpu_hours += went.attained.gpu_seconds() / 3600;
    resizes += job.resizes;
    if (job.started && *job.started >= past.since)
      waits.push_back(seconds(Duration{*job.started - std::max(job.submitted, past.since)}));
    if (went.completed()) {
      jcts.push_back(jct_of(job, past));
      if (common.contains(id)) common_jcts.push_back(jcts.back());
      last = std::max(last, *job.ended);
    }
    const bool refused =
        job.ending && (job.ending->how == Ending::refused || job.ending->how == Ending::cancelled);
    if (!job.deadline || refused) continue;
    if (went.completed() && *job.ended <= *job.deadline) {
      ++kept;
    } else if (job.ending || *job.deadline < past.until) {
      ++missed;
    }
  }
  return {{"jobs", all.size()},
          {"completed", ends["completed"]},
          {"failed", ends["failed"]},
          {"cancelled", ends["cancelled"]},
          {"refused", ends["refused"]},
          {"unfinished", ends["unfinished"]},
          {"avg_jct_s", mean_of(jcts)},
          {"p50_jct_s", percentile_of(jcts, 0.5)},
          {"p90_jct_s", percentile_of(jcts, 0.9)},
          {"p99_jct_s", percentile_of(jcts, 0.99)},
          {"common_jobs", common_jcts.size()},
          {"common_avg_jct_s", mean_of(common_jcts)},
          {"avg_wait_s", mean_of(waits)},
          {"makespan_s", seconds(Duration{last - past.since})},
          {"gpu_hours", gpu_hours},
          {"deadlines_kept", kept},
          {"deadlines_missed", missed},
          {"resizes", resizes}};
}

Json spans_of(const DaemonState& state, const Past& past, WallTime now) {
  std::vector<Span> spans;
  state.chronicle().each_span([&](const Span& span) {
    if (span.until && *span.until <= past.since) return;
    spans.push_back(span);
    spans.back().from = std::max(span.from, past.since);
  });
  static_cast<void>(thin_out(spans, kMostSpans, now));
  Json list = Json::array();
  for (const Span& span : spans) {
    const JobRecord* job = state.job(span.job);
    if (job != nullptr && job->measures_for) job = state.job(*job->measures_for);
    list.push_back(show_span(span, job != nullptr ? Json(original(*job).value()) : Json(nullptr)));
  }
  return list;
}

Json show_outcome(const AllWent& all, const DaemonState& state, const Past& past, WallTime now,
                  const std::set<JobId>& common) {
  Json jobs = Json::array();
  for (const auto& [id, went] : all) {
    if (jobs.size() < kMostJobs) jobs.push_back(show_went(id, went, state));
  }
  return {{"summary", summary_of(all, past, common)},
          {"jobs", std::move(jobs)},
          {"spans", spans_of(state, past, now)}};
}

// By how much the completion times differ from the real ones, relative to these.
Json differences(const AllWent& real, const AllWent& here, const Past& past) {
  std::vector<double> found;
  for (const auto& [id, went] : real) {
    const auto other = here.find(id);
    if (other == here.end() || !went.completed() || !other->second.completed()) continue;
    const double took = jct_of(*went.job, past);
    if (took > 0) found.push_back(std::abs(jct_of(*other->second.job, past) - took) / took);
  }
  return {{"jobs", found.size()},
          {"mean", mean_of(found)},
          {"p50", percentile_of(found, 0.5)},
          {"p90", percentile_of(found, 0.9)},
          {"worst", percentile_of(found, 1)}};
}

std::vector<std::string> taken_as_truth(const Past& past) {
  std::vector<std::string> said;
  said.emplace_back(
      "The state of the cluster and of its jobs at the beginning is the recorded one.");
  said.emplace_back(
      "Jobs are submitted, cancelled, held, released and resized by their owners when that really "
      "happened, with the same job files.");
  said.emplace_back("Nodes fail, drain and come back when they really did.");
  said.emplace_back(
      "After a command that a job really got at about the same point of its work, it does what it "
      "really did until the next one: as fast, with the same delays and reports.");
  said.emplace_back(
      "After other commands it trains at the average speed that was measured on each GPU count, "
      "and "
      "starts and resizes take as long as they took on average.");
  said.emplace_back(
      "A job has as much work as it really did; if it has not completed, as much as its job file "
      "says.");
  if (past.timed > 0) {
    said.push_back(
        fmt::format("Jobs that reported no speed ({}): the time that they really ran is taken as "
                    "their length, on any number of GPUs.",
                    past.timed));
  }
  if (past.failures > 0)
    said.emplace_back("A run that failed fails again when it has done the same work.");
  return said;
}

std::vector<std::string> unknown_in(const Past& past) {
  std::vector<std::string> said = {
      "Whether users would have submitted, cancelled or resized other jobs, or at other times.",
      "How the speed of a job would have changed because other jobs ran beside it."};
  if (past.one_count > 0) {
    said.push_back(fmt::format(
        "How fast jobs would have trained on other GPU counts if they were measured on one ({}): "
        "perfect scaling is assumed unless jobs of the same profile were measured.",
        past.one_count));
  }
  said.emplace_back(
      "The speed on GPU counts that were not measured: between two measured counts it is "
      "interpolated, and beyond the largest it is continued.");
  if (past.adaptive > 0) {
    said.push_back(
        fmt::format("What other batch sizes would have meant for jobs that choose them ({}): the "
                    "measured speeds "
                    "already contain the sizes that were chosen.",
                    past.adaptive));
  }
  if (past.guessed > 0) {
    said.push_back(fmt::format(
        "How long jobs would have run that never ran ({}): an hour is assumed.", past.guessed));
  }
  if (past.endless > 0) {
    said.push_back(fmt::format(
        "When jobs would have ended that had not ended and do not say how much work they "
        "have ({}): they do not end here.",
        past.endless));
  }
  return said;
}

}  // namespace

Result<WhatIfPolicies> parse_what_if_policies(const std::vector<std::string>& lists) {
  WhatIfPolicies found;
  std::string rest;
  for (const std::string& list : lists) {
    for (const auto part : split(list, ',')) {
      if (trim(part) == kAsRun) {
        found.as_run = true;
      } else {
        rest += fmt::format("{}{}", rest.empty() ? "" : ",", part);
      }
    }
  }
  if (!rest.empty() || !found.as_run) {
    auto chosen = parse_policies(rest);
    if (!chosen) return chosen.error();
    found.others = std::move(*chosen);
  }
  if (found.others.size() > kMostPolicies)
    return Error{fmt::format("a what-if compares at most {} policies", kMostPolicies)};
  return found;
}

Result<Json> what_if(const WhatIfOrder& order, const std::function<void(double)>& progress) {
  const auto chosen = parse_what_if_policies(order.policies);
  if (!chosen) return chosen.error();
  std::vector<std::string> policies;
  if (chosen->as_run) policies.emplace_back(kAsRun);
  for (const ChosenPolicy& one : chosen->others) {
    if (auto made = one.make(order.state.inputs); !made) return made.error();
    policies.push_back(one.canonical);
  }
  const auto parts = static_cast<double>(policies.size() + 1);
  const auto part = [&](double number) {
    return [&progress, number, parts](double share) {
      if (progress) progress((number + share) / parts);
    };
  };
  auto past = read_past(order.directory, order.range, order.state, part(0));
  if (!past) return past.error();
  for (const ChosenPolicy& one : chosen->others) {
    if (auto fits = one.check(past->real->now().cluster); !fits) return fits.error();
  }
  const AllWent real = all_went(*past->real, *past, past->until);
  std::vector<std::unique_ptr<WhatIfRun>> runs;
  std::vector<AllWent> went;
  std::set<JobId> common;
  for (const auto& [id, one] : real) {
    if (one.completed()) common.insert(id);
  }
  for (const std::string& policy : policies) {
    auto& run = runs.emplace_back(std::make_unique<WhatIfRun>(*past, order));
    if (auto ok = run->run(policy, part(static_cast<double>(runs.size()))); !ok)
      return Error{fmt::format("under {}: {}", policy, ok.error().message)};
    went.push_back(all_went(run->state(), *past, run->ended()));
    std::erase_if(common, [&](JobId id) {
      const auto found = went.back().find(id);
      return found == went.back().end() || !found->second.completed();
    });
  }
  Json compared = Json::array();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Json one = show_outcome(went[i], runs[i]->state(), *past, runs[i]->ended(), common);
    one["policy"] = policies[i];
    one["differences"] = policies[i] == kAsRun ? differences(real, went[i], *past) : Json(nullptr);
    compared.push_back(std::move(one));
  }
  return Json{{"since", iso(past->since)},
              {"until", iso(past->until)},
              {"cluster", machines_text(past->real->now().cluster)},
              {"truth", show_outcome(real, *past->real, *past, past->until, common)},
              {"policies", std::move(compared)},
              {"taken_as_truth", taken_as_truth(*past)},
              {"unknown", unknown_in(*past)}};
}

}  // namespace rubato::daemon
