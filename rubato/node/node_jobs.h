// The decisions of a node's agent: which masters to start, adopt, kill and forget, and what to tell
// the engine about its jobs.
//
// Pure: no clock, no process, no socket. Time and events are inputs. The output is a list of
// orders, to be carried out in this order.
//
// The agent knows a job from its launch (or from finding it on disk) until the engine says to
// forget it. A run ends in three steps: its master is gone; everything with the job's token is
// killed; then the end is reported. So whoever hears of an end may give the GPUs away and start the
// job elsewhere. How a run ended is what the master said or left in exit.json; a master that left
// nothing has failed.
//
// A start that fails because of the machine or of Rubato itself is no failure of the job. The agent
// then tries by itself whether a job could be started here. As long as it could not, the agent
// tells the engine why and tries again, with a longer pause each time.
//
// A master runs as the job's user, who may stop the process or answer in its place. So a stop has a
// time limit, after which the master is killed, and a status of a generation that nobody has told
// the master is ignored.
//
// A job in shares (docs/many-hosts.md) survives its master: its workers are on other hosts. So if
// the master died and left no exit, another one is started, with a longer pause each time, and
// after Limits::resumes of them in a row the job has failed.
//
// An opportunistic job may be in the slots of another job that is not. Then it is that job's guest,
// and the agent tells it again and again which share of the time it may compute (guest_control.h).
//
// If the engine is silent, jobs go on. One exception: for a job that asked to stop when it is left
// alone (stop_after), an agent without an engine does not count as a manager, so it hangs up on the
// job's master.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/base/time.h"
#include "rubato/node/agent_messages.h"
#include "rubato/node/guest_control.h"

namespace rubato::node {

class NodeJobs {
 public:
  // Write launch.json and start a master; then say started() or could_not_start().
  struct StartMaster {
    JobLaunch launch;
  };
  // From now on: connect to the master, and connect again whenever the connection is lost.
  struct Connect {
    JobId job;
  };
  struct HangUp {
    JobId job;
  };
  struct SendToMaster {
    JobId job;
    ToMaster message;
  };
  struct KillMaster {
    JobId job;
  };
  // Kill everything that has the job's token; then say swept().
  struct Sweep {
    JobId job;
  };
  // Write exit.json for later agents: this run has ended like this, whatever its master left. Say
  // recorded() when it is written; until then the order is repeated.
  struct RecordExit {
    JobId job;
    JobExit exit;
  };
  // Write forgotten.json for later agents: this run need not be reported any more.
  struct RecordForgotten {
    JobId job;
    Generation start;
  };
  struct TellEngine {
    FromAgent message;
  };
  // Try whether a job could be started here; then say probed().
  struct Probe {};
  using Order = std::variant<StartMaster, Connect, HangUp, SendToMaster, KillMaster, Sweep,
                             RecordExit, RecordForgotten, TellEngine, Probe>;

  struct Limits {
    Duration obey = from_seconds(3);    // for a master that was told to kill its workers and end
    Duration leave = from_seconds(5);   // for a master whose job has ended, or should have
    Duration engine = from_seconds(3);  // an engine that is silent for longer counts as gone
    Duration record = from_seconds(2);  // between two tries to write exit.json
    Duration probe = from_seconds(1);   // between the first two probes of a node in trouble
    Duration longest_probe = from_seconds(30);
    Duration resume = from_seconds(1);  // between the first two new masters of a job in shares
    Duration longest_resume = from_seconds(30);
    Duration watch = from_seconds(1);      // between two words to a guest
    Duration healthy = from_seconds(120);  // a master that lived so long was none of a row
    int resumes = 10;
  };

  NodeJobs(NodeId node, Limits limits) : node_(node), limits_(limits) {}

  // --- from the disk, at the start ---
  struct Found {
    JobLaunch launch;
    bool master_lives = false;
    std::vector<Slot> in_use;     // by workers.json
    std::optional<JobExit> exit;  // of this start
  };
  void found(const Found& found);

  // --- from the engine ---
  void engine_said(Time now, const ToAgent& message);
  void engine_lost() { engine_heard_.reset(); }
  [[nodiscard]] std::vector<JobStatus> statuses() const;

