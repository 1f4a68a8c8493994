// The decisions of a launcher: which workers to start and to kill, which workers should train, and
// when the run is over.
//
// Pure: no clock, no process, no socket. Time and events are inputs. Orders are the output, and
// must be carried out in their order. Two kinds of run share this interface: LiveRun (live_run.h),
// whose workers change while they train, and RestartRun (restart_run.h), for programs that do not
// know Rubato.
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
  // A program that sends no Hello in this time is treated as one that does not know Rubato. If
  // earlier workers of the program have sent one, a new worker without a Hello is killed instead.
  // It gets at least four times as long as the slowest of them took.
  Duration hello = kHelloWithin;
  bool silent = false;  // the program is known to send no Hello
  bool replace_stragglers = false;
  double share = 1;  // of the time that its workers may compute at first
};

struct Outcome {
  int code = 0;
  std::string why{};            // empty if the job finished
  bool stopped = false;         // because somebody asked for it
  bool infrastructure = false;  // the machine could not start a worker; no failure of the job
};

struct LaunchCounts {
  int failures = 0;
  int resizes = 0;
  int starts = 0;        // of workers
  int fresh_starts = 0;  // of all workers together from the checkpoint, after the first start
};

// What a launcher knows of a run that an earlier one began.
struct AdoptedRun {
  std::map<Uid, Slot> workers;  // that may live
  std::vector<Uid> planned;     // those that should train
  Uid next_uid = 1;
  bool founded = false;  // a worker has started the job in this round
  bool ending = false;   // all workers are being killed, and then a new round begins
  bool spoke = false;    // the program knows Rubato
  LaunchCounts counts;
};

class LaunchState {
 public:
  explicit LaunchState(LaunchLimits limits)
      : limits_(limits), wanted_(limits.start), share_(limits.share) {}
  LaunchState(const LaunchState&) = delete;
  LaunchState& operator=(const LaunchState&) = delete;
  virtual ~LaunchState() = default;

  virtual void begin(Time now) = 0;
  // Instead of begin(): goes on with a run whose launcher has died.
  virtual void adopt(Time now, const AdoptedRun& run) = 0;
  void exited(Time now, Uid uid, ProcessEnd end);
  // The program could not be started at all, and trying again would not help.
  void could_not_start(Time now, Uid uid, const std::string& why, bool infrastructure);

  // False: the worker is unknown or has said hello before. Close the connection.
  [[nodiscard]] virtual bool said_hello(Time now, const wire::Hello& hello) = 0;
  virtual void heard(Time now, Uid uid, const wire::FromWorker& message) = 0;

  // Its host is silent, so nothing can be expected of it.
  void excuse(Time now, Uid uid);
  // If it ends, its host is to blame: no failure is counted.
  void blameless(Uid uid);
  // The worker should be another process in the same slot, because its share is about to end.
  virtual void replace(Time now, Uid uid) = 0;
  // Whether all workers are to end.
  [[nodiscard]] bool ending() const { return ending_.has_value(); }

  [[nodiscard]] Result<void> resize(Time now, int workers);
  // For a managed run, also before begin(): there should be exactly one worker in each of these
  // slots, and workers in other slots leave. Each slot is named once. The manager checks the
  // limits, not this class. If a worker of a managed run cannot be replaced, the run has failed.
  [[nodiscard]] Result<void> place(Time now, const std::vector<Slot>& slots);
  // The slots that the run should have.
  [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }
  // The slots with processes that have not been collected yet.
  [[nodiscard]] std::set<Slot> slots_in_use() const;
  // The workers may compute this share of the time (wire::Throttle).
  void throttle(double share);
  [[nodiscard]] double share() const { return share_; }
  // Whether all workers that were asked for train, each in its slot, and no other worker lives.
  [[nodiscard]] virtual bool settled() const = 0;
  // The program has sent no Hello in time, or has finished without one. It runs as one process.
  [[nodiscard]] virtual bool silent() const { return false; }
  // Kills one worker, by default the newest, and returns its number.
  [[nodiscard]] Result<Uid> kill(std::optional<Uid> uid);
  // SIGTERM or SIGINT arrived. At the second signal nobody waits any more.
  void stop(Time now, int signal);
  // The manager of the run asks for it: the workers write a checkpoint and end. If they finish the
  // job before that, it counts as finished.
  void stop_managed(Time now, const std::string& why);
  // Kills all workers at once, without a checkpoint.
  void kill_all(Time now, const std::string& why);
  // Call it several times a second. It checks all time limits.
  void pass(Time now);
  // Whether pass() has nothing to do but to notice that somebody is silent: twice a second is
  // enough.
  [[nodiscard]] bool quiet() const;

  [[nodiscard]] std::vector<Order> take_orders() { return std::exchange(orders_, {}); }
  [[nodiscard]] const std::optional<Outcome>& outcome() const { return outcome_; }
  [[nodiscard]] const LaunchCounts& counts() const { return counts_; }
  // Whether a worker has sent a Hello, now or in an earlier round.
  [[nodiscard]] virtual bool spoke() const { return false; }
  [[nodiscard]] int wanted() const { return wanted_; }
  [[nodiscard]] std::vector<Uid> living() const;

 protected:
  struct Worker {
    bool started = false;  // false: it will be started at `since`
    Time since;
    bool low_priority = false;
    Slot slot;
    int rank = 0;
    bool said_hello = false;
    bool adopted = false;  // of an earlier launcher; it has not said hello to this one yet
    bool stranded = false;
    Time heard;
    std::string address;
    std::string killed_because;   // empty unless we killed it
    bool expected = false;        // we asked it to end, so its end is no failure
    bool blameless = false;       // its end is no failure of the job
    std::string text;             // its own words about a refusal or failure
    std::optional<Time> outside;  // since when it is neither planned nor a member
  };
  struct Ending {
    Outcome outcome;
    int last_signal = 0;  // 0: they got a message, or nothing
    Time next;            // when the next stronger signal is due
    bool may_finish = false;
  };

  virtual void on_exit(Time now, Uid uid, const Worker& worker, ProcessEnd end) = 0;
  virtual void on_resize(Time now) = 0;
  virtual void on_place(Time now) = 0;
  virtual void on_pass(Time now) = 0;
  [[nodiscard]] virtual bool on_quiet() const { return true; }
  // Asks all workers to end. Returns the strongest signal that was used, 0 for a message.
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
  // A worker that dies within this time after its start has died young. This includes a worker that
  // sends a Hello and then fails at once: it must not be started again and again without a pause.
  static constexpr Duration kYoung = std::chrono::seconds(5);
  // How long a replacement waits if workers die young again and again.
  [[nodiscard]] Duration patience() const;
  [[nodiscard]] bool too_many_failures() const { return counts_.failures > limits_.max_failures; }

  LaunchLimits limits_;
  LaunchCounts counts_;
  std::map<Uid, Worker> workers_;  // not yet collected
  int wanted_;                     // workers asked for
  double share_;
  std::vector<Slot> slots_;  // of a managed run: one per worker
  int died_young_ = 0;       // in a row
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
