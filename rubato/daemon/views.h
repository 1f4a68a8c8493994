// What people and programs see of the state, as JSON (docs/live.md, docs/openapi.yaml).
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

// What a job looks like from outside.
[[nodiscard]] JobState state_of(const DaemonState& state, const JobRecord& job);

struct ViewContext {
  const DaemonState& state;
  const std::map<JobId, Outlook>& outlooks;
  std::function<const JobStatus*(JobId)> status;
};

[[nodiscard]] Json show_job(const ViewContext& context, const JobRecord& job);

// "admitted", "refused", "position 3" and so on, of a job that was just submitted or tried.
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
// Of a promise that a policy would make.
[[nodiscard]] Verdict promised(const DaemonState& state, const JobRecord& job,
                               const Promise& promise);
[[nodiscard]] Verdict refused(const DaemonState& state, const std::string& why,
                              std::optional<Time> earliest);
[[nodiscard]] Json to_json(const DaemonState& state, const Verdict& verdict);

[[nodiscard]] Json explain(const ViewContext& context, const JobRecord& job, bool sees_all);
[[nodiscard]] Json show_nodes(const DaemonState& state, const std::function<bool(JobId)>& visible);
// What is wrong now, and what to do about it. Of jobs, those that are visible.
[[nodiscard]] std::vector<Problem> problems_of(const DaemonState& state,
                                               const std::function<bool(JobId)>& visible);
[[nodiscard]] Json show_policy(const DaemonState& state, const std::function<bool(JobId)>& visible);
[[nodiscard]] Json show_line(const HistoryLine& line);
[[nodiscard]] Json show_user(const UserRecord& user);

// As rubato up --cluster takes it: "2x4", "1x8:v100,2x4:k80".
[[nodiscard]] std::string machines_text(const Cluster& cluster);
[[nodiscard]] Json iso(const std::optional<WallTime>& time);
// "17:40", with the date if it is another day than `now`'s.
[[nodiscard]] std::string clock_text(WallTime time, WallTime now);

}  // namespace rubato::daemon
