#include "rubato/core/cluster.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <numeric>

#include "rubato/base/text.h"

namespace rubato::core {
namespace {

constexpr long long kMaxGpus = 10'000'000;
constexpr std::size_t kMaxTypes = 200;
constexpr std::size_t kMaxNameLength = 255;

Error nonsense(std::string_view text, std::string_view why) {
  return Error{fmt::format(
      "cluster {}: {}; write NODESxGPUS[:TYPE][,...], for example 16x8 or 16x8:v100,8x4:k80",
      base::quoted(text), why)};
}

bool is_type_name(std::string_view name) {
  return !name.empty() && name.size() <= 40 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

struct GroupText {
  int nodes = 0;
  int gpus = 0;
  std::string type;
};

Result<GroupText> parse_group(std::string_view whole, std::string_view item) {
  const auto colon = item.find(':');
  const auto size = item.substr(0, colon);
  const auto cross = size.find('x');
  if (cross == std::string_view::npos)
    return nonsense(whole, fmt::format("{} has no \"x\"", base::quoted(item)));
  const auto nodes = parse_integer(size.substr(0, cross));
  const auto gpus = parse_integer(size.substr(cross + 1));
  if (!nodes || !gpus || *nodes < 1 || *gpus < 1) {
    return nonsense(whole,
                    fmt::format("{} does not name two whole numbers above 0", base::quoted(size)));
  }
  if (*gpus > kMaxGpusPerNode) {
    return nonsense(whole, fmt::format("a node has at most {} GPUs", kMaxGpusPerNode));
  }
  if (*nodes > kMaxGpus / *gpus) return nonsense(whole, fmt::format("more than {} GPUs", kMaxGpus));
  std::string type = colon == std::string_view::npos ? "gpu" : std::string(item.substr(colon + 1));
  if (!is_type_name(type)) {
    return nonsense(
        whole, fmt::format("{} is not a type name (letters, digits, - _ .)", base::quoted(type)));
  }
  return GroupText{static_cast<int>(*nodes), static_cast<int>(*gpus), std::move(type)};
}

}  // namespace

Cluster::Cluster(const std::vector<NodeGroup>& groups, std::vector<std::string> type_names)
    : groups_(groups), type_names_(std::move(type_names)) {
  installed_.assign(type_names_.size(), 0);
  node_size_.assign(type_names_.size(), 0);
  for (const auto& group : groups_) {
    nodes_.insert(nodes_.end(), static_cast<std::size_t>(group.nodes),
                  Node{group.type, group.gpus_per_node, NodeState::up});
    installed_[group.type.index()] += group.nodes * group.gpus_per_node;
    auto& largest = node_size_[group.type.index()];
    largest = std::max(largest, group.gpus_per_node);
  }
  usable_ = installed_;
}

int Cluster::usable() const { return std::accumulate(usable_.begin(), usable_.end(), 0); }
int Cluster::installed() const { return std::accumulate(installed_.begin(), installed_.end(), 0); }
int Cluster::largest_type() const {
  return installed_.empty() ? 0 : *std::max_element(installed_.begin(), installed_.end());
}

std::uint64_t Node::all() const {
  return gpus == kMaxGpusPerNode ? ~std::uint64_t{0} : (std::uint64_t{1} << gpus) - 1;
}

std::uint64_t Node::usable() const { return state == NodeState::up ? all() & ~reserved : 0; }

bool Cluster::has_own_name(NodeId id) const {
  return descriptions_ != nullptr && id.index() < descriptions_->size() &&
         !(*descriptions_)[id.index()].name.empty();
}

std::string Cluster::name(NodeId id) const {
  return has_own_name(id) ? (*descriptions_)[id.index()].name : fmt::format("node{}", id.value());
}

const NodeLabels& Cluster::labels(NodeId id) const {
  static const NodeLabels none;
  const bool own = descriptions_ != nullptr && id.index() < descriptions_->size();
  return own ? (*descriptions_)[id.index()].labels : none;
}

std::optional<NodeId> Cluster::find(std::string_view name) const {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const NodeId id(static_cast<NodeId::rep>(i));
    if (this->name(id) == name) return id;
  }
  const auto number = parse_integer(name);
  if (!number || *number < 0 || static_cast<std::size_t>(*number) >= nodes_.size())
    return std::nullopt;
  return NodeId(static_cast<NodeId::rep>(*number));
}

void Cluster::set_state(NodeId id, NodeState state) {
  Node& node = nodes_[id.index()];
  usable_[node.type.index()] -= std::popcount(node.usable());
  unknown_ += (state == NodeState::unknown ? 1 : 0) - (node.state == NodeState::unknown ? 1 : 0);
  node.state = state;
  usable_[node.type.index()] += std::popcount(node.usable());
}

void Cluster::reserve(NodeId id, std::uint64_t gpus) {
  set_reserved(id, nodes_[id.index()].reserved | gpus);
}

void Cluster::set_reserved(NodeId id, std::uint64_t gpus) {
  Node& node = nodes_[id.index()];
  usable_[node.type.index()] -= std::popcount(node.usable());
  node.reserved = gpus;
  usable_[node.type.index()] += std::popcount(node.usable());
}

Cluster Cluster::part(const std::vector<std::uint64_t>& gpus) const {
  Cluster part = *this;
  std::fill(part.installed_.begin(), part.installed_.end(), 0);
  std::fill(part.node_size_.begin(), part.node_size_.end(), 0);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const std::uint64_t there = node.all() & gpus[i];
    if (there != node.all()) part.reserve(NodeId(static_cast<NodeId::rep>(i)), node.all() & ~there);
    part.installed_[node.type.index()] += std::popcount(there);
    int& largest = part.node_size_[node.type.index()];
    largest = std::max(largest, std::popcount(there));
  }
  return part;
}

