#include "rubato/core/decision.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <map>
#include <string_view>

namespace rubato::core {
namespace {

// Sums up the GPUs that the decision uses; per node only for wants that name nodes.
class Usage {
 public:
  explicit Usage(const Cluster& cluster)
      : cluster_(cluster), by_type_(static_cast<std::size_t>(cluster.types()), 0) {}

  Result<void> add(const Count& want, const Allocation& /*has*/) {
    if (want.type.index() >= by_type_.size()) return Error{"names a GPU type the cluster lacks"};
    return add(want.type, want.gpus);
  }

  Result<void> add(const Spread& want, const Allocation& /*has*/) {
    std::optional<GpuType> type;
    if (want.gpus.empty()) return Error{"spreads over no node"};
    const auto out_of_order = [](const auto& a, const auto& b) { return !(a.first < b.first); };
    if (std::adjacent_find(want.gpus.begin(), want.gpus.end(), out_of_order) != want.gpus.end()) {
      return Error{"spreads over nodes that are not ascending"};
    }
    for (const auto& [node, gpus] : want.gpus) {
      if (auto ok = on_node(node, type); !ok) return ok;
      if (gpus < 1) return Error{"spreads less than one GPU on a node"};
      if ((by_node_[node] += gpus) > std::popcount(cluster_.node(node).usable()))
        return Error{"overfills a node"};
      if (auto ok = add(*type, gpus); !ok) return ok;
    }
    return {};
  }

  // The host's grant takes the GPUs. check_guests() checks the pair.
  Result<void> add(const Beside& /*want*/, const Allocation& /*has*/) { return {}; }

  Result<void> add(const Exact& want, const Allocation& has) {
    std::optional<GpuType> type;
    if (want.gpus.empty()) return Error{"grants less than one GPU"};
    for (const auto& slice : want.gpus.slices()) {
      // A job may keep its GPUs on a node that is leaving, because no other job could use them.
      if (leaves(slice.node) && (slice.mask & ~has.mask_on(slice.node)) == 0) continue;
      if (auto ok = on_node(slice.node, type); !ok) return ok;
      if (*type != want.gpus.type()) return Error{"names GPUs of another type"};
      const int size = cluster_.node(slice.node).gpus;
      if (size < 64 && (slice.mask >> static_cast<unsigned>(size)) != 0) {
        return Error{"names a GPU its node lacks"};
      }
      if ((slice.mask & cluster_.node(slice.node).reserved) != 0)
        return Error{"names a GPU that others use"};
      auto& taken = exact_[slice.node];
      if ((taken & slice.mask) != 0) return Error{"gives one GPU to two jobs"};
      taken |= slice.mask;
      if ((by_node_[slice.node] += slice.gpus()) >
          std::popcount(cluster_.node(slice.node).usable()))
        return Error{"overfills a node"};
      if (auto ok = add(*type, slice.gpus()); !ok) return ok;
    }
    return {};
  }

 private:
  Result<void> add(GpuType type, int gpus) {
    if (gpus < 1) return Error{"grants less than one GPU"};
    if ((by_type_[type.index()] += gpus) > cluster_.usable(type)) {
      return Error{fmt::format("grants more than the {} usable GPUs of type {}",
                               cluster_.usable(type), cluster_.type_name(type))};
    }
    return {};
  }

  [[nodiscard]] bool leaves(NodeId node) const {
    return node.index() < cluster_.nodes().size() && cluster_.node(node).state != NodeState::up;
  }

  Result<void> on_node(NodeId node, std::optional<GpuType>& type) const {
    if (node.index() >= cluster_.nodes().size()) return Error{"names a node the cluster lacks"};
    const Node& there = cluster_.node(node);
    if (there.state != NodeState::up) return Error{"uses a node that is not up"};
    if (type && *type != there.type) return Error{"mixes GPU types in one job"};
    type = there.type;
    return {};
  }

