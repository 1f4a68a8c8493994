// What is inside of a worker's Report and Notice (launch.h).
//
// A launcher and its workers may be of different versions, and a program may say anything: what is
// read here from outside is taken field by field, and a field that is not as described is as if it
// had not been said. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json_reader.h"
#include "rubato/wire/launch.h"

namespace rubato::wire {

// What a program that chooses its batch by itself tells of that (docs/goodput.md).
struct JobTuning {
  int initial = 1;          // M0, which its learning rate was tuned for
  int largest = 1;          // of its global batch
  int largest_per_gpu = 1;  // of one pass
  // Means of steps like the last one; 0: none was measured yet.
  double step_seconds = 0;
  double pass_seconds = 0;  // one pass, without synchronisation
  friend bool operator==(const JobTuning&, const JobTuning&) = default;
};
[[nodiscard]] Json to_json(const JobTuning& tuning);
// Strict: half of it is nothing.
void read_job_tuning(const JsonValue& json, JobTuning& tuning);

// The content of a Report: progress of a step that all members are known to have applied, at most a
// few a second, by the leader; perhaps again by the leader that follows.
struct StepReport {
  std::int64_t step = 0;
  std::optional<double> epoch;
  std::optional<double> cursor;         // samples of the epoch that were used before this step
  std::optional<double> samples;        // of this step, over all workers
  std::optional<double> epoch_samples;  // of a whole epoch
  std::optional<bool> ends_epoch;       // every sample of the epoch was then used exactly once
  std::optional<double> loss;
  std::optional<int> workers;
  std::optional<int> leaves;
  std::optional<double> factor;      // of the learning rate
  std::optional<double> applied_at;  // the worker's clock, in seconds
  // In adaptive mode:
  std::optional<int> per_gpu;       // samples of one pass
  std::optional<int> accumulation;  // passes before the one that synchronises
  std::optional<JobTuning> tuning;
  std::optional<double> noise;  // the gradient noise scale in samples, where it is measured
  friend bool operator==(const StepReport&, const StepReport&) = default;
};
[[nodiscard]] Json to_json(const StepReport& report);
// nullopt if it does not say of which step it is.
[[nodiscard]] std::optional<StepReport> read_step_report(const Json& content);

// The kinds of a Notice. Others are passed on to people and logs as they are.
namespace notice {
inline constexpr std::string_view kMembers = "members";        // MembersNotice
inline constexpr std::string_view kRecovered = "recovered";    // dead, seconds
inline constexpr std::string_view kCheckpoint = "checkpoint";  // path, step
inline constexpr std::string_view kWarning = "warning";        // text
inline constexpr std::string_view kTuned = "tuned";            // text
inline constexpr std::string_view kStraggler = "straggler";    // StragglerNotice
inline constexpr std::string_view kState = "state";            // this worker has the job's state
// No state to go on from: all must start again from the checkpoint.
inline constexpr std::string_view kStranded = "stranded";
// text: this worker does not fit the job; it must not be started again.
inline constexpr std::string_view kRefused = "refused";
// text: the job cannot go on, such as with a gradient that is not a number.
inline constexpr std::string_view kFailed = "failed";
inline constexpr std::string_view kFinished = "finished";  // step, digest
inline constexpr std::string_view kStopped = "stopped";    // the same, because of Stop
}  // namespace notice

// Who takes part from step `first` on, by the leader's word.
struct MembersNotice {
  struct Member {
    Uid uid = 0;
    std::string role;  // "working", "joining", "leaving"
    friend bool operator==(const Member&, const Member&) = default;
  };
  std::set<Uid> uids;
  std::vector<Member> members;  // empty if the worker tells no roles
  std::optional<std::int64_t> first;
  // Recovery, then the two parts of the generation (member/record.h): orders the notices of one
  // round of starts.
  std::vector<std::int64_t> age;

  // Those that neither join nor leave; all of them if it tells no roles.
  [[nodiscard]] std::set<Uid> working() const;
  friend bool operator==(const MembersNotice&, const MembersNotice&) = default;
};
[[nodiscard]] Json to_json(const MembersNotice& members);
[[nodiscard]] MembersNotice read_members(const Json& content);

struct StragglerNotice {
  Uid worker = 0;
  double ratio = 0;  // of its time for a leaf to the median
  friend bool operator==(const StragglerNotice&, const StragglerNotice&) = default;
};
[[nodiscard]] Json to_json(const StragglerNotice& straggler);
// nullopt if it does not say who.
[[nodiscard]] std::optional<StragglerNotice> read_straggler(const Json& content);

}  // namespace rubato::wire
