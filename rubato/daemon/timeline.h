// Answers about the past and the planned future of the cluster, from the chronicle: the timeline,
// the feed of decisions, and the use of the cluster.
//
// A caller who is no admin sees that others hold GPUs and that others were changed, but not who:
// their jobs are null, without names, reasons or plans.
//
// Pure functions of the state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "rubato/api/request.h"
#include "rubato/daemon/daemon_state.h"

namespace rubato::daemon {

// The most that one answer has. Of more spans, the longest are shown: on a screen, the shortest
// ones of so many are narrower than a pixel. Of more marks and jobs, the newest are shown.
inline constexpr std::size_t kMostSpansShown = 10'000;
inline constexpr std::size_t kMostMarksShown = 5'000;
inline constexpr std::size_t kMostJobsShown = 5'000;

// How long the newest decisions took. No part of the state, because a replay takes another time.
class DecisionTimes {
 public:
  void add(RowNumber number, double seconds);
  [[nodiscard]] std::optional<double> of(RowNumber number) const;

 private:
  static constexpr std::size_t kKept = 10'000;
  std::deque<std::pair<RowNumber, double>> seconds_;  // in order
};

// What a caller may see of the owners of jobs.
class Sight {
 public:
  Sight(const Caller& caller, const DaemonState& state) : caller_(caller), state_(state) {}
  // `user` is the number of the job's owner in the chronicle.
  [[nodiscard]] bool sees(std::uint32_t user) const {
    return caller_.admin || state_.chronicle().user(user) == caller_.user;
  }
  // The number of the job; of a run that measures a job, that of the job; null if the caller must
  // not see it.
  [[nodiscard]] Json job(JobId id, std::uint32_t user) const;

 private:
  const Caller& caller_;
  const DaemonState& state_;
};

[[nodiscard]] Answer timeline_for(const Caller& caller, const ShowTimeline& ask,
                                  const DaemonState& state, Time now);
[[nodiscard]] Answer decisions_for(const Caller& caller, const ShowDecisions& ask,
                                   const DaemonState& state, Time now, const DecisionTimes& took);
[[nodiscard]] Answer use_for(const Caller& caller, const ShowUse& ask, const DaemonState& state,
                             Time now);

// The past of one job: its GPUs, its marks, what its program reported over time, and what was
// promised to it.
[[nodiscard]] Json show_past(const JobRecord& job, const DaemonState& state);

// One decision, as in the feed and in event streams.
[[nodiscard]] Json show_decision(const Caller& caller, const DecisionNote& note,
                                 const DaemonState& state, const DecisionTimes& took);

// Spans as the timeline has them, at most so many. Returns whether some were left out.
[[nodiscard]] bool thin_out(std::vector<Span>& spans, std::size_t most, WallTime now);
[[nodiscard]] Json show_span(const Span& span, Json job);

}  // namespace rubato::daemon
