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

std::vector<PolicyEntry> fifo_perf_rows() {
  PolicyEntry entry;
  entry.name = "fifo-perf";
  entry.group = "heterogeneous";
  entry.paper = "Narayanan et al., OSDI'20";
  entry.summary = "in order of submission, each on its fastest type with room; re-assigned";
  entry.knows = "GPUs asked for, speed by type";
  entry.work_conserving = false;
  entry.keys = {number_key("round", 360, 0, 1e7,
                           "seconds a round lasts; 0: jobs are assigned at every event"),
                number_key("resolve", 1920, 0, 1e9, "seconds between two assignments at least")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    FifoPerf::Config config;
    config.in_rounds = values.number("round") > 0;
    config.rounds.length = from_seconds(values.number("round"));
    config.rounds.resolve = from_seconds(values.number("resolve"));
    config.rounds.spare = false;
    return erase(FifoPerf{config});
  };
  return {entry};
}

}  // namespace rubato::policy
