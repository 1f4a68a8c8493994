#include "rubato/engine/engine_table.h"

#include <algorithm>

#include "rubato/base/check.h"
#include "rubato/engine/share_table.h"

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

EngineTable::EngineTable(Cluster cluster, Duration lease, Time now, const ShareTable* shares)
    : cluster_(std::move(cluster)),
      lease_(lease),
      shares_(shares),
      seats_(shares_ == nullptr ? cluster_.nodes().size() : 1),
      machines_(cluster_.nodes().size()) {
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    const NodeState state = cluster_.nodes()[i].state;
    machines_[i].state = state == NodeState::draining ? NodeState::up : state;
  }
  for (Seat& seat : seats_) seat.heard = now;
}

void EngineTable::set_state(NodeId id, NodeState state, std::string why) {
  if (machine(id).state == state && machine(id).why == why) return;
  machine(id).state = state;
  machine(id).why = why;
  facts_.emplace_back(NodeChanged{id, state, std::move(why)});
}

// Why no master can be started there; empty if one can.
std::string EngineTable::obstacle(const Seat& seat) {
  if (!seat.trouble.empty()) return seat.trouble;
  if (!seat.connected) return "its agent is not connected";
  return seat.settled ? "" : "its agent has not settled yet";
}

void EngineTable::judge_seat(NodeId id) {
  if (shares_ == nullptr) return judge(id);
  for (std::size_t i = 0; i < machines_.size(); ++i) judge(NodeId(static_cast<NodeId::rep>(i)));
}

void EngineTable::judge(NodeId id) {
  const Machine& here = machine(id);
  if (here.state == NodeState::down) return;
  const Seat& its = seat(seat_of(id));
  // A new agent has connected: the state of the node does not change until that agent has settled.
  if (its.connected && !its.settled && its.trouble.empty()) return;
  const std::string why = obstacle(its);
  if (why.empty()) return set_state(id, here.managed, here.managed_why);
  set_state(id, NodeState::unknown, why);
}

// --- what the daemon says ------------------------------------------------------------------------

// Nobody knows whether the last command was answered. A second Running does no harm.
void EngineTable::know(const KnownJob& known) {
  Job& job = jobs_[known.job];
  job.home = seat_of(known.home);
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
  if (!job.on_gpus) return;
  const bool stops = std::holds_alternative<Stop>(known.last);
  tell_shares(known.job, Shares::Wish::want, stops ? job.held : target_of(known.last));
  if (stops) tell_shares(known.job, Shares::Wish::stop);
  // The last engine may have died after it was told that a node is dead, before it had dealt with
  // the jobs there.
  if (touches_dead(job)) doom(known.job, job);
}

// Whether its master or a worker is on the machine.
bool EngineTable::is_on(const Job& job, NodeId machine) const {
  return (shares_ == nullptr && job.home == machine) || job.held.mask_on(machine) != 0;
}

bool EngineTable::touches_dead(const Job& job) {
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    if (machines_[i].state == NodeState::down && is_on(job, NodeId(static_cast<NodeId::rep>(i))))
      return true;
  }
  return false;
}

Allocation EngineTable::held_by_shares(JobId id) const {
  if (shares_ == nullptr) return {};
  return shares_->ready() ? shares_->held(id) : jobs_.at(id).held;
}

void EngineTable::tell_shares(JobId id, Shares::Wish wish, const Allocation& gpus) {
  if (shares_ != nullptr) orders_.emplace_back(Shares{id, wish, jobs_.at(id).told, gpus});
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
  const NodeId home = seat_of(start.gpus.slices().front().node);
  CHECK(home.index() < seats_.size());
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
  job.doomed = job.leaving = false;
  job.ends_alone.reset();
  job.status.ended.reset();
  job.status.running = false;
  tell_shares(id, Shares::Wish::want, start.gpus);
  use(id, job);
}

void EngineTable::told(JobId id, Job& job, const Resize& resize) {
  if (job.on_gpus) return place(id, job, resize.gpus);
  job.answered = true;
  facts_.emplace_back(failed(id, job));
}

void EngineTable::told(JobId id, Job& job, const Stop& stop) {
  if (job.on_gpus) {
    if (!job.leaving) tell_shares(id, Shares::Wish::stop);
    return send(id, job);
  }
  job.answered = true;
  facts_.emplace_back(ReleasedFact{id, stop.generation, {}, true});
}

void EngineTable::place(JobId id, Job& job, const Allocation& gpus) {
  job.held.add(minus(gpus, job.held));
  if (job.leaving) return;  // its end answers the command
  tell_shares(id, Shares::Wish::want, gpus);
  use(id, job);
}

// The operator may have declared a node dead while the command was on its way.
void EngineTable::use(JobId id, Job& job) { touches_dead(job) ? doom(id, job) : send(id, job); }

// Sends the newest command, as a message that fits what the agent may know. The command waits until
// the agent of the home is there, and until no process that should not be there uses the GPUs.
void EngineTable::send(JobId id, Job& job) {
  if (!seat(job.home).settled || job.doomed || job.leaving) return;
  if (shares_ != nullptr && !shares_->ready()) return;
  const Allocation target = target_of(job.last);
  const bool clear =
      std::all_of(target.slices().begin(), target.slices().end(),
                  [&](const Slice& slice) { return seat(seat_of(slice.node)).settled_once; });
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
  Seat& here = seat(id);
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
  seat(id).heard = now;
  digest(id, status, false);
}

