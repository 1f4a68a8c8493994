#include "rubato/loop/state.h"

#include <algorithm>
#include <utility>

#include "rubato/base/check.h"

namespace rubato::loop {
namespace {

JobView* current(State& state, JobId id, Generation generation) {
  JobView* job = state.snapshot.jobs.find(id);
  return job != nullptr && job->generation == generation ? job : nullptr;
}

// Something has happened that a policy should see, so it will be asked again.
void note_change(State& state, JobId job) {
  state.snapshot.changed.push_back(job);
  state.decision_due = true;
}

void drop_target(State& state, JobView& job) {
  give_up(state, job, Allocation(job.target));
  if (!job.shares_with) return;
  state.snapshot.jobs.find(*job.shares_with)->shares_with.reset();
  job.shares_with.reset();
}

struct Folder {
  State& state;
  Time now;

  void operator()(const Submitted& e) const {
    JobView job;
    job.id = e.job;
    job.spec = e.spec;
    job.speed = e.speed;
    job.submitted = now;
    job.last_ran = now;
    job.work = e.work;
    job.progress = {e.work, now, 0};
    state.snapshot.jobs.insert(std::move(job));
    note_change(state, e.job);
  }

  void operator()(const Running& e) const {
    JobView* job = current(state, e.job, e.generation);
    if (job == nullptr) return;
    job->progress = e.progress;
    job->phase = Phase::running;
  }

  void operator()(const Released& e) const {
    JobView* job = current(state, e.job, e.generation);
    if (job == nullptr) return;
    job->progress = e.progress;
    const int held_before = job->held.gpus();
    set_held(state, *job, e.stopped ? Allocation() : minus(job->held, e.gpus));
    job->release_due = e.stopped ? 0 : job->release_due - (held_before - job->held.gpus());
    if (!e.stopped) return;
    job->phase = Phase::pending;
    if (job->leaving) leave(*job);
  }

  // In any generation: a command that was sent before the end was known cannot undo it, and gets no
  // answer.
  void operator()(const Finished& e) const {
    JobView* job = state.snapshot.jobs.find(e.job);
    if (job == nullptr) return;
    set_held(state, *job, Allocation());
    drop_target(state, *job);
    leave(*job);
  }

  void operator()(const Failed& e) const {
    JobView* job = current(state, e.job, e.generation);
    if (job == nullptr) return;
    set_held(state, *job, Allocation());
    drop_target(state, *job);
    job->progress = e.progress;
    job->phase = Phase::pending;
    job->release_due = 0;
    if (job->leaving) return leave(*job);
    note_change(state, e.job);
  }

  void operator()(const NodeChanged& e) const {
    const bool up = e.state == NodeState::up;
    state.snapshot.cluster.set_state(e.node, e.state);
    state.free.set_up(e.node, up);
    state.decision_due = true;
    if (up) return;
    // If a job was still waiting to start there, the policy must decide about it again.
    for (const JobId id : state.targeted) {
      JobView* job = state.snapshot.jobs.find(id);
      if (job == nullptr) continue;
      const Allocation waits_for = minus(job->target, job->held);
      if (waits_for.mask_on(e.node) == 0) continue;
      give_up(state, *job, waits_for);
      note_change(state, id);
    }
  }

  void operator()(const NodeAdded& e) const {
    CHECK(e.node.index() == state.snapshot.cluster.nodes().size());
    state.snapshot.cluster.add(e.added);
    state.busy.add_node();
    state.waiting_on.emplace_back();
    recount_free(state);
    state.decision_due = true;
  }

  // Jobs leave these GPUs at once. The Scheduler tells them.
  void operator()(const Reserved& e) const {
    state.snapshot.cluster.set_reserved(e.node, e.gpus);
    state.free.set_reserved(e.node, e.gpus);
    state.decision_due = true;
    for (const JobId id : jobs_to_move(state, e)) {
      JobView& job = *state.snapshot.jobs.find(id);
      Allocation lost(job.target.type());
      lost.add({e.node, job.target.mask_on(e.node) & e.gpus});
      // A job that still waits for its GPUs, or cannot use the rest, waits for the next decision.
      const bool goes_on =
          !job.held.empty() && job.spec->limits.legal(job.target.gpus() - lost.gpus());
      goes_on ? give_up(state, job, lost) : drop_target(state, job);
      note_change(state, id);
    }
  }

