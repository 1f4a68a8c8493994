// What the workers of one training job agree on (docs/elastic.md): who trains, what the next step
// is, and what is said when one of them dies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/wire/launch.h"

namespace rubato::member {

using wire::Generation;
using wire::Plan;
using wire::Uid;
using Step = std::int64_t;  // counted from 1; 0 = nothing applied yet
constexpr Step kNoState = -1;

enum class Role : std::uint8_t {
  working,  // computes a range of the leaves
  joining,  // receives the state and every reduced gradient; nobody waits for it
  leaving,  // computes no more; stays until all others are known to have applied its last step
};

struct Member {
  Uid uid = 0;
  Role role = Role::working;
  Uid donor = 0;   // of a joining one: who sends it the state
  Step since = 0;  // of a joining one: the first step it receives; tells two attempts apart
  friend bool operator==(const Member&, const Member&) = default;
};

// Who takes part from step `first` on. All members hold the same record; there is no server.
struct Record {
  Generation generation;
  // Counts recoveries. Within one, members differ by at most one applied step; connections and
  // reports of an earlier one are void.
  std::int64_t recovery = 0;
  Step first = 1;
  std::vector<Member> members;  // ascending uids

  [[nodiscard]] const Member* find(Uid uid) const;
  [[nodiscard]] std::vector<Uid> working() const;
  // The lowest working uid: its word proposes the next record and step.
  [[nodiscard]] Uid leader() const;
  // Of all records of a job, a later recovery's is newer whatever its plan: a plan that only the
  // dead had begun to carry out may be begun again.
  [[nodiscard]] bool newer_than(const Record& other) const;
  friend bool operator==(const Record&, const Record&) = default;
};

// One step, the same for everybody.
struct StepPlan {
  Step step = 1;
  std::int64_t epoch = 0;
  std::int64_t cursor = 0;   // position in the epoch's permutation
  std::int64_t samples = 0;  // from there on; 0 in the last step, which only says goodbye
  // Fixed mode: the virtual workers. Adaptive mode: workers x passes.
  int leaves = 1;
  bool adaptive = false;
  int passes = 1;    // of each worker, in adaptive mode
  int per_pass = 1;  // samples of each pass, likewise
  double learning_rate_factor = 1;
  std::uint64_t used_mark = 0;  // sum of the marks of the samples used in this epoch so far
  bool checkpoint = false;      // the leader saves the state before this step
  bool digest = false;          // compare the state before this step
  bool finish = false;          // nothing to compute: all have applied all there is
  bool stopped = false;         // ... because somebody asked to stop
  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

// The same samples on another number of workers: the size of a pass stays.
[[nodiscard]] StepPlan for_workers(StepPlan plan, int workers);

struct Proposal {
  Record record;
  StepPlan plan;
};

// What each working member says at the end of each step. Whoever has completed the reduction has
// the same words, so all come to the same conclusions without asking.
struct Word {
  Uid uid = 0;
  Step step = 0;
  std::vector<Uid> ready;  // joiners this member is connected with
  // Joining members whose connection with this member broke. What was on its way to them is lost,
  // so the leader drops them; they are taken in again later.
  std::vector<Uid> broken;
  std::string digest;          // of the state before this step, where the plan asks for it
  std::uint64_t mark = 0;      // sum of the marks of the samples it used
  double compute_seconds = 0;  // forward and backward, all leaves
  int leaves = 0;
  Step published = 0;              // of the leader: the last step it has told the launcher of
  double leaf_sqr_norm = 0;        // sum over its leaves of |g|^2, each of the unweighted gradient
  std::vector<Proposal> proposal;  // of the leader: one
};

// One attempt of a joining member. As a message of the member: it holds all of the state and is
// connected with all other members.
struct Level {
  std::int64_t recovery = 0;
  Step since = 0;
  friend bool operator==(const Level&, const Level&) = default;
};

// A member's state when it stops because somebody died; said again when there is more to say.
struct Report {
  Record record;            // the newest the sender knows of, perhaps only from others' reports
  Step applied = kNoState;  // kNoState: holds no complete state
  StepPlan plan;            // of the step after `applied`
  std::vector<Uid> dead;    // members that are; no commit of theirs will be followed
  Record own;               // the sender's, as far as it has come; without members if it has none
};

// The end of a recovery.
struct Commit {
  Record record;
  StepPlan plan;
  Step applied = 0;  // T: those at T - 1 get the reduced gradient of T from the holder
  Uid holder = 0;
  std::vector<Uid> behind;  // who needs it
  bool stranded = false;    // nobody has a complete state
};

void to_json(Json& json, const Record& value);
void from_json(const Json& json, Record& value);
void to_json(Json& json, const StepPlan& value);
void from_json(const Json& json, StepPlan& value);
void to_json(Json& json, const Proposal& value);
void from_json(const Json& json, Proposal& value);
void to_json(Json& json, const Word& value);
void from_json(const Json& json, Word& value);
void to_json(Json& json, const Level& value);
void from_json(const Json& json, Level& value);
void to_json(Json& json, const Report& value);
void from_json(const Json& json, Report& value);
void to_json(Json& json, const Commit& value);
void from_json(const Json& json, Commit& value);

}  // namespace rubato::member
