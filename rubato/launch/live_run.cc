#include "rubato/launch/live_run.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <utility>

namespace rubato::launch {
namespace {

// On the node where the job has the most slots. A job that shrinks keeps that node longest.
Slot first_slot(const std::vector<Slot>& slots) {
  std::map<NodeId, int> on_node;
  for (const Slot& slot : slots) ++on_node[parse_slot(slot).value_or(SlotPlace()).node];
  Slot best;
  int most = 0;
  for (const Slot& slot : slots) {
    const int here = on_node[parse_slot(slot).value_or(SlotPlace()).node];
    if (here > most) best = slot;
    most = std::max(most, here);
  }
  return best;
}

std::string with_text(const std::string& text) { return text.empty() ? "" : ": " + text; }

}  // namespace

bool LiveRun::planned(Uid uid) const {
  return std::find(plan_.workers.begin(), plan_.workers.end(), uid) != plan_.workers.end();
}

void LiveRun::begin(Time now) { begin_round(now); }

// Its workers connect again. Where they listen is only known then.
void LiveRun::adopt(Time now, const AdoptedRun& run) {
  round_ = 1;
  counts_ = run.counts;
  next_uid_ = run.next_uid;
  spoke_ = run.spoke;
  founded_ = run.founded;
  plan_ = {1, run.planned};
  for (const auto& [uid, slot] : run.workers) {
    Worker worker;
    worker.started = true;
    worker.since = now;
    worker.heard = now;
    worker.slot = slot;
    worker.said_hello = run.spoke;
    worker.adopted = true;
    workers_[uid] = std::move(worker);
  }
  starting_over_ = run.ending;
  if (starting_over_) {
    signal_all(SIGKILL);
    if (workers_.empty()) begin_round(now);
  } else {
    fill(now, Duration::zero());
    give_up_if_lost(now, true);
  }
}

void LiveRun::begin_round(Time now) {
  starting_over_ = false;
  founded_ = false;
  members_.clear();
  working_.clear();
  members_age_.clear();
  plan_.workers.clear();
  ++plan_.number;
  if (++round_ > 1) ++counts_.fresh_starts;
  fill(now, patience());
}

// Before the first Hello there is never more than one process, also while one is ending.
void LiveRun::fill(Time now, Duration delay) {
  if (spoke_) {
    for (const Slot& slot : missing()) add_worker(now, slot, delay);
  } else if (workers_.empty()) {
    add_worker(now, first_slot(slots_), delay);
  }
}

// One slot for each worker that is missing.
std::vector<Slot> LiveRun::missing() const {
  const auto planned = static_cast<int>(plan_.workers.size());
  if (!managed())
    return std::vector<Slot>(static_cast<std::size_t>(std::max(0, wanted_ - planned)));
  std::set<Slot> taken;
  for (const Uid uid : plan_.workers) taken.insert(slot_of(uid));
  std::vector<Slot> slots;
  std::copy_if(slots_.begin(), slots_.end(), std::back_inserter(slots),
               [&](const Slot& slot) { return !taken.contains(slot); });
  return slots;
}

void LiveRun::add_worker(Time now, const Slot& slot, Duration delay) {
  const Uid uid = next_uid_++;
  Worker worker;
  // On a busy machine a worker of low priority may load for so long that it is killed. The next one
  // would fare no better.
  worker.low_priority = died_young_ == 0 && (founded_ || !plan_.workers.empty());
  plan_.workers.push_back(uid);
  worker.slot = slot;
  start(now, uid, std::move(worker), delay);
}

void LiveRun::drop(Uid uid) {
  std::erase(plan_.workers, uid);
  const auto found = workers_.find(uid);
  if (found == workers_.end()) return;
  if (!found->second.started) {
    workers_.erase(found);
  } else if (!spoke_) {
    // It may already work. on_pass() kills it after the grace period.
    found->second.expected = true;
    order(SignalWorker{uid, SIGTERM});
  } else if (!found->second.said_hello) {
    // It has nothing to lose, and its start slows down the others.
    found->second.expected = true;
    kill_because(uid, "it is not needed any more");
  }
}

void LiveRun::publish() {
  ++plan_.number;
  for (const auto& [uid, worker] : workers_) {
    if (worker.said_hello) order(SendToWorker{uid, plan_});
  }
}

bool LiveRun::said_hello(Time now, const wire::Hello& hello) {
  const auto found = workers_.find(hello.uid);
  if (found == workers_.end() || !found->second.started || !found->second.killed_because.empty() ||
      (found->second.said_hello && !found->second.adopted) || starting_over_ ||
      (!spoke_ && !planned(hello.uid))) {
    return false;
  }
  if (silent_) tell("the program has sent a Hello after all: it can have several workers again");
  spoke_ = true;
  silent_ = false;
  const bool again = std::exchange(found->second.adopted, false);
  if (!again) slowest_hello_ = std::max(slowest_hello_, now - found->second.since);
  const bool founder = !std::exchange(founded_, true);
  if (!ending_ && !finishing_) fill(now, Duration::zero());  // these replace no worker
  wire::Welcome welcome{{}, plan_, founder};
  for (const auto& [uid, worker] : workers_) {
    if (uid != hello.uid && worker.said_hello && !worker.adopted)
      welcome.peers.push_back({uid, worker.address});
  }
  found->second.said_hello = true;
  found->second.heard = now;
  found->second.address = hello.address;
  order(SendToWorker{hello.uid, std::move(welcome)});
  if (share_ < 1) order(SendToWorker{hello.uid, wire::Throttle{share_}});
  if (ending_) order(SendToWorker{hello.uid, wire::Stop{}});
  return true;
}

void LiveRun::heard(Time now, Uid uid, const wire::FromWorker& message) {
  const auto found = workers_.find(uid);
  if (found == workers_.end()) return;
  found->second.heard = now;
  if (const auto* notice = std::get_if<wire::Notice>(&message)) heard_notice(now, uid, *notice);
}

void LiveRun::heard_notice(Time now, Uid uid, const wire::Notice& notice) {
  using namespace wire::notice;
  Worker& worker = workers_.at(uid);
  if (notice.kind == kMembers) {
    heard_members(now, wire::read_members(notice.content));
  } else if (notice.kind == kFinished) {
    if (ending_ && ending_->may_finish) ending_->outcome = {};
    finishing();
  } else if (notice.kind == kState) {
    worker.stranded = false;
  } else if (notice.kind == kRefused || notice.kind == kFailed) {
    worker.text = look_for_text(notice.content, "text");
  } else if (notice.kind == kStranded) {
    worker.stranded = true;
    if (finishing_) {
      worker.expected = true;
      ask_to_end(uid, worker);
    }
    give_up_if_lost(now, false);
  } else if (notice.kind == kStraggler && limits_.replace_stragglers) {
    if (const auto slow = wire::read_straggler(notice.content)) replace_slow(now, slow->worker);
  }
}

// The notice of a leader that died may be read after that of its successor.
void LiveRun::heard_members(Time now, wire::MembersNotice notice) {
  if (notice.age < members_age_) return;
  for (const Uid uid : notice.working()) {
    // From here on it must show signs of life as often as the others.
    if (const auto found = workers_.find(uid); found != workers_.end() && !working_.contains(uid))
      found->second.heard = now;
  }
  working_ = notice.working();
  members_age_ = std::move(notice.age);
  members_ = std::move(notice.uids);
}

void LiveRun::replace_slow(Time now, Uid uid) {
  if (ending_ || finishing_ || starting_over_ || !planned(uid)) return;
  ++counts_.resizes;
  replace(now, uid);
  tell(fmt::format("worker {} is slow; worker {} replaces it", uid, plan_.workers.back()));
}

void LiveRun::replace(Time now, Uid uid) {
  if (ending_ || finishing_ || starting_over_ || !planned(uid)) return;
  const Slot slot = slot_of(uid);
  drop(uid);
  add_worker(now, slot, patience());
  publish();
}

void LiveRun::on_resize(Time now) {
  // The next round uses the new number. A job that is done needs no workers.
  if (starting_over_ || finishing_) return;
  while (static_cast<int>(plan_.workers.size()) > wanted_) drop(plan_.workers.back());
  fill(now, patience());
  publish();
}

void LiveRun::on_place(Time now) {
  // The next round uses the new slots. A job that is done needs none.
  if (starting_over_ || finishing_) return;
  const std::set<Slot> wished(slots_.begin(), slots_.end());
  for (const Uid uid : std::vector<Uid>(plan_.workers)) {
    if (!wished.contains(slot_of(uid))) drop(uid);
  }
  fill(now, patience());
  publish();
}

bool LiveRun::settled() const {
  if (ending_ || finishing_ || starting_over_ || static_cast<int>(plan_.workers.size()) != wanted_)
    return false;
  if (silent_) {
    return workers_.size() == 1 && workers_.begin()->second.started &&
           planned(workers_.begin()->first);
  }
  if (working_ != std::set<Uid>(plan_.workers.begin(), plan_.workers.end())) return false;
  return members_ == working_ && workers_.size() == working_.size() &&
         std::all_of(workers_.begin(), workers_.end(),
                     [&](const auto& worker) { return working_.contains(worker.first); });
}

Slot LiveRun::slot_of(Uid uid) const {
  const auto found = workers_.find(uid);
  return found == workers_.end() ? Slot() : found->second.slot;
}

void LiveRun::on_exit(Time now, Uid uid, const Worker& worker, ProcessEnd end_of_worker) {
  members_.erase(uid);
  working_.erase(uid);
  const int code = end_of_worker.killed ? wire::kFailed : end_of_worker.code;
  if (starting_over_) {
    // We killed it, so this is not a new failure. When the last one is gone, the next round begins.
    if (workers_.empty()) begin_round(now);
  } else if (code == wire::kFinished && (spoke_ || !worker.expected)) {
    finishing();
    if (!spoke_) take_for_silent();
  } else if (code == wire::kJobFailed) {
    // The others have seen the same failure and end by themselves. A checkpoint would be of no use.
    end(now, {1, fmt::format("the job failed{}", with_text(worker.text))}, false);
    return;
  } else if (code == wire::kRefused) {
    refused(now, uid, worker);
  } else if (!worker.expected && (code != wire::kLeft || (planned(uid) && !finishing_))) {
    failed(now, uid, worker, end_of_worker);
  }
  if (ending_) return;
  if (finishing_ && workers_.empty()) {
    end(now, {0, ""});
    return;
  }
  if (!spoke_ && !finishing_ && !starting_over_) fill(now, patience());
  give_up_if_lost(now, true);
}

void LiveRun::refused(Time now, Uid uid, const Worker& worker) {
  tell(fmt::format("worker {} does not fit the job and is not started again{}", uid,
                   with_text(worker.text)));
  if (!planned(uid)) return;
  drop(uid);
  wanted_ = static_cast<int>(plan_.workers.size());
  if ((wanted_ < limits_.least || managed()) && !finishing_) {
    end(now, {2, fmt::format("worker {} {}{}{}", uid,
                             spoke_ ? "does not fit the job"
                                    : "exited with code 2, so it is not started again",
                             with_text(worker.text), too_few())});
    return;
  }
  publish();
}

void LiveRun::failed(Time now, Uid uid, const Worker& worker, ProcessEnd end_of_worker) {
  if (!worker.blameless) {
    ++counts_.failures;
    const bool loading = !worker.said_hello && !silent_;
    if (loading || now - worker.since < kYoung) ++died_young_;
  }
  const std::string what =
      worker.blameless
          ? fmt::format("worker {} has lost its host", uid)
          : fmt::format("worker {} {}{}", uid, to_text(end_of_worker), with_text(worker.text));
  const bool missing = planned(uid);
  drop(uid);
  if (!missing || finishing_) {
    tell(what);
    return;
  }
  if (too_many_failures()) {
    wanted_ = static_cast<int>(plan_.workers.size());
    if (wanted_ < limits_.least || managed()) {
      end(now, {1, fmt::format("{}, failure {} of at most {}{}", what, counts_.failures,
                               limits_.max_failures, too_few())});
      return;
    }
    tell(fmt::format("{}, failure {} of at most {}: it is not replaced", what, counts_.failures,
                     limits_.max_failures));
    publish();
  } else if (!state_may_live()) {
    // on_exit() starts the replacement, here and below.
    tell(spoke_ ? what : what + "; it is started again");
  } else {
    add_worker(now, worker.slot, patience());
    tell(fmt::format("{}; worker {} replaces it", what, plan_.workers.back()));
    publish();
  }
}

// The manager of a run gave it exactly the slots that it should have.
std::string LiveRun::too_few() const {
  if (managed()) return "";
  return fmt::format("; with {} workers of at least {} the run cannot continue", wanted_,
                     limits_.least);
}

bool LiveRun::state_may_live() const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const Worker& worker = entry.second;
    return !worker.stranded && (worker.said_hello || !founded_);
  });
}

