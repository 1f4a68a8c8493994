// The daemon as a process: the loop's thread with its clock, sockets and signals around Core,
// LiveEngine and HttpServer. It decides nothing.
//
// The thread that calls run() is the loop's thread. Sockets of agents and requests of the HTTP
// thread wake it. It gives all inputs to one turn of the core, and sends what comes out. Loop time
// is the steady clock, continued from where the journal ends.
//
// Agents and jobs outlive it. If it stops or is killed, training continues, and the next daemon on
// the same state directory takes it over.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "rubato/daemon/core.h"
#include "rubato/daemon/memory_reserve.h"
#include "rubato/daemon/publisher.h"
#include "rubato/daemon/what_if_runs.h"
#include "rubato/engine/cluster_manager.h"
#include "rubato/engine/live_engine.h"
#include "rubato/http/callers.h"
#include "rubato/http/change_feed.h"
#include "rubato/http/job_users.h"
#include "rubato/http/server.h"
#include "rubato/wire/poller.h"

namespace rubato::daemon {

// A cluster that somebody else manages.
struct ManagedBy {
  std::string name;  // for people: "Slurm"
  // All our shares have names that begin with the prefix.
  std::function<std::unique_ptr<ClusterManager>(const std::string& prefix)> manager;
  std::string native_env;  // these as in ShareEngineOptions
  std::string shared;
  std::string host_address;
  std::string share_program;
};

struct DaemonOptions {
  std::string state_directory;
  std::optional<ManagedBy> managed;  // nullopt: the nodes are virtual ones of this machine
  Duration lease = from_seconds(5);
  bool restored = false;  // the directory is a copy of another (engine/state_identity.h)
  CoreOptions core;
  HttpServerOptions http;
};

// The core is made before its engine, because the engine needs the core's states of the nodes.
class EngineSeat final : public Engine {
 public:
  void seat(std::unique_ptr<LiveEngine> engine) { engine_ = std::move(engine); }
  LiveEngine* operator->() const { return engine_.get(); }

  void carry_out(Time now, std::span<const Command> commands) override {
    engine_->carry_out(now, commands);
  }
  void collect(Time now, std::vector<Fact>& facts) override { engine_->collect(now, facts); }

 private:
  std::unique_ptr<LiveEngine> engine_;
};

class Daemon : public Loop {
 public:
  // Checks everything that can be checked. If it returns an error, nothing runs yet.
  [[nodiscard]] static Result<std::unique_ptr<Daemon>> open(DaemonOptions options);
  ~Daemon() override;

  // What of the journal could not be read, where it is kept, and what else was lost; or empty.
  [[nodiscard]] const std::string& dropped() const { return dropped_; }
  // Whether the journal existed before.
  [[nodiscard]] bool continues() const { return continues_; }
  [[nodiscard]] const Cluster& cluster() const { return core_->state().now().cluster; }
  [[nodiscard]] const std::string& address() const { return server_->address(); }

  // Runs until SIGINT, SIGTERM or SIGHUP, which must be blocked in every thread. Then dismisses the
  // agents if nothing runs, and stores a snapshot. An error if the state could not be read back
  // from the journal, or if the directory or the journal is no longer where it was. Jobs continue,
  // and the next start reads the journal again.
  [[nodiscard]] Result<void> run();

  // From any thread.
  void ask(Request request, std::function<void(Answer)> callback) override;

 private:
  explicit Daemon(DaemonOptions options);

  [[nodiscard]] Result<void> start();
  void note(const std::string& sentence);
  [[nodiscard]] Result<void> ask_manager();
  [[nodiscard]] Result<void> make_shared();
  [[nodiscard]] Result<void> seat_engine();
  [[nodiscard]] std::unique_ptr<LiveEngine> make_engine();
  [[nodiscard]] std::vector<KnownJob> told() const;
  [[nodiscard]] std::string token_of(JobId job) const;
  void say_operators_words();
  [[nodiscard]] Result<void> write_admin_token();
  [[nodiscard]] Time now() const;
  void watch_signals();
  [[nodiscard]] std::vector<Problem> problems();
  void say_trouble();
  void turn();
  [[nodiscard]] Result<void> look_after_files();
  void pass_on(Turn turn);
  void remove_a_directory();
  void publish_callers();
  void publish_changes();

  DaemonOptions options_;
  MemoryReserve memory_;
  wire::Poller poller_;
  wire::Fd signals_;
  bool stopping_ = false;
  EngineSeat engine_;
  JobUsers job_users_ = JobUsers::of_this_machine();
  std::unique_ptr<Core> core_;
  Callers callers_;
  ChangeFeed feed_;
  Publisher publisher_{feed_};
  std::unique_ptr<WhatIfRuns> what_ifs_;
  std::unique_ptr<HttpServer> server_;  // last: it calls us while it lives
  std::string dropped_;
  std::string shares_;                       // with what the names of our shares begin
  std::unique_ptr<ClusterManager> manager_;  // until the engine is made
  std::string secret_;                       // the tokens of jobs are derived from it
  bool continues_ = false;
  bool in_trouble_ = false;  // and it was reported

  Time began_at_ = kStart;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::vector<Input> inputs_;
  std::map<std::uint64_t, std::function<void(Answer)>> waiting_;
  std::uint64_t next_request_ = 1;
  std::set<JobId> changed_;    // since changes were published
  std::set<JobId> forgotten_;  // whose directories are to be removed
  Time publish_at_ = kStart;
  Time look_at_ = kStart;
};

}  // namespace rubato::daemon
