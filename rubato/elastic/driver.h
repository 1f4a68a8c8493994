// Trains one model as a worker of a job. It holds everything of a trainer that is the same in all
// languages: events, plans, the order of the samples, published steps, epochs, checkpoints,
// digests, the tuner, stragglers and noise.
//
// The program pulls. next() gives it a leaf to compute, until it gives the end:
//
//   auto driver = Driver::open(model, options, samples);
//   for (;;) {
//     Driver::Task task = driver->next();
//     if (end) return end->code;
//     compute the gradient of the leaf;
//     driver->leaf_done(squared norm);
//   }
//
// The rest of what a language must know is a Model. The driver calls it from inside next(), on the
// same thread. After an error of the model, the whole job ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rubato/elastic/checkpoint_rounds.h"
#include "rubato/elastic/checkpoint_writer.h"
#include "rubato/elastic/options.h"
#include "rubato/elastic/publishing.h"
#include "rubato/elastic/samples.h"
#include "rubato/elastic/session.h"
#include "rubato/elastic/straggler.h"
#include "rubato/elastic/tuning.h"

namespace rubato::elastic {

// The members of the job, as one of them sees it.
struct World {
  int rank = 0;
  int size = 1;
  std::int64_t generation_plan = 0;
  std::int64_t generation_revision = 0;
};

// A model and its optimizer in some language.
class Model {
 public:
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  // The first float of the tail is the loss.
  [[nodiscard]] virtual const Layout& layout() const = 0;
  // For the comparison with another worker's schema (schema.h).
  [[nodiscard]] virtual Json schema() const = 0;
  // Where the sums of the leaves are (accumulator.h).
  [[nodiscard]] virtual std::span<float> slot(int index) = 0;

  // The state is sent and saved in chunks. A chunk may be from an older step than the next one. So
  // a joining worker applies each step to the chunks that it has.
  [[nodiscard]] virtual int chunks() const = 0;
  // Points into the live state. Valid until release(), also while leaves are computed.
  [[nodiscard]] virtual Result<StateChunk> chunk(int index) = 0;
  virtual void release() {}
  // After an error nothing has changed.
  [[nodiscard]] virtual Result<void> load_chunk(int index, std::string_view head,
                                                std::span<const std::byte> body) = 0;

  struct Step {
    const StepPlan& plan;
    std::span<const float> result;  // only read, and not kept
    const std::vector<bool>& held;  // chunks that this worker has; empty = all
    int workers = 1;
    bool ends_epoch = false;
  };
  // The workers that sum up their gradients. Its name is new whenever they have changed or one of
  // them had to begin again.
  struct Group {
    int rank = 0;
    int size = 1;
    std::string name;
  };
  // With Options::group: replaces these sums by the sums over the group. Blocks until that is done,
  // or until leaf_stale() says that a member has died. False: it has failed, and `group` is
  // of no more use to anybody; the members will change.
  [[nodiscard]] virtual Result<bool> reduce(const Group& /*group*/, std::span<float> /*sums*/) {
    return Error{"this model cannot reduce in a group"};
  }
  // The step is given up, and its group as well. Others may wait in it for this worker.
  virtual void interrupted() {}
  // One optimizer step with the reduced vector.
  [[nodiscard]] virtual Result<void> apply(const Step& step) = 0;
  // Adds what it knows to the report on a step.
  virtual void describe(std::span<const float> /*result*/, Json& /*report*/) {}
  // The members have changed. Called between two steps.
  virtual void members_changed(const World& /*world*/) {}
};

class Driver {
 public:
  // Compute this gradient: add it up in the model's slots as `summing` says (accumulator.h).
  struct Leaf {
    StepPlan plan;
    LeafStep summing;
    double weight = 1;       // its share of the step's samples
    std::uint64_t seed = 0;  // for the random numbers of this leaf
    std::vector<std::int64_t> indices;
    bool measure = false;  // leaf_done() needs the squared norm of the weighted gradient
    std::function<void(int bucket)> ready;  // empty unless this is the worker's last leaf
    bool warm_up = false;                   // its result is not used, and errors are ignored
  };
  // Leave with this exit code (wire/launch.h). If it is 0, the model is trained. Until the driver
  // is destroyed, the launcher hears that this worker is alive, so the program may take its time.
  struct End {
    int code = 0;
    std::string why;
  };
  using Task = std::variant<Leaf, End>;

  // `samples` is the size of the data set. The model must outlive the driver. An error is a reason
  // to leave with wire::kRefused. Nobody else has been told anything.
  [[nodiscard]] static Result<std::unique_ptr<Driver>> open(Model& model, const Options& options,
                                                            std::int64_t samples);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  [[nodiscard]] Task next();
  // Nothing if there was no task within this time, so that the caller can look after something
  // else.
  [[nodiscard]] std::optional<Task> next(std::chrono::milliseconds at_most);
  // The leaf of the last next() is in the slots. Its squared norm is 0 unless it was to be
  // measured.
  void leaf_done(double gradient_sqr_norm);
  // The leaf's attempt is over: computing it would be of no use.
  [[nodiscard]] bool leaf_stale() const;

