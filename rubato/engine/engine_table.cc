#include "rubato/engine/engine_table.h"

#include <algorithm>

#include "rubato/base/check.h"

namespace rubato::engine {
namespace {

std::pair<JobId, Generation> name_of(const Command& command) {
  return std::visit([](const auto& c) { return std::pair(c.job, c.generation); }, command);
}

// The GPUs that the job should have when it has obeyed.
Allocation target_of(const Command& command) {
  if (const auto* start = std::get_if<Start>(&command)) return start->gpus;
  if (const auto* resize = std::get_if<Resize>(&command)) return resize->gpus;
  return {};
}

std::optional<Batch> batch_of(const Command& command) {
  if (const auto* start = std::get_if<Start>(&command)) return start->batch;
  if (const auto* resize = std::get_if<Resize>(&command)) return resize->batch;
  return std::nullopt;
}

bool says_nothing(const JobProgress& progress) {
  return progress.step == 0 && !(progress.samples > 0);
}

}  // namespace

EngineTable::EngineTable(Cluster cluster, Duration lease, Time now)
    : cluster_(std::move(cluster)), lease_(lease), nodes_(cluster_.nodes().size()) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const NodeState state = cluster_.nodes()[i].state;
    nodes_[i].state = state == NodeState::draining ? NodeState::up : state;
    nodes_[i].heard = now;
  }
}

void EngineTable::set_state(NodeId id, NodeState state, std::string why) {
  if (node(id).state == state && node(id).why == why) return;
  node(id).state = state;
  node(id).why = why;
  facts_.emplace_back(NodeChanged{id, state, std::move(why)});
}

// Why a node cannot be used; empty if it can.
std::string EngineTable::obstacle(const Node& node) {
  if (!node.trouble.empty()) return node.trouble;
  if (!node.connected) return "its agent is not connected";
  return node.settled ? "" : "its agent has not settled yet";
}

void EngineTable::judge(NodeId id) {
  const Node& here = node(id);
  if (here.state == NodeState::down) return;
  // A new agent has connected: the state of the node does not change until that agent has settled.
  if (here.connected && !here.settled && here.trouble.empty()) return;
  const std::string why = obstacle(here);
  set_state(id, why.empty() ? NodeState::up : NodeState::unknown, why);
}

// --- what the daemon says ------------------------------------------------------------------------

// Nobody knows whether the last command was answered. A second Running does no harm.
void EngineTable::know(const KnownJob& known) {
  Job& job = jobs_[known.job];
  job.home = known.home;
  job.last = known.last;
  job.told = name_of(known.last).second;
  // Before a Resize there was a Start, but its generation is not stored, so any status may be of
  // this run. A status of an earlier run can only say that the job has ended, and then it is not
  // there.
  job.start = std::holds_alternative<Start>(known.last) ? job.told : Generation(0);
  job.heard = !std::holds_alternative<Start>(known.last);
  job.held = known.held;
  job.held.add(minus(target_of(known.last), known.held));
  job.on_gpus = !job.held.empty();
  // The last engine may have died after it was told that a node is dead, before it had dealt with
  // the jobs there.
  if (touches_dead(job)) doom(known.job, job);
}

bool EngineTable::touches_dead(const Job& job) {
  if (node(job.home).state == NodeState::down) return true;
  return std::any_of(job.held.slices().begin(), job.held.slices().end(),
                     [&](const Slice& slice) { return node(slice.node).state == NodeState::down; });
}

void EngineTable::ends_alone_after(JobId job, Duration silence) {
  const auto found = jobs_.find(job);
  if (found != jobs_.end()) found->second.ends_alone = silence;
}

void EngineTable::told(const Command& command) {
  const auto [id, generation] = name_of(command);
  Job& job = jobs_[id];
  if (job.finished || generation <= job.told) return;
  job.told = generation;
  job.answered = false;
  job.last = command;
  std::visit([&, id = id](const auto& c) { told(id, job, c); }, command);
}

void EngineTable::told(JobId id, Job& job, const Start& start) {
  if (job.on_gpus) return place(id, job, start.gpus);
  CHECK(!start.gpus.empty());
  const NodeId home = start.gpus.slices().front().node;
  CHECK(home.index() < nodes_.size());
  // The reports of the old home about the earlier run have been used. They must not count for this
  // run.
  const bool ran_before = job.start > Generation(0);
  if (ran_before && job.home != home && connected(job.home)) {
    orders_.emplace_back(Tell{job.home, ForgetJob{id}});
  }
  job.home = home;
  job.start = start.generation;
  job.on_gpus = true;
  job.held = start.gpus;
  job.heard = job.shown = false;
  job.doomed = false;
  job.ends_alone.reset();
  job.status.ended.reset();
  job.status.running = false;
  use(id, job);
}

