// What the state writes into its chronicle: who holds which GPUs, what has changed and why.
#include <fmt/format.h>
#include <utility>

#include "rubato/core/node_states.h"
#include "rubato/daemon/daemon_state.h"
#include "rubato/daemon/phrases.h"

namespace rubato::daemon {
namespace {

std::string with_why(std::string what, const std::string& why) {
  return why.empty() ? what : fmt::format("{}: {}", what, why);
}

}  // namespace

// Events that explain a later change of a job.
void DaemonState::note_cause(const Event& event) {
  if (const auto* limited = std::get_if<Limited>(&event)) {
    const JobRecord* job = this->job(limited->job);
    if (job != nullptr && job->has_quota()) {
      chronicle_.because(limited->job, with_why("a limit of its user", job->quota->why));
    } else {
      chronicle_.because(limited->job, limited->keeps ? "its program runs as one process"
                                                      : "its GPU limits were changed");
    }
  } else if (const auto* hold = std::get_if<HoldChanged>(&event); hold != nullptr && hold->on) {
    if (view(hold->job) != nullptr && !view(hold->job)->held.empty())
      chronicle_.because(hold->job, "put on hold");
  } else if (const auto* cancelled = std::get_if<Cancelled>(&event)) {
    chronicle_.because(cancelled->job, "cancelled");
  } else if (const auto* node = std::get_if<NodeChanged>(&event);
             node != nullptr && node->state != NodeState::up) {
    for (const JobView& job : now().jobs) {
      if (job.held.mask_on(node->node) == 0) continue;
      chronicle_.because(job.id, fmt::format("{} is {}", node_called(now().cluster, node->node),
                                             to_text(node->state)));
    }
  } else if (const auto* reserved = std::get_if<Reserved>(&event)) {
    for (const JobId id : loop::jobs_to_move(loop().state(), *reserved))
      chronicle_.because(id, with_why(fmt::format("GPUs of {} are reserved",
                                                  node_called(now().cluster, reserved->node)),
                                      reserved->why));
  }
}

// Programs report the pause of their last resize again and again, and while the next one goes on.
void DaemonState::note_pause(JobRecord& job, double pause) {
  const JobView* seen = view(job.id);
  const Mark* mark = chronicle_.newest_mark(job.id);
  const bool resized =
      mark != nullptr && (mark->kind == MarkKind::grow || mark->kind == MarkKind::shrink ||
                          mark->kind == MarkKind::move);
  if (resized && seen != nullptr && seen->phase == Phase::running && job.last_pause != pause)
    chronicle_.paused(job.id, from_seconds(pause));
  job.last_pause = pause;
}

void DaemonState::note_promise(const JobRecord& job, WallTime at, PromiseKind kind) {
  if (job.measures_for) return;
  const auto by = promised_by(*this, job);
  if (!by) return;
  PromiseNote note{at, kind, *by, std::nullopt, policy_.text};
  if (kind != PromiseKind::dropped) note.planned = daemon::wall(*this, job.promise->finish);
  pasts_.promise(job.id, std::move(note));
}

void DaemonState::note_end_of_promise(const JobRecord& job) {
  const auto by = promised_by(*this, job);
  if (!by || job.measures_for) return;
  const bool in_time = job.ending->how == Ending::completed && *job.ended <= *by;
  const PromiseKind kind = in_time                                ? PromiseKind::kept
                           : job.ending->how == Ending::cancelled ? PromiseKind::ended
                                                                  : PromiseKind::broken;
  pasts_.promise(job.id, {*job.ended, kind, *by, *job.ended, ""});
}

// Whether the last run of a job failed, so that its next start is a recovery.
bool DaemonState::comes_back(const JobRecord& job) const {
  const JobView* seen = view(job.id);
  return seen != nullptr && job.setbacks && seen->last_ran == job.setbacks->last;
}

std::string DaemonState::reason_of(const Change& change, int from, const Decision& decision,
                                   bool others_gain) const {
  const JobRecord* job = &jobs_.at(change.job);
  if (job->measures_for) return "its speed is measured";
  if (std::string cause = chronicle_.cause(change.job); !cause.empty()) return cause;
  if (comes_back(*job)) return with_why("its last run failed", job->setbacks->why);
  for (const Promise& promise : decision.promise) {
    if (promise.job == change.job) return "its promised plan says so";
  }
  const int to = change.target.gpus();
  if (to < from) return others_gain ? "other jobs get its GPUs" : "the policy gives it fewer";
  if (to == from) return "other GPUs are better for it";
  return from == 0 ? "there are GPUs for it now" : "there are more GPUs for it now";
}

// Notes what a decision changed. Call it before note_holds().
void DaemonState::note_changes(RowNumber number, Time now, const Reaction& reaction) {
  const Decision& decision = last_decision_->decision;
  DecisionNote note{number, wall(now), policy_.text, {}};
  bool others_gain = false;
  for (const Change& change : reaction.changes)
    others_gain = others_gain || change.target.gpus() > chronicle_.held(change.job);
  for (const Change& change : reaction.changes) {
    const auto found = jobs_.find(change.job);
    if (found == jobs_.end()) continue;
    const JobRecord& job = found->second;
    const int from = chronicle_.held(change.job);
    const int to = change.target.gpus();
    MarkKind kind = to > from ? MarkKind::grow : to < from ? MarkKind::shrink : MarkKind::move;
    if (to == 0) kind = MarkKind::stop;
    if (from == 0)
      kind = !job.started      ? MarkKind::start
             : comes_back(job) ? MarkKind::recovery
                               : MarkKind::restart;
    std::string reason = reason_of(change, from, decision, others_gain);
    if (!job.measures_for) chronicle_.because(change.job, reason);
    note.changes.push_back(
        {change.job, chronicle_.number_of(job.user), kind, from, to, std::move(reason)});
  }
  for (const Reject& reject : reaction.rejected) {
    const auto found = jobs_.find(reject.job);
    if (found == jobs_.end()) continue;
    note.changes.push_back({reject.job, chronicle_.number_of(found->second.user), MarkKind::refuse,
                            0, 0, reject.reason});
  }
  chronicle_.decided(std::move(note));
}

// Notes which GPUs the job and the jobs of these commands have now.
void DaemonState::note_holds(const std::vector<Command>& commands, JobId job, WallTime at) {
  const auto note = [&](JobId id) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return;
    const JobView* seen = view(id);
    chronicle_.hold(id, found->second.user, seen != nullptr ? seen->held : Allocation(), at);
  };
  if (job != JobId()) note(job);
  for (const Command& command : commands)
    note(std::visit([](const auto& c) { return c.job; }, command));
}

// Marks the change that a command makes. Call it before the command becomes the job's last one.
void DaemonState::mark_command(Time now, const Command& command) {
  const auto found = jobs_.find(std::visit([](const auto& c) { return c.job; }, command));
  if (found == jobs_.end() || found->second.measures_for) return;
  const JobRecord& job = found->second;
  MarkKind kind = MarkKind::stop;
  int gpus = 0;
  if (const auto* start = std::get_if<Start>(&command)) {
    gpus = start->gpus.gpus();
    kind = !job.started      ? MarkKind::start
           : comes_back(job) ? MarkKind::recovery
                             : MarkKind::restart;
  } else if (const auto* resize = std::get_if<Resize>(&command)) {
    if (!moves(command, job)) return;  // only another batch
    gpus = resize->gpus.gpus();
    const Allocation* before = job.told ? gpus_of(*job.told) : nullptr;
    const int from = before != nullptr ? before->gpus() : 0;
    kind = gpus > from ? MarkKind::grow : gpus < from ? MarkKind::shrink : MarkKind::move;
  }
  chronicle_.mark(job.id, job.user, wall(now), kind, gpus);
}

}  // namespace rubato::daemon
