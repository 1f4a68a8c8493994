// How much is left of jobs whose length nobody tells: what to count on, from how much they have
// done and from those that have ended.
//
// Sizes are seconds on the smallest count. A job that has done `a` may go on like
//   - those of the same user and model that were longer than `a`, each of them one job;
//   - kOthers jobs that stand for everybody: for all that ended and were longer than `a`, and for
//     kTailWeight more, of which nothing is known but that sizes have a heavy tail. These have
//     a + s left on average (Lomax, with s the mean size), so the old are expected to stay.
// What counts is the least time to spend for an end, which is one over the Gittins index:
//
//     min over d of  E[min(left, d)] / P(left <= d)
//
// For one machine and known distributions, to serve the job for which it is least is optimal
// (Gittins 1979). The mean of what is left, d = infinity, is nearly the same for young and old
// where most jobs have one size; then jobs change places for nothing, and all of them end late.
// Times d below kLeastTry are left out: nobody gets GPUs for less, and the sizes that happen to be
// next would decide.
//
// Pure; a value. All of it is saved.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/core/job.h"

namespace rubato::policy {

class LengthEstimate {
 public:
  // How far a job had come when it was last looked at.
  struct Seen {
    std::string kind;   // its user and model
    double done_s = 0;  // in seconds on the smallest count
    double pace = 0;    // of these a second
    Time at = kStart;
  };

  // Of a job that is there; `alone` is its speed on its smallest count. Which function is for it is
  // a matter of what is known:
  //   told     its owner has said how long it is. Once it has begun, that is history for others
  //   look     its progress says what it has done
  //   go_on    its work is a guess (JobSpec::work_guessed), and so is what is left of it. What it
  //            has done is counted from one look to the next. Of one that comes back from a hold,
  //            only the time with GPUs is known
  static void told(Seen& seen, const JobView& job, WorkRate alone);
  static void look(Seen& seen, const JobView& job, WorkRate alone, Time now);
  static void go_on(Seen& seen, const JobView& job, WorkRate alone, Time now);
  // Of its user and model.
  [[nodiscard]] static std::string kind_of(const JobSpec& spec);
  // A job has gone.
  void ended(const Seen& last, Time now);

  // Seconds to count on, on the smallest count.
  [[nodiscard]] double left_s(const Seen& seen) const;

  [[nodiscard]] Json save() const;
  [[nodiscard]] static LengthEstimate load(const Json& json);  // throws what Json throws

 private:
  // The newest sizes, and what their means need.
  class Sizes {
   public:
    void add(double size);
    // What is left of those that were longer than this: how much in all, and of how many.
    [[nodiscard]] std::pair<double, double> beyond(double done_s) const;
    [[nodiscard]] std::span<const double> longer(double done_s) const;  // ascending
    [[nodiscard]] const std::deque<double>& in_order() const { return in_order_; }

   private:
    std::deque<double> in_order_;  // as they ended
    std::vector<double> sorted_;
    std::vector<double> sums_;  // of sorted_, from each place to the end
  };
  struct Kind {
    Sizes sizes;
    std::uint64_t newest = 0;  // number of the last end
  };
  void forget_oldest_kind();

  Sizes all_;
  std::map<std::string, Kind> of_kind_;
  std::size_t kept_ = 0;    // sizes of all kinds
  std::uint64_t ends_ = 0;  // how many there ever were
};

}  // namespace rubato::policy