void EngineTable::told(JobId id, Job& job, const Resize& resize) {
  if (job.on_gpus) return place(id, job, resize.gpus);
  job.answered = true;
  facts_.emplace_back(failed(id, job));
}

void EngineTable::told(JobId id, Job& job, const Stop& stop) {
  if (job.on_gpus) return send(id, job);
  job.answered = true;
  facts_.emplace_back(ReleasedFact{id, stop.generation, {}, true});
}

void EngineTable::place(JobId id, Job& job, const Allocation& gpus) {
  job.held.add(minus(gpus, job.held));
  use(id, job);
}

// The operator may have declared a node dead while the command was on its way.
void EngineTable::use(JobId id, Job& job) { touches_dead(job) ? doom(id, job) : send(id, job); }

// Sends the newest command, as a message that fits what the agent may know. The command waits until
// the agent of the home is there, and until no process that should not be there uses the GPUs.
void EngineTable::send(JobId id, Job& job) {
  if (!node(job.home).settled || job.doomed) return;
  const Allocation target = target_of(job.last);
  const bool clear = std::all_of(target.slices().begin(), target.slices().end(),
                                 [&](const Slice& slice) { return node(slice.node).settled_once; });
  if (!clear) return;
  if (std::holds_alternative<Stop>(job.last)) {
    orders_.emplace_back(Tell{job.home, HaltJob{id, StopJob{job.told}}});
  } else if (!job.heard) {
    // From now on a status with an older generation is of a run that this one replaces.
    job.start = job.told;
    orders_.emplace_back(Launch{job.home, id, job.told, target_of(job.last), batch_of(job.last)});
  } else {
    orders_.emplace_back(Tell{job.home, PlaceJob{id, Place{job.told, slots_of(target_of(job.last)),
                                                           batch_of(job.last)}}});
  }
}

void EngineTable::forget(JobId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  CHECK(!found->second.on_gpus);
  if (connected(found->second.home)) {
    orders_.emplace_back(Tell{found->second.home, ForgetJob{id}});
  }
  jobs_.erase(found);
  reported_.erase(id);
}

// --- what agents say -----------------------------------------------------------------------------

void EngineTable::said_hello(Time now, NodeId id, const std::vector<JobStatus>& jobs) {
  Node& here = node(id);
  here.connected = true;
  here.settled = false;
  here.trouble.clear();
  here.heard = now;
  orders_.emplace_back(Tell{id, AgentWelcome{}});
  for (auto& [name, job] : jobs_) {
    if (job.home == id) job.shown = false;
  }
  for (const JobStatus& status : jobs) digest(id, status, true);
  send_table(id);
}

void EngineTable::send_table(NodeId id) {
  NodeTable table;
  for (const auto& [name, job] : jobs_) {
    if (job.home == id && job.on_gpus && !job.doomed) table.jobs.push_back({name, job.told});
  }
  orders_.emplace_back(Tell{id, std::move(table)});
}

void EngineTable::heard(Time now, NodeId id, const JobStatus& status) {
  if (!connected(id)) return;
  node(id).heard = now;
  digest(id, status, false);
}

void EngineTable::heard_beat(Time now, NodeId id, const std::string& trouble) {
  if (!connected(id)) return;
  node(id).heard = now;
  node(id).trouble = trouble;
  judge(id);
}

void EngineTable::settled(Time now, NodeId id) {
  if (!connected(id)) return;
  node(id).heard = now;
  node(id).settled = node(id).settled_once = true;
  judge(id);
  for (auto& [name, job] : jobs_) {
    // A stop is obeyed when no process is left. Until then the agent, also a new one, is told.
    const bool obeys =
        job.shown && job.status.generation >= job.told && !std::holds_alternative<Stop>(job.last);
    const bool concerned = job.home == id || target_of(job.last).mask_on(id) != 0;
    if (job.on_gpus && concerned && !obeys) send(name, job);
  }
}

void EngineTable::digest(NodeId from, const JobStatus& status, bool in_hello) {
  const auto found = jobs_.find(status.job);
  if (found == jobs_.end() || found->second.home != from) {
    // Its end is stored, or its journal was lost. A job that is alive is killed, because it is not
    // in the table.
    if (status.ended) {
      orders_.emplace_back(Tell{from, ForgetJob{status.job}});
    } else if (!in_hello) {
      send_table(from);
    }
    return;
  }
  auto& [id, job] = *found;
  if (job.finished) return;
  const bool finished = status.ended && status.ended->how == JobEnd::How::finished;
  if (!finished && status.generation < job.start) return;
  job.shown = true;
  if (!finished && !job.on_gpus) {
    if (!status.ended && !in_hello) send_table(from);
    return;
  }
  const JobProgress known = job.status.progress;
  job.status = status;
  job.status.job = id;
  // An agent that has not heard from the master yet knows no progress.
  if (says_nothing(status.progress)) job.status.progress = known;
  reported_.insert(id);
  if (finished) return finish(id, job);
  job.heard = true;
  if (job.doomed) return;
  obey_status(id, job);
}