  const Cluster& cluster_;
  std::vector<int> by_type_;
  std::map<NodeId, int> by_node_;
  std::map<NodeId, std::uint64_t> exact_;
};

Result<void> check_count(const JobView& job, int gpus) {
  const bool as_now = gpus == job.target.gpus();  // this count was checked when it was granted
  if (!as_now && gpus != job.spec->requested && !job.spec->limits.legal(gpus)) {
    return Error{fmt::format("grants {} GPUs, which the job cannot use", gpus)};
  }
  return {};
}

Result<void> check_promise(const Promise& promise, const Snapshot& snapshot) {
  if (snapshot.jobs.find(promise.job) == nullptr)
    return Error{"is promised an end, but it is not there"};
  if (promise.finish < snapshot.now) return Error{"is promised an end that has passed"};
  if (promise.plan.empty()) return Error{"is promised an end without a plan"};
  const auto out_of_order = [](const GpuStep& a, const GpuStep& b) { return a.from >= b.from; };
  const auto& plan = promise.plan;
  if (std::adjacent_find(plan.begin(), plan.end(), out_of_order) != plan.end() ||
      plan.back().from > promise.finish) {
    return Error{"has a plan whose steps are not in order"};
  }
  return {};
}

Result<void> check_grant(const Grant& grant, const Snapshot& snapshot, Usage& usage) {
  const JobView* job = snapshot.jobs.find(grant.job);
  if (job == nullptr) return Error{"grants GPUs to a job that is not there"};
  if (!std::holds_alternative<Beside>(grant.want)) {
    if (auto ok = check_count(*job, gpus_of(grant.want)); !ok) return ok;
  }
  if (grant.batch && (grant.batch->per_gpu < 1 || grant.batch->accumulation < 0)) {
    return Error{fmt::format("grants a batch of {} samples in {} passes", grant.batch->per_gpu,
                             grant.batch->accumulation + 1)};
  }
  return std::visit([&](const auto& want) { return usage.add(want, job->target); }, grant.want);
}

}  // namespace

int gpus_of(const Want& want) {
  struct Visitor {
    int operator()(const Count& w) const { return w.gpus; }
    int operator()(const Exact& w) const { return w.gpus.gpus(); }
    int operator()(const Beside& /*w*/) const { return 0; }
    int operator()(const Spread& w) const {
      int sum = 0;
      for (const auto& [node, gpus] : w.gpus) sum += gpus;
      return sum;
    }
  };
  return std::visit(Visitor(), want);
}

Result<void> validate(const Decision& decision, const Snapshot& snapshot) {
  return Validator().check(decision, snapshot);
}

namespace {

Error wrong(JobId job, std::string_view what) {
  return Error{fmt::format("job {}: {}", job.value(), what)};
}

}  // namespace

Result<void> Validator::check_guests(const Decision& decision, const Snapshot& snapshot) {
  std::map<JobId, int> gpus_of_host;
  for (const auto& grant : decision.run) {
    if (!std::holds_alternative<Beside>(grant.want))
      gpus_of_host.emplace(grant.job, gpus_of(grant.want));
  }
  for (const auto& grant : decision.run) {
    const auto* beside = std::get_if<Beside>(&grant.want);
    if (beside == nullptr) continue;
    const auto host = gpus_of_host.find(beside->host);
    if (host == gpus_of_host.end())
      return wrong(grant.job, "beside a job that has no GPUs of its own, or a guest already");
    if (auto ok = check_count(*snapshot.jobs.find(grant.job), host->second); !ok)
      return wrong(grant.job, ok.error().message);
    gpus_of_host.erase(host);
  }
  return {};
}

Result<void> Validator::check(const Decision& decision, const Snapshot& snapshot) {
  named_.new_round();
  Usage usage(snapshot.cluster);
  bool guests = false;
  for (const auto& grant : decision.run) {
    if (auto ok = check_grant(grant, snapshot, usage); !ok)
      return wrong(grant.job, ok.error().message);
    if (!named_.mark(grant.job.index())) return wrong(grant.job, "named twice");
    guests = guests || std::holds_alternative<Beside>(grant.want);
  }
  if (guests) {
    if (auto ok = check_guests(decision, snapshot); !ok) return ok;
  }
  for (const auto& reject : decision.reject) {
    const JobView* job = snapshot.jobs.find(reject.job);
    if (job == nullptr || job->accepted()) {
      return wrong(reject.job, "rejected, but it was taken in before or is not there");
    }
    if (!named_.mark(reject.job.index())) return wrong(reject.job, "named twice");
  }
  if (!decision.promise.empty()) {
    promised_.new_round();
    for (const auto& reject : decision.reject) promised_.mark(reject.job.index());
    for (const auto& promise : decision.promise) {
      if (auto ok = check_promise(promise, snapshot); !ok)
        return wrong(promise.job, ok.error().message);
      if (!promised_.mark(promise.job.index()))
        return wrong(promise.job, "is promised an end twice, or though it is rejected");
    }
  }
  if (decision.again_at && *decision.again_at <= snapshot.now) {
    return Error{"asks to be called again at a time that has passed"};
  }
  return {};
}

}  // namespace rubato::core
