#include "rubato/daemon/views.h"

#include <algorithm>
#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "rubato/base/text.h"
#include "rubato/daemon/job_model.h"
#include "rubato/jobfile/job_fields.h"

namespace rubato::daemon {
namespace {

std::optional<WallTime> wall(const DaemonState& state, const std::optional<Time>& time) {
  if (!time || *time == kNever) return std::nullopt;
  return state.wall(*time);
}

Json iso_of(const DaemonState& state, const std::optional<Time>& time) {
  return iso(wall(state, time));
}

std::string at(const DaemonState& state, Time time) {
  return clock_text(state.wall(time), state.wall(state.time()));
}

// "2 -> 4 GPUs": the counts of a plan one after the other.
std::string plan_text(const std::vector<GpuStep>& plan) {
  std::string text;
  int last = -1;
  int shown = 0;
  for (const GpuStep& step : plan) {
    if (step.gpus == last || (step.gpus == 0 && last < 0)) continue;
    if (++shown > 6) {
      text += " -> ...";
      break;
    }
    text += fmt::format("{}{}", text.empty() ? "" : " -> ", step.gpus);
    last = step.gpus;
  }
  return text.empty() ? "" : fmt::format(", planned {} GPU{}", text, text == "1" ? "" : "s");
}

Json plan_json(const DaemonState& state, const std::vector<GpuStep>& plan) {
  Json list = Json::array();
  for (const GpuStep& step : plan)
    list.push_back({{"from", iso_of(state, step.from)}, {"gpus", step.gpus}});
  return list;
}

Json limits_json(const GpuLimits& limits) {
  return {{"min", limits.min}, {"max", limits.max}, {"allowed", limits.allowed}};
}

// The first node that nothing is known of, or on which nothing can be started.
std::optional<NodeId> node_in_trouble(const DaemonState& state) {
  const auto& nodes = state.now().cluster.nodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].state == NodeState::unknown) return NodeId(static_cast<NodeId::rep>(i));
  }
  return std::nullopt;
}

std::string node_text(const DaemonState& state, NodeId node) {
  const std::string& why = state.node_why(node);
  return fmt::format("node {} is {}{}{}", node.value(),
                     to_text(state.now().cluster.node(node).state), why.empty() ? "" : ": ", why);
}

std::string setback_text(const JobRecord& job) {
  const Setbacks& last = *job.setbacks;
  const std::string what = last.infrastructure
                               ? std::string("a start that failed by no fault of its own")
                               : fmt::format("failure {}", job.failures);
  return last.why.empty() ? what : fmt::format("{}: {}", what, last.why);
}

// "node 1 is unknown: its agent is not connected", of the nodes that a job has GPUs of; empty if
// all can be used.
std::string unknown_nodes(const DaemonState& state, const Allocation& held) {
  std::vector<std::string> unknown;
  for (const Slice& slice : held.slices()) {
    if (state.now().cluster.node(slice.node).state == NodeState::unknown)
      unknown.push_back(node_text(state, slice.node));
  }
  return fmt::format("{}", fmt::join(unknown, "; "));
}

std::string capitalised(std::string sentence) {
  if (sentence[0] >= 'a' && sentence[0] <= 'z') sentence[0] = static_cast<char>(sentence[0] - 32);
  return sentence;
}

// The moment that it was promised to be done by, as every command shows it.
std::optional<WallTime> promised_by(const DaemonState& state, const JobRecord& job) {
  if (!job.promise) return std::nullopt;
  return job.deadline ? job.deadline : wall(state, job.promise->finish);
}

// Its program has counted as much as its owner declared, and goes on: nobody knows until when.
bool beyond_its_work(const JobRecord& job, const JobProgress& progress) {
  return job.file.work && done_by(job, progress) >= job.work;
}