void EngineTable::obey_status(JobId id, Job& job) {
  if (job.status.ended) return end(id, job);
  if (job.status.generation < job.told || std::holds_alternative<Stop>(job.last)) return;
  const auto in_use = allocation_of(job.status.in_use, cluster_);
  if (!in_use) return;  // slots of another cluster: no GPU may count as free
  const Allocation gone = minus(minus(job.held, *in_use), target_of(job.last));
  if (!gone.empty()) {
    job.held.remove(gone);
    facts_.emplace_back(ReleasedFact{id, job.told, gone, false});
  }
  if (!job.status.running || job.answered) return;
  job.answered = true;
  facts_.emplace_back(RunningFact{id, job.told});
}

void EngineTable::finish(JobId id, Job& job) {
  job.finished = true;
  job.on_gpus = false;
  job.doomed = false;
  job.held = Allocation();
  facts_.emplace_back(
      Finished{id, job.told, job.status.ended ? job.status.ended->at : std::nullopt});
}

// The answer to the last command.
FailedFact EngineTable::failed(JobId id, const Job& job) {
  return {id, job.told, job.infrastructure, job.why};
}

// The job has no process any more. The last command says what that means.
void EngineTable::end(JobId id, Job& job) {
  Allocation held = std::exchange(job.held, Allocation());
  job.on_gpus = false;
  // A job is swept because its node was given up.
  const bool swept = std::exchange(job.doomed, false);
  const auto& end = job.status.ended;
  job.infrastructure = swept || (end && end->infrastructure);
  job.why = swept ? "its node was lost" : end ? end->why : "";
  job.answered = true;
  if (std::holds_alternative<Stop>(job.last)) {
    facts_.emplace_back(ReleasedFact{id, job.told, std::move(held), true});
  } else {
    facts_.emplace_back(failed(id, job));
  }
}

// --- silence and death ---------------------------------------------------------------------------

void EngineTable::lost(NodeId id) {
  if (std::exchange(node(id).connected, false)) node(id).trouble.clear();
  node(id).settled = false;
  judge(id);
}

// A node that is up keeps its lease.
void EngineTable::has_no_agent(NodeId id, const std::string& why) {
  if (connected(id)) return;
  node(id).trouble = why;
  if (node(id).state == NodeState::unknown) judge(id);
}

void EngineTable::pass(Time now) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const NodeId id(static_cast<NodeId::rep>(i));
    if (now - nodes_[i].heard <= lease_) continue;
    if (nodes_[i].connected) orders_.emplace_back(Disconnect{id});
    lost(id);
  }
  for (auto& [id, job] : jobs_) {
    if (!job.on_gpus || job.doomed || !job.ends_alone || connected(job.home)) continue;
    if (now - node(job.home).heard > *job.ends_alone) doom(id, job);
  }
}

void EngineTable::doom(JobId id, Job& job) {
  if (!job.on_gpus || job.doomed) return;
  job.doomed = true;
  orders_.emplace_back(Sweep{id, job.told});
}

void EngineTable::swept(JobId id, const std::optional<JobEnd>& finished) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || !found->second.doomed) return;
  if (!finished) return end(id, found->second);
  found->second.status.ended = finished;
  finish(id, found->second);
}

void EngineTable::mark_down(NodeId id) {
  set_state(id, NodeState::down, "");
  for (auto& [name, job] : jobs_) {
    if (job.home == id || job.held.mask_on(id) != 0) doom(name, job);
  }
}

void EngineTable::mark_up(NodeId id) {
  if (node(id).state != NodeState::down) return;
  const std::string why = obstacle(node(id));
  set_state(id, why.empty() ? NodeState::up : NodeState::unknown, why);
}

// --- questions -----------------------------------------------------------------------------------

std::vector<JobStatus> EngineTable::take_reports() {
  std::vector<JobStatus> reports;
  reports.reserve(reported_.size());
  for (const JobId id : reported_) reports.push_back(jobs_.at(id).status);
  reported_.clear();
  return reports;
}

std::optional<NodeId> EngineTable::home_of(JobId job) const {
  const auto found = jobs_.find(job);
  if (found == jobs_.end() || !found->second.on_gpus) return std::nullopt;
  return found->second.home;
}

bool EngineTable::waits() const {
  return std::any_of(jobs_.begin(), jobs_.end(), [](const auto& entry) {
    const Job& job = entry.second;
    return job.on_gpus && (job.doomed || !job.answered);
  });
}

Allocation EngineTable::held_gpus(JobId job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? Allocation() : found->second.held;
}

}  // namespace rubato::engine
