// One worker's part in a training job: everything between the code that computes gradients and the
// other workers (docs/elastic.md).
//
// There are two threads. The trainer's thread asks next() what to do, does it, and reports it. The
// network's thread runs in here and owns all connections, the membership and the reduction. The
// threads exchange values through two queues and nothing else, except gradients and state. Those
// are read in place under these rules:
//
//   subtree sums   written by the trainer until bucket_ready(), then the network's until Completed
//   the result     the network's until Completed (or CatchUp); then nobody writes it for two steps
//   state chunks   valid from applied() until the next Completed or CatchUp has been delivered
//
// An attempt is one try at a step. If an attempt was interrupted in the meantime, what the trainer
// says about it is ignored.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "rubato/elastic/layout.h"
#include "rubato/elastic/reduction.h"
#include "rubato/elastic/transport.h"
#include "rubato/member/links.h"
#include "rubato/member/membership.h"
#include "rubato/member/standing.h"

namespace rubato::elastic {

using member::Record;
using member::Role;
using member::StepPlan;
using member::Word;

// A part of the state that is sent as a whole: a short text (head), then pieces of memory (body).
struct StateChunk {
  std::string head;
  std::vector<std::span<const std::byte>> body;
};
struct ReceivedChunk {
  int index = 0;
  std::string head;
  std::vector<std::byte> body;
};

class Session {
 public:
  struct Config {
    member::Place place;
    member::Identity identity;
    Layout layout;
    bool group = false;  // the trainer supplies the sums (make_group_reduction)
    // One sentence that says how a peer differs from us. Empty if it does not differ.
    std::function<std::string(const member::Identity&)> difference;
  };

  // --- what next() gives ---
  // Start the job from the newest checkpoint, or from nothing. Answer with found().
  struct Found {};
  // This worker was accepted as a member, but has no state yet. `about` is what the donor says
  // about the job.
  struct Adopted {
    Json about;
  };
  // Compute this worker's leaves of the step. A worker that is joining or leaving has nothing to
  // compute.
  struct Work {
    std::int64_t attempt = 0;
    Record record;
    StepPlan plan;
    int leaves = 0;  // leaves that exist
    Range range;
    Role role = Role::working;
    bool leader = false;
  };
  // Apply this gradient. A worker that is joining first loads these chunks, and then applies the
  // gradient to them.
  struct Completed {
    Record record;
    StepPlan plan;
    Role role = Role::working;  // in this step
    std::span<const float> result;
    bool finite = true;
    double sqr_norm = 0;
    std::map<member::Uid, Word> words;
    std::vector<ReceivedChunk> chunks;
    bool feeding = false;  // pass the chunks to applied()
  };
  // Other workers have applied this step, but this one has not. Apply this gradient, then call
  // caught_up().
  struct CatchUp {
    StepPlan plan;
    std::span<const float> result;
  };
  // The attempt is over. What was computed for it is not used.
  struct Interrupted {};
  // Leave with this exit code, after saying why.
  struct End {
    int code = 0;
    std::string why;
  };
  using Event = std::variant<Found, Adopted, Work, Completed, CatchUp, Interrupted, End>;

  explicit Session(Config config);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] Result<void> start();

  // --- the trainer's thread ---
  [[nodiscard]] Event next();
  // The same, but gives up after this time, for a caller that has something else to look after.
  [[nodiscard]] std::optional<Event> next(std::chrono::milliseconds at_most);
  // Cheap enough to call between two leaves.
  [[nodiscard]] bool interrupted(std::int64_t attempt) const { return attempt_.load() != attempt; }

  void found(const StepPlan& first, const member::MembershipGeneration& after);
  void bucket_ready(std::int64_t attempt, int bucket, const std::vector<float*>& sums);
  // In a group: the sum over all workers. It must not change until the trainer is told something
  // new.
  void reduced(std::int64_t attempt, std::span<const float> result);
  // This worker's word for the step, after it has computed its part. `next_plan` returns the
  // following step for a number of workers. It is called on the network's thread while the trainer
  // waits in next().
  void say(std::int64_t attempt, Word word, std::function<StepPlan(int workers)> next_plan);
  void applied(member::Step step, std::vector<StateChunk> chunks, bool level, Json about);
  void caught_up(member::Step step);

  // The code of this worker has failed, and would fail on any other worker, too. The whole job
  // ends.
  void fail(const std::string& why);

