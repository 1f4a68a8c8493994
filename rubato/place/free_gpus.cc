#include "rubato/place/free_gpus.h"

#include <bit>

#include "rubato/base/check.h"
#include "rubato/core/gpu_use.h"

namespace rubato::place {
namespace {

std::uint64_t all_gpus(int gpus) {
  return gpus == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << static_cast<unsigned>(gpus)) - 1;
}

NodeId node_at(std::size_t i) { return NodeId(static_cast<NodeId::rep>(i)); }

}  // namespace

FreeGpus::FreeGpus(const Cluster& cluster)
    : free_of_(static_cast<std::size_t>(cluster.types()), 0) {
  const std::size_t nodes = cluster.nodes().size();
  index_.resize(static_cast<std::size_t>(cluster.types()));
  for (std::size_t t = 0; t < index_.size(); ++t) {
    const auto sizes =
        static_cast<std::size_t>(cluster.node_size(GpuType(static_cast<std::uint8_t>(t)))) + 1;
    index_[t].nodes_with.assign(sizes, OrderedBits(nodes));
    index_[t].how_many.assign(sizes, 0);
    index_[t].any = OrderedBits(nodes);
  }
  for (std::size_t i = 0; i < nodes; ++i) {
    const Node& node = cluster.nodes()[i];
    places_.push_back({node.type, node.all(), node.reserved, node.state == NodeState::up});
    enter(node_at(i));
  }
}

int FreeGpus::free_on(NodeId node) const { return std::popcount(offered(node)); }

std::optional<NodeId> FreeGpus::first_with_any(GpuType type) const {
  const std::size_t at = index_[type.index()].any.first();
  return at == OrderedBits::kNone ? std::nullopt : std::optional(node_at(at));
}

std::optional<NodeId> FreeGpus::fewest_at_least(GpuType type, int gpus) const {
  const TypeIndex& index = index_[type.index()];
  if (gpus < 1 || static_cast<std::size_t>(gpus) >= index.nodes_with.size()) return std::nullopt;
  const std::uint64_t enough = index.sizes & ~all_gpus(gpus - 1);
  if (enough == 0) return std::nullopt;
  return node_at(index.nodes_with[static_cast<std::size_t>(std::countr_zero(enough)) + 1].first());
}

std::optional<NodeId> FreeGpus::most(GpuType type) const {
  const TypeIndex& index = index_[type.index()];
  if (index.sizes == 0) return std::nullopt;
  return node_at(
      index.nodes_with[64 - static_cast<std::size_t>(std::countl_zero(index.sizes))].first());
}

Slice FreeGpus::take(NodeId node, int gpus) {
  std::uint64_t rest = offered(node);
  CHECK(std::popcount(rest) >= gpus);
  std::uint64_t taken = 0;
  for (int i = 0; i < gpus; ++i) {
    taken |= rest & (~rest + 1);
    rest &= rest - 1;
  }
  take(Slice{node, taken});
  return {node, taken};
}

void FreeGpus::take(Slice slice) {
  Place place = places_[slice.node.index()];
  CHECK((place.free & slice.mask) == slice.mask);
  place.free &= ~slice.mask;
  change(slice.node, place);
}

void FreeGpus::give(Slice slice) {
  Place place = places_[slice.node.index()];
  CHECK((place.free & slice.mask) == 0);
  place.free |= slice.mask;
  change(slice.node, place);
}

void FreeGpus::give(const Allocation& gpus) {
  for (const auto& slice : gpus.slices()) give(slice);
}

void FreeGpus::set_up(NodeId node, bool up) {
  Place place = places_[node.index()];
  place.up = up;
  change(node, place);
}

void FreeGpus::set_reserved(NodeId node, std::uint64_t gpus) {
  Place place = places_[node.index()];
  place.reserved = gpus;
  change(node, place);
}

void FreeGpus::change(NodeId node, const Place& place) {
  leave(node);
  places_[node.index()] = place;
  enter(node);
}

void FreeGpus::enter(NodeId node) {
  const int free = free_on(node);
  if (free == 0) return;
  TypeIndex& index = index_[places_[node.index()].type.index()];
  const auto size = static_cast<std::size_t>(free);
  index.nodes_with[size].insert(node.index());
  if (index.how_many[size]++ == 0) index.sizes |= std::uint64_t{1} << (size - 1);
  index.any.insert(node.index());
  free_of_[places_[node.index()].type.index()] += free;
}

void FreeGpus::leave(NodeId node) {
  const int free = free_on(node);
  if (free == 0) return;
  TypeIndex& index = index_[places_[node.index()].type.index()];
  const auto size = static_cast<std::size_t>(free);
  index.nodes_with[size].erase(node.index());
  if (--index.how_many[size] == 0) index.sizes &= ~(std::uint64_t{1} << (size - 1));
  index.any.erase(node.index());
  free_of_[places_[node.index()].type.index()] -= free;
}

FreeGpus free_beside(const JobTable& jobs, const Cluster& cluster) {
  FreeGpus free(cluster);
  GpuUse taken(cluster.nodes().size());
  for (const JobView& job : jobs) {
    for (const auto& slice : job.target.slices()) {
      // GPUs that a pair shares are taken only once.
      const std::uint64_t more = slice.mask & ~taken.used(slice.node);
      if (more != 0) free.take(Slice{slice.node, more});
    }
    taken.take(job.target);
  }
  return free;
}

}  // namespace rubato::place
