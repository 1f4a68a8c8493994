#include "rubato/node/node_jobs.h"

#include <algorithm>
#include <csignal>

#include "rubato/base/check.h"

namespace rubato::node {
namespace {

Generation generation_of(const std::variant<Place, StopJob>& command) {
  return std::visit([](const auto& c) { return c.generation; }, command);
}

JobEnd failed(std::string why) { return {JobEnd::How::failed, 1, std::move(why)}; }

ToMaster to_master(const std::variant<Place, StopJob>& command) {
  return std::visit([](const auto& c) { return ToMaster(c); }, command);
}

}  // namespace

// --- from the disk -------------------------------------------------------------------------------

void NodeJobs::found(const Found& found) {
  CHECK(found.launch.home == node_);
  const JobId id = found.launch.job;
  Job& job = jobs_[id];
  job.launch = found.launch;
  job.status.job = id;
  // Until its master reports, nobody knows which commands it has obeyed since, nor where workers
  // are that are just starting.
  job.status.generation = found.launch.generation;
  job.status.in_use = found.launch.slots;
  for (const Slot& slot : found.in_use) {
    if (std::find(job.status.in_use.begin(), job.status.in_use.end(), slot) ==
        job.status.in_use.end()) {
      job.status.in_use.push_back(slot);
    }
  }
  if (found.exit) take_end(job, *found.exit);
  if (found.master_lives) {
    orders_.emplace_back(Connect{id});
  } else {
    lose_master(id, job);
  }
}

// --- from the engine -----------------------------------------------------------------------------

void NodeJobs::engine_said(Time now, const ToAgent& message) {
  engine_heard_ = now;
  for (auto& [id, job] : jobs_) {
    if (job.phase != Phase::alive || !std::exchange(job.hung_up, false)) continue;
    orders_.emplace_back(Connect{id});
  }
  std::visit([&](const auto& m) { obey(now, m); }, message);
}

std::vector<JobStatus> NodeJobs::statuses() const {
  std::vector<JobStatus> all;
  all.reserve(jobs_.size());
  for (const auto& [id, job] : jobs_) all.push_back(job.status);
  return all;
}

void NodeJobs::obey(Time /*now*/, const AgentWelcome& /*welcome*/) {}
void NodeJobs::obey(Time /*now*/, const EngineBeat& /*beat*/) {}
void NodeJobs::obey(Time /*now*/, const DismissAgent& /*dismiss*/) {}

void NodeJobs::obey(Time now, const NodeTable& table) {
  std::map<JobId, Generation> wanted;
  for (const NodeTable::Entry& entry : table.jobs) wanted[entry.job] = entry.generation;
  for (auto& [id, job] : jobs_) {
    const auto entry = wanted.find(id);
    if (entry == wanted.end() || job.launch.generation > entry->second) {
      doom(now, id, job);
      continue;
    }
    job.told = std::max(job.told.value_or(entry->second), entry->second);
    job.status.generation = std::min(job.status.generation, *job.told);
  }
  settling_ = true;
  settle();
}

void NodeJobs::obey(Time now, const LaunchJob& start) {
  const JobId id = start.launch.job;
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return launch(start.launch);
  Job& job = found->second;
  if (start.launch.token != job.launch.token) return replace(now, id, job, start.launch);
  if (start.launch.generation <= newest(job).first || finished(job)) {
    if (job.phase == Phase::ended) tell(job);
  } else if (job.phase == Phase::ended) {
    launch(start.launch);
  } else if (job.doomed || job.end || job.phase == Phase::sweeping) {
    job.next = start.launch;
  } else {
    const JobLaunch& to = start.launch;
    const auto shares = to.shares ? to.shares->placed : std::vector<PlacedShare>();
    command(id, job, Place{to.generation, to.slots, to.batch, 0, shares});
  }
}

void NodeJobs::obey(Time /*now*/, const PlaceJob& order) {
  const auto found = jobs_.find(order.job);
  if (found == jobs_.end()) {
    return tell_not_here(order.job, order.place.generation, failed("it is not on this node"));
  }
  command(order.job, found->second, order.place);
}

void NodeJobs::obey(Time now, const HaltJob& order) {
  const auto found = jobs_.find(order.job);
  if (found == jobs_.end()) {
    return tell_not_here(order.job, order.stop.generation,
                         {JobEnd::How::stopped, 0, "it was not running"});
  }
  Job& job = found->second;
  command(order.job, job, order.stop);
  const bool counts = job.phase == Phase::alive && order.stop.generation >= newest(job).first;
  if (counts && !job.kill_due) job.kill_due = now + job.launch.grace + limits_.leave;
}

void NodeJobs::obey(Time now, const ForgetJob& order) {
  const auto found = jobs_.find(order.job);
  if (found == jobs_.end()) return;
  if (found->second.phase == Phase::ended) {
    forget(order.job, found->second);
    jobs_.erase(found);
  } else {
    // The daemon has stored an end of this job, so no run of it may continue.
    found->second.forgotten = true;
    doom(now, order.job, found->second);
  }
}

void NodeJobs::tell_not_here(JobId id, Generation generation, JobEnd end) {
  JobStatus status;
  status.job = id;
  status.generation = generation;
  status.ended = std::move(end);
  orders_.emplace_back(TellEngine{std::move(status)});
}

bool NodeJobs::finished(const Job& job) { return job.end && job.end->how == JobEnd::How::finished; }

NodeJobs::Age NodeJobs::age_of(const Command& command) {
  const auto* place = std::get_if<Place>(&command);
  return {generation_of(command), place == nullptr ? 0 : place->revision};
}

NodeJobs::Age NodeJobs::newest(const Job& job) {
  Age age =
      std::max(Age(job.launch.generation, 0), Age(job.status.generation, job.status.revision));
  if (job.command) age = std::max(age, age_of(*job.command));
  if (job.next) age = std::max(age, Age(job.next->generation, 0));
  return age;
}

// The job that is here is another one, which had this number before. Nothing of it is an answer.
void NodeJobs::replace(Time now, JobId id, Job& job, const JobLaunch& by) {
  if (job.phase == Phase::ended) return launch(by);
  doom(now, id, job);
  job.next = by;
}

void NodeJobs::launch(const JobLaunch& launch) {
  Job& job = jobs_[launch.job];
  job = Job();
  job.launch = launch;
  job.told = launch.generation;
  job.status.job = launch.job;
  job.status.generation = launch.generation;
  job.status.in_use = launch.slots;
  orders_.emplace_back(StartMaster{launch});
}

void NodeJobs::command(JobId id, Job& job, Command command) {
  const Generation generation = generation_of(command);
  if (job.phase == Phase::ended) {
    // The command may belong to a start that never arrived here. That nothing is alive answers it,
    // too.
    job.status.generation = std::max(job.status.generation, generation);
    return tell(job);
  }
  if (age_of(command) <= newest(job)) return;
  if (job.next) {  // a run that has not begun
    if (const auto* place = std::get_if<Place>(&command)) {
      job.next->generation = generation;
      job.next->slots = place->slots;
      job.next->batch = place->batch;
      if (job.next->shares) job.next->shares->placed = place->shares;
      return;
    }
    job.next.reset();
  }
  job.told = generation;
  job.command = std::move(command);
  pass_on(id, job);
}

void NodeJobs::pass_on(JobId id, Job& job) {
  if (!job.connected || job.phase != Phase::alive) return;
  if (job.doomed) {
    orders_.emplace_back(SendToMaster{id, KillJob{}});
  } else if (job.command) {
    orders_.emplace_back(SendToMaster{id, to_master(*job.command)});
  }
}

void NodeJobs::doom(Time now, JobId id, Job& job) {
  if (job.phase == Phase::ended) return;
  job.next.reset();
  if (std::exchange(job.doomed, true)) return;
  if (job.phase != Phase::alive) return;
  job.kill_due = now + limits_.obey;
  pass_on(id, job);
}

void NodeJobs::forget(JobId id, const Job& job) {
  orders_.emplace_back(RecordForgotten{id, job.launch.generation});
}

// --- from masters --------------------------------------------------------------------------------

void NodeJobs::started(JobId id) {
  const auto found = jobs_.find(id);
  if (found != jobs_.end() && found->second.phase == Phase::alive) {
    orders_.emplace_back(Connect{id});
  }
}

void NodeJobs::could_not_start(JobId id, const JobEnd& end) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second.phase != Phase::alive) return;
  if (found->second.resumes > 0) return lose_master(id, found->second);
  if (!found->second.end) found->second.end = end;
  sweep(id, found->second);
}

