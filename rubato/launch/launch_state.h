// The decisions of a launcher: which workers to start and to kill, who should train, and when the
// run is over.
//
// Pure: no clock, no process, no socket. Time and events are inputs; orders are the output, to be
// carried out in their order. Two kinds of run share this face: LiveRun (live_run.h), whose workers
// change while they train, and RestartRun (restart_run.h), for programs that know nothing of us.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/base/time.h"
#include "rubato/launch/master_messages.h"
#include "rubato/launch/orders.h"
#include "rubato/launch/process_end.h"
#include "rubato/wire/launch.h"

namespace rubato::launch {

struct LaunchLimits {
  int least = 1;
  int most = 1;
  int start = 1;
  int max_failures = 100;
  Duration heartbeat = from_seconds(5);
  Duration grace = from_seconds(10);
  // A program that sends no Hello for so long is taken for one that does not know Rubato. If its
  // earlier workers have sent one, a new worker is killed instead; it has at least four times as
  // long as the slowest of them took.
  Duration hello = kHelloWithin;
  bool silent = false;  // the program is known to say no Hello
  bool replace_stragglers = false;
};

struct Outcome {
  int code = 0;
  std::string why{};            // empty if the job finished
  bool stopped = false;         // because somebody wished it
  bool infrastructure = false;  // the machine could not start a worker: no failure of the job
};

struct LaunchCounts {
  int failures = 0;
  int resizes = 0;
  int starts = 0;        // of workers
  int fresh_starts = 0;  // of all workers together, after the first: from the checkpoint
};

class LaunchState {
 public:
  explicit LaunchState(LaunchLimits limits) : limits_(limits), wanted_(limits.start) {}
  LaunchState(const LaunchState&) = delete;
  LaunchState& operator=(const LaunchState&) = delete;
  virtual ~LaunchState() = default;

  virtual void begin(Time now) = 0;
  void exited(Time now, Uid uid, ProcessEnd end);
  // No program could be started at all: nothing that trying again would change.
  void could_not_start(Time now, Uid uid, const std::string& why, bool infrastructure);

  // False: unknown or heard of before; close the connection.
  [[nodiscard]] virtual bool said_hello(Time now, const wire::Hello& hello) = 0;
  virtual void heard(Time now, Uid uid, const wire::FromWorker& message) = 0;

  [[nodiscard]] Result<void> resize(Time now, int workers);
  // Of a managed run, also before begin(): exactly one worker in each of these, whoever is in
  // another leaves. Each is named once; limits are the manager's matter, not ours, and a managed
  // run whose worker cannot be replaced has failed.
  [[nodiscard]] Result<void> place(Time now, const std::vector<Slot>& slots);
  // Those it should have.
  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }
  // Where processes are that have not been collected yet.
  [[nodiscard]] std::set<Slot> slots_in_use() const;
  // The workers asked for train, each in its slot, and no other lives.
  [[nodiscard]] virtual bool settled() const = 0;
  // The program has not said Hello in time, or has finished without: it runs as one process.
  [[nodiscard]] virtual bool silent() const { return false; }
  // Of one worker, by default the newest; answers which.
  [[nodiscard]] Result<Uid> kill(std::optional<Uid> uid);
  // SIGTERM or SIGINT came. The second time there is no more waiting.
  void stop(Time now, int signal);
  // Whoever manages the run wishes it: the workers write a checkpoint and end. That they finish the
  // job meanwhile counts as finished.
  void stop_managed(Time now, const std::string& why);
  // Without asking anybody.
  void kill_all(Time now, const std::string& why);
  // To be called several times a second: all limits of time are looked at here.
  void pass(Time now);

  [[nodiscard]] std::vector<Order> take_orders() { return std::exchange(orders_, {}); }
  [[nodiscard]] const std::optional<Outcome>& outcome() const { return outcome_; }
  [[nodiscard]] const LaunchCounts& counts() const { return counts_; }
  [[nodiscard]] int wanted() const { return wanted_; }
  [[nodiscard]] std::vector<Uid> living() const;

 protected:
  struct Worker {
    bool started = false;  // false: its start is put off to `since`
    Time since;
    bool shaded = false;
    Slot slot;
    int rank = 0;
    bool said_hello = false;
    bool stranded = false;
    Time heard;
    std::string address;
    std::string killed_because;   // by us
    bool expected = false;        // its end was our wish, so no failure
    std::string text;             // what it said of its refusal or failure
    std::optional<Time> outside;  // neither planned nor a member since
  };
  struct Ending {
    Outcome outcome;
    int last_signal = 0;  // 0: they were asked by message, or left to themselves
    Time next;            // when the next stronger signal is due
    bool may_finish = false;
  };

  virtual void on_exit(Time now, Uid uid, const Worker& worker, ProcessEnd end) = 0;
  virtual void on_resize(Time now) = 0;
  virtual void on_place(Time now) = 0;
  virtual void on_pass(Time now) = 0;
  // Asks everybody to end. Answers the strongest signal used, 0 for a message.
  virtual int ask_to_end() = 0;

  [[nodiscard]] Result<void> check_limits(int workers) const;
  [[nodiscard]] bool managed() const { return !slots_.empty(); }
  [[nodiscard]] Slot slot_for(int index) const;
  void order(Order order) { orders_.push_back(std::move(order)); }
  void tell(std::string text) { order(Tell{std::move(text)}); }
  void start(Time now, Uid uid, Worker worker, Duration delay);
  void start_now(Time now, Uid uid, Worker& worker);
  void signal_all(int signal);
  void kill_because(Uid uid, const std::string& why);
  void end(Time now, Outcome outcome, bool ask = true);
  void forget_unstarted();
  // A worker that dies sooner after its start has died young. This includes one that sends a Hello
  // and then fails at once: it must not be started again and again without a pause.
  static constexpr Duration kYoung = std::chrono::seconds(5);
  // How long a replacement waits when programs die young again and again.
  [[nodiscard]] Duration patience() const;
  [[nodiscard]] bool too_many_failures() const { return counts_.failures > limits_.max_failures; }

  LaunchLimits limits_;
  LaunchCounts counts_;
  std::map<Uid, Worker> workers_;  // not yet collected
  int wanted_;                     // workers asked for
  std::vector<Slot> slots_;        // of a managed run: one for each
  int died_young_ = 0;             // in a row
  int round_ = 0;
  int world_ = 0;
  Uid next_uid_ = 1;
  std::optional<Ending> ending_;

 private:
  void finish_if_empty();
  void insist(Time now);

  std::vector<Order> orders_;
  std::optional<Outcome> outcome_;
  std::optional<Time> last_pass_;
};

}  // namespace rubato::launch
