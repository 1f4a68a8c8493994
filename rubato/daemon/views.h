// The JSON that users and programs see of the state (docs/http-api.md, docs/openapi.yaml).
//
// Pure functions of the state and of the newest reports of the machines.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rubato/api/request.h"
#include "rubato/base/json.h"
#include "rubato/core/node_states.h"
#include "rubato/daemon/daemon_state.h"
#include "rubato/daemon/forecast.h"

namespace rubato::daemon {

// The state of a job as users see it.
[[nodiscard]] JobState state_of(const DaemonState& state, const JobRecord& job);
// The job whose speed this run measures; the job itself if it is no such run.
[[nodiscard]] JobId measured_job(const DaemonState& state, JobId id);

struct ViewContext {
  const DaemonState& state;
  const std::map<JobId, Outlook>& outlooks;
  std::function<const JobStatus*(JobId)> status;
};

[[nodiscard]] Json show_job(const ViewContext& context, const JobRecord& job);

// The answer to a submission or a dry run: "admitted", "refused", "position 3" and so on.
struct Verdict {
  std::optional<bool> admitted;
  std::string text;
  std::optional<Time> finish;
  std::optional<Time> earliest;
  std::optional<int> position;
  std::optional<Time> start;
  std::optional<Time> by;
};
[[nodiscard]] Verdict verdict_on(const ViewContext& context, const JobRecord& job);
// The verdict for a promise that a policy would make.
[[nodiscard]] Verdict promised(const DaemonState& state, const JobRecord& job,
                               const Promise& promise);
[[nodiscard]] Verdict refused(const DaemonState& state, const std::string& why,
                              std::optional<Time> earliest);
[[nodiscard]] Json to_json(const DaemonState& state, const Verdict& verdict);

// The cells of tenants, with the nodes on which they are. Or of one tenant: an object without its
// cells if it has none.
[[nodiscard]] Json show_cells(const DaemonState& state);
[[nodiscard]] Json show_cells(const DaemonState& state, const std::string& tenant);

[[nodiscard]] Json show_nodes(const DaemonState& state, const std::function<bool(JobId)>& visible,
                              const std::function<bool(const std::string&)>& tenant_visible);
[[nodiscard]] Json show_policy(const DaemonState& state, const std::function<bool(JobId)>& visible);
[[nodiscard]] Json show_line(const HistoryLine& line);
[[nodiscard]] Json show_user(const UserRecord& user);

// The cluster in the form of `rubato up --cluster`: "2x4", "1x8:v100,2x4:k80".
[[nodiscard]] std::string machines_text(const Cluster& cluster);

}  // namespace rubato::daemon