void NodeJobs::connected(Time /*now*/, JobId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  found->second.connected = true;
  found->second.throttled.reset();
  pass_on(id, found->second);
}

void NodeJobs::disconnected(JobId id) {
  const auto found = jobs_.find(id);
  if (found != jobs_.end()) found->second.connected = false;
}

void NodeJobs::master_said(Time now, JobId id, const JobStatus& status) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (job.phase != Phase::alive || job.end || status.generation < job.launch.generation) return;
  if (job.told && status.generation > *job.told) return;
  job.status = status;
  job.status.job = id;
  job.status.ended.reset();
  if (job.command && Age(status.generation, status.revision) >= age_of(*job.command))
    job.command.reset();
  if (status.ended) {
    job.end = status.ended;
    job.status.running = false;
    job.kill_due = now + limits_.leave;
  } else {
    tell(job);
  }
}

void NodeJobs::master_gone(JobId id, const std::optional<JobExit>& exit) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second.phase != Phase::alive) return;
  Job& job = found->second;
  if (exit) take_end(job, *exit);
  lose_master(id, job);
}

// Another master goes on with workers that are on other hosts. Otherwise the run has ended.
void NodeJobs::lose_master(JobId id, Job& job) {
  const bool goes_on = job.launch.shares && !job.end && !job.doomed && !job.overdue;
  if (!goes_on || job.resumes >= limits_.resumes) return sweep(id, job);
  job.connected = false;
  job.masterless = true;
}

