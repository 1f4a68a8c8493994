// The master of one job of the live cluster: its launcher on its home node, managed by the node's
// agent over the socket in the job's directory (master_messages.h, job_files.h; docs/internals.md,
// "A job on its node").
//
// It survives the agent and the daemon, and obeys the newest generation, whoever sends it. There
// are no acknowledgements: a manager gets the complete status at once, whenever the job's GPUs or
// its state change, and twice a second for the progress. Every process that the master has started
// is in workers.json before anything else happens. How the run ended is in exit.json before anybody
// is told.
//
// If the workers are in shares (docs/many-hosts.md), they survive the master, too. The agent starts
// another one in the same directory, which goes on with the roster that the first one left.
//
// It has only the permissions of the job's user (process.h), and belongs to one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rubato/launch/launcher.h"
#include "rubato/node/job_files.h"
#include "rubato/node/limited_log.h"
#include "rubato/node/progress_meter.h"

namespace rubato::node {

class Master : private LauncherFace {
 public:
  // Listens in the job's directory, which must be an absolute path, and writes master.json. It
  // starts no worker. `environment` is the base of the workers' environment. `machine_gpus` is the
  // number of GPUs of the machine. If the job cannot be launched, exit.json says why.
  [[nodiscard]] static Result<std::unique_ptr<Master>> open(const std::string& directory,
                                                            const Environment& environment,
                                                            int machine_gpus);
  ~Master() override;

  // Returns when the job is over: the exit code of the whole run.
  [[nodiscard]] int run();

 private:
  struct Logs {
    LimitedLog output, events;
  };
  using Copies = std::map<std::string, std::string>;  // of secrets: NAME -> the workers' copy
  struct Manager {
    std::optional<JobStatus> told;
    Time progress_due;
  };

  Master(HeldDirectory held, JobLaunch launch, int machine_gpus, RunSpec spec, RunSocket socket,
         Logs logs, Copies secrets);

  [[nodiscard]] static Result<std::unique_ptr<Master>> open(HeldDirectory held,
                                                            const JobLaunch& launch,
                                                            const Environment& environment,
                                                            int machine_gpus);

  void output(Uid uid, bool is_err, std::string_view line) override;
  void say(const std::string& text) override;
  void log(const std::string& event, const Json& fields) override;
  void heard(Uid uid, const wire::FromWorker& message) override;
  void asked(int connection, const Json& message) override;
  void hung_up(int connection) override;
  void processes_changed() override;
  void complete(Environment& environment, const StartWorker& start) const override;
  void turn() override;
  [[nodiscard]] bool quiet() const override;

  void obey(const Place& place);
  void obey(const StopJob& stop);
  void obey(const KillJob& kill);
  void obey(const ThrottleJob& throttle);
  void heard_notice(const wire::Notice& notice);
  void stop_if_alone();
  void stand_if_unwatched();
  [[nodiscard]] std::optional<std::string> visible_gpus(const StartWorker& start) const;
  [[nodiscard]] JobStatus status() const;
  void tell_managers();
  void tell(int connection, Manager& manager, const JobStatus& now_true);
  void end(const Outcome& outcome);
  void write_exit(const JobEnd& end);

  HeldDirectory held_;  // the job's directory, which may be moved
  JobFiles files_;      // reached through it
  JobLaunch launch_;
  int machine_gpus_;
  Logs logs_;
  Copies secrets_;
  Generation generation_;
  std::int64_t revision_ = 0;  // of the shares
  std::optional<Batch> batch_;
  bool stopping_ = false;
  bool settled_ = false;
  std::optional<Time> watched_;  // of a guest: when its share was last told
  ProgressMeter meter_;
  std::map<int, Manager> managers_;
  Time managed_at_;  // when a manager was last there, or should be for the first time
  std::optional<JobEnd> ended_;
  Launcher launcher_;  // last: it uses all of the above
};

}  // namespace rubato::node
