#include "rubato/core/cluster.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <numeric>

#include "rubato/base/text.h"

namespace rubato::core {
namespace {

constexpr long long kMaxGpus = 10'000'000;

Error nonsense(std::string_view text, std::string_view why) {
  return Error{fmt::format(
      "cluster {}: {}; write NODESxGPUS[:TYPE][,...], for example 16x8 or 16x8:v100,8x4:k80",
      base::quoted(text), why)};
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
  const bool plain = std::all_of(type.begin(), type.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  if (type.empty() || type.size() > 40 || !plain) {
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

std::uint64_t Node::usable() const {
  if (state != NodeState::up) return 0;
  const std::uint64_t all =
      gpus == kMaxGpusPerNode ? ~std::uint64_t{0} : (std::uint64_t{1} << gpus) - 1;
  return all & ~reserved;
}

void Cluster::set_state(NodeId id, NodeState state) {
  Node& node = nodes_[id.index()];
  usable_[node.type.index()] -= std::popcount(node.usable());
  unknown_ += (state == NodeState::unknown ? 1 : 0) - (node.state == NodeState::unknown ? 1 : 0);
  node.state = state;
  usable_[node.type.index()] += std::popcount(node.usable());
}

void Cluster::reserve(NodeId id, std::uint64_t gpus) {
  Node& node = nodes_[id.index()];
  usable_[node.type.index()] -= std::popcount(node.usable());
  node.reserved |= gpus;
  usable_[node.type.index()] += std::popcount(node.usable());
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
    if (names.size() > 200) return nonsense(text, "more than 200 GPU types");
    const auto type = GpuType(static_cast<std::uint8_t>(at - names.begin()));
    groups.push_back({group->nodes, group->gpus, type});
    total += static_cast<long long>(group->nodes) * group->gpus;
    if (total > kMaxGpus) return nonsense(text, fmt::format("more than {} GPUs", kMaxGpus));
  }
  return Cluster(groups, std::move(names));
}

}  // namespace rubato::core