// `counted`: the deaths that led to this were counted as failures.
void LiveRun::give_up_if_lost(Time now, bool counted) {
  if (ending_ || finishing_ || starting_over_ || state_may_live()) return;
  if (!counted) ++counts_.failures;
  start_over(now);
}

void LiveRun::give_up(Time now) {
  if (ending_ || finishing_ || starting_over_ || !founded_) return;
  ++counts_.failures;
  start_over(now);
}

void LiveRun::start_over(Time now) {
  forget_unstarted();
  if (too_many_failures()) {
    end(now,
        {1, fmt::format("no worker is left that could continue, and there were {} failures of at "
                        "most {}",
                        counts_.failures, limits_.max_failures)});
    return;
  }
  tell("no worker is left that could continue: all start again from the newest checkpoint");
  starting_over_ = true;
  signal_all(SIGKILL);
  if (workers_.empty()) begin_round(now);
}

// If no worker has died young for a while, the next one that dies is replaced at once.
void LiveRun::forget_the_young(Time now) {
  const bool all_well = std::all_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return (entry.second.said_hello || silent_) && now - entry.second.since >= kYoung;
  });
  if (all_well) died_young_ = 0;
}

void LiveRun::on_pass(Time now) {
  if (died_young_ > 0) forget_the_young(now);
  for (auto& [uid, worker] : workers_) {
    if (!worker.started || starting_over_) continue;
    const Duration most = longest_silence(uid, worker);
    if (worker.said_hello && now - worker.heard > most) {
      kill_because(uid, fmt::format("no sign of life for {} s", seconds(most)));
    } else if (!worker.said_hello) {
      look_for_hello(now, uid, worker);
    }
    const bool goes_on = members_.contains(uid) || (planned(uid) && !finishing_);
    if (goes_on || (finishing_ && members_.empty())) {
      worker.outside.reset();
    } else if (!worker.outside) {
      worker.outside = now;
    } else if (now - *worker.outside > limits_.grace) {
      worker.expected = true;
      kill_because(uid, "it is not needed any more and did not leave by itself");
    }
  }
}

