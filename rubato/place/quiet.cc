#include "rubato/place/quiet.h"

#include <algorithm>
#include <bit>

namespace rubato::place {
namespace {

// What is assumed where nobody has measured anything.
constexpr double kAssumedLoss = 0.5;

std::uint64_t lowest(std::uint64_t mask, int gpus) {
  std::uint64_t taken = 0;
  for (; gpus > 0; --gpus) {
    taken |= mask & (~mask + 1);
    mask &= mask - 1;
  }
  return taken;
}

}  // namespace

Quiet::Quiet(const Cluster& cluster, QuietRule rule)
    : unknown_(kAssumedLoss), rule_(rule), on_(cluster.nodes().size()) {
  for (int t = 0; t < cluster.types(); ++t)
    node_size_.push_back(cluster.node_size(GpuType(static_cast<GpuType::rep>(t))));
}

void Quiet::clear() {
  for (const NodeId node : used_) on_[node.index()].clear();
  used_.clear();
}

void Quiet::put(JobId job, std::string_view model, const Allocation& gpus) {
  for (const Slice& slice : gpus.slices()) {
    auto& here = on_[slice.node.index()];
    if (here.empty()) used_.push_back(slice.node);
    here.push_back({job, {model, &gpus}});
  }
}

void Quiet::take(JobId job, const Allocation& gpus) {
  for (const Slice& slice : gpus.slices()) {
    std::erase_if(on_[slice.node.index()], [&](const Placed& placed) { return placed.job == job; });
  }
}

int Quiet::least_nodes(const Allocation& gpus, int more) const {
  const int node = node_size_[gpus.type().index()];
  return std::max(gpus.nodes(), (gpus.gpus() + more + node - 1) / node);
}

std::optional<Allocation> Quiet::choose(Choice choice, JobId job, const FreeGpus& free,
                                        const Allocation& gpus, int more) const {
  Allocation all = gpus;
  const auto add = [&](NodeId node) {
    const int taken = std::min(more, free.free_on(node));
    all.add({node, lowest(free.offered(node), taken)});
    more -= taken;
  };
  for (const Slice& slice : gpus.slices()) {
    if (more > 0 && free.free_on(slice.node) > 0) add(slice.node);
  }
  std::vector<NodeId> nodes;
  for (std::size_t i = 0; i < on_.size(); ++i) {
    const NodeId node(static_cast<NodeId::rep>(i));
    if (free.type_of(node) != gpus.type() || free.free_on(node) == 0 || all.mask_on(node) != 0)
      continue;
    const bool disturbed = std::any_of(on_[i].begin(), on_[i].end(), [&](const Placed& placed) {
      return placed.job != job && placed.tenant.gpus->nodes() > 1;
    });
    if (choice != Choice::undisturbed || !disturbed) nodes.push_back(node);
  }
  // The smallest first: the tightest fit; if no node has enough, and for `emptiest`, the most.
  const auto rank = [&](NodeId node) {
    const int here = free.free_on(node);
    const bool fits = here >= more && choice != Choice::emptiest;
    return std::pair(fits ? 0 : 1, fits ? here : -here);
  };
  while (more > 0) {
    const auto best = std::min_element(nodes.begin(), nodes.end(),
                                       [&](NodeId a, NodeId b) { return rank(a) < rank(b); });
    if (best == nodes.end()) return std::nullopt;
    add(*best);
    nodes.erase(best);
  }
  return all;
}

std::vector<const Quiet::Placed*> Quiet::beside(JobId job, const Allocation& gpus) const {
  std::vector<const Placed*> all;
  for (const Slice& slice : gpus.slices()) {
    for (const Placed& placed : on_[slice.node.index()]) {
      const bool listed = std::any_of(all.begin(), all.end(),
                                      [&](const Placed* p) { return p->job == placed.job; });
      if (placed.job != job && !listed) all.push_back(&placed);
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Placed* a, const Placed* b) { return a->job < b->job; });
  return all;
}

// What a job keeps beside its neighbours, one of which may have other GPUs than it has now.
double Quiet::kept(const Placed& placed, const Placed* instead) const {
  std::vector<Tenant> others;
  for (const Placed* other : beside(placed.job, *placed.tenant.gpus)) {
    if (instead == nullptr || other->job != instead->job) others.push_back(other->tenant);
  }
  if (instead != nullptr && instead->job != placed.job) others.push_back(instead->tenant);
  const ContentionModel& model = rule_.contention != nullptr ? *rule_.contention : unknown_;
  return others.empty() ? 1 : model.kept(placed.tenant, others);
}

bool Quiet::harmless(JobId job, std::string_view model, const Allocation& gpus) const {
  const Placed here{job, {model, &gpus}};
  if (kept(here, nullptr) < 1 - rule_.loss) return false;
  const auto neighbours = beside(job, gpus);
  return std::all_of(neighbours.begin(), neighbours.end(), [&](const Placed* other) {
    return kept(*other, nullptr) - kept(*other, &here) <= rule_.loss;
  });
}

void Quiet::grow(JobId job, std::string_view model, FreeGpus& free, Allocation& gpus,
                 int more) const {
  const bool alone = std::all_of(used_.begin(), used_.end(), [&](NodeId node) {
    const auto& here = on_[node.index()];
    return std::all_of(here.begin(), here.end(), [&](const Placed& p) { return p.job == job; });
  });
  for (const Choice choice : {Choice::tightest, Choice::undisturbed, Choice::emptiest}) {
    const auto wider = choose(choice, job, free, gpus, more);
    if (!wider) continue;
    const bool few = wider->nodes() <= least_nodes(gpus, more);
    if (!alone && !(few && harmless(job, model, *wider))) continue;
    const Allocation added = minus(*wider, gpus);
    for (const Slice& slice : added.slices()) free.take(slice);
    gpus = *wider;
    return;
  }
}

}  // namespace rubato::place