  // To prefetch: where a leaf is in the sequence of all leaves.
  struct Ahead {
    std::int64_t step = 0;
    Slice slice;
    int leaf = 0;
  };
  // The leaf of this worker after this one, if the members and the batch do not change.
  [[nodiscard]] Ahead leaf_after(const Ahead& leaf) const;
  [[nodiscard]] Positions positions_of(const Ahead& leaf) const;

  // The code of the program has failed, and would fail on any other worker. The whole job ends.
  void fail(const std::string& why);
  // Writes a checkpoint at the next step boundary.
  void commit() { commit_requested_ = true; }
  // Ends the job at the next step boundary as if this were its planned end. Only the leader's call
  // counts.
  void finish_early() { finish_requested_ = true; }
  // Whether this worker has been told to leave, or the whole job to stop.
  [[nodiscard]] bool leaving() const;
  // See Session.
  void pin(const std::string& key, const std::string& text) { session_->pin(key, text); }
  [[nodiscard]] std::optional<std::string> pinned(const std::string& key) {
    return session_->pinned(key);
  }
  void notice(const std::string& kind, const Json& content) { session_->notice(kind, content); }

  [[nodiscard]] const SampleOrder& order() const { return order_; }
  [[nodiscard]] member::Uid uid() const { return uid_; }

 private:
  // The leaves of this worker in the attempt that is under way.
  struct Computing {
    Session::Work work;
    SummationOrder range;
    std::size_t next = 0;
    bool begun = false;  // false: it may have to sleep first
    std::vector<float*> sums;
    member::Word word;
    double weight = 1;  // of the leaf that was given out
  };

  Driver(Model& model, const Options& options, std::int64_t samples);
  [[nodiscard]] Result<void> take_part();
  [[nodiscard]] std::optional<Task> task_at_hand();
  [[nodiscard]] std::chrono::milliseconds sleep_left() const;
  [[nodiscard]] std::uint64_t leaf_seed(std::int64_t step, int leaf) const;
  void begin_warm_up();
  [[nodiscard]] bool claim(const CheckpointOwner& owner);
  [[nodiscard]] bool load(std::optional<Loaded>& newest);
  [[nodiscard]] Result<std::string> write_out(const CheckpointContent& content) const;
  [[nodiscard]] StepPlan first_plan() const;
  [[nodiscard]] Result<void> restore(const Loaded& loaded, StepPlan& plan);

  void on(Session::Found& found);
  void on(Session::Adopted& adopted);
  void on(Session::Work& work);
  void on(Session::Interrupted& interrupted);
  void on(Session::Completed& completed);
  void on(Session::CatchUp& catch_up);
  void on(Session::End& end);

  [[nodiscard]] Leaf next_leaf();
  [[nodiscard]] bool reduce_in_group();
  void look_broken();
  void say_word();
  [[nodiscard]] bool apply(const StepPlan& plan, std::span<const float> result,
                           const std::vector<bool>& held);
  [[nodiscard]] double loss_of(std::span<const float> result) const;
  [[nodiscard]] std::size_t tail_offset() const;

  [[nodiscard]] bool ends_before(const StepPlan& plan) const;
  [[nodiscard]] bool ends_epoch(const StepPlan& plan) const;
  [[nodiscard]] StepPlan next_plan(const StepPlan& plan, int workers, int next_workers);
  [[nodiscard]] bool checkpoint_due(std::int64_t next_step) const;

  void learn(const Session::Completed& completed);
  void watch_stragglers(const Session::Completed& completed);
  void take_place(const Session::Work& work);
  [[nodiscard]] Json summary(const StepPlan& plan, std::span<const float> result, int workers);
  [[nodiscard]] bool check_epoch(const Session::Completed& completed);
  void warn(const std::string& text);
  void end(int code, const std::string& why);
  void not_finite(const Session::Completed& completed);
  void finished(const Session::Completed& completed);

  [[nodiscard]] Result<std::vector<StateChunk>> state_chunks();
  [[nodiscard]] Result<std::string> digest();
  // False: the model has failed, and the job ends.
  bool begin_checkpoint(const Record& record, const StepPlan& next);
  void checkpoint_written(const Result<std::string>& written);
  void settle();

  Model& model_;
  Options options_;
  SampleOrder order_;
  Tuning tuning_;
  Publishing publishing_;
  StragglerWatch straggling_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::future<void> copying_;
  std::deque<Leaf> warm_up_;
  bool started_ = false;
  std::optional<Computing> computing_;
  std::optional<std::chrono::steady_clock::time_point> group_failed_;
  std::vector<bool> held_;  // chunks of the state that this worker has
  std::vector<member::Uid> last_working_;
  member::Uid uid_ = 1;
  std::int64_t start_ = 0;                // of those that used the checkpoints' directory
  std::optional<CheckpointRound> round_;  // instead, in a job that spans hosts
  int world_size_ = 1;
  int rank_ = 0;
  int leaves_ = 1;  // of a full step
  bool commit_requested_ = false;
  bool finish_requested_ = false;
  std::chrono::steady_clock::time_point step_begun_;
  // The last step of this worker, from its begin to the next one.
  double busy_seconds_ = 0;
  std::chrono::steady_clock::time_point busy_until_;
  std::chrono::steady_clock::time_point last_checkpoint_;
  std::optional<End> end_;
};

// What a program says on its standard error. It never throws: if nobody reads the output any more,
// training continues.
void say_on_stderr(const std::string& text);

}  // namespace rubato::elastic
