#include "rubato/launch/launch_state.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "rubato/base/check.h"

namespace rubato::launch {
namespace {

// The time between SIGTERM and SIGKILL, if a stop message was sent before both.
constexpr Duration kAfterSigterm = std::chrono::seconds(2);
// If more time passes between two calls, this process was stopped, not the workers.
constexpr Duration kWeSlept = std::chrono::seconds(1);
constexpr Duration kLongestPatience = std::chrono::seconds(5);

}  // namespace

std::vector<Uid> LaunchState::living() const {
  std::vector<Uid> uids;
  for (const auto& [uid, worker] : workers_) {
    if (worker.started) uids.push_back(uid);
  }
  return uids;
}

Duration LaunchState::patience() const {
  if (died_young_ < 2) return Duration::zero();
  return std::min(kLongestPatience, from_seconds(0.1) * (1 << std::min(died_young_ - 2, 10)));
}

void LaunchState::start(Time now, Uid uid, Worker worker, Duration delay) {
  worker.since = now + delay;
  Worker& kept = workers_[uid] = std::move(worker);
  if (delay == Duration::zero()) start_now(now, uid, kept);
}

void LaunchState::start_now(Time now, Uid uid, Worker& worker) {
  worker.started = true;
  worker.since = now;
  ++counts_.starts;
  order(StartWorker{uid, worker.low_priority, worker.slot, worker.rank, world_, round_});
}

void LaunchState::forget_unstarted() {
  std::erase_if(workers_, [](const auto& entry) { return !entry.second.started; });
}

void LaunchState::signal_all(int signal) {
  for (const Uid uid : living()) order(SignalWorker{uid, signal});
}

void LaunchState::kill_because(Uid uid, const std::string& why) {
  Worker& worker = workers_.at(uid);
  if (!worker.killed_because.empty()) return;
  worker.killed_because = why;
  tell(fmt::format("worker {} is killed: {}", uid, why));
  order(SignalWorker{uid, SIGKILL});
}

void LaunchState::exited(Time now, Uid uid, ProcessEnd end) {
  const auto found = workers_.find(uid);
  if (found == workers_.end()) return;
  const Worker worker = std::move(found->second);
  workers_.erase(found);
  if (!ending_ && !outcome_) on_exit(now, uid, worker, end);
  finish_if_empty();
}

void LaunchState::could_not_start(Time now, Uid uid, const std::string& why, bool infrastructure) {
  workers_.erase(uid);
  if (!ending_) end(now, {2, why, false, infrastructure});
  finish_if_empty();
}

void LaunchState::excuse(Time now, Uid uid) {
  const auto found = workers_.find(uid);
  if (found == workers_.end()) return;
  found->second.heard = std::max(found->second.heard, now);
  if (!found->second.said_hello) found->second.since = std::max(found->second.since, now);
}

void LaunchState::blameless(Uid uid) {
  const auto found = workers_.find(uid);
  if (found != workers_.end()) found->second.blameless = true;
}

void LaunchState::end(Time now, Outcome outcome, bool ask) {
  CHECK(!ending_);
  forget_unstarted();
  const int signal = ask ? ask_to_end() : 0;
  ending_ = Ending{std::move(outcome), signal, now + limits_.grace, false};
  finish_if_empty();
}

void LaunchState::finish_if_empty() {
  if (ending_ && workers_.empty() && !outcome_) outcome_ = ending_->outcome;
}

void LaunchState::stop(Time now, int signal) {
  if (outcome_) return;
  if (!ending_) {
    tell(fmt::format("signal {}: the workers are asked to end; a second one kills them", signal));
    end(now, {128 + signal, fmt::format("stopped by signal {}", signal), true});
    ending_->may_finish = managed();
    return;
  }
  tell(fmt::format("signal {}: the workers are killed", signal));
  ending_->last_signal = SIGKILL;
  signal_all(SIGKILL);
}

void LaunchState::stop_managed(Time now, const std::string& why) {
  if (ending_ || outcome_) return;
  tell(fmt::format("{}: the workers are asked to end", why));
  end(now, {128 + SIGTERM, why, true});
  ending_->may_finish = true;
}

void LaunchState::kill_all(Time now, const std::string& why) {
  if (outcome_) return;
  tell(fmt::format("{}: the workers are killed", why));
  const Outcome outcome{128 + SIGKILL, why};
  if (ending_) {
    ending_->outcome = outcome;
  } else {
    end(now, outcome, false);
  }
  ending_->may_finish = false;
  ending_->last_signal = SIGKILL;
  signal_all(SIGKILL);
}

void LaunchState::insist(Time now) {
  if (ending_->last_signal == SIGKILL || now < ending_->next) return;
  ending_->last_signal = ending_->last_signal == 0 ? SIGTERM : SIGKILL;
  ending_->next = now + kAfterSigterm;
  signal_all(ending_->last_signal);
}

void LaunchState::pass(Time now) {
  const Duration gap = last_pass_ ? now - *last_pass_ : Duration::zero();
  last_pass_ = now;
  if (outcome_) return;
  if (gap > kWeSlept) {
    for (auto& [uid, worker] : workers_) {
      worker.heard += gap;
      worker.since += gap;
    }
  }
  if (ending_) {
    insist(now);
    return;
  }
  for (auto& [uid, worker] : workers_) {
    if (!worker.started && now >= worker.since) start_now(now, uid, worker);
  }
  on_pass(now);
}

bool LaunchState::quiet() const {
  const auto runs = [](const auto& worker) {
    return worker.second.started && worker.second.killed_because.empty();
  };
  return !ending_ && !outcome_ && std::all_of(workers_.begin(), workers_.end(), runs) && on_quiet();
}

Result<void> LaunchState::check_limits(int workers) const {
  if (workers < limits_.least || workers > limits_.most) {
    return Error{fmt::format("{} workers are outside {}:{}, the limits this run was started with",
                             workers, limits_.least, limits_.most)};
  }
  if (ending_ || outcome_) return Error{"the run is ending"};
  return {};
}

Result<void> LaunchState::resize(Time now, int workers) {
  if (auto within = check_limits(workers); !within) return within;
  if (workers == wanted_) return {};
  wanted_ = workers;
  ++counts_.resizes;
  on_resize(now);
  return {};
}

void LaunchState::throttle(double share) {
  if (std::exchange(share_, share) == share) return;
  for (const auto& [uid, worker] : workers_) {
    if (worker.said_hello) order(SendToWorker{uid, wire::Throttle{share}});
  }
}

Result<void> LaunchState::place(Time now, const std::vector<Slot>& slots) {
  const std::set<Slot> wished(slots.begin(), slots.end());
  if (slots.empty()) return Error{"no slot is named"};
  if (wished.size() != slots.size()) return Error{"a slot is named twice"};
  if (ending_ || outcome_) return Error{"the run is ending"};
  if (wished == std::set<Slot>(slots_.begin(), slots_.end())) return {};
  slots_ = slots;
  wanted_ = static_cast<int>(slots.size());
  if (round_ == 0) return {};
  ++counts_.resizes;
  on_place(now);
  return {};
}

Slot LaunchState::slot_for(int index) const {
  return managed() ? slots_[static_cast<std::size_t>(index)] : Slot();
}

std::set<Slot> LaunchState::slots_in_use() const {
  std::set<Slot> slots;
  for (const auto& [uid, worker] : workers_) {
    if (worker.started) slots.insert(worker.slot);
  }
  return slots;
}

Result<Uid> LaunchState::kill(std::optional<Uid> uid) {
  const std::vector<Uid> all = living();
  if (all.empty()) return Error{"no worker is running now"};
  const Uid victim = uid.value_or(all.back());
  if (!std::binary_search(all.begin(), all.end(), victim)) {
    return Error{fmt::format("there is no worker {}; alive: {}", victim, fmt::join(all, " "))};
  }
  order(SignalWorker{victim, SIGKILL});
  return victim;
}

}  // namespace rubato::launch
