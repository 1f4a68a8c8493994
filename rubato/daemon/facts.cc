#include "rubato/daemon/facts.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <string>

#include "rubato/daemon/job_model.h"
#include "rubato/daemon/measuring.h"
#include "rubato/daemon/searches.h"
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

// Between two attempts to get more GPUs than a limit of the user allowed.
constexpr Duration kFirstQuota = std::chrono::seconds(30);
constexpr Duration kLongestQuota = std::chrono::minutes(2);
// Quotas further apart are not in a row.
constexpr Duration kQuotasForgotten = std::chrono::minutes(10);

Duration quota_time(int in_a_row) {
  constexpr int kDoublings = 10;
  return std::min(kLongestQuota, kFirstQuota * (1 << std::min(in_a_row - 1, kDoublings)));
}

// The same limits with at most so many GPUs; nullopt if these are too few.
std::optional<GpuLimits> at_most(GpuLimits limits, int gpus) {
  std::erase_if(limits.allowed, [&](int count) { return count > gpus; });
  const int most = limits.allowed.empty() ? gpus : limits.allowed.back();
  limits.max = std::min(limits.max, most);
  if (limits.smallest() > gpus || limits.min > limits.max) return std::nullopt;
  return limits;
}

void put_quota(Transaction& tx, JobId id, const Quota& quota) {
  tx.touch(id);
  tx.put("quota", {{"job", id.value()}, {"quota", write_record(quota).value()}});
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

// The job that the fact is about, or nullptr if the fact is out of date.
const JobView* present(const DaemonState& state, const auto& fact) {
  const JobView* view = state.view(fact.job);
  return view != nullptr && view->generation == fact.generation ? view : nullptr;
}

void take(Transaction& tx, const Reports& reports, const RunningFact& fact) {
  const DaemonState& state = tx.state();
  const JobView* view = present(state, fact);
  if (view == nullptr || view->phase == Phase::running) return;  // nothing new
  const WorkRate rate = rate_held(*state.job(fact.job), *view);
  tx.post(Running{fact.job, fact.generation, progress_of(tx, reports, fact.job, rate)});
}

void take(Transaction& tx, const Reports& reports, const ReleasedFact& fact) {
  const JobView* view = present(tx.state(), fact);
  if (view == nullptr || view->held.empty()) return;
  const bool trains = !fact.stopped && view->phase == Phase::running;
  const WorkRate rate = trains ? view->progress.rate : 0;
  tx.post(Released{fact.job, fact.generation, fact.gpus, progress_of(tx, reports, fact.job, rate),
                   fact.stopped});
}

// A job may have ended while no daemon ran. Then the time that the machine's clock said counts,
// unless it is in the future or before the job's start.
void take(Transaction& tx, const Reports& reports, Finished finished) {
  const DaemonState& state = tx.state();
  if (state.view(finished.job) == nullptr) return;
  const JobRecord* job = state.job(finished.job);
  if (job != nullptr) {
    const JobStatus* status = reports.of(finished.job);
    note_last_stages(tx, *job, status != nullptr ? status->progress : job->progress);
  }
  const WallTime now = state.wall(tx.now());
  const WallTime began = job != nullptr && job->started ? *job->started : WallTime();
  if (finished.at && (*finished.at > now || *finished.at < began)) finished.at.reset();
  tx.post(finished);
}

void take(Transaction& tx, const Reports& reports, const FailedFact& fact) {
  const DaemonState& state = tx.state();
  const JobView* view = present(state, fact);
  if (view == nullptr || view->held.empty()) return;  // reported before
  const Failed failed{fact.job, fact.generation, progress_of(tx, reports, fact.job, 0),
                      fact.infrastructure, short_why(fact.why)};
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

void take(Transaction& tx, const Reports& /*reports*/, const NodeChanged& fact) {
  const DaemonState& state = tx.state();
  if (fact.node.index() >= state.now().cluster.nodes().size()) return;
  const std::string why = short_why(fact.why);
  if (state.reported(fact.node) == fact.state && state.node_why(fact.node) == why) return;
  Json row = row_of_node(state, fact.node);
  row["reported"] = std::string(to_text(fact.state));
  if (!why.empty()) row["why"] = why;
  tx.put("node", row);
  set_node(tx, fact.node);
}

// An engine counts its nodes itself, and after a crash it may say again what is stored.
void take(Transaction& tx, const Reports& /*reports*/, const NodeAdded& fact) {
  const Cluster& cluster = tx.state().now().cluster;
  if (fact.node.index() == cluster.nodes().size() && cluster.can_add(fact.added)) tx.post(fact);
}

void take(Transaction& tx, const Reports& /*reports*/, const Reserved& fact) {
  const DaemonState& state = tx.state();
  if (fact.node.index() >= state.now().cluster.nodes().size()) return;
  const Node& node = state.now().cluster.node(fact.node);
  const Reserved now{fact.node, fact.gpus & node.all(), short_why(fact.why)};
  if (node.reserved == now.gpus && state.reserved_why(now.node) == now.why) return;
  tx.post(now);
}

// The job has what it could get. If that is too little, it waits. A run that measures a speed goes
// on with what it has measured (profiling.cc).
void take(Transaction& tx, const Reports& /*reports*/, const QuotaFact& fact) {
  const DaemonState& state = tx.state();
  const JobView* view = present(state, fact);
  const JobRecord* job = state.job(fact.job);
  if (view == nullptr || job == nullptr || job->leaves_as || job->has_quota() || view->on_hold)
    return;
  Quota quota = job->quota.value_or(Quota());
  const bool soon = job->quota && tx.now() - quota.last < kQuotasForgotten;
  quota.before = view->spec->limits;
  quota.why = short_why(fact.why);
  quota.gpus = fact.gpus.gpus();
  quota.in_a_row = soon ? quota.in_a_row + 1 : 1;
  quota.last = tx.now();
  quota.until = tx.now() + quota_time(quota.in_a_row);
  put_quota(tx, fact.job, quota);
  if (job->measures_for) return;
  const auto limits = at_most(quota.before, quota.gpus);
  if (!limits) return tx.post(HoldChanged{fact.job, true, quota.until});
  Limited limited{fact.job, *limits};
  if (limits->legal(quota.gpus)) limited.keeps = fact.gpus;
  tx.post(limited);
  estimate(tx, fact.job);
}

}  // namespace

void end_quotas(Transaction& tx) {
  const DaemonState& state = tx.state();
  const std::set<JobId> all = state.with_quota();
  for (const JobId id : all) {
    Quota quota = *state.job(id)->quota;
    if (*quota.until > tx.now()) continue;
    quota.until.reset();
    put_quota(tx, id, quota);
    const JobView* view = state.view(id);
    if (view == nullptr || state.job(id)->measures_for || view->on_hold) continue;
    tx.post(Limited{id, quota.before});
    estimate(tx, id);
  }
}

void forget_quota(Transaction& tx, JobId id) {
  const JobRecord* job = tx.state().job(id);
  if (!job->has_quota()) return;
  Quota quota = *job->quota;
  quota.until.reset();
  put_quota(tx, id, quota);
}

Json row_of_node(const DaemonState& state, NodeId node) {
  const Cluster& cluster = state.now().cluster;
  Json row = {{"node", node.value()}};
  if (cluster.has_own_name(node)) row["name"] = cluster.name(node);
  return row;
}

void take_fact(Transaction& tx, const Reports& reports, const Fact& fact) {
  std::visit([&](const auto& one) { take(tx, reports, one); }, fact);
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
