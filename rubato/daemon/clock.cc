#include "rubato/daemon/clock.h"

#include <chrono>
#include <vector>

namespace rubato::daemon {
namespace {

// The wall clock may drift by this much before deadlines are computed again.
constexpr Duration kClockSlack = std::chrono::seconds(1);

}  // namespace

void set_clock(Transaction& tx, WallTime wall, bool just_started) {
  const DaemonState& state = tx.state();
  const Duration offset = wall.time_since_epoch() - tx.now().time_since_epoch();
  const bool first = !state.clock_set();
  const Duration moved = offset - state.offset();
  if (!first && std::chrono::abs(moved) <= kClockSlack) return;
  std::vector<JobId> dated;
  for (const JobView& view : state.now().jobs) {
    if (view.spec->deadline) dated.push_back(view.id);
  }
  Json body = {{"offset", offset.count()}};
  if (!first) {
    body["deadlines"] = dated.size();
    body["moved"] = moved.count();
    // The loop's time did not advance while no daemon ran.
    if (just_started && moved > Duration(0)) body["down"] = true;
  }
  tx.put("clock", body);
  for (const JobId id : dated) {
    const JobRecord* job = state.job(id);
    if (job != nullptr && job->deadline) tx.post(Due{id, state.loop_time(*job->deadline)});
  }
}

void keep_time(Transaction& tx, Duration unsaid) {
  const DaemonState& state = tx.state();
  if (tx.now() - state.time() < unsaid) return;
  tx.put("clock", {{"deadlines", 0}, {"moved", 0}, {"offset", state.offset().count()}});
}

}  // namespace rubato::daemon
