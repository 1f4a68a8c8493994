// The content of a worker's Report and Notice (launch.h).
//
// A launcher and its workers may be of different versions, and a program may send anything. So the
// fields are read one by one, and a field that is not as described counts as missing. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json_reader.h"
#include "rubato/wire/launch.h"

namespace rubato::wire {

// What a program that chooses its batch itself reports about it (docs/goodput.md).
struct JobTuning {
  int initial = 1;          // M0, the batch that its learning rate was tuned for
  int largest = 1;          // largest global batch
  int largest_per_gpu = 1;  // in one pass
  // Means of steps like the last one. 0: nothing was measured yet.
  double step_seconds = 0;
  double pass_seconds = 0;  // one pass, without synchronisation
  friend bool operator==(const JobTuning&, const JobTuning&) = default;
};
[[nodiscard]] Json to_json(const JobTuning& tuning);
// Strict: if one field is bad, the whole record is.
void read_job_tuning(const JsonValue& json, JobTuning& tuning);

// The most metrics of a program that are taken, and the longest name of one.
inline constexpr std::size_t kMostReportedMetrics = 16;
inline constexpr std::size_t kLongestMetricName = 64;

// The content of a Report: progress at a step that all members have applied. The leader sends at
// most a few per second. After a leader has died, its successor may send one again.
struct StepReport {
  std::int64_t step = 0;
  std::optional<double> epoch;
  std::optional<double> cursor;         // samples of the epoch before this step
  std::optional<double> samples;        // of this step, over all workers
  std::optional<double> epoch_samples;  // of a whole epoch
  std::optional<bool> ends_epoch;       // every sample of the epoch has now been used exactly once
  std::optional<double> loss;
  std::optional<int> workers;
  std::optional<int> leaves;
  std::optional<double> factor;  // on the learning rate
  // Of the optimizer's first group of parameters in this step, with the factor.
  std::optional<double> learning_rate;
  std::optional<double> applied_at;  // the worker's clock, in seconds
  // In adaptive mode:
  std::optional<int> per_gpu;       // samples of one pass
  std::optional<int> accumulation;  // passes before the one that synchronises
  std::optional<JobTuning> tuning;
  std::optional<double> noise;  // the gradient noise scale in samples, where it is measured
  // What else the program reports, by name; nullopt: it is not a finite number (any more).
  std::map<std::string, std::optional<double>> metrics = {};
  std::optional<double> skew;  // the share of the largest parameter in all of them
  friend bool operator==(const StepReport&, const StepReport&) = default;
};
[[nodiscard]] Json to_json(const StepReport& report);
// nullopt if it does not name its step.
[[nodiscard]] std::optional<StepReport> read_step_report(const Json& content);

// The kinds of a Notice. Other kinds are passed on to people and logs unchanged.
namespace notice {
inline constexpr std::string_view kMembers = "members";        // MembersNotice
inline constexpr std::string_view kRecovered = "recovered";    // dead, seconds
inline constexpr std::string_view kCheckpoint = "checkpoint";  // path, step
inline constexpr std::string_view kWarning = "warning";        // text
inline constexpr std::string_view kTuned = "tuned";            // text
inline constexpr std::string_view kStraggler = "straggler";    // StragglerNotice
inline constexpr std::string_view kState = "state";            // this worker has the job's state
// It has no state to continue from: all workers must start again from the checkpoint.
inline constexpr std::string_view kStranded = "stranded";
// text: this worker does not fit the job. It must not be started again.
inline constexpr std::string_view kRefused = "refused";
// text: the job cannot continue, for example because a gradient is not a number.
inline constexpr std::string_view kFailed = "failed";
inline constexpr std::string_view kFinished = "finished";  // step, digest
inline constexpr std::string_view kStopped = "stopped";    // the same, because of Stop
}  // namespace notice

// The members from step `first` on, as the leader says.
struct MembersNotice {
  struct Member {
    Uid uid = 0;
    std::string role;  // "working", "joining", "leaving"
    friend bool operator==(const Member&, const Member&) = default;
  };
  std::set<Uid> uids;
  std::vector<Member> members;  // empty if the worker sends no roles
  std::optional<std::int64_t> first;
  // The recovery, then the two parts of the generation (member/record.h). It orders the notices of
  // one round of starts.
  std::vector<std::int64_t> age;

  // Members that neither join nor leave. All of them if there are no roles.
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
// nullopt if it does not name the worker.
[[nodiscard]] std::optional<StragglerNotice> read_straggler(const Json& content);

}  // namespace rubato::wire
