#include "rubato/loop/scheduler.h"

#include <algorithm>
#include <map>
#include <utility>

#include "rubato/base/check.h"

namespace rubato::loop {

namespace {

// Whether the decision leaves a job on its present GPUs, with no new job beside it.
bool stays(const Decision& decision, JobId id, const Allocation& now) {
  bool stays = false;
  for (const Grant& grant : decision.run) {
    const auto* beside = std::get_if<Beside>(&grant.want);
    if (beside != nullptr && beside->host == id) return false;
    if (grant.job != id) continue;
    const auto* exact = std::get_if<Exact>(&grant.want);
    const auto* count = std::get_if<Count>(&grant.want);
    stays = (exact != nullptr && exact->gpus == now) ||
            (count != nullptr && count->gpus == now.gpus() && count->type == now.type());
  }
  return stays;
}

Spread spread_of(const Allocation& gpus) {
  Spread spread;
  for (const Slice& slice : gpus.slices()) spread.gpus.emplace_back(slice.node, slice.gpus());
  return spread;
}

// If `want` is the present GPUs and more, the wish for only the present ones. They can be kept,
// whatever the others get.
std::optional<Want> without_growth(const Want& want, const Allocation& now) {
  if (gpus_of(want) <= now.gpus()) return std::nullopt;
  if (const auto* count = std::get_if<Count>(&want)) {
    if (count->type == now.type()) return Count{now.type(), now.gpus()};
  } else if (const auto* exact = std::get_if<Exact>(&want)) {
    if (minus(now, exact->gpus).empty()) return Exact{now};
  } else if (const auto* spread = std::get_if<Spread>(&want)) {
    const std::map<NodeId, int> wished(spread->gpus.begin(), spread->gpus.end());
    const auto there = [&](const Slice& slice) {
      const auto found = wished.find(slice.node);
      return found != wished.end() && found->second >= slice.gpus();
    };
    if (std::all_of(now.slices().begin(), now.slices().end(), there)) return spread_of(now);
  }
  return std::nullopt;
}

bool promised(const Decision& decision, JobId job) {
  return std::any_of(decision.promise.begin(), decision.promise.end(),
                     [&](const Promise& promise) { return promise.job == job; });
}

}  // namespace

Scheduler::Scheduler(Cluster cluster, Placement placement, Duration interval, QuietRule rule,
                     double skew_limit)
    : state_(std::move(cluster)),
      placement_(placement),
      rule_(rule),
      skew_limit_(skew_limit),
      differ_(placement, state_.snapshot.cluster, rule, skew_limit) {
  state_.snapshot.interval = interval;
  state_.snapshot.jobs_move = in_blocks(placement);
}

Scheduler::Scheduler(State state, Placement placement)
    : state_(std::move(state)), placement_(placement), differ_(placement, state_.snapshot.cluster) {
  state_.snapshot.jobs_move = in_blocks(placement);
}

const Snapshot& Scheduler::ask(Time now) {
  CHECK(now >= state_.snapshot.now);
  state_.snapshot.now = now;  // a decision may come later than the last event
  state_.asked_at = now;
  state_.decision_due = false;
  state_.told = state_.snapshot.changed.size();
  return state_.snapshot;
}

void Scheduler::on(Time now, Event event, Reaction& reaction) {
  CHECK(now >= state_.snapshot.now);
  auto& jobs = state_.snapshot.jobs;
  // Gives GPUs that the event frees to jobs that wait for them.
  Allocation released;
  if (auto* finished = std::get_if<Finished>(&event)) {
    if (const JobView* job = jobs.find(finished->job)) released = job->held;
  } else if (auto* failed = std::get_if<Failed>(&event)) {
    if (const JobView* job = jobs.find(failed->job)) released = job->held;
  } else if (auto* halted = std::get_if<Released>(&event); halted != nullptr && halted->stopped) {
    if (const JobView* job = jobs.find(halted->job)) released = job->held;
  }
  std::vector<JobId> to_move;
  if (const auto* reserved = std::get_if<Reserved>(&event))
    to_move = jobs_to_move(state_, *reserved);
  fold(state_, now, event);
  for (const JobId id : to_move) issue(*jobs.find(id), reaction);
  if (auto* decided = std::get_if<Decided>(&event)) {
    carry_out(std::move(*decided), reaction);
  } else if (auto* given_up = std::get_if<Released>(&event)) {
    if (JobView* job = jobs.find(given_up->job)) issue(*job, reaction);
    if (!given_up->stopped) released = std::move(given_up->gpus);
  } else if (auto* cancelled = std::get_if<Cancelled>(&event)) {
    if (JobView* job = jobs.find(cancelled->job)) issue(*job, reaction);
  } else if (auto* hold = std::get_if<HoldChanged>(&event)) {
    if (JobView* job = jobs.find(hold->job)) issue(*job, reaction);
  } else if (auto* limited = std::get_if<Limited>(&event); limited != nullptr && limited->keeps) {
    if (JobView* job = jobs.find(limited->job)) issue(*job, reaction);
  } else if (std::holds_alternative<Skipped>(event)) {
    say_again(reaction);
  } else if (std::holds_alternative<NodeAdded>(event)) {
    differ_ = Differ(placement_, state_.snapshot.cluster, rule_, skew_limit_);
  }
  issue_waiting(released, reaction);
}

void Scheduler::carry_out(Decided decided, Reaction& reaction) {
  Decision& decision = decided.decision;
  std::optional<Carried>& past = decided.carried;
  auto& jobs = state_.snapshot.jobs;
  auto& changed = state_.snapshot.changed;
  take_in(decision);
  changed.erase(changed.begin(), changed.begin() + static_cast<std::ptrdiff_t>(state_.told));
  state_.told = 0;
  state_.snapshot.changed_since = decision.as_of;
  if (decision.as_of.next() != state_.snapshot.as_of) {  // the state has changed meanwhile
    settle_guests_of_the_gone(decision);
    std::erase_if(decision.run, [&](const Grant& g) { return jobs.find(g.job) == nullptr; });
    std::erase_if(decision.reject, [&](const Reject& r) { return jobs.find(r.job) == nullptr; });
    std::erase_if(decision.promise, [&](const Promise& p) {
      return jobs.find(p.job) == nullptr || p.finish < state_.snapshot.now;
    });
  }
  if (decision.again_at && *decision.again_at > state_.asked_at &&
      *decision.again_at <= state_.snapshot.now) {  // it has passed while the policy was deciding
    decision.again_at.reset();
    state_.decision_due = true;
  }
  if (jobs.unpreemptible() > 0 || state_.snapshot.cluster.unknown() > 0) keep_staying(decision);
  if (state_.snapshot.away > 0) drop_away(decision);
  const std::optional<Time> cooled =
      jobs.with_cooldown() > 0 ? keep_cooling(decision) : std::nullopt;
  auto changes = past ? from_the_past(std::move(*past)) : retarget(decision);
  if (!changes) {
    reaction.refused = changes.error().message;
    // The policy believes that they are gone and would never consider them again.
    for (const Reject& reject : decision.reject) {
      if (jobs.find(reject.job) != nullptr) changed.push_back(reject.job);
    }
    return;
  }
  state_.again_at =
      cooled && (!decision.again_at || *cooled < *decision.again_at) ? cooled : decision.again_at;
  link_pairs(decision);
  state_.targeted.clear();
  for (const auto& grant : decision.run) state_.targeted.push_back(grant.job);
  for (auto& change : *changes) jobs.find(change.job)->target = change.target;
  if (past) recount_free(state_);
  for (const auto& grant : decision.run) jobs.find(grant.job)->batch = grant.batch;
  for (auto& change : *changes) {
    issue(*jobs.find(change.job), reaction);
    reaction.changes.push_back(std::move(change));
  }
  for (const auto& grant : decision.run) issue_batch(*jobs.find(grant.job), reaction);
  for (auto& reject : decision.reject) {  // last, because a job may have a target to take back
    jobs.erase(reject.job);
    state_.snapshot.changed.push_back(reject.job);
    reaction.rejected.push_back(std::move(reject));
  }
}

// A job that was new to the policy and was not rejected is admitted, even if the decision cannot be
// carried out, because the policy believes so.
void Scheduler::take_in(const Decision& decision) {
  named_.new_round();
  for (const Reject& reject : decision.reject) {
    if (state_.snapshot.jobs.find(reject.job) != nullptr) named_.mark(reject.job.index());
  }
  for (std::size_t i = 0; i < state_.told; ++i) {
    JobView* job = state_.snapshot.jobs.find(state_.snapshot.changed[i]);
    if (job != nullptr && !job->stays_away() && !named_.marked(job->id.index()))
      job->taken_in = true;
  }
}

// The host of a guest has ended meanwhile. A guest that was already beside it continues alone on
// the same GPUs. A guest that was to join it waits for the next decision.
void Scheduler::settle_guests_of_the_gone(Decision& decision) const {
  const auto& jobs = state_.snapshot.jobs;
  std::erase_if(decision.run, [&](Grant& grant) {
    const auto* beside = std::get_if<Beside>(&grant.want);
    if (beside == nullptr || jobs.find(beside->host) != nullptr) return false;
    const JobView* guest = jobs.find(grant.job);
    if (guest == nullptr || guest->target.empty() || guest->shares_with) return true;
    grant.want = Exact{guest->target};
    return false;
  });
}

// Called before the last decision's list is replaced. Removes the old pairs and sets the new ones.
void Scheduler::link_pairs(const Decision& decision) {
  auto& jobs = state_.snapshot.jobs;
  for (const JobId id : state_.targeted) {
    if (JobView* job = jobs.find(id)) job->shares_with.reset();
  }
  for (const auto& grant : decision.run) {
    const auto* beside = std::get_if<Beside>(&grant.want);
    if (beside == nullptr) continue;
    jobs.find(grant.job)->shares_with = beside->host;
    jobs.find(beside->host)->shares_with = grant.job;
  }
}

// Their owners held or cancelled them while the policy was deciding. A job that was to be beside
// one of them waits for the next decision.
void Scheduler::drop_away(Decision& decision) const {
  const auto away = [&](JobId id) {
    const JobView* job = state_.snapshot.jobs.find(id);
    return job != nullptr && job->stays_away();
  };
  std::erase_if(decision.run, [&](const Grant& grant) {
    const auto* beside = std::get_if<Beside>(&grant.want);
    return away(grant.job) || (beside != nullptr && away(beside->host));
  });
  std::erase_if(decision.reject, [&](const Reject& reject) { return away(reject.job); });
}

// Cooldown: a job that was resized recently does not grow yet, unless it has a deadline or a
// promise, which are more important. This takes nothing from other jobs. Shrinking does not wait,
// because others may need the GPUs. Returns when the first of these jobs may grow.
std::optional<Time> Scheduler::keep_cooling(Decision& decision) const {
  std::optional<Time> cooled;
  for (Grant& grant : decision.run) {
    const JobView* job = state_.snapshot.jobs.find(grant.job);
    if (job == nullptr || job->target.empty() || job->shares_with) continue;
    if (job->cooled() <= state_.snapshot.now) continue;
    if (job->spec->deadline || promised(decision, grant.job)) continue;
    if (!job->spec->limits.legal(job->target.gpus())) continue;
    const auto want = without_growth(grant.want, job->target);
    if (!want) continue;
    grant.want = *want;
    grant.batch = job->batch;
    cooled = std::min(cooled.value_or(kNever), job->cooled());
  }
  return cooled;
}

Result<std::vector<Change>> Scheduler::from_the_past(Carried past) {
  if (!past.refused.empty()) return Error{std::move(past.refused)};
  return std::move(past.changes);
}

void Scheduler::keep_staying(Decision& decision) {
  named_.new_round();
  for (auto& grant : decision.run) {
    named_.mark(grant.job.index());
    // The node may have become unknown while the policy was deciding.
    const JobView* job = state_.snapshot.jobs.find(grant.job);
    if (job == nullptr || !std::holds_alternative<Count>(grant.want)) continue;
    if (out_of_reach(*job, state_.snapshot.cluster)) grant.want = Exact{job->target};
  }
  for (const JobId id : state_.targeted) {
    const JobView* job = state_.snapshot.jobs.find(id);
    if (job == nullptr || named_.marked(id.index())) continue;
    if (!job->stays() && !out_of_reach(*job, state_.snapshot.cluster)) continue;
    // A node that left may have taken the GPUs of the other job of a pair.
    const JobView* other =
        job->shares_with ? state_.snapshot.jobs.find(*job->shares_with) : nullptr;
    const bool pair_stays =
        other != nullptr && other->target == job->target && stays(decision, other->id, job->target);
    decision.run.push_back(
        {id, pair_stays ? Want(Beside{other->id}) : Want(Exact{job->target}), job->batch});
  }
}

Result<std::vector<Change>> Scheduler::retarget(const Decision& decision) {
  if (auto valid = validator_.check(decision, state_.snapshot); !valid) return valid.error();
  const bool only_counts =
      std::all_of(decision.run.begin(), decision.run.end(), [](const Grant& g) {
        return std::holds_alternative<Count>(g.want) || std::holds_alternative<Beside>(g.want);
      });
  if (only_counts)
    return differ_.diff(decision, state_.snapshot.jobs, state_.targeted, state_.free);
  FreeGpus untouched = state_.free;  // wishes for exact GPUs can collide; then nothing changes
  auto changes = differ_.diff(decision, state_.snapshot.jobs, state_.targeted, state_.free);
  if (!changes) state_.free = std::move(untouched);
  return changes;
}

// Brings a job one step closer to its target. The job first releases GPUs that it should not have.
// Only when the engine has confirmed this does it get what it lacks. So two jobs can swap GPUs
// without a deadlock.
void Scheduler::issue(JobView& job, Reaction& reaction) {
  if (job.release_due > 0 || job.held == job.target) return;
  Allocation keeps = common(job.held, job.target);
  if (keeps.gpus() < job.held.gpus()) {
    job.generation = job.generation.next();
    job.release_due = job.held.gpus() - keeps.gpus();
    if (keeps.empty()) {
      job.phase = Phase::stopping;
      reaction.commands.emplace_back(Stop{job.id, job.generation});
    } else {
      job.phase = Phase::resizing;
      job.resized = state_.snapshot.now;
      job.batch_told = job.batch;
      reaction.commands.emplace_back(Resize{job.id, job.generation, std::move(keeps), job.batch});
    }
    return;
  }
  const JobView* other = job.shares_with ? state_.snapshot.jobs.find(*job.shares_with) : nullptr;
  if (const auto node =
          in_use_on(minus(job.target, job.held), other != nullptr ? other->held : Allocation())) {
    state_.waiting_on[node->index()].push_back(job.id);
    return;
  }
  job.generation = job.generation.next();
  if (job.held.empty()) {
    if (job.has_run()) ++job.restarts;
    if (!job.has_run()) job.first_start = state_.snapshot.now;
    job.phase = Phase::starting;
    job.resized.reset();
    reaction.commands.emplace_back(Start{job.id, job.generation, job.target, job.batch});
  } else {
    job.phase = Phase::resizing;
    job.resized = state_.snapshot.now;
    reaction.commands.emplace_back(Resize{job.id, job.generation, job.target, job.batch});
  }
  job.batch_told = job.batch;
  set_held(state_, job, job.target);
}

// A job that keeps its GPUs may still get another batch. A job that waits for GPUs gets its batch
// with the GPUs.
void Scheduler::issue_batch(JobView& job, Reaction& reaction) {
  if (job.batch == job.batch_told || job.release_due > 0) return;
  if (job.held.empty() || job.held != job.target) return;
  job.generation = job.generation.next();
  job.phase = Phase::resizing;
  job.batch_told = job.batch;
  reaction.commands.emplace_back(Resize{job.id, job.generation, job.target, job.batch});
}

// What each job with GPUs should have: less than it holds if it was told to release some.
void Scheduler::say_again(Reaction& reaction) {
  for (const JobView& seen : state_.snapshot.jobs) {
    JobView& job = *state_.snapshot.jobs.find(seen.id);
    if (job.held.empty()) continue;
    Allocation keeps = job.release_due > 0 ? common(job.held, job.target) : job.held;
    if (keeps.empty()) {
      reaction.commands.emplace_back(Stop{job.id, job.generation});
      continue;
    }
    job.phase = Phase::resizing;
    job.batch_told = job.batch;
    reaction.commands.emplace_back(Resize{job.id, job.generation, std::move(keeps), job.batch});
  }
}

void Scheduler::issue_waiting(const Allocation& released, Reaction& reaction) {
  for (const auto& slice : released.slices()) {
    if (state_.waiting_on[slice.node.index()].empty()) continue;
    for (const JobId id : std::exchange(state_.waiting_on[slice.node.index()], {})) {
      if (JobView* job = state_.snapshot.jobs.find(id)) issue(*job, reaction);
    }
  }
}

// A node on which some of these GPUs are not available yet. GPUs held by the other job of a pair
// are available, unless a third job still holds them.
std::optional<NodeId> Scheduler::in_use_on(const Allocation& gpus, const Allocation& shared) const {
  for (const auto& slice : gpus.slices()) {
    const std::uint64_t in_the_way = (state_.busy.used(slice.node) & ~shared.mask_on(slice.node)) |
                                     state_.busy.shared(slice.node);
    if ((in_the_way & slice.mask) != 0) return slice.node;
  }
  return std::nullopt;
}

}  // namespace rubato::loop
