// Workers that are processes of this machine, started by this process.
//
// A worker has ended when everything that it has started is gone, too (orphans.h). Processes that
// remain when a worker ends are killed, unless their environment or process group says that they
// belong to another worker that lives.
//
// For one thread, which must be the only one of the process that starts processes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "rubato/launch/console.h"
#include "rubato/launch/orphans.h"
#include "rubato/launch/process.h"
#include "rubato/launch/warm_parent.h"
#include "rubato/launch/worker_host.h"
#include "rubato/wire/poller.h"

namespace rubato::launch {

class LocalHost : public WorkerHost {
 public:
  // `warm`: Python workers are forked from a parent that has imported torch already.
  LocalHost(wire::Poller& poller, Events events, bool warm = false);
  ~LocalHost() override;

  void start(const WorkerStart& start) override;
  void signal(Uid uid, int signal) override;
  void turn() override;
  [[nodiscard]] bool hurries() const override;
  [[nodiscard]] bool quiet() const override { return !hurries(); }
  void collect_all() override;

  [[nodiscard]] bool empty() const { return workers_.empty(); }
  void signal_all(int signal);

 private:
  struct Worker {
    Process process;
    std::string mark;
    std::optional<ProcessEnd> end;  // its own end; processes that it has started may live
    LineCutter out, err;
  };

  void watch(Uid uid, const Worker& worker);
  void read_output(Uid uid, bool is_err, bool to_the_end);
  [[nodiscard]] bool take_leave(Uid uid, Worker& worker);
  void collect(Uid uid);
  [[nodiscard]] Result<Process> make(const WorkerStart& start, const Environment& environment,
                                     bool niced, bool* shortage);
  [[nodiscard]] bool nothing_is_left() const;

  wire::Poller& poller_;
  Events events_;
  bool may_nice_;
  bool warm_;
  WarmParent parent_;
  Orphans orphans_;
  std::map<Uid, Worker> workers_;
};

}  // namespace rubato::launch
