// What Slurm's lists say about our shares. Pure: lists go in, a Listing comes out.
//
// A state of Slurm that says that a job has ended is a proof only while its node answers. If the
// node is down, Slurm gives the job up, but its processes may live: slurmd can die without them. So
// such a share is lost until the node answers again. Then slurmd has told the controller what runs,
// and was told to kill what should not. The same holds for a running job that a list no longer has:
// a controller that was killed may have forgotten it.
//
// Slurm does not refuse a second job of the same name. The one with the lowest number is the share,
// and the others are to be cancelled.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rubato/base/time.h"
#include "rubato/engine/cluster_manager.h"
#include "rubato/engine/slurm_text.h"

namespace rubato::engine {

class SlurmView {
 public:
  // The list of nodes must be older than that of the jobs. `owners`: the users of the names that
  // are known. A job of somebody else with such a name is not ours. `now` only grows.
  [[nodiscard]] Listing update(std::int64_t number, const std::vector<SlurmNode>& nodes,
                               const std::vector<SlurmJob>& jobs,
                               const std::map<ShareName, std::string>& owners, Time now);

  // After an update: jobs that have the name of a share without being it, and have not ended.
  [[nodiscard]] const std::vector<std::int64_t>& doubles() const { return doubles_; }
  // The jobs of a share that have not ended.
  [[nodiscard]] std::vector<std::int64_t> living(const ShareName& name) const;
  // The share's number, if the last list had it.
  [[nodiscard]] std::optional<std::int64_t> native(const ShareName& name) const;
  [[nodiscard]] const SlurmNode* node(const std::string& name) const;

 private:
  using State = ManagedShare::State;
  struct Known {
    SlurmJob job;
    State state = State::waiting;
    std::optional<Time> given_up{};  // since when Slurm says nothing of its processes
  };

  void take_nodes(const std::vector<SlurmNode>& nodes);
  void take_jobs(const std::vector<SlurmJob>& jobs, const std::map<ShareName, std::string>& owners);
  [[nodiscard]] State state_of(const Known& known, const Known* before) const;
  [[nodiscard]] bool cleaned_up(const Known& known) const;
  [[nodiscard]] ManagedShare share_of(const ShareName& name,
                                      const std::vector<std::int64_t>& ids) const;
  [[nodiscard]] int ours_on(const SlurmNode& node) const;
  // A node of the host; nullptr if Slurm has none.
  [[nodiscard]] const SlurmNode* host(const std::string& name) const;

  std::map<std::string, SlurmNode> nodes_;
  std::map<std::string, std::string> hosts_;     // the name of one node of each
  std::map<std::string, Time> answering_since_;  // by host
  std::map<std::int64_t, Known> jobs_;           // of the last list, and those that are lost
  std::map<std::int64_t, Known> before_;         // the same, one list earlier
  std::map<ShareName, std::vector<std::int64_t>> by_name_;  // numbers grow
  std::vector<std::int64_t> doubles_;
  Time now_{};
  bool first_ = true;
};

// How long a node must answer before jobs that were lost on it are gone. Slurm tells it to kill
// them when it answers again, and does not say when it has done so. On a busy machine with
// Slurm 24.11 this once took more than 5 s.
inline constexpr Duration kSlurmCleansUp = std::chrono::seconds(30);

}  // namespace rubato::engine