void EngineTable::heard_beat(Time now, NodeId id, const std::string& trouble) {
  if (!connected(id)) return;
  seat(id).heard = now;
  seat(id).trouble = trouble;
  judge_seat(id);
}

void EngineTable::settled(Time now, NodeId id) {
  if (!connected(id)) return;
  seat(id).heard = now;
  seat(id).settled = seat(id).settled_once = true;
  judge_seat(id);
  for (auto& [name, job] : jobs_) {
    // A stop is obeyed when no process is left. Until then the agent, also a new one, is told.
    const bool obeys =
        job.shown && job.status.generation >= job.told && !std::holds_alternative<Stop>(job.last);
    const bool concerned =
        job.home == id || (shares_ == nullptr && target_of(job.last).mask_on(id) != 0);
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
  if (shares_ != nullptr) orders_.emplace_back(Heard{job.status});
  if (finished) return leave(id, job);
  job.heard = true;
  if (job.doomed) return;
  obey_status(id, job);
}

void EngineTable::obey_status(JobId id, Job& job) {
  if (job.status.ended) return leave(id, job);
  if (job.status.generation < job.told || std::holds_alternative<Stop>(job.last)) return;
  const auto in_use = allocation_of(job.status.in_use, cluster_);
  if (!in_use) return;  // slots of another cluster: no GPU may count as free
  const Allocation used = minus(minus(job.held, *in_use), target_of(job.last));
  const Allocation gone = minus(used, held_by_shares(id));
  if (!gone.empty()) {
    job.held.remove(gone);
    facts_.emplace_back(ReleasedFact{id, job.told, gone, false});
  }
  const bool let_go = minus(job.held, target_of(job.last)).empty();
  if (!job.status.running || !let_go || job.answered) return;
  job.answered = true;
  facts_.emplace_back(RunningFact{id, job.told});
}

// No process of the job is left on its seat.
void EngineTable::leave(JobId id, Job& job) {
  const auto& end = job.status.ended;
  job.finished = end && end->how == JobEnd::How::finished;
  tell_shares(id, Shares::Wish::end);
  job.leaving = !held_by_shares(id).empty();
  if (job.leaving) return;
  job.finished ? finish(id, job) : this->end(id, job);
}

void EngineTable::look_again(JobId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || !found->second.on_gpus) return;
  Job& job = found->second;
  if (job.leaving) return leave(id, job);
  if (!job.doomed && job.shown) obey_status(id, job);
}

void EngineTable::send_again(JobId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || !found->second.on_gpus) return;
  Job& job = found->second;
  if (job.heard && !job.leaving && !std::holds_alternative<Stop>(job.last)) send(id, job);
}

void EngineTable::shares_ready() {
  for (auto& [id, job] : jobs_) {
    if (job.on_gpus && !(job.shown && job.status.generation >= job.told)) send(id, job);
    look_again(id);
  }
}

void EngineTable::add_node(const NewNode& node) {
  cluster_.add(node);
  machines_.emplace_back();
}

void EngineTable::set_machine(NodeId id, NodeState state, const std::string& why) {
  machine(id).managed = state;
  machine(id).managed_why = why;
  judge(id);
}

void EngineTable::finish(JobId id, Job& job) {
  job.finished = true;
  job.on_gpus = false;
  job.doomed = job.leaving = false;
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
  job.on_gpus = job.leaving = false;
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
  if (std::exchange(seat(id).connected, false)) seat(id).trouble.clear();
  seat(id).settled = false;
  judge_seat(id);
}

// A node that is up keeps its lease.
void EngineTable::has_no_agent(NodeId id, const std::string& why) {
  if (connected(id)) return;
  seat(id).trouble = why;
  if (shares_ != nullptr || machine(id).state == NodeState::unknown) judge_seat(id);
}

void EngineTable::pass(Time now) {
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    const NodeId id(static_cast<NodeId::rep>(i));
    if (now - seats_[i].heard <= lease_) continue;
    if (seats_[i].connected) orders_.emplace_back(Disconnect{id});
    lost(id);
  }
  for (auto& [id, job] : jobs_) {
    if (!job.on_gpus || job.doomed || !job.ends_alone || connected(job.home)) continue;
    if (now - seat(job.home).heard > *job.ends_alone) doom(id, job);
  }
}

void EngineTable::doom(JobId id, Job& job) {
  if (!job.on_gpus || job.doomed) return;
  job.doomed = true;
  orders_.emplace_back(Sweep{id, job.told});
}

bool EngineTable::sweeping(JobId id) const {
  const auto found = jobs_.find(id);
  return found != jobs_.end() && found->second.doomed;
}

void EngineTable::swept(JobId id, const std::optional<JobEnd>& finished) {
  if (!sweeping(id)) return;
  Job& job = jobs_.at(id);
  if (finished) job.status.ended = finished;
  leave(id, job);
}

void EngineTable::mark_down(NodeId id) {
  set_state(id, NodeState::down, "");
  if (shares_ != nullptr) orders_.emplace_back(Mark{id, true});
  for (auto& [name, job] : jobs_) {
    if (is_on(job, id)) doom(name, job);
  }
}

void EngineTable::mark_up(NodeId id) {
  if (machine(id).state != NodeState::down) return;
  if (shares_ != nullptr) orders_.emplace_back(Mark{id, false});
  const std::string why = obstacle(seat(seat_of(id)));
  if (why.empty()) return set_state(id, machine(id).managed, machine(id).managed_why);
  set_state(id, NodeState::unknown, why);
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
