// The real EngineTable and the real NodeJobs of three nodes in the world of testing_world.h, under
// a scheduler that starts, resizes and stops jobs at random on GPUs that the facts have set free.
// Messages are late, doubled or lost; connections break; nodes fall silent or sick; agents, masters
// and the daemon are killed; nodes are declared dead by the operator, rightly or wrongly.
//
// What must hold at every step: a process is only on GPUs that the scheduler counts as its job's,
// so no GPU is ever used by two jobs; no job runs twice at a time; no finished job is started. When
// the faults end, every command is answered. A seed that fails is printed. RUBATO_SEED=n runs it
// alone, RUBATO_SEEDS=n runs that many.
#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/base/text.h"
#include "rubato/core/testing.h"
#include "rubato/engine/testing_world.h"

namespace rubato::engine {
namespace {

constexpr std::size_t kNodes = 3;
constexpr std::size_t kGpus = 3;
constexpr std::size_t kJobs = 8;

class RandomScheduler {
 public:
  explicit RandomScheduler(std::uint64_t seed)
      : random_(seed),
        world_(cluster(), Random(seed).split(1).next()),
        nodes_(kNodes),
        jobs_(kJobs) {
    world_.pace = {from_seconds(0.2), from_seconds(0.5), from_seconds(0.3)};
    world_.faults = {0, random_.uniform(0, 0.2), random_.uniform(0, 0.2),
                     from_seconds(random_.uniform(0, 0.4))};
    for (std::size_t i = 0; i < kJobs; ++i) {
      ToyJob job;
      // Half of the jobs never finish: to finish would answer a command that was lost.
      job.work = i % 2 == 0 ? random_.exponential(15) : 1e9;
      job.speed = [](int /*gpus*/) { return 1.0; };
      world_.set_truth(job_id(i), job);
    }
    new_engine();
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      faults();
      step();
    }
  }

  // For a while nothing breaks and nothing is commanded: every command must be answered, and every
  // node be up. Messages are still late and doubled.
  void rest() {
    quiet_ = true;
    world_.sick.clear();
    for (std::size_t i = 0; i < kNodes; ++i) {
      world_.end_silence(node_id(i));
      if (nodes_[i].down) mark_up(i);
    }
    wait_for_answers("a command is never answered, or a node never comes back");
    quiet_ = false;
  }

  void stop_all() {
    rest();
    quiet_ = true;
    for (std::size_t i = 0; i < kJobs; ++i) {
      if (jobs_[i].on_gpus) issue(Stop{job_id(i), next_generation(i)});
    }
    wait_for_answers("a stop is never answered");
    for (const Job& job : jobs_) {
      if (!job.held.empty()) fail("GPUs are lost");
    }
    if (!world_.processes().empty()) fail("processes are left");
  }

  int finishes = 0, crashes = 0, downs = 0, failures = 0, sick_starts = 0;
  [[nodiscard]] int starts() const { return world_.starts; }

 private:
  // What the scheduler knows is the fold of the facts. This is its journal.
  struct Job {
    Generation generation{0};
    std::optional<Command> last;
    NodeId home;
    Allocation held;
    bool on_gpus = false;
    bool waits = false;       // for the answer to `last`
    bool letting_go = false;  // of some GPUs
    bool finished = false;
  };
  struct Node {
    NodeState state = NodeState::up;  // by the facts
    bool down = false;                // by the operator
    Time loud_at;                     // its silence ends then
  };

  static Cluster cluster() { return cluster_of(fmt::format("{}x{}", kNodes, kGpus)); }

  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error(why + "\n" + to_text());
  }
  [[nodiscard]] std::string to_text() const {
    std::string text = fmt::format("at {:.2f} s\n", seconds(now_));
    for (std::size_t i = 0; i < kNodes; ++i) {
      text += fmt::format("node {}: state {}{}\n", i, static_cast<int>(nodes_[i].state),
                          nodes_[i].down ? ", declared dead" : "");
    }
    for (std::size_t i = 0; i < kJobs; ++i) {
      const Job& job = jobs_[i];
      text += fmt::format("job {}: told {} of kind {}, home {}, held {}{}{}\n", i,
                          job.generation.value(), job.last ? job.last->index() : 9,
                          job.home.value(), job.held.gpus(), job.waits ? ", waits" : "",
                          job.finished ? ", finished" : "");
    }
    return text;
  }
  bool chance(double p) { return random_.uniform() < p; }
  Job& job_of(JobId id) { return jobs_[id.index()]; }

  void check() const {
    if (!world_.violations.empty()) fail(world_.violations.front());
    for (const auto& [id, gpus] : world_.processes()) {
      if (!minus(gpus, jobs_[id.index()].held).empty())
        fail(fmt::format("job {} is on GPUs that are not its own", id.value()));
    }
  }

