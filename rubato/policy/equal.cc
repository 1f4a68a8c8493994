#include "rubato/policy/equal.h"

#include <queue>
#include <tuple>
#include <vector>

namespace rubato::policy {
namespace {

struct EqualShare {
  const JobView* job = nullptr;
  int gpus = 0;
};

}  // namespace

Decision Equal::decide(const Snapshot& snapshot, State& /*state*/) const {
  int room = snapshot.cluster.usable();
  std::vector<EqualShare> shares;
  shares.reserve(snapshot.jobs.size());
  for (const JobView& job : snapshot.jobs) shares.push_back({&job, 0});

  // The job with the fewest GPUs takes the next step; on a tie, the one submitted first.
  using Turn = std::pair<int, std::size_t>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  for (std::size_t i = 0; i < shares.size(); ++i) turns.emplace(0, i);
  while (room > 0 && !turns.empty()) {
    const std::size_t i = turns.top().second;
    turns.pop();
    EqualShare& share = shares[i];
    const auto next = share.job->spec->limits.above(share.gpus);
    if (!next || *next - share.gpus > room) continue;
    const SpeedModel& speed = *share.job->speed;
    const WorkRate now = share.gpus == 0 ? 0 : speed.on(GpuType(), share.gpus);
    if (!(speed.on(GpuType(), *next) > now)) continue;
    room -= *next - share.gpus;
    share.gpus = *next;
    turns.emplace(share.gpus, i);
  }

  Decision decision;
  for (const EqualShare& share : shares) {
    if (share.gpus > 0) decision.run.push_back({share.job->id, Count{GpuType(), share.gpus}});
  }
  return decision;
}

std::vector<PolicyEntry> equal_rows() {
  PolicyEntry entry;
  entry.name = "equal";
  entry.group = "fair";
  entry.paper = "baseline of elastic policies";
  entry.summary = "as many GPUs for each job as for any other";
  entry.knows = "speed curve";
  entry.elastic = true;
  entry.one_type = true;
  entry.make = [](const KeyValues&, const PolicyInputs&) -> MadePolicy { return erase(Equal{}); };
  return {entry};
}

}  // namespace rubato::policy