Result<void> Cluster::can_add(const NewNode& node) const {
  const bool known_type =
      std::find(type_names_.begin(), type_names_.end(), node.type) != type_names_.end();
  if (node.name.empty() || node.name.size() > kMaxNameLength)
    return Error{fmt::format("a node's name has 1 to {} characters", kMaxNameLength)};
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (name(NodeId(static_cast<NodeId::rep>(i))) == node.name)
      return Error{fmt::format("there is a node {} already", base::quoted(node.name))};
  }
  if (node.gpus < 1 || node.gpus > kMaxGpusPerNode)
    return Error{fmt::format("a node has 1 to {} GPUs", kMaxGpusPerNode)};
  if (installed() + static_cast<long long>(node.gpus) > kMaxGpus)
    return Error{fmt::format("a cluster has at most {} GPUs", kMaxGpus)};
  if (!known_type && (!is_type_name(node.type) || type_names_.size() >= kMaxTypes))
    return Error{fmt::format("{} cannot be the name of a type of GPUs", base::quoted(node.type))};
  return {};
}

NodeId Cluster::add(const NewNode& node) {
  const NodeId id(static_cast<NodeId::rep>(nodes_.size()));
  auto at = std::find(type_names_.begin(), type_names_.end(), node.type);
  if (at == type_names_.end()) {
    at = type_names_.insert(at, node.type);
    for (auto* counts : {&usable_, &installed_, &node_size_}) counts->push_back(0);
  }
  const GpuType type = type_at(static_cast<std::size_t>(at - type_names_.begin()));
  NodeGroup* last = groups_.empty() ? nullptr : &groups_.back();
  if (last != nullptr && last->type == type && last->gpus_per_node == node.gpus) {
    ++last->nodes;
  } else {
    groups_.push_back({1, node.gpus, type});
  }
  nodes_.push_back({type, node.gpus, NodeState::up});
  installed_[type.index()] += node.gpus;
  usable_[type.index()] += node.gpus;
  node_size_[type.index()] = std::max(node_size_[type.index()], node.gpus);
  describe(id, node.name, node.labels);
  return id;
}

void Cluster::describe(NodeId id, std::string name, NodeLabels labels) {
  auto all = descriptions_ == nullptr ? std::make_shared<std::vector<Description>>()
                                      : std::make_shared<std::vector<Description>>(*descriptions_);
  if (all->size() <= id.index()) all->resize(id.index() + 1);
  (*all)[id.index()] = {std::move(name), std::move(labels)};
  descriptions_ = std::move(all);
}

Result<Cluster> parse_cluster(std::string_view text) {
  std::vector<NodeGroup> groups;
  std::vector<std::string> names;
  long long total = 0;
  for (const auto item : split(text, ',')) {
    auto group = parse_group(text, trim(item));
    if (!group) return group.error();
    auto at = std::find(names.begin(), names.end(), group->type);
    if (at == names.end()) at = names.insert(at, group->type);
    if (names.size() > kMaxTypes)
      return nonsense(text, fmt::format("more than {} GPU types", kMaxTypes));
    const auto type = GpuType(static_cast<std::uint8_t>(at - names.begin()));
    groups.push_back({group->nodes, group->gpus, type});
    total += static_cast<long long>(group->nodes) * group->gpus;
    if (total > kMaxGpus) return nonsense(text, fmt::format("more than {} GPUs", kMaxGpus));
  }
  return Cluster(groups, std::move(names));
}

}  // namespace rubato::core