  void operator()(const Estimated& e) const {
    JobView* job = state.snapshot.jobs.find(e.job);
    if (job == nullptr) return;
    job->speed = e.speed;
    if (e.losses != nullptr) job->losses = e.losses;
    if (e.skew && e.skew != job->spec->skew) {
      JobSpec spec = *job->spec;
      spec.skew = e.skew;
      job->spec = std::make_shared<const JobSpec>(std::move(spec));
    }
    note_change(state, e.job);
  }

  // The Scheduler sends the Stop.
  void operator()(const Cancelled& e) const {
    JobView* job = state.snapshot.jobs.find(e.job);
    if (job == nullptr || job->leaving) return;
    stay_away(*job, job->leaving);
    if (job->held.empty()) leave(*job);
  }

  void operator()(const HoldChanged& e) const {
    JobView* job = state.snapshot.jobs.find(e.job);
    if (job == nullptr || job->on_hold == e.on) return;
    if (e.on) return stay_away(*job, job->on_hold);
    job->on_hold = false;
    if (!job->leaving) --state.snapshot.away;
    note_change(state, e.job);
  }

  void operator()(const Limited& e) const {
    JobView* job = state.snapshot.jobs.find(e.job);
    if (job == nullptr) return;
    JobSpec spec = *job->spec;
    spec.limits = e.limits;
    // Policies for rigid jobs use the requested count.
    if (!spec.limits.legal(spec.requested)) spec.requested = spec.limits.smallest();
    job->spec = std::make_shared<const JobSpec>(std::move(spec));
    // A pair has the same GPUs. If that no longer holds, the next decision handles it.
    if (e.keeps && !job->shares_with) give_up(state, *job, minus(job->target, *e.keeps));
    note_change(state, e.job);
  }

  void operator()(const Due& e) const {
    JobView* job = state.snapshot.jobs.find(e.job);
    if (job == nullptr) return;
    JobSpec spec = *job->spec;
    spec.deadline = e.deadline;
    job->spec = std::make_shared<const JobSpec>(std::move(spec));
    note_change(state, e.job);
  }

  // The Scheduler sends the commands again.
  void operator()(const Skipped& e) const {
    JobTable& jobs = state.snapshot.jobs;
    jobs.use_up_to(JobId(jobs.next_id().value() + static_cast<JobId::rep>(e.jobs)));
    for (const JobView& seen : jobs) {
      JobView& job = *jobs.find(seen.id);
      job.generation =
          Generation(job.generation.value() + static_cast<Generation::rep>(e.generations));
    }
  }

  void operator()(const Wake& /*event*/) const { state.decision_due = true; }
  void operator()(const Decided& /*event*/) const {}

  // Sets one of the two flags of a job that should have no GPUs from now on.
  void stay_away(JobView& job, bool& flag) const {
    if (!job.stays_away()) ++state.snapshot.away;
    flag = true;
    drop_target(state, job);
    note_change(state, job.id);
  }

  // The job no longer has GPUs.
  void leave(JobView& job) const {
    if (job.stays_away()) --state.snapshot.away;
    const JobId id = job.id;
    state.snapshot.jobs.erase(id);
    note_change(state, id);
  }
};

}  // namespace

State::State(Cluster cluster)
    : free(cluster), busy(cluster.nodes().size()), waiting_on(cluster.nodes().size()) {
  snapshot.cluster = std::move(cluster);
}

void fold(State& state, Time now, const Event& event) {
  state.snapshot.now = now;
  state.snapshot.as_of = state.snapshot.as_of.next();
  std::visit(Folder{state, now}, event);
}

std::vector<JobId> jobs_to_move(const State& state, const Reserved& reserved) {
  std::vector<JobId> jobs;
  for (const JobView& job : state.snapshot.jobs) {
    if ((job.target.mask_on(reserved.node) & reserved.gpus) != 0) jobs.push_back(job.id);
  }
  return jobs;
}

void give_up(State& state, JobView& job, const Allocation& gpus) {
  if (job.shares_with) {
    state.free.give(minus(gpus, state.snapshot.jobs.find(*job.shares_with)->target));
  } else {
    state.free.give(gpus);
  }
  job.target.remove(gpus);
}

void recount_free(State& state) {
  state.free = free_beside(state.snapshot.jobs, state.snapshot.cluster);
}

void set_held(State& state, JobView& job, Allocation gpus) {
  const Time now = state.snapshot.now;
  state.busy.give(job.held);
  state.busy.take(gpus);
  job.attained_before = job.attained(now);
  job.ran_before = job.ran(now);
  job.counted_from = now;
  if (!job.held.empty() && gpus.empty()) job.last_ran = now;
  job.held = std::move(gpus);
}

}  // namespace rubato::loop
