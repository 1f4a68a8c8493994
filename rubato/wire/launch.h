// What a launcher and the workers of one job say to each other (docs/elastic.md).
//
// A worker is told by its environment where its launcher listens (RUBATO_LAUNCHER, a unix:
// address), which worker it is (RUBATO_WORKER) and the job's token (RUBATO_TOKEN); in the live
// cluster also the start (RUBATO_START) and a directory (RUBATO_CHECKPOINT). It connects and
// says Hello; the launcher answers Welcome. From then on the launcher sends Plans; the worker
// sends Beat, Report and Notice. A worker that loses its launcher goes on training.
//
// Every message is a JSON object with "type"; unknown fields are ignored, so that one side may be
// newer.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "rubato/base/json.h"

namespace rubato::wire {

// Of a worker; grows with each start and is never used again within a job.
using Uid = std::int64_t;

// A generation (P, r): P is the number of the launcher's plan, r counts changes of membership
// within it (parts of a plan carried out, recoveries). Every record of members has one of its own.
struct Generation {
  std::int64_t plan = 0;
  std::int64_t revision = 0;
  friend auto operator<=>(const Generation&, const Generation&) = default;
};

// Who should train. A worker not named leaves; one named that is not there yet joins when it can.
struct Plan {
  std::int64_t number = 0;
  std::vector<Uid> workers;
  friend bool operator==(const Plan&, const Plan&) = default;
};

struct Peer {
  Uid uid = 0;
  std::string address;
};

// Worker to launcher.
struct Hello {
  Uid uid = 0;
  std::string token;
  int pid = 0;
  std::string address;  // where its peers reach it
};
// "I am not stopped." Several a second.
struct Beat {
  std::int64_t step = 0;  // applied so far
};
// Progress, by the leader. The content is a StepReport (worker_messages.h), and whatever else a
// newer worker says of the step: logs get it as it came.
struct Report {
  Json content;
};
// Something happened, worth a line in the log. worker_messages.h has the kinds and what is inside
// of those that somebody acts upon.
struct Notice {
  std::string kind;
  Json content;
};

// Launcher to worker.
struct Welcome {
  std::vector<Peer> peers;  // who said Hello before; connect to all of them
  Plan plan;
  // Exactly one worker starts a job, from the newest checkpoint or from nothing; all others join
  // it.
  bool founder = false;
};
struct Stop {};  // write a checkpoint and end, all at the same step

using FromWorker = std::variant<Hello, Beat, Report, Notice>;
using FromLauncher = std::variant<Welcome, Plan, Stop>;

[[nodiscard]] Json to_json(const FromWorker& message);
[[nodiscard]] Json to_json(const FromLauncher& message);
[[nodiscard]] Result<FromWorker> parse_from_worker(const Json& message);
[[nodiscard]] Result<FromLauncher> parse_from_launcher(const Json& message);

// Exit codes of a worker.
constexpr int kFinished = 0;
constexpr int kFailed = 1;     // may be started again
constexpr int kRefused = 2;    // must not be started again: it does not fit the job
constexpr int kLeft = 3;       // a plan without it was carried out
constexpr int kJobFailed = 4;  // starting again would only repeat it

void to_json(Json& json, const Generation& value);
void from_json(const Json& json, Generation& value);
void to_json(Json& json, const Plan& value);
void from_json(const Json& json, Plan& value);

}  // namespace rubato::wire
