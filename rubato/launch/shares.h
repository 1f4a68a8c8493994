// The workers of a run that spans hosts: the master's side of its shares.
//
// A ShareStarter brings each share to life: a remote shell, or a cluster manager. From then on
// shares and workers speak with the master over TCP, encrypted with keys that only they have
// (wire/job_key.h). RosterMaster has the rules: who is gone, and when a round ends. LaunchState
// decides how many workers there are. Which shares there are may change at any time.
//
// A host that is silent may come back. If it does not, and it is legal, its workers are excluded
// (roster_master.h).
//
// If the roster is on files (roster_files.h), a new master takes the run over after the death of
// this one: its shares and workers connect again. Otherwise the shares end after some minutes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/launch/hosts.h"
#include "rubato/launch/roster_master.h"
#include "rubato/launch/share_messages.h"
#include "rubato/launch/share_starter.h"
#include "rubato/launch/worker_host.h"
#include "rubato/wire/frame_server.h"

namespace rubato::launch {

// A share that the run should have.
struct ShareSpot {
  ShareName name;
  std::string host;           // for people
  int workers = 1;            // at most
  std::vector<Slot> slots{};  // of a managed run: its workers are in these
};

struct SharesSpec {
  std::string job;  // in the identities of its processes
  std::int64_t start = 0;
  std::string secret;
  std::string address{};                         // of the master, for its hosts; empty: found out
  std::map<std::string, std::string> secrets{};  // of the job: NAME -> content
};

class RosterInMemory : public RosterStore {
 public:
  [[nodiscard]] RosterVersion newest() const override { return newest_; }
  [[nodiscard]] bool create(std::int64_t number, const Roster& roster) override;

 private:
  RosterVersion newest_;
};

class Shares : public WorkerHost {
 public:
  struct Hooks {
    // The first hello of a worker. False: it is refused.
    std::function<bool(const wire::Hello&)> greeted;
    std::function<void(Uid, const wire::FromWorker&)> heard;
    std::function<void(const std::string&)> say;  // to people
    // If it ends now, its host is to blame.
    std::function<void(Uid)> blameless;
  };

  // Takes the run over that is in the store, if it is of this start.
  Shares(wire::Poller& poller, SharesSpec spec, std::shared_ptr<RosterStore> store,
         std::unique_ptr<ShareStarter> starter, Events events, Hooks hooks);
  // Ends the shares, unless a later master has taken the run over.
  ~Shares() override;

  // Whether there was a master before this one. Its workers are in the roster, and go on.
  [[nodiscard]] bool adopted() const { return adopted_; }
  [[nodiscard]] const Roster& roster() const { return core_.roster(); }
  // A worker of an earlier master, which goes on.
  void adopt(const WorkerStart& start);
  // A later master has taken the run over. This one must end without a word.
  [[nodiscard]] bool replaced() const { return core_.ended(); }
  // What the next master should know: at once, or with the next change of the roster.
  bool note(const RosterRun& run) { return core_.note(run); }
  void set_run(const RosterRun& run) { core_.set_run(run); }

  // These shares should be there, and no others. The manager says that those in `ended` have ended.
  // A share that should not be there is ended when its workers have left.
  void set_shares(const std::vector<ShareSpot>& spots, const std::vector<ShareName>& ended);
  [[nodiscard]] std::vector<ShareView> views() const;
  // Workers whose slot is in another share now.
  [[nodiscard]] std::vector<Uid> misplaced() const;

  // Starts the shares. Workers start when a share has answered.
  void open();

  void start(const WorkerStart& start) override;
  void signal(Uid uid, int signal) override;
  void turn() override;
  [[nodiscard]] bool hurries() const override { return false; }
  [[nodiscard]] bool quiet() const override;
  void collect_all() override {}

  // Of a Welcome only the peers are used: the rest is in the roster.
  void send(Uid uid, const wire::FromLauncher& message);
  // Which workers should train.
  void plan(const std::vector<Uid>& workers);
  // All workers of the round are killed now.
  void give_up();
  // True once, if the round ends because nobody has the state.
  [[nodiscard]] bool lost();
  // Says what has to be said now.
  void act();
  // Of these nothing can be expected now: their host is silent, or they have none yet.
  [[nodiscard]] std::vector<Uid> excused() const;
  // While the run ends, nobody waits for a silent host.
  void set_ending(bool ending) { ending_ = ending; }
  [[nodiscard]] std::string host_of(Uid uid) const;

