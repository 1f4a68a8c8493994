// The messages between the engine and the agents of its nodes (docs/live.md).
//
// State-based: an agent that connects says Hello with the whole status of every job whose home it
// is, unless the engine has told it to forget the job. The engine answers with its table of the
// jobs that should exist there. Nothing is acknowledged and nothing is numbered: commands carry
// generations, statuses are whole, and after a new connection everything is said again.
//
// Strict as master_messages.h. A message carries its fields flat, beside "type".
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "rubato/launch/master_messages.h"

namespace rubato::node {

// --- agent to engine ---

// Of what daemon and agents say to each other, and of the files that agents read. An agent outlives
// its daemon, so a daemon of a newer version may find one of an older, which does not understand
// the masters of its own version: it is sent away, and a new one adopts its jobs.
inline constexpr int kAgentProtocol = 2;

struct AgentHello {
  NodeId node;
  std::string token;  // of all agents of this state directory
  ProcessName process;
  std::vector<JobStatus> jobs;
  int protocol = kAgentProtocol;  // the first agents did not say it
  friend bool operator==(const AgentHello&, const AgentHello&) = default;
};
// "I am not stopped." Every second, and at once when its trouble is another.
struct AgentBeat {
  std::string trouble;  // why no job can be started on this node now; empty: it can
  friend bool operator==(const AgentBeat&, const AgentBeat&) = default;
};
// Nothing lives here that the last table does not have.
struct AgentSettled {
  friend bool operator==(const AgentSettled&, const AgentSettled&) = default;
};
using FromAgent = std::variant<AgentHello, JobStatus, AgentBeat, AgentSettled>;

// --- engine to agent ---

struct AgentWelcome {
  friend bool operator==(const AgentWelcome&, const AgentWelcome&) = default;
};
// All jobs with this home that should exist. Whatever else lives there is killed, and so is a job
// whose start is newer than its generation here.
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
// Its end is stored: the agent need not remember it.
struct ForgetJob {
  JobId job;
  friend bool operator==(const ForgetJob&, const ForgetJob&) = default;
};
struct EngineBeat {
  friend bool operator==(const EngineBeat&, const EngineBeat&) = default;
};
// The agent ends; its jobs go on.
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
