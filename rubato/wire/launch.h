// The messages between a launcher and the workers of one job (docs/elastic.md).
//
// The environment tells a worker where its launcher listens (RUBATO_LAUNCHER, a unix: address), its
// own number (RUBATO_WORKER) and the job's token (RUBATO_TOKEN). In the live cluster it also has
// the start (RUBATO_START) and a directory (RUBATO_CHECKPOINT). The worker connects and sends a
// Hello. The launcher answers with a Welcome. After that, the launcher sends MembershipPlans, and
// the worker sends Beat, Report and Notice. A worker that loses its launcher continues to train.
//
// In a job that spans hosts (docs/many-hosts.md) the launcher is the job's master, at a tcp:
// address or one that a file: names (a new master has another one), and both sides prove that they
// know the key of the round (job_key.h). The worker sends a Hello at each connection, and a
// WorkerHello then and whenever something in it changes. The master answers with a RosterWord,
// instead of a Welcome and plans, and sends it again whenever it changes.
//
// Every message is a JSON object with "type". Unknown fields are ignored, so that one side may be
// newer.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "rubato/base/json.h"

namespace rubato::wire {

// The number of a worker. It grows with each start and is never reused within a job.
using Uid = std::int64_t;

// A generation (P, r). P is the number of the launcher's plan. r counts the changes of membership
// within it (parts of a plan that were carried out, recoveries). Every record of members has its
// own.
struct MembershipGeneration {
  std::int64_t plan = 0;
  std::int64_t revision = 0;
  friend auto operator<=>(const MembershipGeneration&, const MembershipGeneration&) = default;
};

// The workers that should train. A worker that is not named leaves. A named worker that is not a
// member yet joins when it can.
struct MembershipPlan {
  std::int64_t number = 0;
  std::vector<Uid> workers;
  friend bool operator==(const MembershipPlan&, const MembershipPlan&) = default;
};

struct Peer {
  Uid uid = 0;
  std::string address;
};

// From worker to launcher.
struct Hello {
  Uid uid = 0;
  std::string token;
  int pid = 0;
  std::string address;  // where other workers connect to it
};
// "I am not stopped." Sent several times a second.
struct Beat {
  std::int64_t step = 0;  // applied so far
};
// Progress, from the leader. The content is a StepReport (worker_messages.h). A newer worker may
// add fields; logs keep them unchanged.
struct Report {
  Json content;
  // In a job that spans hosts, reports and notices of a worker are counted together. What was on
  // its way when a connection broke is sent again, so the master may get it twice. 0: not counted.
  std::int64_t number = 0;
};
// Something happened that is worth a line in the log. worker_messages.h has the kinds, and the
// content of those that a program uses.
struct Notice {
  std::string kind;
  Json content;
  std::int64_t number = 0;  // as in Report
};
// What a worker says about itself to the master of a job that spans hosts.
//
// The worker counts its connections. What it said on an earlier one may be read after what it says
// on a later one, and then counts no more.
struct WorkerHello {
  std::int64_t connection = 0;
  std::int64_t round = 0;
  Uid uid = 0;
  std::int64_t epoch = 0;           // the highest that it has heard
  std::int64_t gone = 0;            // length of the list that it has heard
  bool works = false;               // it is a working member of its own record, with state
  MembershipGeneration generation;  // of that record
  std::int64_t applied = -1;        // the last step that it has applied; -1: it has no state
  friend bool operator==(const WorkerHello&, const WorkerHello&) = default;
};

// From launcher to worker.
struct Welcome {
  std::vector<Peer> peers;  // workers that have sent a Hello before; connect to all of them
  MembershipPlan plan;
  // Exactly one worker starts a job, from the newest checkpoint or from nothing (the founder). All
  // others join it.
  bool founder = false;
};
struct Stop {};  // write a checkpoint and end, all workers at the same step
// Of a guest on the GPUs of another job: compute only this share of the time, and sleep after each
// step. 0: stand still before the next step.
struct Throttle {
  double share = 1;
};
// From the master of a job that spans hosts, as the answer to a worker's hello and whenever
// something in it changes. It is always whole, so the newest one is all that a worker needs.
struct RosterWord {
  std::int64_t round = 0;
  std::int64_t epoch = 0;
  MembershipPlan plan;
  // All workers of this round that are gone, in the order in which they went: vouched deaths and
  // exclusions. The list only grows, so of two lists one is the beginning of the other.
  std::vector<Uid> gone;
  Uid founder = 0;  // 0: none yet
  // Workers that have sent a Hello before this one; connect to all of them.
  std::vector<Peer> peers{};
};
// "I am not gone." `heard`: the number of the worker's last report or notice that has arrived.
struct MasterBeat {
  std::int64_t heard = 0;
};

using FromWorker = std::variant<Hello, Beat, Report, Notice, WorkerHello>;
using FromLauncher = std::variant<Welcome, MembershipPlan, Stop, Throttle, RosterWord, MasterBeat>;

[[nodiscard]] Json to_json(const FromWorker& message);
[[nodiscard]] Json to_json(const FromLauncher& message);
[[nodiscard]] Result<FromWorker> parse_from_worker(const Json& message);
[[nodiscard]] Result<FromLauncher> parse_from_launcher(const Json& message);

// Exit codes of a worker.
constexpr int kFinished = 0;
constexpr int kFailed = 1;     // it may be started again
constexpr int kRefused = 2;    // it must not be started again, because it does not fit the job
constexpr int kLeft = 3;       // a plan without it was carried out
constexpr int kJobFailed = 4;  // another start would only fail again

void to_json(Json& json, const MembershipGeneration& value);
void from_json(const Json& json, MembershipGeneration& value);
void to_json(Json& json, const MembershipPlan& value);
void from_json(const Json& json, MembershipPlan& value);

}  // namespace rubato::wire
