#include "rubato/daemon/recovery.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "rubato/daemon/clock.h"
#include "rubato/daemon/facts.h"
#include "rubato/daemon/job_entry.h"
#include "rubato/daemon/policy_switch.h"
#include "rubato/daemon/views.h"

namespace rubato::daemon {
namespace {

// More than a journal can have lost at its end while its jobs still ran.
constexpr int kJobsSkipped = 1'000;
constexpr std::int64_t kMostJobsSkipped = 100'000'000;
constexpr int kGenerationsSkipped = 100'000;

bool same_machines(const Cluster& a, const Cluster& b) {
  if (a.nodes().size() != b.nodes().size() || a.types() != b.types()) return false;
  for (int t = 0; t < a.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    if (a.type_name(type) != b.type_name(type)) return false;
  }
  return std::equal(
      a.nodes().begin(), a.nodes().end(), b.nodes().begin(),
      [](const Node& x, const Node& y) { return x.type == y.type && x.gpus == y.gpus; });
}

// Only the nodes of a cluster manager have names of their own.
bool is_managed(const Cluster& cluster) {
  return !cluster.nodes().empty() && cluster.has_own_name(NodeId(0));
}

// How many job numbers to skip, because lost rows may have used them; usually 0. A job's directory
// that no row names is also a sign of lost rows.
Result<std::int64_t> jobs_to_skip(const DaemonState& state, const CoreOptions& options,
                                  bool repaired, std::string& made_up_for) {
  const JobId next = state.next_job();
  const JobId newest = options.newest_directory.value_or(JobId());
  if (!options.newest_directory || newest < next) return repaired ? kJobsSkipped : 0;
  const std::int64_t known = state.now().jobs.next_id().value();
  const std::int64_t skipped = std::int64_t{newest.value()} + 1 - known + kJobsSkipped;
  if (skipped > kMostJobsSkipped) {
    return Error{
        fmt::format("{}/{} has a number that no job can have had, because the journal has no job "
                    "from {} on; move that directory away",
                    options.jobs_directory, newest.value(), next.value())};
  }
  made_up_for = fmt::format(
      "There is a directory {}/{}, but the journal has no job from {} on: rows of it are lost. New "
      "jobs are numbered from {} on.",
      options.jobs_directory, newest.value(), next.value(), known + skipped);
  return skipped;
}

// Masters obey only newer generations than the last one they got, and that row may be lost.
void skip(Transaction& tx, std::int64_t jobs) {
  for (int generations = kGenerationsSkipped; jobs > 0; generations = 0) {
    const int some = static_cast<int>(std::min<std::int64_t>(jobs, kMostSkipped));
    tx.post(Skipped{some, generations});
    jobs -= some;
  }
}

// A repair of the journal may have dropped the last rows of a turn. This adds what must follow from
// the remaining rows. After any other start there is nothing to add.
void finish_torn_turn(Transaction& tx, std::int64_t skipped, const CoreOptions& options) {
  const DaemonState& state = tx.state();
  std::vector<JobId> lost;
  for (const auto& [id, job] : state.jobs()) {
    if (!job.gone() && state.view(id) == nullptr) lost.push_back(id);
  }
  for (const JobId id : lost) enter_again(tx, id, options);
  skip(tx, skipped);
  std::vector<JobId> leaving;
  std::vector<JobId> aside;  // to be measured before the policy sees it
  std::vector<std::pair<JobId, Time>> due;
  for (const JobView& view : state.now().jobs) {
    const JobRecord* job = state.job(view.id);
    if (job == nullptr) continue;
    if (job->leaves_as && !view.leaving) leaving.push_back(view.id);
    const bool waits = job->measured_by || job->paused_until() || (job->trial && job->trial->waits);
    if (waits && !job->leaves_as && !view.on_hold) aside.push_back(view.id);
    if (!job->deadline || !view.spec->deadline) continue;
    const Time deadline = state.loop_time(*job->deadline);
    if (deadline != *view.spec->deadline) due.emplace_back(view.id, deadline);
  }
  for (const JobId id : leaving) tx.post(Cancelled{id});
  for (const JobId id : aside) tx.post(HoldChanged{id, true, state.job(id)->paused_until()});
  for (const auto& [id, deadline] : due) tx.post(Due{id, deadline});
  for (std::size_t n = 0; n < state.now().cluster.nodes().size(); ++n) {
    const NodeId node(static_cast<NodeId::rep>(n));
    set_node(tx, node);
    const Reserved reserved{node, state.now().cluster.node(node).reserved,
                            state.reserved_why(node)};
    if (!loop::jobs_to_move(state.loop().state(), reserved).empty()) tx.post(reserved);
  }
  tx.put_commands();
}

}  // namespace

Result<std::string> begin_or_continue(Transaction& tx, CoreOptions& options, WallTime wall,
                                      bool repaired) {
  const DaemonState& state = tx.state();
  const std::string placement(name_of(options.placement));
  repaired = repaired && state.begun();
  const Json settings = {{"interval", options.interval.count()},
                         {"lateness", options.lateness.count()},
                         {"placement", placement}};
  if (!state.begun()) {
    auto cluster = encode_json(options.cluster);
    if (!cluster) return cluster.error();
    Json began = settings;
    began["cluster"] = std::move(cluster->body);
    began["version"] = cluster->version;
    tx.put("began", began);
  } else if (options.managed && *options.managed != is_managed(state.now().cluster)) {
    return Error{fmt::format(
        "the journal belongs to {} ({}): start {}, or in another state directory",
        *options.managed ? "a cluster on this machine" : "a cluster that a manager runs",
        machines_text(state.now().cluster),
        *options.managed ? "without --engine" : "with --engine slurm")};
  } else if (!options.cluster_of_journal && !same_machines(state.now().cluster, options.cluster)) {
    return Error{fmt::format(
        "the journal belongs to another cluster ({}): start without naming one, with that one, or "
        "in another state directory",
        machines_text(state.now().cluster))};
  } else if (state.placement() != options.placement || state.now().interval != options.interval ||
             state.now().lateness != options.lateness) {
    tx.put("settings", settings);
  }
  options.cluster = state.now().cluster;
  if (!state.clock_set()) set_clock(tx, wall, true);  // if it was set, turns adjust it
  if (options.switch_policy || state.policy().entry == nullptr) {
    const auto chosen = choose_policy(options.policy, options);
    if (!chosen) return chosen.error();
    if (state.policy().entry == nullptr) {
      tx.put_policy(*chosen);
    } else if (state.policy().text != chosen->text) {
      switch_policy(tx, *chosen, options);
    }
  }
  std::string made_up_for;
  const auto skipped = jobs_to_skip(state, options, repaired, made_up_for);
  if (!skipped) return skipped.error();
  finish_torn_turn(tx, *skipped, options);
  return made_up_for;
}

}  // namespace rubato::daemon
