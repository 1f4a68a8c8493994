// The past of the cluster as an index in memory: which job held which GPUs from when to when, what
// changed for each job and why, and what each decision changed. The timeline, the feed of decisions
// and the use of the cluster are answered from it, without reading the journal.
//
// It is folded from the rows of the journal with the rest of the state, and it is part of every
// snapshot, so a restart loses nothing of it. Its size is limited: when there is too much, the
// oldest is forgotten, and since() says from when on it is complete. Times are wall times.
//
// Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/base/wall_time.h"
#include "rubato/core/allocation.h"
#include "rubato/core/ids.h"
#include "rubato/journal/journal_file.h"

namespace rubato::daemon {

struct ChronicleLimits {
  std::size_t spans = 100'000;
  std::size_t marks = 50'000;
  std::size_t changes = 50'000;  // of all decisions together
};

// A job on GPUs of one node, from then until then. If it still has them, `until` is empty.
struct Span {
  JobId job;
  std::uint32_t user = 0;  // Chronicle::user()
  Slice gpus;
  WallTime from{};
  std::optional<WallTime> until;
};

enum class MarkKind : std::uint8_t { start, stop, restart, recovery, grow, shrink, move, refuse };
[[nodiscard]] std::string_view to_text(MarkKind kind);

// A moment at which the GPUs of a job changed, or at which it recovered from a failed worker.
struct Mark {
  JobId job;
  std::uint32_t user = 0;
  WallTime at{};
  MarkKind kind = MarkKind::start;
  int gpus = 0;                   // from then on
  std::string reason;             // names no other job; may be empty
  std::optional<Duration> pause;  // how long training stood still, once that is known
};

struct DecidedChange {
  JobId job;
  std::uint32_t user = 0;
  MarkKind kind = MarkKind::start;
  int from = 0;
  int to = 0;
  std::string reason;
};
// A decision that changed something.
struct DecisionNote {
  RowNumber number;
  WallTime at{};
  std::string policy;
  std::vector<DecidedChange> changes;
};

class Chronicle {
 public:
  explicit Chronicle(ChronicleLimits limits = {}) : limits_(limits) {}

  // From now on the job has exactly these GPUs.
  void hold(JobId job, const std::string& owner, const Allocation& gpus, WallTime at);
  // Without a reason, the cause of the change is the reason.
  void mark(JobId job, const std::string& owner, WallTime at, MarkKind kind, int gpus,
            std::string reason = "");
  // How long training stood still at the newest mark of the job, unless that is known.
  void paused(JobId job, Duration pause);
  void decided(DecisionNote note);
  // Why the next change of the job will happen, until the next mark of the job is made.
  void because(JobId job, std::string why) { causes_[job] = std::move(why); }
  [[nodiscard]] std::string cause(JobId job) const;
  void forget_cause(JobId job) { causes_.erase(job); }
  // The number of a user for the records above.
  [[nodiscard]] std::uint32_t number_of(const std::string& user);

  [[nodiscard]] const std::string& user(std::uint32_t number) const { return users_.at(number); }
  // Of ended spans, in the order in which they ended; then of those that go on, by job.
  template <class Visit>
  void each_span(const Visit& visit) const {
    for (const Span& span : spans_) visit(span);
    for (const auto& [job, spans] : open_) {
      for (const Span& span : spans) visit(span);
    }
  }
  [[nodiscard]] const std::deque<Mark>& marks() const { return marks_; }
  [[nodiscard]] const std::deque<DecisionNote>& decisions() const { return decisions_; }
  // How many GPUs the job has.
  [[nodiscard]] int held(JobId job) const;
  // The last mark of a job that still may change; nullptr if there is none.
  [[nodiscard]] const Mark* newest_mark(JobId job) const;
  // Spans and marks that ended before this may be missing. The beginning of the journal at first.
  [[nodiscard]] WallTime since() const { return since_; }
  // Whether there was something before that.
  [[nodiscard]] bool forgot() const { return forgot_; }
  void begin(WallTime at, bool forgot = false) {
    since_ = at;
    forgot_ = forgot;
  }

  [[nodiscard]] Json save() const;
  [[nodiscard]] Result<void> load(const Json& saved);

 private:
  void forget(WallTime at) { begin(std::max(since_, at), true); }
  void keep(Span span);
  void keep(Mark mark);

  ChronicleLimits limits_;
  std::vector<std::string> users_;
  std::map<std::string, std::uint32_t> user_numbers_;
  std::map<JobId, std::vector<Span>> open_;
  std::deque<Span> spans_;
  std::deque<Mark> marks_;
  std::uint64_t first_mark_ = 0;                // the number of marks_.front()
  std::map<JobId, std::uint64_t> newest_mark_;  // by job, as a number
  std::deque<DecisionNote> decisions_;
  std::size_t changes_ = 0;  // in decisions_
  std::map<JobId, std::string> causes_;
  WallTime since_{};
  bool forgot_ = false;
};

}  // namespace rubato::daemon
