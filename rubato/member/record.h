// What the workers of one training job agree on (docs/elastic.md): the members, the next step, and
// the messages after a member has died.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/wire/launch.h"

namespace rubato::member {

using wire::MembershipGeneration;
using wire::MembershipPlan;
using wire::Uid;
using Step = std::int64_t;  // counted from 1; 0 = nothing applied yet
constexpr Step kNoState = -1;

enum class Role : std::uint8_t {
  working,  // computes a range of the leaves
  joining,  // receives the state and all reduced gradients; the others do not wait for it
  leaving,  // computes nothing; stays until all others have applied its last step
};

struct Member {
  Uid uid = 0;
  Role role = Role::working;
  Uid donor = 0;   // if joining: the member that sends it the state
  Step since = 0;  // if joining: the first step it receives; differs between two attempts
  // In a job that spans hosts: its host, as the member that proposed it knows it. All members must
  // agree on it, because the ways of the gradients depend on it.
  std::string host{};
  friend bool operator==(const Member&, const Member&) = default;
};

// The members from step `first` on. All members hold the same record; there is no server.
struct Record {
  MembershipGeneration generation;
  // Counts recoveries. Within a recovery, members differ by at most one applied step. Connections
  // and reports of an earlier recovery are not valid any more.
  std::int64_t recovery = 0;
  Step first = 1;
  std::vector<Member> members;  // ascending uids

  [[nodiscard]] const Member* find(Uid uid) const;
  [[nodiscard]] std::vector<Uid> working() const;
  // The lowest working uid. Its word proposes the next record and the next step.
  [[nodiscard]] Uid leader() const;
  // The record of a later recovery is newer, whatever its plan. The reason: if all members that had
  // begun to carry out a plan are dead, the plan may be carried out again.
  [[nodiscard]] bool newer_than(const Record& other) const;
  friend bool operator==(const Record&, const Record&) = default;
};

// The plan of one step. All workers have the same.
struct StepPlan {
  Step step = 1;
  std::int64_t epoch = 0;
  std::int64_t cursor = 0;   // position in the epoch's permutation
  std::int64_t samples = 0;  // from the cursor on; 0 in the last step, which has no gradient
  // Fixed mode: the virtual workers. Adaptive mode: workers x passes.
  int leaves = 1;
  bool adaptive = false;
  int passes = 1;    // adaptive mode: passes of each worker
  int per_pass = 1;  // adaptive mode: samples of each pass
  double learning_rate_factor = 1;
  std::uint64_t used_mark = 0;  // sum of the marks of the samples used in this epoch so far
  bool checkpoint = false;      // the leader saves the state before this step
  bool digest = false;          // compare the state before this step
  bool finish = false;          // nothing to compute: all steps are applied
  bool stopped = false;         // ... because the job was told to stop
  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

// The same samples for another number of workers. The size of a pass does not change.
[[nodiscard]] StepPlan for_workers(StepPlan plan, int workers);

struct Proposal {
  Record record;
  StepPlan plan;
};

// What each working member says at the end of a step. All members that have completed the reduction
// have the same words. So all draw the same conclusions without more messages.
struct Word {
  Uid uid = 0;
  Step step = 0;
  std::vector<Uid> ready;  // joining workers to which this member is connected
  // Joining members whose connection with this member broke. What was on its way to them is lost,
  // so the leader drops them; they are taken in again later.
  std::vector<Uid> broken;
  std::string digest;          // of the state before this step, if the plan asks for it
  std::uint64_t mark = 0;      // sum of the marks of the samples it used
  double compute_seconds = 0;  // forward and backward, all leaves
  int leaves = 0;
  Step published = 0;        // leader only: the last step that it has reported to the launcher
  double leaf_sqr_norm = 0;  // sum of |g|^2 over its leaves, with unweighted gradients
  std::vector<Proposal> proposal;  // exactly one from the leader, else none
};

// One attempt of a joining member. As a message of the member: it holds all of the state and is
// connected with all other members.
struct Level {
  std::int64_t recovery = 0;
  Step since = 0;
  friend bool operator==(const Level&, const Level&) = default;
};

// What a member says when it stops because another one died. Sent again when it knows more.
struct Report {
  Record record;            // the newest record that the sender knows, perhaps from other reports
  Step applied = kNoState;  // kNoState: it has no complete state
  StepPlan plan;            // of the step after `applied`
  std::vector<Uid> dead;    // dead members; the sender will not follow their commits
  Record own;               // the sender's own record; without members if it has none
};

// The end of a recovery.
struct Commit {
  Record record;
  StepPlan plan;
  Step applied = 0;  // T: members at T - 1 get the reduced gradient of T from the holder
  Uid holder = 0;
  std::vector<Uid> behind;  // the members at T - 1
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