  // --- from masters ---
  void started(JobId id);
  void could_not_start(JobId id, const JobEnd& end);
  void connected(Time now, JobId id);
  void disconnected(JobId id);
  void master_said(Time now, JobId id, const JobStatus& status);
  // `exit`: the exit that it left, if it counts for this start.
  void master_gone(JobId id, const std::optional<JobExit>& exit);
  void swept(JobId id);
  void recorded(JobId id);
  // `trouble`: why no job could be started; empty if one could.
  void probed(Time now, const std::string& trouble);

  // To be called several times a second.
  void pass(Time now);

  [[nodiscard]] std::vector<Order> take_orders() { return std::exchange(orders_, {}); }
  [[nodiscard]] const JobLaunch* launch_of(JobId job) const;
  // Why no job can be started here; empty if jobs can be started, as far as is known.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }

 private:
  enum class Phase : std::uint8_t { alive, sweeping, ended };
  using Command = std::variant<Place, StopJob>;
  using Age = std::pair<Generation, std::int64_t>;  // with the revision of its shares

  struct Job {
    JobLaunch launch;
    Phase phase = Phase::alive;
    JobStatus status;  // as reported; has `ended` only in that phase
    // The newest generation from the engine. nullopt: the job was found, and no table has come
    // since.
    std::optional<Generation> told;
    bool connected = false;
    bool hung_up = false;
    std::optional<Command> command;  // newest, until the master has obeyed it
    std::optional<JobEnd> end;       // how it has ended or will end, once that is known
    bool recorded = false;           // in exit.json
    Time record_due;                 // to be tried again
    std::optional<Time> kill_due;    // of its master
    bool overdue = false;            // its master was killed because it had not stopped
    bool doomed = false;
    bool forgotten = false;   // as soon as it has ended
    bool masterless = false;  // in shares: another master is to be started at resume_due
    Time resume_due;
    Time resumed;                   // the last time
    int resumes = 0;                // in a row
    std::optional<JobLaunch> next;  // to be started when this run has ended
    // Of an opportunistic job:
    std::optional<JobId> host;  // the job whose guest it is
    GuestControl control;
    std::optional<ThrottleJob> throttled;  // as its master was last told, on this connection
    Time watch_due;
  };

  void obey(Time now, const NodeTable& table);
  void obey(Time now, const LaunchJob& start);
  void obey(Time now, const PlaceJob& order);
  void obey(Time now, const HaltJob& order);
  void obey(Time now, const ForgetJob& order);
  void obey(Time now, const AgentWelcome& welcome);
  void obey(Time now, const EngineBeat& beat);
  void obey(Time now, const DismissAgent& dismiss);

  void launch(const JobLaunch& launch);
  void replace(Time now, JobId id, Job& job, const JobLaunch& by);
  void command(JobId id, Job& job, Command command);
  void pass_on(JobId id, Job& job);
  void doom(Time now, JobId id, Job& job);
  void kill_if_due(Time now, JobId id, Job& job);
  void hang_up_if_alone(Time now, JobId id, Job& job);
  [[nodiscard]] const Job* host_of(JobId id, const Job& job) const;
  void watch_guest(Time now, JobId id, Job& job);
  void sweep(JobId id, Job& job);
  void record(JobId id, const Job& job);
  void record_again(Time now, JobId id, Job& job);
  static void take_end(Job& job, const JobExit& exit);
  void ended(JobId id, Job& job);
  void forget(JobId id, const Job& job);
  void tell(const Job& job) { orders_.emplace_back(TellEngine{job.status}); }
  void tell_not_here(JobId id, Generation generation, JobEnd end);
  void settle();
  [[nodiscard]] static Age age_of(const Command& command);
  [[nodiscard]] static Age newest(const Job& job);
  void lose_master(JobId id, Job& job);
  void resume_if_due(Time now, Job& job);
  [[nodiscard]] static bool finished(const Job& job);
  [[nodiscard]] static JobEnd end_without_a_word(const Job& job);

  NodeId node_;
  Limits limits_;
  std::map<JobId, Job> jobs_;
  std::optional<Time> engine_heard_;
  bool settling_ = false;  // a table has come that has not been carried out yet
  std::string trouble_;
  Duration patience_{};  // before the next probe
  Time probe_due_;       // while there is trouble
  std::vector<Order> orders_;
};

}  // namespace rubato::node
