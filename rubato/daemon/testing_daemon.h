// A daemon for tests: the real core with its journal, on the world of engine/testing_world.h. It
// can be killed and started again, its disk may be full, and time passes only when the test says
// so.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <sqlite3.h>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rubato/core/testing.h"
#include "rubato/daemon/core.h"
#include "rubato/daemon/replay.h"
#include "rubato/engine/testing_world.h"
#include "rubato/journal/testing_vfs.h"

namespace rubato::daemon {

// In memory where there is such a place: what is tested is not the disk.
class MemoryDirectory {
 public:
  MemoryDirectory() {
    const std::filesystem::path memory = "/dev/shm";
    const auto above =
        std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
    std::string name = (above / "rubato-core-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~MemoryDirectory() { std::filesystem::remove_all(path_); }
  MemoryDirectory(const MemoryDirectory&) = delete;
  MemoryDirectory& operator=(const MemoryDirectory&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline constexpr WallTime kWallStart{std::chrono::hours(24) * 20'000};
inline const Caller kAda{"ada", false};
inline const Caller kBob{"bob", false};
inline const Caller kRoot{"root", true};

// Trains so many samples on so many GPUs.
inline JobFile job_file(std::string name, double samples, int min = 1, int max = 4) {
  JobFile file;
  file.command = {"train"};
  file.name = std::move(name);
  file.work = WorkAmount{WorkUnit::samples, samples};
  file.gpus = {min, max, {}};
  return file;
}

class TestDaemon {
 public:
  explicit TestDaemon(std::string_view cluster = "2x4", std::uint64_t seed = 1)
      : world(cluster_of(cluster), seed),
        seed_(seed),
        vfs_("rubato-test-" + std::to_string(seed) + "-" +
                 std::to_string(reinterpret_cast<std::uintptr_t>(this)),  // NOLINT
             [this](std::string_view change) { return judge ? judge(change) : SQLITE_OK; }) {
    options.cluster = cluster_of(cluster);
    options.policy = "fifo-backfill";
    options.state.inputs.numbers = [](const std::string&) -> Result<std::vector<double>> {
      return Error{"there are no files here"};
    };
  }

  ~TestDaemon() { kill(); }
  TestDaemon(const TestDaemon&) = delete;
  TestDaemon& operator=(const TestDaemon&) = delete;

  CoreOptions options;
  TestWorld world;
  std::function<int(std::string_view)> judge;  // of every change of a file
  std::function<void(const Command&)> before_command;
  // Once a turn is stored and jobs were told what to do, before anybody else is told anything.
  std::function<void(const Turn&)> before_told;
  // Of jobs by name; else 10 samples a second on each GPU.
  std::map<std::string, std::function<WorkRate(int)>> speeds;
  std::map<std::string, int> crashes;
  std::set<std::string> hasty;
  // Of jobs by name that choose their batch by themselves.
  std::map<std::string, Goodput> goodputs;
  std::function<void(JobStatus&)> says;  // adds to what a job reports
  Duration clock_jump{};                 // of the wall clock

  std::vector<Fact> machine_facts;  // that the machines report in the next turn, besides their own

  std::unique_ptr<TestEngine> engine;
  std::unique_ptr<Core> core;
  std::string dropped;

  // Starts it, or says why it could not be.
  std::string up() {
    world.advance(now);
    JournalOptions journal;
    journal.directory = directory.path();
    journal.types = DaemonState::row_types();
    journal.snapshot_version = DaemonState::kSnapshotVersion;
    journal.vfs = vfs_name();
    auto opened = Journal::open(journal);
    if (!opened) return opened.error().message;
    dropped = opened->dropped;
    auto seam = std::make_unique<Seam>();
    auto recovered = Core::recover(std::move(*opened), options, *seam, wall());
    if (!recovered) return recovered.error().message;
    core = std::move(*recovered);
    Cluster believed = believed_cluster();
    engine_nodes_ = believed.nodes().size();
    engine = std::make_unique<TestEngine>(world, std::move(believed),
                                          [this](JobId id) { return launch_of(id); });
    seam->engine = engine.get();
    seam->machine_facts = &machine_facts;
    seam->before_command = [this](const Command& command) {
      if (before_command) before_command(command);
    };
    seam_ = std::move(seam);
    loop_start_ = core->time();
    up_at_ = now;
    EXPECT_TRUE(engine->open(core->told()));
    mark(core->operators_words());
    return "";
  }
  void start() { ASSERT_EQ(up(), ""); }
  void kill() {
    core.reset();
    engine.reset();
    seam_.reset();
  }
  [[nodiscard]] bool is_up() const { return core != nullptr; }

  [[nodiscard]] WallTime wall() const { return kWallStart + now.time_since_epoch() + clock_jump; }
  [[nodiscard]] Time loop_now() const { return loop_start_ + (now - up_at_); }

  // One turn with what the machines say and these.
  Turn turn(std::vector<Input> inputs = {}) {
    world.advance(now);
    for (JobStatus& report : engine->take_reports()) {
      if (says) says(report);
      inputs.emplace_back(std::move(report));
    }
    Turn turn = core->turn(loop_now(), wall(), std::move(inputs));
    if (before_told) before_told(turn);
    mark(turn.marks);
    for (const JobId id : turn.gone) engine->forget(id);
    for (auto& [id, answer] : turn.answers) answers[id] = answer;
    return turn;
  }
  // Turns while time passes.
  void pass(double for_s, double step_s = 0.5) {
    for (const Time end = now + from_seconds(for_s); now < end;) {
      now += from_seconds(step_s);
      static_cast<void>(turn());
    }
  }
  // Until it is so, or too much time has passed.
  bool pass_until(const std::function<bool()>& done, double most_s = 3600) {
    for (const Time end = now + from_seconds(most_s); now < end && !done();) pass(0.5);
    return done();
  }

  Answer ask(const Caller& caller, Ask what) {
    std::vector<Input> inputs;
    inputs.emplace_back(Asked{++asked_, {caller, std::move(what)}});
    const Turn done = turn(std::move(inputs));
    EXPECT_EQ(done.answers.size(), 1U);
    return done.answers.empty() ? Answer{0, {}} : done.answers.front().second;
  }
  Answer submit(const Caller& caller, JobFile file, std::string key = "") {
    return ask(caller, SubmitJob{std::move(file), std::move(key), false});
  }
  Json show(JobId id) { return ask(kRoot, ShowJob{id}).body; }
  std::string state(JobId id) { return show(id)["state"].get<std::string>(); }

  // Every process is on a GPU that the core counts as its job's.
  void expect_no_strays() {
    for (const auto& [id, gpus] : world.processes()) {
      const JobView* job = core->state().view(id);
      EXPECT_TRUE(job != nullptr && minus(gpus, job->held).empty())
          << "job " << id.value() << " is on GPUs that are not its own";
    }
  }

  // Everything that was decided comes out again.
  void expect_replay() {
    const auto replayed = replay(directory.path(), options.state);
    ASSERT_TRUE(replayed) << replayed.error().message;
    ASSERT_FALSE(replayed->difference)
        << "row " << replayed->difference->number.value() << " " << replayed->difference->type
        << "\nstored:   " << replayed->difference->stored
        << "\ncomputed: " << replayed->difference->computed;
  }

  MemoryDirectory directory;
  Time now = kStart;  // of the world
  std::map<std::uint64_t, Answer> answers;

 private:
  // Between the core, which is made first, and the engine, which must know what the core believes.
  struct Seam final : Engine {
    void carry_out(Time at, std::span<const Command> commands) override {
      for (const Command& command : commands) {
        before_command(command);
        engine->carry_out(at, {&command, 1});
      }
    }
    void collect(Time at, std::vector<Fact>& facts) override {
      if (engine == nullptr) return;
      engine->collect(at, facts);
      for (Fact& fact : std::exchange(*machine_facts, {})) facts.push_back(std::move(fact));
    }
    Engine* engine = nullptr;
    std::vector<Fact>* machine_facts = nullptr;
    std::function<void(const Command&)> before_command;
  };

  [[nodiscard]] std::string vfs_name() const {
    return "rubato-test-" + std::to_string(seed_) + "-" +
           std::to_string(reinterpret_cast<std::uintptr_t>(this));  // NOLINT
  }
  [[nodiscard]] Cluster believed_cluster() const {
    Cluster cluster = core->state().now().cluster;
    for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
      cluster.set_state(node_id(i), core->state().reported(node_id(i)));
    }
    return cluster;
  }
  void mark(const std::vector<NodeMark>& marks) {
    for (const NodeMark& mark : marks) {
      // A test made this node up with `machine_facts`: the engine has not seen it.
      if (mark.node.index() >= engine_nodes_) continue;
      mark.down ? engine->mark_down(mark.node) : engine->mark_up(mark.node);
    }
  }
  // When a job is first launched, the world learns how it really is.
  JobLaunch launch_of(JobId id) {
    world.set_truth(id, truth_of(id));
    JobLaunch launch = core->launch_of(id);
    launch.token = "token of job " + std::to_string(id.value());
    return launch;
  }
  ToyJob truth_of(JobId id) {
    const JobRecord* job = core->state().job(id);
    ToyJob truth;
    truth.work = job->file.work ? job->file.work->amount : 1000;
    const auto speed = speeds.find(job->name);
    truth.speed = speed != speeds.end() ? speed->second : [](int gpus) { return 10.0 * gpus; };
    if (const auto goodput = goodputs.find(job->name); goodput != goodputs.end()) {
      truth.goodput = goodput->second;
      truth.speed = [model = goodput->second](int gpus) {
        const auto tuned = model.best({1, gpus});
        return tuned ? model.time.throughput({1, gpus}, tuned->batch) : 0;
      };
    }
    const auto crash = crashes.find(job->name);
    truth.crashes = crash == crashes.end() ? 0 : crash->second;
    truth.hasty = hasty.contains(job->name);
    return truth;
  }

  std::uint64_t seed_;
  WatchedVfs vfs_;
  std::unique_ptr<Seam> seam_;
  std::size_t engine_nodes_ = 0;
  std::uint64_t asked_ = 0;
  Time loop_start_ = kStart;
  Time up_at_ = kStart;
};

}  // namespace rubato::daemon