void NodeJobs::resume_if_due(Time now, Job& job) {
  if (!job.masterless || now < job.resume_due) return;
  job.masterless = false;
  if (now - job.resumed > limits_.healthy) job.resumes = 0;
  job.resume_due = now + std::min(limits_.longest_resume, limits_.resume * (1 << job.resumes));
  job.resumed = now;
  ++job.resumes;
  orders_.emplace_back(StartMaster{job.launch});
}

void NodeJobs::take_end(Job& job, const JobExit& exit) {
  job.end = exit.end;
  job.recorded = true;
  job.status.progress = exit.progress;
  job.status.failures = exit.failures;
  job.status.resizes = exit.resizes;
}

JobEnd NodeJobs::end_without_a_word(const Job& job) {
  if (job.doomed) return failed("killed: it should not be running here");
  if (job.resumes > 0 && !job.overdue) return failed("its launcher died again and again");
  if (!job.overdue) return failed("its launcher died");
  return {JobEnd::How::stopped, 128 + SIGKILL, "killed: it did not stop in time"};
}

// Also after a normal end: a process that has left its worker's process group must not keep a GPU.
void NodeJobs::sweep(JobId id, Job& job) {
  if (!job.end) job.end = end_without_a_word(job);
  // Before the end is reported, so that the job does not come back to a node that cannot run it.
  if (job.end->infrastructure && trouble_.empty()) orders_.emplace_back(Probe{});
  // Before anything is killed, so that the next agent reports the same end, and that a master which
  // is just starting sees that it is too late.
  if (!job.recorded) record(id, job);
  job.phase = Phase::sweeping;
  job.connected = false;
  job.kill_due.reset();
  job.status.running = false;
  orders_.emplace_back(Sweep{id});
}

void NodeJobs::record(JobId id, const Job& job) {
  orders_.emplace_back(RecordExit{id, JobExit{job.launch.generation, *job.end, job.status.progress,
                                              job.status.failures, job.status.resizes}});
}

// The disk may be full.
void NodeJobs::record_again(Time now, JobId id, Job& job) {
  if (job.recorded || now < job.record_due) return;
  job.record_due = now + limits_.record;
  record(id, job);
}

void NodeJobs::recorded(JobId id) {
  const auto found = jobs_.find(id);
  if (found != jobs_.end()) found->second.recorded = true;
}

void NodeJobs::swept(JobId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second.phase != Phase::sweeping) return;
  ended(id, found->second);
}