// One phrase: why it is not running, or what it is doing.
std::string reason_of(const DaemonState& state, const JobRecord& job, const JobView* view,
                      JobState job_state) {
  if (job.ending) return job.ending->why;
  if (job_state == JobState::profiling)
    return fmt::format("job {} measures its speed", job.measured_by->value());
  if (view == nullptr) return "";
  if (view->leaving)
    return job.leaves_as && job.leaves_as->how == Ending::failed
               ? "gave up; letting go of its GPUs"
               : "cancelled; letting go of its GPUs";
  if (const auto until = job.paused_until())
    return fmt::format("starts again at {} after {}", at(state, *until), setback_text(job));
  if (std::string unknown = unknown_nodes(state, view->held); !unknown.empty()) return unknown;
  if (view->on_hold) return view->held.empty() ? "on hold" : "on hold; letting go of its GPUs";
  if (view->phase == Phase::starting) return "starting";
  if (view->phase == Phase::resizing) return "changing its GPUs";
  if (view->phase == Phase::stopping) return "paused by the policy; letting go of its GPUs";
  if (job_state != JobState::pending)
    return job.plain ? "one process: its program does not speak to Rubato" : "";
  if (!view->target.empty()) return "waits for others to let go of its GPUs";
  const auto& last = state.last_decision();
  if (!last || last->at < view->submitted) return "waits for the next decision";
  if (!last->refused.empty()) return "the last decision could not be carried out";
  if (const auto node = node_in_trouble(state))
    return fmt::format("waits for GPUs; {}", node_text(state, *node));
  return view->has_run() ? "paused by the policy" : "waits for GPUs";
}

Json progress_json(const JobRecord& job, const JobView* view, const JobProgress& progress,
                   Time now) {
  Json done = nullptr;
  if (job.ending && job.ending->how == Ending::completed) {
    done = 1.0;
  } else if (job.file.work) {
    const double told = done_by(job, progress);
    const Work left = view != nullptr ? view->progress.left(now) : job.work;
    const double part = told > 0 ? told / job.work : (job.work - left) / job.work;
    done = std::clamp(part, 0.0, 1.0);
  }
  return {{"done", done},
          {"step", progress.step},
          {"samples", progress.samples},
          {"epoch", progress.epoch},
          {"loss", progress.loss ? Json(*progress.loss) : Json(nullptr)},
          {"rate", progress.rate}};
}

}  // namespace

Json iso(const std::optional<WallTime>& time) {
  return time ? Json(jobfile::to_text(*time)) : Json(nullptr);
}

std::string clock_text(WallTime time, WallTime now) {
  using std::chrono::floor;
  const auto day = floor<std::chrono::days>(time);
  // Not by the system clock's own unit, which ends in the year 2262.
  const std::tm parts = fmt::gmtime(floor<std::chrono::seconds>(time).time_since_epoch().count());
  if (day == floor<std::chrono::days>(now)) return fmt::format("{:%H:%M:%S} UTC", parts);
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", parts);
}

JobState state_of(const DaemonState& state, const JobRecord& job) {
  if (job.ending) {
    switch (job.ending->how) {
      case Ending::completed:
        return JobState::completed;
      case Ending::failed:
        return JobState::failed;
      case Ending::cancelled:
        return JobState::cancelled;
      case Ending::refused:
        return JobState::refused;
    }
  }
  if (job.measured_by) return JobState::profiling;
  const JobView* view = state.view(job.id);
  if (view == nullptr) return JobState::pending;
  if (view->leaving || view->phase == Phase::stopping) return JobState::stopping;
  if (job.paused_until()) return JobState::pending;
  if (view->on_hold) return view->held.empty() ? JobState::held : JobState::stopping;
  switch (view->phase) {
    case Phase::pending:
      return JobState::pending;
    case Phase::starting:
    case Phase::running:
      return JobState::running;
    case Phase::resizing:
      return JobState::resizing;
    case Phase::stopping:
      return JobState::stopping;
  }
  return JobState::pending;
}