 private:
  using Clock = std::chrono::steady_clock;

  struct ShareOf {
    ShareSpot spot;
    bool wanted = true;
    std::string secret;
    std::string identity;
    int connection = -1;
    bool ever = false;  // it has answered at least once
    Clock::time_point heard;
    Clock::time_point unlinked_since;
    bool silent = false;   // for so long that its workers may be excluded
    bool leaving = false;  // somebody else has told it to end
    bool gone = false;     // the manager says that it has ended
    std::optional<Clock::time_point> told_to_end;
  };
  struct Meeting {
    ShareName share;  // of rank 0, which listens there
    SharePort at;
  };
  struct Worker {
    WorkerStart start;
    ShareName share;
    int connection = -1;
    Clock::time_point heard;
    bool greeted = false;
    bool stop = false;
    double throttle = 1;  // wire::Throttle
    int signal = 0;       // the last one
    std::vector<wire::Peer> peers;
    std::int64_t confirmed = 0;  // number of the last report or notice
    bool unconfirmed = false;    // a confirmation is due
  };

  [[nodiscard]] Result<void> listen();
  void add_share(const ShareSpot& spot);
  void start_share(ShareOf& share);
  void end_unwanted(Clock::time_point now);
  [[nodiscard]] std::optional<wire::LinkKey> find_key(std::string_view identity) const;

  void message(int key, const Json& json);
  void greet(int key, const Json& json);
  void greet_share(int key, ShareOf& share, const Json& json);
  void greet_worker(int key, Uid uid, const Json& json);
  void dropped(int key);
  void heard_share(ShareOf& share, int key, const FromShare& message);
  void heard_status(ShareOf& share, int key, const ShareStatus& status);
  void heard_worker(Uid uid, int key, const wire::FromWorker& message);
  void finished(Uid uid, ProcessEnd end);

  void refuse_share(int key, const ShareName& name);
  void send_secrets(int key);

  void start_pending();
  void start_ranks();
  [[nodiscard]] std::vector<ShareOf*> shares_for_ranks();
  void complete_ranks(const std::vector<ShareOf*>& shares);
  [[nodiscard]] bool begin_round(int round);
  [[nodiscard]] ShareOf* share_for(const WorkerStart& start);
  [[nodiscard]] bool takes_workers(const ShareOf& share) const;
  [[nodiscard]] int workers_on(const ShareName& name) const;
  bool place_worker(const WorkerStart& start, const ShareOf& share);
  [[nodiscard]] std::string shown(const ShareName& name) const;
  void perform(const RosterMaster::SayToWorker& action);
  void perform(const RosterMaster::SayToShare& action);
  void perform(const RosterMaster::CancelShare&) {}
  void tell_share(const ShareOf& share, const ToShare& message);
  void beat();
  void look_for_silence(Clock::time_point now);
  void exclude();
  void collect_gone();
  void give_up_hosts();
  void fail_without_hosts();

  wire::Poller& poller_;
  SharesSpec spec_;
  std::shared_ptr<RosterStore> store_;
  std::unique_ptr<ShareStarter> starter_;
  Events events_;
  Hooks hooks_;
  bool adopted_;
  RosterMaster core_;
  wire::JobKey key_;  // of the present round
  std::map<ShareName, ShareOf> shares_;
  std::vector<ShareName> order_;  // as they were named
  std::map<Uid, Worker> workers_;
  std::vector<WorkerStart> pending_;  // no host yet
  std::optional<Meeting> meeting_;    // of the ranks of this round
  Clock::time_point asked_port_;
  std::map<int, Uid> worker_speakers_;
  std::map<int, ShareName> share_speakers_;
  wire::FrameServer server_;
  std::string port_;
  int round_ = 0;  // of the run
  bool told_lost_ = false;
  bool ending_ = false;
  Clock::time_point beat_at_;
  Clock::time_point read_epoch_at_;
};

}  // namespace rubato::launch
