#include "rubato/launch/restart_run.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>

namespace rubato::launch {

void RestartRun::begin(Time now) {
  killed_at_.reset();
  round_began_ = now;
  world_ = wanted_;
  if (++round_ > 1) ++counts_.fresh_starts;
  for (int rank = 0; rank < world_; ++rank) {
    Worker worker;
    worker.rank = rank;
    worker.slot = slot_for(rank);
    start(now, next_uid_++, std::move(worker), patience());
  }
}

// Nobody knows which ranks have finished meanwhile. All start again from the program's checkpoint.
void RestartRun::adopt(Time now, const AdoptedRun& run) {
  round_ = 1;
  counts_ = run.counts;
  next_uid_ = run.next_uid;
  for (const auto& [uid, slot] : run.workers) {
    Worker worker;
    worker.started = true;
    worker.since = now;
    worker.slot = slot;
    workers_[uid] = std::move(worker);
  }
  interrupt(now);
}

void RestartRun::replace(Time now, Uid /*uid*/) {
  if (!killed_at_ && !ending_) interrupt(now);
}

void RestartRun::on_exit(Time now, Uid uid, const Worker& worker, ProcessEnd end_of_worker) {
  if (killed_at_) {
    // Its exit code does not matter, because it was asked to end.
    if (workers_.empty()) begin(now);
  } else if (end_of_worker != ProcessEnd{}) {
    failed(now, uid, worker, end_of_worker);
  } else if (workers_.empty()) {
    end(now, {0, ""});
  }
}

void RestartRun::failed(Time now, Uid uid, const Worker& worker, ProcessEnd end_of_worker) {
  if (!worker.blameless) {
    ++counts_.failures;
    died_young_ = now - round_began_ < kYoung ? died_young_ + 1 : 0;
  }
  const std::string what =
      fmt::format("rank {} (worker {}) {}", worker.rank, uid,
                  worker.blameless ? "has lost its host" : to_text(end_of_worker));
  if (too_many_failures()) {
    end(now, {1, fmt::format("{}, failure {} of at most {}", what, counts_.failures,
                             limits_.max_failures)});
    return;
  }
  tell(what + "; all ranks are started again");
  interrupt(now);
}

void RestartRun::on_resize(Time now) {
  if (killed_at_) return;  // the next round uses the new number
  interrupt(now);
}

// A rank that has finished early is not missing.
bool RestartRun::settled() const {
  return !ending_ && !killed_at_ && world_ == wanted_ && !workers_.empty() &&
         std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& worker) { return worker.second.started; });
}

void RestartRun::interrupt(Time now) {
  killed_at_ = now + limits_.grace;
  forget_unstarted();
  signal_all(SIGTERM);
  if (workers_.empty()) begin(now);
}

void RestartRun::on_pass(Time now) {
  if (!killed_at_ || now < *killed_at_) return;
  for (const Uid uid : living()) {
    kill_because(uid, fmt::format("it did not end within {} s of SIGTERM", seconds(limits_.grace)));
  }
}

int RestartRun::ask_to_end() {
  signal_all(SIGTERM);
  return SIGTERM;
}

}  // namespace rubato::launch