  [[nodiscard]] bool restless() const {
    return std::any_of(jobs_.begin(), jobs_.end(), [](const Job& job) { return job.waits; }) ||
           std::any_of(nodes_.begin(), nodes_.end(),
                       [](const Node& node) { return node.state != NodeState::up; });
  }
  void wait_for_answers(const std::string& otherwise) {
    for (int i = 0; restless(); ++i) {
      if (i > 20'000) fail(otherwise);
      step();
    }
  }

  // --- the daemon ---

  void new_engine() {
    Cluster believed = cluster();
    for (std::size_t i = 0; i < kNodes; ++i) believed.set_state(node_id(i), nodes_[i].state);
    std::vector<KnownJob> known;
    for (std::size_t i = 0; i < kJobs; ++i) {
      const Job& job = jobs_[i];
      if (job.on_gpus) known.push_back({job_id(i), job.home, *job.last, job.held});
    }
    engine_ = std::make_unique<TestEngine>(world_, believed, [](JobId) { return JobLaunch(); });
    if (!engine_->open(known)) fail("the engine does not open");
    // The daemon has stored the operator's words and says them again.
    for (std::size_t i = 0; i < kNodes; ++i) {
      nodes_[i].down ? engine_->mark_down(node_id(i)) : engine_->mark_up(node_id(i));
    }
  }
  void crash() {
    ++crashes;
    engine_.reset();
  }

  [[nodiscard]] Generation next_generation(std::size_t i) const {
    return jobs_[i].generation.next();
  }
  // Stored, then told: the daemon may die in between.
  void issue(const Command& command) {
    const JobId id = std::visit([](const auto& c) { return c.job; }, command);
    Job& job = job_of(id);
    job.generation = std::visit([](const auto& c) { return c.generation; }, command);
    job.last = command;
    job.waits = true;
    job.letting_go = std::holds_alternative<Stop>(command);
    if (const auto* start = std::get_if<Start>(&command)) {
      job.home = start->gpus.slices().front().node;
      job.on_gpus = true;
      job.held = start->gpus;
    } else if (const auto* resize = std::get_if<Resize>(&command)) {
      job.letting_go = !minus(job.held, resize->gpus).empty();
      job.held.add(minus(resize->gpus, job.held));
    }
    if (!quiet_ && chance(0.02)) crash();
    if (engine_) engine_->carry_out(now_, {&command, 1});
  }

  void fold_facts() {
    std::vector<Fact> facts;
    engine_->collect(now_, facts);
    for (const Fact& fact : facts) {
      if (!quiet_ && chance(0.005)) return crash();  // before it is stored
      std::visit([&](const auto& f) { fold(f); }, fact);
    }
  }
  void fold(const NodeChanged& fact) { nodes_[fact.node.index()].state = fact.state; }
  void fold(const NodeAdded& /*fact*/) { fail("no node can join"); }
  void fold(const Reserved& /*fact*/) { fail("nobody else is there"); }
  void fold(const QuotaFact& /*fact*/) { fail("nobody has limits"); }
  void fold(const RunningFact& fact) {
    Job& job = job_of(fact.job);
    if (fact.generation != job.generation) return;
    if (!job.on_gpus) fail("it runs without GPUs");
    if (job.letting_go) fail("it runs before it has let go");
    job.waits = false;
  }
  void fold(const ReleasedFact& fact) {
    Job& job = job_of(fact.job);
    if (fact.generation != job.generation) return;
    if (fact.stopped) return idle(job);
    if (!minus(fact.gpus, job.held).empty()) fail("it lets go what it does not have");
    job.held.remove(fact.gpus);
    const auto* resize = std::get_if<Resize>(&*job.last);
    job.letting_go = resize != nullptr && !minus(job.held, resize->gpus).empty();
  }
  void fold(const FailedFact& fact) {
    if (fact.generation != job_of(fact.job).generation) return;
    ++failures;
    if (fact.why == "its disk is full") {
      ++sick_starts;
      if (!fact.infrastructure) fail("it is blamed for a sick node");
    }
    idle(job_of(fact.job));
  }
  void fold(const Finished& fact) {
    Job& job = job_of(fact.job);
    if (!world_.finished(fact.job)) fail("it has not finished");
    if (job.finished) return;
    ++finishes;
    idle(job);
    job.finished = true;
    engine_->forget(fact.job);
  }
  static void idle(Job& job) {
    job.held = Allocation();
    job.on_gpus = job.waits = job.letting_go = false;
  }

  Allocation free_gpus() {
    Allocation free;
    for (std::size_t i = 0; i < kNodes; ++i) {
      if (nodes_[i].state == NodeState::up) free.add({node_id(i), (1U << kGpus) - 1});
    }
    for (const Job& job : jobs_) free.remove(common(free, job.held));
    return free;
  }
  Allocation some_of(const Allocation& gpus, double share) {
    Allocation some;
    for (const Slice& slice : gpus.slices()) {
      std::uint64_t mask = 0;
      for (unsigned bit = 0; bit < kGpus; ++bit) {
        if ((slice.mask >> bit & 1U) != 0 && chance(share)) mask |= std::uint64_t{1} << bit;
      }
      if (mask != 0) some.add({slice.node, mask});
    }
    return some;
  }

  void schedule() {
    if (quiet_ || !engine_ || !chance(0.2)) return;
    const std::size_t i = random_.below(kJobs);
    Job& job = jobs_[i];
    if (job.finished) return;
    if (!job.on_gpus) {
      const Allocation gpus = some_of(free_gpus(), 0.5);
      if (!gpus.empty()) issue(Start{job_id(i), next_generation(i), gpus});
    } else if (job.letting_go) {
      return;
    } else if (chance(0.2)) {
      issue(Stop{job_id(i), next_generation(i)});
    } else if (chance(0.5)) {
      const Allocation gpus = some_of(job.held, 0.6);
      if (!gpus.empty()) issue(Resize{job_id(i), next_generation(i), gpus});
    } else {
      Allocation gpus = job.held;
      gpus.add(some_of(free_gpus(), 0.4));
      issue(Resize{job_id(i), next_generation(i), gpus});
    }
  }

  // --- faults ---

  void mark_up(std::size_t i) {
    nodes_[i].down = false;
    if (engine_) engine_->mark_up(node_id(i));
  }

  void faults() {
    const std::size_t i = random_.below(kNodes);
    const NodeId id = node_id(i);
    Node& node = nodes_[i];
    if (chance(0.004)) world_.kill_agent(id);
    if (chance(0.004)) {
      world_.silence(id);
      node.loud_at = now_ + from_seconds(random_.uniform(0, 12));
    }
    if (chance(0.004)) world_.cut(id);
    if (chance(0.003)) world_.kill_master(job_id(random_.below(kJobs)));
    if (chance(0.003)) world_.cut_master(job_id(random_.below(kJobs)));
    if (world_.sick.contains(id)) {
      if (chance(0.02)) world_.sick.erase(id);
    } else if (chance(0.004)) {
      world_.sick.insert(id);
    }
    if (engine_ && chance(0.002)) crash();
    if (!engine_) return;
    if (!node.down && chance(0.001)) {
      ++downs;
      node.down = true;
      if (chance(0.5)) world_.kill_agent(id);
      engine_->mark_down(id);
    } else if (node.down && chance(0.02)) {
      mark_up(i);
    }
  }

  void step() {
    now_ += from_seconds(0.05);
    for (std::size_t i = 0; i < kNodes; ++i) {
      if (now_ >= nodes_[i].loud_at) world_.end_silence(node_id(i));
    }
    world_.advance(now_);
    check();
    if (engine_) {
      fold_facts();
    } else if (chance(0.05)) {
      new_engine();
    }
    schedule();
  }

  Random random_;
  TestWorld world_;
  Time now_ = kStart;
  std::vector<Node> nodes_;
  std::vector<Job> jobs_;
  std::unique_ptr<TestEngine> engine_;
  bool quiet_ = false;
};

TEST(LiveWorld, NothingIsGrantedTwiceAndEveryCommandIsAnswered) {
  const auto only = only_seed();
  const auto first = only.value_or(0);
  const auto count = only ? 1 : seeds(300);
  int starts = 0, finishes = 0, crashes = 0, downs = 0, failures = 0, sick_starts = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    RandomScheduler scheduler(seed);
    try {
      for (int round = 0; round < 5; ++round) {
        scheduler.run(400);
        scheduler.rest();
      }
      scheduler.stop_all();
    } catch (const std::runtime_error& error) {
      FAIL() << "seed " << seed << ": " << error.what();
    }
    starts += scheduler.starts();
    finishes += scheduler.finishes;
    crashes += scheduler.crashes;
    downs += scheduler.downs;
    failures += scheduler.failures;
    sick_starts += scheduler.sick_starts;
  }
  if (only) return;
  const auto scenes = static_cast<int>(count);
  // It has been through what it is there for.
  EXPECT_GT(starts, scenes * 5);
  EXPECT_GT(finishes, scenes);
  EXPECT_GT(crashes, scenes);
  EXPECT_GT(failures, scenes);
  EXPECT_GT(downs, scenes / 2);
  EXPECT_GT(sick_starts, scenes / 2);
}

}  // namespace
}  // namespace rubato::engine
