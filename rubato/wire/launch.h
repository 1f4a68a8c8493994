// The messages between a launcher and the workers of one job (docs/elastic.md).
//
// The environment tells a worker where its launcher listens (RUBATO_LAUNCHER, a unix: address), its
// own number (RUBATO_WORKER) and the job's token (RUBATO_TOKEN). In the live cluster it also has
// the start (RUBATO_START) and a directory (RUBATO_CHECKPOINT). The worker connects and sends a
// Hello. The launcher answers with a Welcome. After that, the launcher sends MembershipPlans, and
// the worker sends Beat, Report and Notice. A worker that loses its launcher continues to train.
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
};
// Something happened that is worth a line in the log. worker_messages.h has the kinds, and the
// content of those that a program uses.
struct Notice {
  std::string kind;
  Json content;
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

using FromWorker = std::variant<Hello, Beat, Report, Notice>;
using FromLauncher = std::variant<Welcome, MembershipPlan, Stop>;

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
