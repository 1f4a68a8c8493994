// A run whose workers join and leave while the others train. Pure, like every LaunchState.
//
// The first worker is alone until it has sent a Hello, because a program that does not know Rubato
// would do its work once per worker. A program that sends no Hello keeps its one process for as
// long as it likes. A late Hello makes it an ordinary run.
//
// Exactly one worker of a round starts the job: the first one that sends a Hello (the founder). The
// others join. A second founder would be a second job. So a new round begins only when every worker
// of the old round is dead. The old round is given up only when no living worker can have the
// state: each has said that it is stranded, or has sent no Hello although the job has a founder.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "rubato/launch/launch_state.h"
#include "rubato/wire/worker_messages.h"

namespace rubato::launch {

class LiveRun : public LaunchState {
 public:
  explicit LiveRun(LaunchLimits limits) : LaunchState(limits), silent_(limits.silent) {}

  void begin(Time now) override;
  void adopt(Time now, const AdoptedRun& run) override;
  void replace(Time now, Uid uid) override;
  [[nodiscard]] bool said_hello(Time now, const wire::Hello& hello) override;
  void heard(Time now, Uid uid, const wire::FromWorker& message) override;
  [[nodiscard]] const wire::MembershipPlan& plan() const { return plan_; }

  // For a run that spans hosts: no worker has the state, or can get it. All start again from the
  // checkpoint.
  void give_up(Time now);
  // All workers are killed, and a new round begins when the last one has ended.
  [[nodiscard]] bool starting_over() const { return starting_over_; }

  [[nodiscard]] bool settled() const override;
  [[nodiscard]] bool silent() const override { return silent_; }
  [[nodiscard]] bool spoke() const override { return spoke_; }

 private:
  void on_exit(Time now, Uid uid, const Worker& worker, ProcessEnd end) override;
  void on_resize(Time now) override;
  void on_place(Time now) override;
  void on_pass(Time now) override;
  [[nodiscard]] bool on_quiet() const override;
  int ask_to_end() override;

  void heard_notice(Time now, Uid uid, const wire::Notice& notice);
  void begin_round(Time now);
  void fill(Time now, Duration delay);
  [[nodiscard]] std::vector<Slot> missing() const;
  void add_worker(Time now, const Slot& slot, Duration delay);
  void look_for_hello(Time now, Uid uid, const Worker& worker);
  [[nodiscard]] Duration longest_load() const;
  [[nodiscard]] Duration longest_silence(Uid uid, const Worker& worker) const;
  void take_for_silent();
  [[nodiscard]] Slot slot_of(Uid uid) const;
  void drop(Uid uid);
  void publish();
  void refused(Time now, Uid uid, const Worker& worker);
  void failed(Time now, Uid uid, const Worker& worker, ProcessEnd end);
  void finishing();
  void ask_to_end(Uid uid, const Worker& worker);
  void heard_members(Time now, wire::MembersNotice notice);
  void replace_slow(Time now, Uid uid);
  void give_up_if_lost(Time now, bool counted);
  void start_over(Time now);
  void forget_the_young(Time now);
  [[nodiscard]] bool state_may_live() const;
  [[nodiscard]] std::string too_few() const;
  [[nodiscard]] bool planned(Uid uid) const;

  wire::MembershipPlan plan_;
  std::set<Uid> members_;  // of the newest notice
  std::set<Uid> working_;  // members that neither join nor leave
  std::vector<std::int64_t> members_age_;
  bool founded_ = false;    // in this round
  bool finishing_ = false;  // a worker has finished the job
  bool spoke_ = false;      // a worker has sent a Hello, in this round or before
  bool silent_;
  Duration slowest_hello_{};
  bool starting_over_ = false;  // a new round begins when all workers are dead
};

}  // namespace rubato::launch
