// How much is left of jobs whose length nobody tells: what can be expected from how much they have
// done and from those that have ended.
//
// Sizes are seconds on the smallest count. Jobs of the same user and model are taken to be alike;
// of a user and model that nobody has seen, all that ended are. What is left of a job that has done
// `a` is the mean of what was left of those that were longer, and of as many as kTailWeight jobs
// more that stand for all that is not known yet: of these, a + their mean is left, as in a heavy
// tail. So the young come first, until history says better.
//
// One over the Gittins index, the least time to spend for an end, was tried instead of the mean. It
// is best on one machine without restarts; here it changes GPUs twice as often and is worse
// (docs/rubato-policy.md).
//
// Pure; a value. All of it is saved.
#pragma once

#include <deque>
#include <map>
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

  // Looks at a job that is there; `alone` is its speed on its smallest count.
  [[nodiscard]] static Seen look(const JobView& job, WorkRate alone, Time now);
  // A job has gone.
  void ended(const Seen& last, Time now);

  // Seconds left, on the smallest count.
  [[nodiscard]] double left_s(const Seen& seen) const;

  [[nodiscard]] Json save() const;
  [[nodiscard]] static LengthEstimate load(const Json& json);  // throws what Json throws

 private:
  // The newest sizes, and what their means need.
  class Sizes {
   public:
    void add(double size);
    [[nodiscard]] bool empty() const { return in_order_.empty(); }
    // What is left of those that were longer than this: how much in all, and of how many.
    [[nodiscard]] std::pair<double, double> beyond(double done_s) const;
    [[nodiscard]] const std::deque<double>& in_order() const { return in_order_; }

   private:
    std::deque<double> in_order_;  // as they ended
    std::vector<double> sorted_;
    std::vector<double> sums_;  // of sorted_, from each place to the end
  };

  Sizes all_;
  std::map<std::string, Sizes> of_kind_;
};

}  // namespace rubato::policy