void NodeJobs::ended(JobId id, Job& job) {
  job.phase = Phase::ended;
  job.status.in_use.clear();
  job.status.ended = job.end;
  // This end also answers the last command.
  if (job.command) {
    job.status.generation = std::max(job.status.generation, generation_of(*job.command));
    job.command.reset();
  }
  const auto next = std::exchange(job.next, std::nullopt);
  const bool finished = job.end->how == JobEnd::How::finished;
  if (next && (!finished || next->token != job.launch.token)) {
    // The old run is not reported: an engine that does not know the generation of this start would
    // take it for the end of the new run.
    launch(*next);
    return settle();
  }
  tell(job);
  if (job.forgotten) {
    forget(id, job);
    jobs_.erase(id);
  }
  settle();
}

void NodeJobs::settle() {
  if (!settling_) return;
  const bool rest = std::any_of(jobs_.begin(), jobs_.end(), [](const auto& entry) {
    return entry.second.doomed && entry.second.phase != Phase::ended;
  });
  if (rest) return;
  settling_ = false;
  orders_.emplace_back(TellEngine{AgentSettled{}});
}

// --- time ----------------------------------------------------------------------------------------

void NodeJobs::probed(Time now, const std::string& trouble) {
  const bool changed = trouble_ != trouble;
  trouble_ = trouble;
  patience_ = trouble.empty() ? Duration()
                              : std::clamp(patience_ * 2, limits_.probe, limits_.longest_probe);
  probe_due_ = now + patience_;
  if (changed) orders_.emplace_back(TellEngine{AgentBeat{trouble_}});
}

void NodeJobs::pass(Time now) {
  if (!trouble_.empty() && now >= probe_due_) orders_.emplace_back(Probe{});
  for (auto& [id, job] : jobs_) {
    if (job.phase == Phase::alive) {
      resume_if_due(now, job);
      kill_if_due(now, id, job);
      watch_guest(now, id, job);
      hang_up_if_alone(now, id, job);
    } else {
      record_again(now, id, job);
    }
  }
}

void NodeJobs::kill_if_due(Time now, JobId id, Job& job) {
  // A master that was found while it was about to exit.
  if (job.end && !job.kill_due) job.kill_due = now + limits_.leave;
  if (!job.kill_due || now < *job.kill_due) return;
  // As long as no file says that the job has finished, only its master can tell the next agent.
  if (finished(job) && !job.recorded && !job.doomed) return record_again(now, id, job);
  job.overdue = true;
  job.kill_due = now + limits_.obey;  // then it is tried again
  if (job.masterless) return sweep(id, job);
  orders_.emplace_back(KillMaster{id});
}

void NodeJobs::hang_up_if_alone(Time now, JobId id, Job& job) {
  const bool alone = !engine_heard_ || now - *engine_heard_ > limits_.engine;
  if (!alone || !job.launch.stop_after || job.hung_up) return;
  job.hung_up = true;
  job.connected = false;
  orders_.emplace_back(HangUp{id});
}

// The job in its slots to which it yields. A job that is ending may still use them.
const NodeJobs::Job* NodeJobs::host_of(JobId id, const Job& job) const {
  for (const auto& [other, host] : jobs_) {
    if (other == id || host.launch.opportunistic || host.phase == Phase::ended) continue;
    const auto& slots = host.status.in_use;
    const bool meet = std::any_of(slots.begin(), slots.end(), [&](const Slot& slot) {
      return std::find(job.status.in_use.begin(), job.status.in_use.end(), slot) !=
             job.status.in_use.end();
    });
    if (meet) return &host;
  }
  return nullptr;
}

void NodeJobs::watch_guest(Time now, JobId id, Job& job) {
  if (!job.launch.opportunistic || job.phase != Phase::alive || !job.connected) return;
  const Job* host = host_of(id, job);
  const auto beside = host == nullptr ? std::nullopt : std::optional(host->launch.job);
  if (std::exchange(job.host, beside) != beside) job.control = GuestControl();
  ThrottleJob word;
  if (host != nullptr) {
    const JobStatus& status = host->status;
    // A host that has started again, or was resized, has another speed.
    const auto form = static_cast<std::int64_t>(status.generation.value());
    word = {job.control.share(
                now, {form, status.progress.step, status.applied_at, job.status.progress.step}),
            true};
  }
  if (job.throttled == word && now < job.watch_due) return;
  job.throttled = word;
  job.watch_due = now + limits_.watch;
  orders_.emplace_back(SendToMaster{id, word});
}

const JobLaunch* NodeJobs::launch_of(JobId job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second.launch;
}

}  // namespace rubato::node
