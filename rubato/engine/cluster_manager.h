// What is under Rubato on a cluster that somebody else manages: Slurm, later Kubernetes. It starts
// and ends shares on its nodes, and lists what is there. A share is one job of the manager on one
// node, whose process `rubato share` runs workers for the master of a Rubato job
// (docs/many-hosts.md).
//
// Nothing blocks. Answers come later, in take_answers(), and may be lost, late or doubled: an
// answer says what was true at some time after the question. So share_table.h, which decides,
// believes only a listing that began after the event in question.
//
// Belongs to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rubato/base/time.h"
#include "rubato/core/cluster.h"
#include "rubato/wire/roster_messages.h"

namespace rubato::engine {

using wire::ShareName;

// What to start. The name is unique for ever, so a manager may be asked twice.
struct ShareSpec {
  ShareName name;
  std::string node;  // the manager's name of it
  int gpus = 1;
  std::vector<std::string> command;  // never given to a shell
  std::string directory;             // where it starts
  std::string log;                   // the file for its own messages, readable by its user
  std::string user;                  // empty: the user of this process
  std::string comment;               // for people who look at the manager's own lists
  friend bool operator==(const ShareSpec&, const ShareSpec&) = default;
};

struct ManagedNode {
  std::string name;
  int gpus = 0;
  std::string type;  // of its GPUs; empty: not told
  NodeState state = NodeState::up;
  std::string why;                            // if it is not up
  int others = 0;                             // GPUs that jobs of others have
  std::map<std::string, std::string> labels;  // features, partitions
  friend bool operator==(const ManagedNode&, const ManagedNode&) = default;
};

struct ManagedShare {
  enum class State : std::uint8_t {
    waiting,  // not started yet
    running,
    ending,  // its processes may live
    gone,    // all its processes have ended
    lost,    // the manager has given it up, but its processes may live: its node does not answer
  };
  ShareName name;
  std::string native;  // the manager's own id
  std::string node;
  State state = State::waiting;
  std::string why;  // why it waits, or how it ended, in the manager's words
  std::optional<Duration> left = std::nullopt;  // until its time limit, if it has one
  bool of_user = false;  // it waits because of a limit of its user, not because of its node
  friend bool operator==(const ManagedShare&, const ManagedShare&) = default;
};

// Everything that the manager has with our identity. A share that is not in it is gone or was never
// made. Listings that began earlier have smaller numbers.
struct Listing {
  std::int64_t number = 0;
  std::vector<ManagedNode> nodes;
  std::vector<ManagedShare> shares;
  std::string settings;  // of the manager. If they change, what was refused may be taken now
};
// The manager has taken the share, or had it already.
struct ShareTaken {
  ShareName name;
  std::string native;
};
// The manager refuses the share, and will not start it: a limit, an unknown account.
struct ShareRefused {
  ShareName name;
  std::string why;
  bool of_user = false;  // because of a limit of its user: those of others may be taken
};
// Nobody knows whether it was made: the manager did not answer. A later listing tells.
struct ShareUnknown {
  ShareName name;
  std::string why;
};
// The manager does not answer, or answers again (`why` is empty).
struct ManagerTrouble {
  std::string why;
};
using ManagerAnswer = std::variant<Listing, ShareTaken, ShareRefused, ShareUnknown, ManagerTrouble>;

class ClusterManager {
 public:
  ClusterManager() = default;
  ClusterManager(const ClusterManager&) = delete;
  ClusterManager& operator=(const ClusterManager&) = delete;
  virtual ~ClusterManager() = default;

  virtual void submit(const ShareSpec& share) = 0;
  // Ends it, whether it waits or runs. Asked again until a listing shows that it is gone.
  virtual void cancel(const ShareName& share) = 0;
  // Begins a listing; its number is returned. At most one is under way: otherwise its number is
  // returned, and nothing new begins.
  virtual std::int64_t list() = 0;
  // To be called several times a second.
  virtual void turn() = 0;
  [[nodiscard]] virtual std::vector<ManagerAnswer> take_answers() = 0;
};

}  // namespace rubato::engine