Json show_job(const ViewContext& context, const JobRecord& job) {
  const DaemonState& state = context.state;
  const JobView* view = job.gone() ? nullptr : state.view(job.id);
  const JobStatus* status = job.gone() ? nullptr : context.status(job.id);
  const JobProgress& progress = status != nullptr ? status->progress : job.progress;
  const JobState job_state = state_of(state, job);
  const Time now = state.time();
  const Allocation held = view != nullptr ? view->held : Allocation();
  Json json = {{"id", job.id.value()},
               {"name", job.name},
               {"user", job.user},
               {"state", std::string(to_text(job_state))},
               {"reason", reason_of(state, job, view, job_state)},
               {"note", job.plain ? Json(fmt::format("{}; {}", kRunsAsOneProcess, kToUseMoreGpus))
                                  : Json(nullptr)},
               {"gpus", held.gpus()},
               {"slots", slots_of(held)},
               {"limits", limits_json(limits_now(job, state))},
               {"submitted", iso(job.submitted)},
               {"started", iso(job.started)},
               {"ended", iso(job.ended)},
               {"deadline", iso(job.deadline)}};
  std::optional<Time> eta;
  if (view != nullptr && !beyond_its_work(job, progress)) {
    eta = expected_end(job, *view, now);
    if (!eta && job.promise && job.honoured) eta = job.promise->finish;
  }
  // A job that did not complete has not been in time, however early it ended.
  const bool in_vain = job.ending && job.ending->how != Ending::completed;
  const auto end = job.ended ? job.ended : wall(state, eta);
  json["slack_seconds"] = job.deadline && end && !in_vain
                              ? Json(seconds(Duration{*job.deadline - *end}))
                              : Json(nullptr);
  json["promised"] = iso(promised_by(state, job));
  json["honoured"] = job.promise && !job.gone() ? Json(job.honoured) : Json(nullptr);
  json["plan"] = job.promise && job.honoured && !job.gone() ? plan_json(state, job.promise->plan)
                                                            : Json::array();
  json["progress"] = progress_json(job, view, progress, now);
  json["eta"] = iso_of(state, eta);
  json["gpu_seconds"] = (view != nullptr ? view->attained(now) : job.attained).gpu_seconds();
  json["failures"] =
      std::max({job.failures, job.worker_failures, status != nullptr ? status->failures : 0});
  json["resizes"] = job.resizes;
  // A program that knows nothing of us is started again by every resize.
  json["restarts"] =
      (view != nullptr ? view->restarts : job.restarts) + (job.file.elastic ? 0 : job.resizes);
  json["last_pause_seconds"] = job.last_pause ? Json(*job.last_pause) : Json(nullptr);
  json["batch"] = progress.batch > 0 ? Json(progress.batch) : Json(nullptr);
  for (const auto& field : jobfile::job_fields()) {
    if (field.shown) json[std::string(field.name)] = field.write(job.file);
  }
  json["exit_code"] = job.ending && job.ending->code ? Json(*job.ending->code) : Json(nullptr);
  json["command"] = job.file.command;
  json["command_cut"] = job.text_bytes.has_value();
  const auto outlook = context.outlooks.find(job.id);
  json["position"] =
      outlook != context.outlooks.end() ? Json(outlook->second.position) : Json(nullptr);
  return json;
}

// --- verdicts ---

Verdict promised(const DaemonState& state, const JobRecord& job, const Promise& promise) {
  Verdict verdict;
  verdict.admitted = true;
  verdict.finish = promise.finish;
  const Time by = job.deadline ? state.loop_time(*job.deadline) : promise.finish;
  verdict.text =
      fmt::format("admitted, will finish by {}{}", at(state, by), plan_text(promise.plan));
  return verdict;
}

Verdict refused(const DaemonState& state, const std::string& why, std::optional<Time> earliest) {
  Verdict verdict;
  verdict.admitted = false;
  verdict.earliest = earliest;
  verdict.text = earliest
                     ? fmt::format("refused, earliest feasible {}: {}", at(state, *earliest), why)
                     : fmt::format("refused: {}", why);
  return verdict;
}

