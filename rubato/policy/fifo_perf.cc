#include "rubato/policy/fifo_perf.h"

#include <optional>
#include <utility>
#include <vector>

namespace rubato::policy {
namespace {

std::vector<Grant> assign_in_order(const Snapshot& snapshot) {
  std::vector<int> room = usable_gpus(snapshot.cluster);
  std::vector<Grant> grants;
  for (const JobView& job : snapshot.jobs) {
    const int gpus = job.spec->requested;
    std::optional<GpuType> fastest;
    for (std::size_t t = 0; t < room.size(); ++t) {
      const GpuType type(static_cast<GpuType::rep>(t));
      const WorkRate rate = job.speed->on(type, gpus);
      if (room[t] < gpus || rate <= 0) continue;
      if (!fastest || rate > job.speed->on(*fastest, gpus)) fastest = type;
    }
    if (!fastest) break;
    room[fastest->index()] -= gpus;
    grants.push_back({job.id, Count{*fastest, gpus}});
  }
  return grants;
}

std::vector<TimeShare> whole_shares(const Snapshot& snapshot) {
  std::vector<TimeShare> shares;
  const std::vector<double> none(static_cast<std::size_t>(snapshot.cluster.types()), 0);
  for (const JobView& job : snapshot.jobs) shares.push_back({job.id, std::nullopt, none});
  auto share = shares.begin();
  for (const auto& grant : assign_in_order(snapshot)) {
    while (share->job != grant.job) ++share;
    share->of_type[std::get<Count>(grant.want).type.index()] = 1;
  }
  return shares;
}

}  // namespace

Decision FifoPerf::decide(const Snapshot& snapshot, State& state) const {
  if (config.in_rounds) return state.rounds.decide(snapshot, config.rounds, whole_shares);
  Decision decision;
  decision.run = assign_in_order(snapshot);
  return decision;
}

Result<FifoPerf::State> FifoPerf::State::load(const Json& json) {
  auto rounds = Rounds::load(json);
  if (!rounds) return rounds.error();
  return State{std::move(*rounds)};
}

}  // namespace rubato::policy
