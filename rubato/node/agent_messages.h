// The messages between the engine and the agents of its nodes (docs/internals.md, "Messages between
// engine and agent").
//
// The protocol is state-based. An agent that connects says Hello with the complete status of every
// job of which its node is the home, except jobs that the engine told it to forget. The engine
// answers with the table of the jobs that should exist there. There are no acknowledgements and no
// sequence numbers: commands carry generations, statuses are complete, and after a reconnection
// everything is sent again.
//
// Parsing is as strict as in master_messages.h. A message has its fields beside "type".
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "rubato/launch/master_messages.h"

namespace rubato::node {

// --- agent to engine ---

// The version of these messages and of the files that agents read. An agent outlives its daemon, so
// a new daemon may find an agent of an older version, which does not understand new masters. The
// daemon dismisses that agent, and a new agent adopts its jobs.
inline constexpr int kAgentProtocol = 3;

struct AgentHello {
  NodeId node;
  std::string token;  // of all agents of this state directory
  ProcessName process;
  std::vector<JobStatus> jobs;
  int protocol = kAgentProtocol;  // the first agents did not say it
  friend bool operator==(const AgentHello&, const AgentHello&) = default;
};
// Shows that the agent is alive. Sent every second, and at once when `trouble` changes.
struct AgentBeat {
  std::string trouble;  // why no job can be started on this node now; or empty
  friend bool operator==(const AgentBeat&, const AgentBeat&) = default;
};
// No job is alive here that the last table does not have.
struct AgentSettled {
  friend bool operator==(const AgentSettled&, const AgentSettled&) = default;
};
using FromAgent = std::variant<AgentHello, JobStatus, AgentBeat, AgentSettled>;

// --- engine to agent ---

struct AgentWelcome {
  friend bool operator==(const AgentWelcome&, const AgentWelcome&) = default;
};
// All jobs with this home that should exist. The agent kills all other jobs there, and every job
// whose start is newer than its generation in the table.
struct NodeTable {
  struct Entry {
    JobId job;
    Generation generation;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<Entry> jobs;
  friend bool operator==(const NodeTable&, const NodeTable&) = default;
};
// Changes nothing for a job that runs with this generation or a newer one.
struct LaunchJob {
  JobLaunch launch;
  friend bool operator==(const LaunchJob&, const LaunchJob&) = default;
};
struct PlaceJob {
  JobId job;
  Place place;
  friend bool operator==(const PlaceJob&, const PlaceJob&) = default;
};
struct HaltJob {
  JobId job;
  StopJob stop;
  friend bool operator==(const HaltJob&, const HaltJob&) = default;
};
// The job's end is stored, so the agent may forget the job.
struct ForgetJob {
  JobId job;
  friend bool operator==(const ForgetJob&, const ForgetJob&) = default;
};
struct EngineBeat {
  friend bool operator==(const EngineBeat&, const EngineBeat&) = default;
};
// The agent exits; its jobs continue.
struct DismissAgent {
  friend bool operator==(const DismissAgent&, const DismissAgent&) = default;
};
using ToAgent = std::variant<AgentWelcome, NodeTable, LaunchJob, PlaceJob, HaltJob, ForgetJob,
                             EngineBeat, DismissAgent>;

[[nodiscard]] Json to_json(const FromAgent& message);
[[nodiscard]] Json to_json(const ToAgent& message);
[[nodiscard]] Result<FromAgent> parse_from_agent(const Json& message);
[[nodiscard]] Result<ToAgent> parse_to_agent(const Json& message);

}  // namespace rubato::node