Verdict verdict_on(const ViewContext& context, const JobRecord& job) {
  const DaemonState& state = context.state;
  if (job.ending && job.ending->how == Ending::refused)
    return refused(state, job.ending->why, job.ending->earliest);
  Verdict verdict;
  if (job.measured_by) {
    verdict.by = job.verdict_by;
    verdict.text = fmt::format("profiling, verdict by {}",
                               job.verdict_by ? at(state, *job.verdict_by) : std::string("soon"));
    return verdict;
  }
  if (job.promise && job.honoured) return promised(state, job, *job.promise);
  const JobView* view = state.view(job.id);
  const auto& last = state.last_decision();
  const bool judged = view != nullptr && last && last->at >= view->submitted;
  const bool by_deadline = state.policy().admits() && job.deadline;
  if (by_deadline && !judged) {
    verdict.text = "taken in, the verdict comes with the next decision";
    return verdict;
  }
  // A policy may admit a job and say no more of when it will run.
  if (by_deadline) verdict.admitted = true;
  const std::string admitted = by_deadline ? "admitted, " : "";
  if (view != nullptr && !view->target.empty()) {
    verdict.start = state.time();
    verdict.text =
        admitted +
        (view->held.empty() ? "starts as soon as others have let go of its GPUs" : "starts now");
    return verdict;
  }
  const auto outlook = context.outlooks.find(job.id);
  if (outlook == context.outlooks.end()) {
    verdict.text = by_deadline ? "admitted" : "taken in";
    return verdict;
  }
  verdict.position = outlook->second.position;
  verdict.start = outlook->second.start;
  verdict.text = fmt::format("{}position {}, estimated start {}", admitted, *verdict.position,
                             verdict.start ? at(state, *verdict.start) : std::string("unknown"));
  return verdict;
}

Json to_json(const DaemonState& state, const Verdict& verdict) {
  return {{"admitted", verdict.admitted ? Json(*verdict.admitted) : Json(nullptr)},
          {"text", verdict.text},
          {"finish", iso_of(state, verdict.finish)},
          {"earliest", iso_of(state, verdict.earliest)},
          {"position", verdict.position ? Json(*verdict.position) : Json(nullptr)},
          {"estimated_start", iso_of(state, verdict.start)},
          {"by", iso_of(state, verdict.by)}};
}

// --- why ---

namespace {

// Of the jobs that bid more than a job.
constexpr std::size_t kMostNamed = 20;

class Explanation {
 public:
  Explanation(const ViewContext& context, const JobRecord& job, bool sees_all)
      : context_(context),
        state_(context.state),
        job_(job),
        view_(job.gone() ? nullptr : state_.view(job.id)),
        sees_all_(sees_all) {}

  Json json() {
    tell();
    Json decision = nullptr;
    // What became of a job that is gone was decided before.
    if (const auto& last = state_.last_decision(); last && !job_.gone()) {
      decision = {{"number", last->number.value()},
                  {"at", iso_of(state_, last->at)},
                  {"policy", last->policy}};
    }
    return {{"job", job_.id.value()},  {"sentences", sentences_}, {"decision", decision},
            {"waits_for", waits_for_}, {"holds", holds_},         {"would_change", would_change_},
            {"market", market_}};
  }

 private:
  void say(std::string sentence) { sentences_.push_back(std::move(sentence)); }
  void change(std::string sentence) { would_change_.push_back(std::move(sentence)); }

  void tell() {
    if (job_.gone()) return tell_end();
    if (job_.measured_by) {
      say(fmt::format(
          "Nobody knows yet how fast it is, so nothing can be promised: job {} measures "
          "it at a few counts; the verdict comes by {}.",
          job_.measured_by->value(),
          job_.verdict_by ? at(state_, *job_.verdict_by) : std::string("then")));
      return change("GPUs that become free, on which it can be measured");
    }
    if (view_ == nullptr) return;
    if (view_->leaving) return say("It is leaving and has still to let go of its GPUs.");
    if (const auto until = job_.paused_until()) {
      say(fmt::format("It starts again at {}, after {}.", at(state_, *until), setback_text(job_)));
      say(fmt::format("{} in a row; the pause doubles with each, up to 5 minutes.",
                      plural(job_.setbacks->in_a_row, "failure")));
      return change(fmt::format("rubato release {}: it starts again at once", job_.id.value()));
    }
    if (view_->on_hold) {
      say("It is on hold: the policy does not see it.");
      return change(fmt::format("rubato release {}", job_.id.value()));
    }
    tell_promise();
    tell_plain();
    tell_nodes();
    const auto& last = state_.last_decision();
    if (!last || last->at < view_->submitted) {
      say("No decision has been taken since it was submitted.");
      return;
    }
    if (!last->refused.empty()) {
      // The reason may name jobs of others.
      say(fmt::format(
          "The last decision could not be carried out{}, so everything stays as it was.",
          sees_all_ ? fmt::format(" ({})", last->refused) : ""));
    }
    const auto grant = std::find_if(last->decision.run.begin(), last->decision.run.end(),
                                    [&](const Grant& g) { return g.job == job_.id; });
    if (grant != last->decision.run.end()) {
      tell_grant(*grant);
    } else if (!view_->target.empty()) {
      say(fmt::format("It keeps its {}: its node cannot be reached, or it may not be preempted.",
                      plural(view_->target.gpus(), "GPU")));
    } else {
      tell_wait(*last);
    }
  }

