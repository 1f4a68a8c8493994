#include "rubato/policy/unsplit_nodes.h"

#include <algorithm>
#include <bit>

namespace rubato::policy {
namespace {

bool was_on(const NodeShares& had, NodeId node) {
  return std::any_of(had.begin(), had.end(),
                     [&](const auto& share) { return share.first == node; });
}

}  // namespace

NodeShares shares_of(const Allocation& gpus) {
  NodeShares shares;
  for (const auto& slice : gpus.slices()) shares.emplace_back(slice.node, slice.gpus());
  return shares;
}

UnsplitNodes::UnsplitNodes(const Cluster& cluster)
    : types_(static_cast<std::size_t>(cluster.types())) {
  for (std::size_t t = 0; t < types_.size(); ++t) types_[t].size = cluster.node_size(type_at(t));
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    const Node& node = cluster.nodes()[i];
    auto& rooms = types_[node.type.index()].rooms;
    where_.emplace_back(node.type.index(), rooms.size());
    rooms.push_back({NodeId(static_cast<NodeId::rep>(i)), std::popcount(node.usable())});
  }
}

const UnsplitNodes::Room* UnsplitNodes::room_of(NodeId node) const {
  const auto& [type, place] = where_[node.index()];
  return &types_[type].rooms[place];
}

int UnsplitNodes::free_of(GpuType type) const {
  int free = 0;
  for (const Room& room : types_[type.index()].rooms) free += room.free;
  return free;
}

bool UnsplitNodes::has(const NodeShares& shares) const {
  return std::all_of(shares.begin(), shares.end(),
                     [&](const auto& share) { return room_of(share.first)->free >= share.second; });
}

void UnsplitNodes::take(const NodeShares& shares) {
  for (const auto& [node, gpus] : shares) {
    const auto& [type, place] = where_[node.index()];
    types_[type].rooms[place].free -= gpus;
  }
}

void UnsplitNodes::give(const NodeShares& shares) {
  for (const auto& [node, gpus] : shares) {
    const auto& [type, place] = where_[node.index()];
    types_[type].rooms[place].free += gpus;
  }
}

std::vector<NodeId> UnsplitNodes::nodes_of(GpuType type) const {
  std::vector<NodeId> nodes;
  for (const Room& room : types_[type.index()].rooms) nodes.push_back(room.node);
  return nodes;
}

int UnsplitNodes::needed_on_one(const Count& want) const {
  const OfType& type = types_[want.type.index()];
  const auto empty = std::count_if(type.rooms.begin(), type.rooms.end(),
                                   [&](const Room& room) { return room.free == type.size; });
  return empty < want.gpus / type.size ? type.size : want.gpus % type.size;
}

NodeShares UnsplitNodes::place(const Count& want, const NodeShares& had) const {
  const OfType& type = types_[want.type.index()];
  if (type.size == 0) return {};
  int whole = want.gpus / type.size;
  const int rest = want.gpus % type.size;
  NodeShares shares;
  for (const bool own : {true, false}) {
    for (const Room& room : type.rooms) {
      if (whole == 0) break;
      if (room.free != type.size || was_on(had, room.node) != own) continue;
      shares.emplace_back(room.node, type.size);
      --whole;
    }
  }
  if (whole > 0) return {};
  if (rest > 0) {
    const Room* best = nullptr;
    for (const Room& room : type.rooms) {
      if (room.free < rest || was_on(shares, room.node)) continue;
      const auto rank = [&](const Room& r) { return std::pair(!was_on(had, r.node), r.free); };
      if (best == nullptr || rank(room) < rank(*best)) best = &room;
    }
    if (best == nullptr) return {};
    shares.emplace_back(best->node, rest);
  }
  std::sort(shares.begin(), shares.end());
  return shares;
}

NodeShares UnsplitNodes::split(const Count& want) const {
  std::vector<Room> rooms = types_[want.type.index()].rooms;
  std::stable_sort(rooms.begin(), rooms.end(),
                   [](const Room& a, const Room& b) { return a.free > b.free; });
  NodeShares shares;
  int missing = want.gpus;
  for (const Room& room : rooms) {
    const int taken = std::min(missing, room.free);
    if (taken <= 0) break;
    shares.emplace_back(room.node, taken);
    missing -= taken;
  }
  if (missing > 0) return {};
  std::sort(shares.begin(), shares.end());
  return shares;
}

}  // namespace rubato::policy
