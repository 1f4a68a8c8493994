// The loop: events in, commands out. It owns the state. It uses no clock, no thread, no I/O and no
// policy. When decision_due() is true, its driver asks a policy and posts the answer as Decided.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rubato/core/command.h"
#include "rubato/core/event.h"
#include "rubato/loop/state.h"
#include "rubato/place/diff.h"

namespace rubato::loop {

// What follows from an event. The driver reuses it, so that an event without effect allocates
// nothing.
struct Reaction {
  std::vector<Command> commands;
  std::vector<Change> changes;   // what a Decided changed, for statistics
  std::vector<Reject> rejected;  // jobs that were rejected without running
  std::string refused;           // why a decision was not carried out; the old targets stay

  void clear() {
    commands.clear();
    changes.clear();
    rejected.clear();
    refused.clear();
  }
};

class Scheduler {
 public:
  // With an interval, the driver asks for decisions only at kStart + k x interval.
  Scheduler(Cluster cluster, Placement placement, Duration interval = Duration(0),
            QuietRule rule = {}, double skew_limit = kSkewLimit);
  // Continues from a saved state.
  Scheduler(State state, Placement placement);

  [[nodiscard]] const State& state() const { return state_; }
  [[nodiscard]] const Snapshot& snapshot() const { return state_.snapshot; }

  // Whether a policy should be asked, and its answer posted as Decided.
  [[nodiscard]] bool decision_due() const { return state_.decision_due; }

  // The snapshot for the policy. Changes from here on are reported to the next decision.
  [[nodiscard]] const Snapshot& ask(Time now);

  // Appends to `reaction`. Time must not go backwards.
  void on(Time now, Event event, Reaction& reaction);

 private:
  void carry_out(Decided decided, Reaction& reaction);
  [[nodiscard]] Result<std::vector<Change>> retarget(const Decision& decision);
  [[nodiscard]] static Result<std::vector<Change>> from_the_past(Carried past);
  void issue(JobView& job, Reaction& reaction);
  void issue_batch(JobView& job, Reaction& reaction);
  void say_again(Reaction& reaction);
  void issue_waiting(const Allocation& released, Reaction& reaction);
  [[nodiscard]] std::optional<NodeId> in_use_on(const Allocation& gpus,
                                                const Allocation& shared) const;
  void take_in(const Decision& decision);
  void settle_guests_of_the_gone(Decision& decision) const;
  void link_pairs(const Decision& decision);
  void keep_staying(Decision& decision);
  void drop_away(Decision& decision) const;
  [[nodiscard]] std::optional<Time> keep_cooling(Decision& decision) const;

  State state_;
  Marks named_;
  Validator validator_;
  Placement placement_;
  QuietRule rule_;
  double skew_limit_ = kSkewLimit;
  Differ differ_;
};

}  // namespace rubato::loop