  void tell_end() {
    const Verdict verdict = verdict_on(context_, job_);
    if (job_.ending->how == Ending::refused) {
      say(fmt::format("It was {}.", verdict.text));
      if (verdict.earliest)
        change(fmt::format("a deadline not before {}", at(state_, *verdict.earliest)));
      return;
    }
    say(fmt::format("It is gone: {}{}{}.", to_text(job_.ending->how),
                    job_.ending->why.empty() ? "" : ", ", job_.ending->why));
    tell_plain();
  }

  void tell_plain() {
    if (!job_.plain) return;
    say("Its program does not speak to Rubato, so it has one process on one GPU.");
    change(std::string(kToUseMoreGpus));
  }

  void tell_promise() {
    if (!job_.promise) return;
    if (job_.honoured) {
      say(fmt::format("It was promised to be done by {}{}.",
                      job_.deadline ? clock_text(*job_.deadline, state_.wall(state_.time()))
                                    : at(state_, job_.promise->finish),
                      plan_text(job_.promise->plan)));
    } else {
      say(fmt::format("It was promised to be done in time, but {} does not honour that now.",
                      state_.policy().text));
    }
  }

  void tell_nodes() {
    const std::string unknown = unknown_nodes(state_, view_->held);
    if (unknown.empty()) return;
    say(fmt::format("{}. The job keeps its GPUs there, and nothing else is started on them.",
                    capitalised(unknown)));
    change(
        "what keeps the node from being used is over, or an admin says that the node is dead "
        "(rubato drain --down NODE)");
  }

  // Whether it was kept from growing as that decision wanted.
  [[nodiscard]] bool cools_down(const Grant& grant) const {
    const int has = view_->target.gpus();
    if (view_->spec->deadline) return false;
    return has > 0 && has < gpus_of(grant.want) && view_->cooled() > state_.last_decision()->at;
  }

  void tell_grant(const Grant& grant) {
    const bool cools = cools_down(grant);
    const int granted =
        cools ? view_->target.gpus() : std::max(gpus_of(grant.want), view_->target.gpus());
    say(fmt::format("{} gave it {} at {}; it may have {}.", state_.last_decision()->policy,
                    plural(granted, "GPU"), at(state_, state_.last_decision()->at),
                    gpu_range(view_->spec->limits.min, view_->spec->limits.max)));
    if (cools) {
      say(fmt::format("It was resized at {} and asks not to be grown before {}.",
                      at(state_, *view_->resized), at(state_, view_->cooled())));
    }
    for (const Slot& slot : slots_of(view_->held)) holds_.push_back(slot);
    const Allocation missing = minus(view_->target, view_->held);
    if (!missing.empty()) tell_missing(missing);
    const int free = free_gpus();
    if (granted < view_->spec->limits.max)
      say(fmt::format("{} idle in the whole cluster.",
                      free == 1 ? "1 GPU is" : fmt::format("{} GPUs are", free)));
    tell_market();
    change("an arrival, an end or a failure: then the policy decides anew");
    if (granted == view_->spec->limits.max)
      change(fmt::format("a larger limit than {} (rubato resize)", view_->spec->limits.max));
  }

