#include "rubato/launch/local_host.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rubato/launch/processes.h"

namespace rubato::launch {

LocalHost::LocalHost(wire::Poller& poller, Events events, bool warm)
    : poller_(poller), events_(std::move(events)), may_nice_(may_undo_nice()), warm_(warm) {}

LocalHost::~LocalHost() {
  for (const auto& [uid, worker] : workers_) {
    for (const wire::Fd* fd : {&worker.process.ended, &worker.process.out, &worker.process.err}) {
      if (fd->valid()) poller_.remove(fd->get());
    }
  }
}

void LocalHost::start(const WorkerStart& start) {
  const bool niced = start.low_priority && may_nice_;
  Environment environment = start.environment;
  if (niced) set(environment, "RUBATO_NICED", "1");
  bool shortage = false;
  auto process = make(start, environment, niced, &shortage);
  if (!process) {
    events_.could_not_start(start.uid, process.error().message, shortage);
    return;
  }
  Worker& worker = workers_[start.uid];
  worker.process = std::move(*process);
  worker.mark = start.mark;
  watch(start.uid, worker);
  events_.started(start.uid, {worker.process.pid, wire::start_time_of(worker.process.pid)});
}

Result<Process> LocalHost::make(const WorkerStart& start, const Environment& environment,
                                bool niced, bool* shortage) {
  const SpawnOptions options{niced, start.directory, start.close_others, start.dies_with_us};
  if (warm_) {
    if (auto forked = parent_.fork_worker(start.command, environment, options)) {
      return std::move(*forked);
    }
  }
  auto process = spawn(start.command, environment, options, shortage);
  // After the first worker, which should not wait for the parent's imports.
  if (warm_ && process) {
    Environment shared = environment;
    std::erase(shared, start.mark);
    parent_.begin(start.command, shared, may_nice_);
  }
  return process;
}

void LocalHost::watch(Uid uid, const Worker& worker) {
  poller_.add(worker.process.ended.get(), [this, uid](wire::Poller::Ready) {
    collect(uid);
    events_.handled();
  });
  poller_.add(worker.process.out.get(),
              [this, uid](wire::Poller::Ready) { read_output(uid, false, false); });
  poller_.add(worker.process.err.get(),
              [this, uid](wire::Poller::Ready) { read_output(uid, true, false); });
}

void LocalHost::signal(Uid uid, int signal) {
  const auto found = workers_.find(uid);
  if (found == workers_.end() || found->second.end) return;
  send_signal(found->second.process, signal);
}

void LocalHost::signal_all(int signal) {
  for (const auto& [uid, worker] : workers_) {
    if (!worker.end) send_signal(worker.process, signal);
  }
}

void LocalHost::read_output(Uid uid, bool is_err, bool to_the_end) {
  Worker& worker = workers_.at(uid);
  wire::Fd& fd = is_err ? worker.process.err : worker.process.out;
  LineCutter& cutter = is_err ? worker.err : worker.out;
  const auto print = [&](std::string_view line) { events_.output(uid, is_err, line); };
  std::array<char, 65536> buffer;  // NOLINT: filled by read
  while (fd.valid()) {
    const ssize_t size = read(fd.get(), buffer.data(), buffer.size());
    if (size > 0) {
      cutter.feed({buffer.data(), static_cast<std::size_t>(size)}, print);
      if (!to_the_end) return;  // so that the others get their turn
    } else if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
      break;
    } else {
      poller_.remove(fd.get());
      fd.close();
    }
  }
  if (to_the_end || !fd.valid()) cutter.finish(print);
}

// Whether the worker has ended. Reads its last output first, because it says why.
bool LocalHost::take_leave(Uid uid, Worker& worker) {
  if (worker.end) return true;
  worker.end = reap(worker.process);
  if (!worker.end) return false;
  events_.ending(uid);
  read_output(uid, false, true);
  read_output(uid, true, true);
  for (wire::Fd* fd : {&worker.process.ended, &worker.process.out, &worker.process.err}) {
    if (fd->valid()) poller_.remove(fd->get());
    fd->close();
  }
  return true;
}

void LocalHost::collect(Uid uid) {
  Worker& worker = workers_.at(uid);
  if (!take_leave(uid, worker) || !nothing_is_left()) return;
  const ProcessEnd end = *worker.end;
  workers_.erase(uid);
  events_.ended(uid, end);
}

// Collects workers whose processes could not all be killed at once.
void LocalHost::turn() {
  std::set<int> own = {parent_.pid()};
  std::vector<Uid> ended;
  for (const auto& [uid, worker] : workers_) {
    if (worker.end) {
      ended.push_back(uid);
    } else {
      own.insert(worker.process.pid);
    }
  }
  orphans_.collect(own);
  for (const Uid uid : ended) collect(uid);
}

bool LocalHost::hurries() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& entry) { return entry.second.end.has_value(); });
}

// Whether nothing is left of workers that have ended. Kills what is left.
bool LocalHost::nothing_is_left() const {
  std::set<int> own = {parent_.pid()};
  std::set<std::string> marks;
  for (const auto& [uid, worker] : workers_) {
    if (worker.end) continue;
    own.insert(worker.process.pid);
    marks.insert(worker.mark);
  }
  return orphans_.end(own, [&](int pid) {
    if (own.contains(getpgid(pid))) return true;
    const auto environment = environment_of_process(pid);
    return environment &&
           std::any_of(environment->begin(), environment->end(),
                       [&](const std::string& line) { return marks.contains(line); });
  });
}

void LocalHost::collect_all() {
  std::vector<Uid> all;
  for (const auto& [uid, worker] : workers_) all.push_back(uid);
  for (const Uid uid : all) {
    if (workers_.contains(uid)) collect(uid);
  }
}

}  // namespace rubato::launch
