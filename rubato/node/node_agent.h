// The agent of one node. A thin shell around NodeJobs, which decides; this class owns masters,
// sockets, files and the clock.
//
// It starts masters detached, and adopts those that are alive when it starts: by pid, start time
// and the job's token. Masters outlive the agent, and the agent outlives the engine: it connects
// again for ever. It has one thread, the only one of its process. A lock allows one agent for each
// node.
//
// What a killed master leaves behind becomes a child of the agent (orphans.h), and a job has a
// cgroup where the system allows it. So no process of a job is left when its end is reported.
// Adopted masters are not children of the agent; without a cgroup, what they leave is found by name
// and token alone.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "rubato/launch/orphans.h"
#include "rubato/node/job_files.h"
#include "rubato/node/leftovers.h"
#include "rubato/node/node_jobs.h"
#include "rubato/node/recorded_end.h"
#include "rubato/wire/frames.h"
#include "rubato/wire/inode.h"
#include "rubato/wire/poller.h"

namespace rubato::node {

struct NodeAgentOptions {
  std::string state_directory;
  NodeId node;
  std::string engine;  // its address
};

class NodeAgent {
 public:
  // Takes the node's lock. An error if another agent has it.
  [[nodiscard]] static Result<std::unique_ptr<NodeAgent>> open(NodeAgentOptions options);

  // Returns at SIGTERM, SIGINT or when the engine dismisses it. Masters continue.
  void run();

 private:
  struct Master {
    ProcessName process;
    wire::Fd ended;
    bool wanted = false;  // connected, that is
    wire::FrameStream stream;
    Time connect_at;
    Duration patience{};
  };

  struct Locks {
    wire::Fd file, directory;
  };

  NodeAgent(NodeAgentOptions options, std::string token, Locks locks, wire::Inode home);

  [[nodiscard]] Time now() const;
  void watch_signals();
  [[nodiscard]] Result<void> look_at_disk();
  void look_at_job(JobId id, const JobLaunch& launch);
  [[nodiscard]] std::optional<ProcessName> living_master(JobId job) const;
  [[nodiscard]] JobFiles files_of(JobId job) const;
  void watch(JobId job, const ProcessName& process);
  void master_ended(JobId job);

  void connect_to_engine();
  void read_engine();
  void tell_engine(const FromAgent& message);
  void drop_engine();
  void connect_to_master(JobId job, Master& master);
  void read_master_of(JobId job);
  void hang_up(Master& master);

  [[nodiscard]] Duration idle_time() const;
  void pass();
  [[nodiscard]] bool leave_if_moved();
  void sweep();
  void carry_out();
  void carry_out(const NodeJobs::StartMaster& order);
  void carry_out(const NodeJobs::Connect& order);
  void carry_out(const NodeJobs::HangUp& order);
  void carry_out(const NodeJobs::SendToMaster& order);
  void carry_out(const NodeJobs::KillMaster& order);
  void carry_out(const NodeJobs::Sweep& order);
  void carry_out(const NodeJobs::RecordExit& order);
  void carry_out(const NodeJobs::RecordForgotten& order);
  void carry_out(const NodeJobs::TellEngine& order);
  void carry_out(const NodeJobs::Probe& order);
  // Whether it could be written.
  bool write(JobId job, const std::string& name, const Json& content) const;
  [[nodiscard]] RecordedEnd recorded_end(JobId job) const;
  [[nodiscard]] std::optional<JobEnd> why_refused(const JobLaunch& launch) const;
  [[nodiscard]] Result<ProcessName> start_master(const JobLaunch& launch);
  // Probes the node: does what a start needs, without a job.
  [[nodiscard]] Result<void> try_to_start() const;
  [[nodiscard]] wire::Fd make_cgroup_of(const JobLaunch& launch) const;

  NodeAgentOptions options_;
  std::string token_;
  Locks locks_;
  wire::Inode home_;  // of the state directory
  wire::Poller poller_;
  wire::Fd signals_;
  bool over_ = false;
  NodeJobs jobs_;
  Leftovers leftovers_;
  Orphans orphans_;
  std::map<JobId, Master> masters_;
  std::set<JobId> refused_;                          // their directories are those of other jobs
  std::map<JobId, std::vector<ProcessName>> below_;  // processes below masters that we have killed
  wire::FrameStream engine_;
  Time connect_at_;
  Duration patience_{};
  Time beat_due_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace rubato::node