  // Others still use what it should have.
  void tell_missing(const Allocation& missing) {
    for (const JobView& other : state_.now().jobs) {
      if (other.id == view_->id || common(other.held, missing).empty()) continue;
      note_waits_for(other.id);
    }
    say(fmt::format("{} of these are still in use by others, who were told to let go.",
                    plural(missing.gpus(), "GPU")));
  }

  void tell_wait(const LastDecision& last) {
    const int needs = state_.least_gpus(*view_->spec, *view_->speed);
    const int free = free_gpus();
    int running = 0;
    int used = 0;
    for (const Grant& grant : last.decision.run) {
      const JobView* other = state_.view(grant.job);
      if (other == nullptr) continue;
      ++running;
      used += other->target.gpus();
      if (free < needs) note_waits_for(grant.job);
    }
    say(fmt::format("{} did not run it at {}: it needs at least {}, {} on {}, and {} idle.",
                    last.policy, at(state_, last.at), plural(needs, "GPU"),
                    running == 1 ? std::string("1 job runs") : fmt::format("{} jobs run", running),
                    plural(used, "GPU"), free == 1 ? "1 is" : fmt::format("{} are", free)));
    if (state_.prices().empty()) {
      tell_queue(free >= needs);
    } else {
      tell_market();
    }
    const auto outlook = context_.outlooks.find(job_.id);
    if (outlook != context_.outlooks.end()) {
      say(outlook->second.start
              ? fmt::format("If jobs were taken in order of submission, it would start at {}.",
                            at(state_, *outlook->second.start))
              : std::string("When it will start is unknown, because nobody knows when the jobs "
                            "before it will end."));
    }
    if (const auto node = node_in_trouble(state_))
      say(fmt::format("Not every node can be used: {}.", node_text(state_, *node)));
    change("a job that ends or shrinks");
    if (view_->spec->limits.smallest() > 1)
      change("a smaller least number of GPUs (rubato resize)");
    if (unusable() > 0)
      change(fmt::format("nodes that come back: {} cannot be used now", plural(unusable(), "GPU")));
  }

  // Those who came before it.
  void tell_queue(bool would_fit) {
    int before = 0;
    for (const auto& [id, outlook] : context_.outlooks) {
      if (id >= job_.id) break;
      ++before;
      if (would_fit) note_waits_for(id);
    }
    if (before > 0)
      say(fmt::format("{} that came before it {} too{}.", plural(before, "job"),
                      before == 1 ? "waits" : "wait",
                      would_fit ? ", and room is kept for those before it" : ""));
  }

  // The price, what the job bids, and how many bid more, if the policy trades GPUs.
  void tell_market() {
    if (state_.prices().empty()) return;
    const auto& quotes = state_.last_decision()->quotes;
    if (quotes == nullptr)
      return say(
          "What the job bids is known again after the next decision, because the daemon was "
          "started again.");
    const auto quote = quotes->of(job_.id);
    if (!quote) return;
    for (std::string& sentence : words(*quote)) say(std::move(sentence));
    Json outbid_by = Json::array();
    for (const JobId id : quotes->ahead_of(*quote)) {
      if (outbid_by.size() == kMostNamed) break;
      if (sees(id)) outbid_by.push_back(id.value());
    }
    market_ = {{"price", quote->price},
               {"bid", quote->bid},
               {"outbid", quote->ahead},
               {"outbid_by", std::move(outbid_by)}};
  }

  // Other users' jobs are counted, not named.
  [[nodiscard]] bool sees(JobId id) const {
    const JobRecord* other = state_.job(id);
    return sees_all_ || (other != nullptr && other->user == job_.user);
  }
  void note_waits_for(JobId id) {
    if (sees(id)) waits_for_.push_back(id.value());
  }
  [[nodiscard]] int free_gpus() const {
    int free = state_.now().cluster.usable();
    const auto& nodes = state_.now().cluster.nodes();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const NodeId id(static_cast<NodeId::rep>(i));
      free -= std::popcount(state_.loop().state().busy.used(id) & nodes[i].usable());
    }
    return free;
  }
  [[nodiscard]] int unusable() const {
    return state_.now().cluster.installed() - state_.now().cluster.usable();
  }

