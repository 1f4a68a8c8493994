#include "rubato/daemon/facts.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <string>

#include "rubato/daemon/job_model.h"
#include "rubato/daemon/measuring.h"
#include "rubato/daemon/views.h"

namespace rubato::daemon {
namespace {

// The backoff between a failure and the next start, from the second failure in a row on. The first
// failure is often the only one, and a job with a promise should not lose more time.
constexpr Duration kFirstPause = std::chrono::seconds(1);
constexpr Duration kLongestPause = std::chrono::minutes(5);

Duration pause_after(int failures_in_a_row) {
  if (failures_in_a_row < 2) return Duration(0);
  constexpr int kDoublings = 10;  // more than are needed for the maximum
  return std::min(kLongestPause, kFirstPause * (1 << std::min(failures_in_a_row - 2, kDoublings)));
}

// Shortens a reason, which comes from a machine or a program, for the journal.
std::string short_why(const std::string& why) {
  constexpr std::size_t kMost = 500;
  if (why.size() <= kMost) return why;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(why[end]) & 0xC0U) == 0x80U) --end;
  return why.substr(0, end) + "...";
}

std::string failed_text(int failures, const std::string& why) {
  const char* before = why.empty() ? "" : failures == 1 ? ": " : "; the last time: ";
  return fmt::format("failed {}{}{}", times(failures), before, why);
}

// The job is on hold until then: the policy does not see it, and other jobs may use its GPUs.
void pause_restart(Transaction& tx, JobId id) {
  const DaemonState& state = tx.state();
  const JobView* view = state.view(id);
  if (view == nullptr || view->on_hold) return;
  const Duration pause = pause_after(state.job(id)->setbacks->in_a_row);
  if (pause > Duration(0)) tx.post(HoldChanged{id, true, tx.now() + pause});
}

// A job may have ended while no daemon ran. Then the time that the machine's clock said counts,
// unless it is in the future or before the job's start.
void take_end(Transaction& tx, Finished finished) {
  const DaemonState& state = tx.state();
  const JobRecord* job = state.job(finished.job);
  const WallTime now = state.wall(tx.now());
  const WallTime began = job != nullptr && job->started ? *job->started : WallTime();
  if (finished.at && (*finished.at > now || *finished.at < began)) finished.at.reset();
  tx.post(finished);
}

void take_failure(Transaction& tx, const Reports& reports, const Failed& failed) {
  const DaemonState& state = tx.state();
  tx.post(failed);
  const JobRecord* job = state.job(failed.job);
  if (job == nullptr || job->gone() || job->leaves_as) return;
  const JobStatus* status = reports.of(failed.job);
  const JobEnd* end =
      status != nullptr && status->ended && status->ended->how == JobEnd::How::failed
          ? &*status->ended
          : nullptr;
  // Its launcher has already tried as often as the owner allows.
  const bool by_itself = end != nullptr && status->failures > job->file.max_failures;
  const bool in_vain = by_itself || job->failures > job->file.max_failures;
  if (failed.infrastructure || !in_vain) return pause_restart(tx, failed.job);
  JobEnding ending{Ending::failed, failed.why, std::nullopt, std::nullopt};
  if (!by_itself) ending.why = failed_text(job->failures, failed.why);
  if (ending.why.empty()) ending.why = "its program failed";
  if (end != nullptr) ending.code = end->code;
  tx.end_job(failed.job, ending);
}

void take_node(Transaction& tx, const NodeChanged& fact) {
  const DaemonState& state = tx.state();
  if (fact.node.index() >= state.now().cluster.nodes().size()) return;
  const std::string why = short_why(fact.why);
  if (state.reported(fact.node) == fact.state && state.node_why(fact.node) == why) return;
  Json row = {{"node", fact.node.value()}, {"reported", std::string(to_text(fact.state))}};
  if (!why.empty()) row["why"] = why;
  tx.put("node", row);
  set_node(tx, fact.node);
}

}  // namespace

void take_fact(Transaction& tx, const Reports& reports, Event fact) {
  const DaemonState& state = tx.state();
  if (const auto* changed = std::get_if<NodeChanged>(&fact)) return take_node(tx, *changed);
  const JobId id = job_of(fact);
  const JobView* view = state.view(id);
  if (view == nullptr) return;
  if (const auto* finished = std::get_if<Finished>(&fact)) return take_end(tx, *finished);
  const auto current = [&](const auto& e) { return e.generation == view->generation; };
  if (auto* running = std::get_if<Running>(&fact)) {
    if (!current(*running)) return;
    if (view->phase == Phase::running) return;  // nothing new
    running->progress = progress_of(tx, reports, id, rate_held(*state.job(id), *view));
  } else if (auto* released = std::get_if<Released>(&fact)) {
    if (!current(*released) || view->held.empty()) return;
    const bool trains = !released->stopped && view->phase == Phase::running;
    released->progress = progress_of(tx, reports, id, trains ? view->progress.rate : 0);
  } else if (auto* failed = std::get_if<Failed>(&fact)) {
    if (!current(*failed) || view->held.empty()) return;  // reported before
    failed->progress = progress_of(tx, reports, id, 0);
    failed->why = short_why(failed->why);
    return take_failure(tx, reports, *failed);
  }
  tx.post(fact);
}

void end_pauses(Transaction& tx) {
  const DaemonState& state = tx.state();
  const std::set<JobId> pausing = state.pausing();
  for (const JobId id : pausing) {
    if (*state.job(id)->paused_until() <= tx.now()) tx.post(HoldChanged{id, false});
  }
}

void set_node(Transaction& tx, NodeId node) {
  const DaemonState& state = tx.state();
  const NodeState wish = state.wish(node);
  const NodeState reported = state.reported(node);
  const NodeState shown = wish == NodeState::down     ? wish
                          : reported != NodeState::up ? reported
                                                      : wish;
  if (state.now().cluster.node(node).state != shown) tx.post(NodeChanged{node, shown});
}

}  // namespace rubato::daemon
