// What single jobs have gone through, as far as the chronicle does not say it: what their programs
// reported over time, and what was promised to them.
//
// It is folded from the rows of the journal with the rest of the state, and it is part of every
// snapshot. Its size is limited. When a job has too many reports, every second one is dropped, and
// from then on they are kept at twice the distance. When all ended jobs together have too many, the
// job that ended first loses its past. Times are wall times.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/base/wall_time.h"
#include "rubato/core/ids.h"
#include "rubato/launch/master_messages.h"

namespace rubato::daemon {

// A report of a program, as it is kept.
struct PastReport {
  WallTime at{};
  std::int64_t step = 0;
  std::optional<double> loss;
  double rate = 0;  // samples a second
  int batch = 0;    // 0: not known
  std::optional<double> learning_rate;
  int gpus = 0;         // whose workers computed the step
  bool steady = false;  // they had trained long enough for the speed to be that of so many GPUs
  friend bool operator==(const PastReport&, const PastReport&) = default;
};

// What happened to a promise:
enum class PromiseKind : std::uint8_t {
  made,
  changed,   // its planned end has moved
  dropped,   // the policy no longer plans for it
  taken_up,  // it plans for it again
  kept,
  broken,  // the job ended later, or did not complete
  ended,   // the job was cancelled
};
[[nodiscard]] std::string_view to_text(PromiseKind kind);

struct PromiseNote {
  WallTime at{};
  PromiseKind kind = PromiseKind::made;
  WallTime by{};                      // what was promised
  std::optional<WallTime> planned{};  // end that the policy planned then; of an ended job, its end
  std::string policy;                 // empty if no policy did it
  friend bool operator==(const PromiseNote&, const PromiseNote&) = default;
};

struct JobPast {
  std::vector<PastReport> reports;
  Duration apart{};  // the least distance of reports that are kept
  std::vector<PromiseNote> promises;
};

// How the speed of a job varies on one number of GPUs: the speed that a tenth of its reports did
// not reach, and the one that a tenth exceeded, as shares of the median.
struct SpeedSpread {
  double slow = 1;
  double fast = 1;
};
// nullopt if there are too few reports.
[[nodiscard]] std::optional<SpeedSpread> spread_of(const JobPast& past, int gpus);

class JobPasts {
 public:
  static constexpr std::size_t kMostReports = 240;     // of a job
  static constexpr std::size_t kMostPromises = 60;     // notes of a job
  static constexpr std::size_t kReportsOfEnded = 60;   // of a job that has ended
  static constexpr std::size_t kMostOfEnded = 60'000;  // reports and notes of all of them

  void report(JobId job, WallTime at, const JobProgress& progress, bool steady);
  // A change of the planned end is noted only if it matters: if it has moved by a fiftieth of the
  // time until then, and at least by a second.
  void promise(JobId job, PromiseNote note);
  // The job has ended: nothing more comes.
  void over(JobId job);
  // Of a job that has ended.
  void forget(JobId job);

  // nullptr if nothing is known.
  [[nodiscard]] const JobPast* of(JobId job) const;

  [[nodiscard]] Json save() const;
  [[nodiscard]] Result<void> load(const Json& saved);

 private:
  std::map<JobId, JobPast> pasts_;
  std::deque<JobId> ended_;  // in the order in which they ended; may name forgotten ones
  std::size_t of_ended_ = 0;
};

}  // namespace rubato::daemon