  const ViewContext& context_;
  const DaemonState& state_;
  const JobRecord& job_;
  const JobView* view_;
  bool sees_all_;
  std::vector<std::string> sentences_;
  std::vector<std::string> would_change_;
  std::vector<JobId::rep> waits_for_;
  std::vector<Slot> holds_;
  Json market_ = nullptr;
};

}  // namespace

Json explain(const ViewContext& context, const JobRecord& job, bool sees_all) {
  return Explanation(context, job, sees_all).json();
}

// --- the rest ---

Json show_nodes(const DaemonState& state, const std::function<bool(JobId)>& visible) {
  const Cluster& cluster = state.now().cluster;
  std::vector<Json> used(cluster.nodes().size(), Json::array());
  for (const JobView& view : state.now().jobs) {
    int worker = 0;  // in the order of the slots, as ranks are given
    for (const Slice& slice : view.held.slices()) {
      for (int gpu = 0; gpu < kMaxGpusPerNode; ++gpu) {
        if ((slice.mask >> static_cast<unsigned>(gpu) & 1U) == 0) continue;
        const bool shown = visible(view.id);
        used[slice.node.index()].push_back({{"gpu", gpu},
                                            {"job", shown ? Json(view.id.value()) : Json(nullptr)},
                                            {"worker", shown ? Json(worker) : Json(nullptr)}});
        ++worker;
      }
    }
  }
  Json nodes = Json::array();
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    const NodeId id(static_cast<NodeId::rep>(i));
    const Node& node = cluster.node(id);
    nodes.push_back({{"id", i},
                     {"state", std::string(to_text(node.state))},
                     {"gpus", node.gpus},
                     {"type", cluster.type_name(node.type)},
                     {"used", std::move(used[i])},
                     {"since", iso(state.node_since(id))},
                     {"reason", state.node_why(id)}});
  }
  return {{"nodes", std::move(nodes)}};
}

std::string machines_text(const Cluster& cluster) {
  std::string text;
  for (const NodeGroup& group : cluster.groups()) {
    const std::string& type = cluster.type_name(group.type);
    text += fmt::format("{}{}x{}", text.empty() ? "" : ",", group.nodes, group.gpus_per_node);
    if (cluster.types() > 1 || type != "gpu") text += ":" + type;
  }
  return text;
}

// --- what is wrong ---

namespace {

// So many failures of a job that still tries are worth a word.
constexpr int kOften = 3;
// Of each kind; the others are counted.
constexpr std::size_t kNamed = 20;

class Health {
 public:
  Health(const DaemonState& state, const std::function<bool(JobId)>& visible)
      : state_(state), visible_(visible) {}

  std::vector<Problem> problems() {
    look_at_nodes();
    if (const auto& last = state_.last_decision(); last && !last->refused.empty()) {
      add("the last decision of the policy could not be carried out, so nothing changes",
          "look at `rubato history`, or choose another policy (rubato policy)");
    }
    look_at_jobs();
    return std::move(problems_);
  }

 private:
  void add(std::string what, std::string remedy) {
    problems_.push_back({std::move(what), std::move(remedy)});
  }
  [[nodiscard]] std::string clock(WallTime time) const {
    return clock_text(time, state_.wall(state_.time()));
  }

