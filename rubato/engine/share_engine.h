// The live engine of a cluster that somebody else manages (Slurm). Masters run beside the daemon,
// under one front agent; workers run in shares, which a ClusterManager starts on its nodes
// (docs/many-hosts.md). A thin shell around ManagedCluster, which decides, Agents and the manager.
//
// Everything runs on the thread of its Poller. Agents, masters and shares outlive the engine. The
// next one is opened with what the journal says was told, and adopts the shares that the manager
// lists.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rubato/engine/agents.h"
#include "rubato/engine/cluster_manager.h"
#include "rubato/engine/live_engine.h"
#include "rubato/engine/managed_cluster.h"
#include "rubato/wire/poller.h"

namespace rubato::engine {

struct ShareEngineOptions : AgentsOptions {
  // The nodes of the journal, with the states that they are believed to be in. Others of the
  // manager join them.
  Cluster cluster;
  std::unique_ptr<ClusterManager> manager;
  std::string identity;       // of the journal: a-z and 0-9, at most 12 characters
  std::string shared;         // a directory that all hosts see; empty: the state directory
  std::string native_env;     // the environment variable in which a share finds the manager's id
  std::string host_address;   // of this host, for shares; empty: found out
  std::string share_program;  // on the nodes; empty: `program`, or the file of the running one
};

// The nodes with GPUs that the manager has now, for a new journal. Waits for its answer, which
// comes within a minute, or for the reason why there is none.
[[nodiscard]] Result<Cluster> cluster_of(ClusterManager& manager);

class ShareEngine final : public LiveEngine {
 public:
  ShareEngine(wire::Poller& poller, ShareEngineOptions options);

  [[nodiscard]] Result<void> open(const std::vector<KnownJob>& jobs) override;

  void carry_out(Time now, std::span<const Command> commands) override;
  void collect(Time now, std::vector<Fact>& facts) override;
  [[nodiscard]] std::vector<JobStatus> take_reports() override;
  void forget(JobId job) override;
  void mark_down(NodeId node) override;
  void mark_up(NodeId node) override;
  void keep_reachable() override { agents_.keep_reachable(); }
  [[nodiscard]] std::string trouble() const override { return tables_.shares().trouble(); }
  void retire() override { agents_.retire(); }

  // Some command has not been answered yet.
  [[nodiscard]] bool waits() const { return tables_.engine().waits(); }
  [[nodiscard]] const ShareTable& shares() const { return tables_.shares(); }

 private:
  struct Paths {
    std::string shared;
    std::string program;
    std::string native_env;
    std::string address;
  };

  ShareEngine(ShareEngineOptions options, wire::Poller& poller);  // complete ones
  void carry_out_orders();
  void carry_out(const ManagedCluster::Launch& order);
  void carry_out(const ShareTable::Submit& order);
  void carry_out(const ShareTable::Cancel& order) { manager_->cancel(order.name); }
  void carry_out(const ShareTable::List& order);
  void carry_out(const EngineTable::Tell& order) { agents_.carry_out(order); }
  void carry_out(const EngineTable::Sweep& order) { agents_.carry_out(order); }
  void carry_out(const EngineTable::Disconnect& order) { agents_.carry_out(order); }
  [[nodiscard]] std::string directory_of(JobId job) const;

  Paths paths_;
  std::function<JobLaunch(JobId)> launch_of_;
  std::unique_ptr<ClusterManager> manager_;
  ManagedCluster tables_;
  Agents agents_;
};

}  // namespace rubato::engine
