// The machines: nodes with GPUs of one type each, and whether they can be used now.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/core/ids.h"

namespace rubato::core {

enum class NodeState : std::uint8_t { up, draining, down, unknown };

// The GPUs of a node are the bits of one word.
inline constexpr int kMaxGpusPerNode = 64;

struct Node {
  GpuType type;
  int gpus = 0;
  NodeState state = NodeState::up;
  std::uint64_t reserved = 0;  // GPUs that must not be given out, because others use them

  [[nodiscard]] std::uint64_t all() const;
  // The GPUs that may be given out; none unless the node is up.
  [[nodiscard]] std::uint64_t usable() const;
};

using NodeLabels = std::map<std::string, std::string>;

// A node that joins a cluster.
struct NewNode {
  std::string name;
  std::string type;  // the name of its type of GPUs
  int gpus = 0;
  NodeLabels labels = {};
  friend bool operator==(const NewNode&, const NewNode&) = default;
};

// Equal nodes that were described together: "16x8:v100".
struct NodeGroup {
  int nodes = 0;
  int gpus_per_node = 0;
  GpuType type;
};

class Cluster {
 public:
  Cluster() = default;
  Cluster(const std::vector<NodeGroup>& groups, std::vector<std::string> type_names);

  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[id.index()]; }
  [[nodiscard]] const std::vector<NodeGroup>& groups() const { return groups_; }
  [[nodiscard]] int types() const { return static_cast<int>(type_names_.size()); }
  [[nodiscard]] const std::string& type_name(GpuType type) const {
    return type_names_[type.index()];
  }

  // GPUs of a type: on nodes that are up, and on all nodes.
  [[nodiscard]] int usable(GpuType type) const { return usable_[type.index()]; }
  [[nodiscard]] int installed(GpuType type) const { return installed_[type.index()]; }
  [[nodiscard]] int usable() const;
  [[nodiscard]] int installed() const;
  // The most GPUs that one job could ever get; a job runs on GPUs of one type.
  [[nodiscard]] int largest_type() const;
  // GPUs on the largest node of a type.
  [[nodiscard]] int node_size(GpuType type) const { return node_size_[type.index()]; }

  // Nodes in the state unknown.
  [[nodiscard]] int unknown() const { return unknown_; }

  // A node without a name of its own is "node3".
  [[nodiscard]] std::string name(NodeId id) const;
  [[nodiscard]] bool has_own_name(NodeId id) const;
  [[nodiscard]] const NodeLabels& labels(NodeId id) const;
  // The node that people mean: by its name, else by its number.
  [[nodiscard]] std::optional<NodeId> find(std::string_view name) const;

  void set_state(NodeId id, NodeState state);
  // Removes GPUs of a node from the usable ones. They stay installed.
  void reserve(NodeId id, std::uint64_t gpus);
  // Exactly these GPUs of the node are reserved from now on.
  void set_reserved(NodeId id, std::uint64_t gpus);
  // The cluster as if only these GPUs were installed, by node. Nodes keep their numbers.
  [[nodiscard]] Cluster part(const std::vector<std::uint64_t>& gpus) const;
  // Whether add() may be called. The error says why not.
  [[nodiscard]] Result<void> can_add(const NewNode& node) const;
  // Appends a node. A type with a new name gets the next number.
  NodeId add(const NewNode& node);
  // For a node of the constructor.
  void describe(NodeId id, std::string name, NodeLabels labels);

 private:
  struct Description {
    std::string name;
    NodeLabels labels;
  };

  std::vector<NodeGroup> groups_;
  std::vector<Node> nodes_;
  std::vector<std::string> type_names_;
  std::vector<int> usable_, installed_, node_size_;
  int unknown_ = 0;
  // By node; may be shorter than nodes_. Shared, because clusters are copied often.
  std::shared_ptr<const std::vector<Description>> descriptions_;
};

// "16x8", "16x8:v100,8x4:k80": nodes x GPUs per node, with a type name. Unnamed types are "gpu".
[[nodiscard]] Result<Cluster> parse_cluster(std::string_view text);

}  // namespace rubato::core