  void look_at_nodes() {
    const auto& nodes = state_.now().cluster.nodes();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].state == NodeState::up) continue;
      const NodeId id(static_cast<NodeId::rep>(i));
      const std::string since = fmt::format("since {}", clock(state_.node_since(id)));
      const std::string& why = state_.node_why(id);
      switch (nodes[i].state) {
        case NodeState::unknown:
          add(fmt::format("node {} is unknown {}{}; its jobs keep their {}, and nothing is started "
                          "there",
                          i, since, why.empty() ? "" : ": " + why, plural(nodes[i].gpus, "GPU")),
              fmt::format("look whether its machine and its agent (rubato agent) run, and mend "
                          "what the reason names: it is then used again by itself; if it is dead "
                          "for good, say so: rubato drain --down {}",
                          i));
          break;
        case NodeState::draining:
          add(fmt::format("node {} is drained {}; nothing is started there", i, since),
              fmt::format("when it may be used again: rubato resume {}", i));
          break;
        default:
          add(fmt::format("node {} is down {}", i, since),
              fmt::format("when it is repaired: rubato resume {}", i));
      }
    }
  }

  void look_at_jobs() {
    std::vector<Problem> late;
    std::vector<Problem> failing;
    for (const JobView& view : state_.now().jobs) {
      const JobRecord* job = state_.job(view.id);
      if (job == nullptr || job->measures_for || !visible_(view.id)) continue;
      const std::string name = fmt::format("job {} ({})", view.id.value(), job->name);
      if (std::string why = lateness_of(*job, view); !why.empty()) {
        late.push_back({fmt::format("{} {}", name, why),
                        fmt::format("rubato explain {} says what keeps it; it needs more GPUs or a "
                                    "later deadline",
                                    view.id.value())});
      }
      const int failures = std::max(job->failures, job->worker_failures);
      if (failures >= kOften) {
        failing.push_back({fmt::format("{} has failed {}", name, times(failures)),
                           fmt::format("look at rubato logs {}", view.id.value())});
      }
    }
    add_some(std::move(late), "will be late, too");
    add_some(std::move(failing), "fail again and again, too");
  }

  [[nodiscard]] std::string lateness_of(const JobRecord& job, const JobView& view) const {
    if (!job.deadline) return "";
    const WallTime now = state_.wall(state_.time());
    if (*job.deadline < now) return fmt::format("has missed its deadline {}", clock(*job.deadline));
    const auto end = expected_end(job, view, state_.time());
    if (end && state_.wall(*end) > *job.deadline) {
      return fmt::format("will miss its deadline {}: it is expected to end at {}",
                         clock(*job.deadline), clock(state_.wall(*end)));
    }
    if (job.promise && !job.honoured)
      return fmt::format("was promised to be done by {}, which the policy does not honour now",
                         clock(*job.deadline));
    return "";
  }

  void add_some(std::vector<Problem> found, std::string_view what) {
    const std::size_t more = found.size() - std::min(found.size(), kNamed);
    found.resize(found.size() - more);
    for (Problem& problem : found) problems_.push_back(std::move(problem));
    if (more > 0)
      add(fmt::format("{} {}", plural(static_cast<int>(more), "more job"), what), "rubato ls");
  }

  const DaemonState& state_;
  const std::function<bool(JobId)>& visible_;
  std::vector<Problem> problems_;
};

}  // namespace

std::vector<Problem> problems_of(const DaemonState& state,
                                 const std::function<bool(JobId)>& visible) {
  return Health(state, visible).problems();
}

Json show_policy(const DaemonState& state, const std::function<bool(JobId)>& visible) {
  Json promises = Json::array();
  for (const JobView& view : state.now().jobs) {
    const JobRecord* job = state.job(view.id);
    if (job == nullptr || !job->promise || !visible(view.id)) continue;
    promises.push_back({{"job", view.id.value()},
                        {"promised", iso(promised_by(state, *job))},
                        {"finish", iso_of(state, job->promise->finish)},
                        {"honoured", job->honoured}});
  }
  return {{"policy", state.policy().text}, {"promises", std::move(promises)}};
}

Json show_line(const HistoryLine& line) {
  return {{"number", line.number.value()},
          {"at", iso(line.at)},
          {"type", line.type},
          {"job", line.job ? Json(line.job->value()) : Json(nullptr)},
          {"text", line.text}};
}

Json show_user(const UserRecord& user) {
  Json tokens = Json::array();
  for (const std::string& token : user.tokens) tokens.push_back(token.substr(0, kTokenNameDigits));
  return {{"name", user.name},
          {"role", user.admin ? "admin" : "user"},
          {"most_weight", user.most_weight},
          {"tokens", std::move(tokens)}};
}

}  // namespace rubato::daemon
