// Where the workers of a run are: on this machine (local_host.h), or on several hosts (shares.h).
// The only way to start, signal and watch a worker.
//
// For one thread. Events may come during a call.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/launch/master_messages.h"
#include "rubato/launch/process.h"
#include "rubato/wire/launch.h"

namespace rubato::launch {

using wire::Uid;

struct WorkerStart {
  Uid uid = 0;
  int round = 0;
  std::vector<std::string> command;
  Environment environment;
  std::string directory;  // where it starts; empty: in our directory
  bool low_priority =
      false;  // at first, if it can raise its priority again: RUBATO_NICED is then 1
  bool close_others = false;  // it inherits no descriptors except the standard ones
  bool dies_with_us = false;  // it is killed when the process that started it ends
  std::string mark;           // a variable of its environment that no other worker has

  // On several hosts.
  Slot slot{};            // of a managed run
  int rank = 0;           // of a program that does not know Rubato
  int world = 0;          // 0: the program knows Rubato
  bool inherits = false;  // the environment is added to that of its share
  // Which of the GPUs of its share it sees: the first is 0.
  static constexpr int kAllDevices = -1;
  int device = kAllDevices;
  friend bool operator==(const WorkerStart&, const WorkerStart&) = default;
};

class WorkerHost {
 public:
  struct Events {
    std::function<void(Uid, const ProcessName&)> started;
    // `shortage`: the machine is to blame, not the program.
    std::function<void(Uid, const std::string& why, bool shortage)> could_not_start;
    std::function<void(Uid, bool is_err, std::string_view line)> output;
    // Its process has ended. Its last output follows, then ended().
    std::function<void(Uid)> ending;
    // It has ended, and so has everything that it has started.
    std::function<void(Uid, ProcessEnd)> ended;
    // After other events, unless they came during a call.
    std::function<void()> handled;
  };

  WorkerHost() = default;
  WorkerHost(const WorkerHost&) = delete;
  WorkerHost& operator=(const WorkerHost&) = delete;
  virtual ~WorkerHost() = default;

  virtual void start(const WorkerStart& start) = 0;
  // Ignored if the worker has ended.
  virtual void signal(Uid uid, int signal) = 0;
  // Called several times a second.
  virtual void turn() = 0;
  // Whether the next turn should come soon.
  [[nodiscard]] virtual bool hurries() const = 0;
  // Whether two turns a second are enough until something happens.
  [[nodiscard]] virtual bool quiet() const = 0;
  // Counts processes that have ended as ended, even if their end has not been noticed yet.
  virtual void collect_all() = 0;
};

}  // namespace rubato::launch