  // A small board on which each worker pins texts for all others, for example addresses. Everybody
  // sees them, unless a connection breaks; whoever waits pins its own again.
  void pin(const std::string& key, const std::string& text);
  [[nodiscard]] std::optional<std::string> pinned(const std::string& key);

  void report(const Json& content);
  void notice(const std::string& kind, const Json& content);
  [[nodiscard]] bool stop_requested() const { return stop_requested_.load(); }
  // Whether the newest plan omits this worker, so that it leaves soon.
  [[nodiscard]] bool leaving() const { return leaving_.load(); }
  // Which share of the time it may compute; below 1 only for a guest on GPUs of another job.
  [[nodiscard]] double share() const { return share_.load(); }
  // The trainer takes no more events, but its process goes on for a while. Sends everything that is
  // waiting to be sent. From then on, this worker only tells its launcher that it is alive.
  void retire();
  // Sends everything that is waiting to be sent, and stops the network's thread.
  void close();

 private:
  struct Feed {
    int next = 0;
  };
  struct Arriving {
    std::string head;
    std::vector<std::byte> body;
    std::size_t filled = 0;
  };

  void run();
  void post(std::function<void()> task) { poller_.post(std::move(task)); }
  void push(Event event);

  void on_welcome(const wire::Welcome& welcome);
  void on_plan(const member::MembershipPlan& plan);
  void on_roster(const wire::RosterWord& word);
  void end_as_gone();
  void on_lost(member::Uid peer);
  void on_connected(member::Uid peer);
  void forget(member::Uid peer);
  void keep_data();
  void on_message(member::Uid from, const Json& message);
  void on_data(member::Uid from, std::int64_t recovery, wire::Link link);
  void take_fresh(member::Uid from, wire::Link link);
  void take_early_fresh();
  void on_dead(member::Uid peer);
  void on_lost_data(member::Uid peer);
  void bury_unknown(const Record& record);
  void say_level();
  void raise_priority();
  void look_ready(member::Uid peer);
  void look_joined();
  void look_stranded();
  void dial_data(member::Uid peer, std::int64_t recovery);
  void dial_fresh(member::Uid peer);
  void dropped();
  void redial_waiting();
  [[nodiscard]] bool planned() const;

  void perform_actions();
  void interrupt();
  void resume(const member::Commit& commit, bool behind);
  void begin_step();
  void look_complete();
  [[nodiscard]] std::string disagreement() const;
  void count_samples(const StepPlan& plan);
  void stop_feeds();
  void pump_feeds();
  void adopt_joining(const Json& about);
  void notice_members(const Record& record);
  void take_members(const Record& record);
  void remember(const std::string& key, const std::string& text);

  std::byte* where(member::Uid from, const Header& header);
  void arrived(member::Uid from, const Header& header);
  [[nodiscard]] std::span<float> result_of(member::Step step) {
    return results_[static_cast<std::size_t>(step % 2)];
  }

  Config config_;
  wire::Poller poller_;
  std::unique_ptr<member::Links> links_;
  member::Membership membership_;
  std::optional<member::Standing> standing_;  // only in a job that spans hosts
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Reduction> reduction_;

  // Used only by the network's thread.
  std::vector<float> results_[2];
  bool over_ = false;                    // the others count this worker as gone
  bool active_ = false;                  // a step is under way
  std::vector<member::Member> members_;  // members whose connections the step uses
  std::int64_t attempts_ = 0;
  std::map<member::Uid, Word> words_;
  std::map<member::Uid, std::string> texts_;  // being received
  std::map<member::Uid, std::vector<std::byte>> discarded_;
  std::set<member::Uid> said_ready_;
  std::map<member::Uid, std::pair<std::int64_t, wire::Link>> early_data_;
  std::map<member::Uid, Feed> feeds_;
  std::vector<StateChunk> chunks_;
  member::Step trainer_applied_ = member::kNoState;
  std::map<int, Arriving> arriving_;
  member::Step fed_ = member::kNoState;
  bool said_joined_ = false;
  bool announced_ = false;  // whether it has announced that it holds the state
  bool founder_ = false;
  bool welcomed_ = false;
  bool retired_ = false;
  std::optional<member::Commit> expected_gradient_;
  std::chrono::steady_clock::time_point interrupted_at_;
  std::vector<member::Uid> died_;

  // Used by both threads.
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Event> events_;
  std::map<std::string, std::string> board_;
  std::deque<std::string> board_order_;  // the oldest first
  std::atomic<std::int64_t> attempt_{0};
  std::atomic<bool> stop_requested_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<double> share_{1};
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

}  // namespace rubato::elastic