bool LiveRun::on_quiet() const {
  return died_young_ == 0 && !starting_over_ && !finishing_ &&
         std::all_of(workers_.begin(), workers_.end(), [this](const auto& entry) {
           return (entry.second.said_hello || silent_) && !entry.second.outside;
         });
}

Duration LiveRun::longest_load() const { return std::max(limits_.hello, 4 * slowest_hello_); }

// A worker that joins runs at a low priority, so on a busy machine it may get no processor for
// long. Nobody waits for it; a worker that trains keeps all others waiting.
Duration LiveRun::longest_silence(Uid uid, const Worker& worker) const {
  const bool joins = worker.adopted || (worker.low_priority && !working_.contains(uid));
  return joins ? std::max(limits_.heartbeat, longest_load()) : limits_.heartbeat;
}

void LiveRun::look_for_hello(Time now, Uid uid, const Worker& worker) {
  const Duration waited = now - worker.since;
  if (!spoke_) {
    if (!silent_ && worker.killed_because.empty() && waited > limits_.hello) take_for_silent();
    return;
  }
  const Duration most = longest_load();
  if (waited > most) kill_because(uid, fmt::format("no Hello within {} s", seconds(most)));
}

void LiveRun::take_for_silent() {
  if (std::exchange(silent_, true) || std::max(limits_.most, wanted_) == 1) return;
  tell(managed()
           ? fmt::format("{}; {}", kRunsAsOneProcess, kToUseMoreGpus)
           : std::string(
                 "the program does not connect to its launcher, so it runs as one process; a "
                 "program without the training library needs --mode restart to have several"));
}

// Members end by themselves. Workers that are still joining are too late.
void LiveRun::finishing() {
  if (finishing_) return;
  finishing_ = true;
  forget_unstarted();
  for (auto& [uid, worker] : workers_) {
    if (members_.contains(uid)) continue;
    worker.expected = true;
    ask_to_end(uid, worker);
  }
}

void LiveRun::ask_to_end(Uid uid, const Worker& worker) {
  if (worker.said_hello) {
    order(SendToWorker{uid, wire::Stop{}});
  } else if (worker.started) {
    order(SignalWorker{uid, SIGTERM});  // it has nothing to save
  }
}

int LiveRun::ask_to_end() {
  for (const auto& [uid, worker] : workers_) ask_to_end(uid, worker);
  return 0;
}

}  // namespace rubato::launch
