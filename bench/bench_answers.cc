// How long users wait for an answer while a policy decides: pollux with 1,000 jobs on 512 nodes of
// 8 GPUs. A request arrives every 20 ms. 18 of 20 requests read a job, the list or the nodes, one
// cancels a job, and one submits another job in its place. So the policy always has something to
// decide. A request that arrives during a turn waits for the next turn. With `threads`, policies
// decide as in the daemon. With `at_once`, they decide inside the turn. Run it in a directory on
// the disk that you want to measure.
//
//   read_p99_ms, cancel_p99_ms   from the moment somebody asks to the answer
//   turn_cpu_p99_ms              processor time of the loop's thread in a turn
//   decisions, longest_ms        of the policy
#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/daemon/background_threads.h"
#include "rubato/daemon/core.h"

namespace rubato::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kJobs = 1'000;
constexpr int kMostGpus = 64;  // per job
// The time of the loop runs faster than the clock. So pollux, which searches once a minute,
// searches again as soon as it is done.
constexpr int kFaster = 120;
constexpr auto kMeasured = std::chrono::seconds(15);
constexpr auto kBetween = std::chrono::milliseconds(20);

double milliseconds_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

// Machines that carry out every command at once.
class Obedient final : public Engine {
 public:
  void carry_out(Time /*now*/, std::span<const Command> commands) override {
    for (const Command& command : commands) {
      if (const auto* start = std::get_if<Start>(&command)) {
        held_[start->job] = start->gpus;
        facts_.emplace_back(RunningFact{start->job, start->generation});
      } else if (const auto* resize = std::get_if<Resize>(&command)) {
        Allocation left = minus(held_[resize->job], resize->gpus);
        held_[resize->job] = resize->gpus;
        if (!left.empty())
          facts_.emplace_back(
              ReleasedFact{resize->job, resize->generation, std::move(left), false});
        facts_.emplace_back(RunningFact{resize->job, resize->generation});
      } else {
        const auto& stop = std::get<Stop>(command);
        facts_.emplace_back(
            ReleasedFact{stop.job, stop.generation, std::move(held_[stop.job]), true});
        held_.erase(stop.job);
      }
    }
  }
  void collect(Time /*now*/, std::vector<Fact>& facts) override {
    for (Fact& fact : facts_) facts.push_back(std::move(fact));
    facts_.clear();
  }

 private:
  std::map<JobId, Allocation> held_;
  std::vector<Fact> facts_;
};

class Cluster512 {
 public:
  explicit Cluster512(bool threads) {
    std::string name = (std::filesystem::current_path() / "bench-answers-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    directory_ = name;
    JournalOptions journal;
    journal.directory = directory_;
    journal.types = DaemonState::row_types();
    CoreOptions options;
    options.cluster = parse_cluster("512x8").value();
    options.policy = "fifo-backfill";  // until speeds are known
    options.settle = options.measure_every = Duration(0);
    // Each search is timed in the thread in which it runs.
    background_ = std::make_shared<Timed>(threads);
    options.background = background_;
    core_ = std::move(
        Core::recover(std::move(*Journal::open(journal)), options, engine_, kWall).value());
  }
  ~Cluster512() {
    core_.reset();
    std::filesystem::remove_all(directory_);
  }
  Cluster512(const Cluster512&) = delete;
  Cluster512& operator=(const Cluster512&) = delete;

  void submit(int jobs) {
    std::vector<Input> inputs;
    for (int i = 0; i < jobs; ++i) inputs.push_back(asked(new_job()));
    turn(std::move(inputs));
  }
  // Lets the core measure jobs of the same profile, so that it knows the speed of the others: with
  // more GPUs, each of them does less.
  void measure() {
    for (int gpus = 1; gpus <= kMostGpus; gpus *= 2) {
      JobFile one = file();
      one.gpus = {gpus, gpus, {}};
      const JobId id = state().next_job();
      turn({asked(SubmitJob{one, "", false})});
      while (state().view(id)->phase != Phase::running) turn({});
      JobStatus status;
      status.job = id;
      status.generation = state().view(id)->generation;
      status.running = true;
      status.progress.workers = gpus;
      status.progress.samples = 1;
      status.progress.rate = 100 * std::pow(gpus, 0.7);
      turn({status});
      turn({asked(CancelJob{id})});
    }
    turn({asked(SwitchPolicy{"pollux"})});
    while (state().asked()) turn({});
    CHECK(state().policy().text.starts_with("pollux"));
  }
  void turn(std::vector<Input> inputs) {
    const auto at = kFaster * std::chrono::duration_cast<Duration>(Clock::now() - begun_);
    static_cast<void>(core_->turn(kStart + at, kWall + at, std::move(inputs)));
  }
  Input asked(Ask what) { return Asked{++asked_, {{"ada", true}, std::move(what)}}; }
  static Ask new_job() { return SubmitJob{file(), "", false}; }
  [[nodiscard]] const DaemonState& state() const { return core_->state(); }
  [[nodiscard]] std::vector<double> searches() { return background_->searches(); }

 private:
  static constexpr WallTime kWall{std::chrono::hours(500'000)};

  class Timed final : public Background {
   public:
    explicit Timed(bool threads)
        : inner_(threads ? std::unique_ptr<Background>(std::make_unique<BackgroundThreads>(
                               std::chrono::milliseconds(10), [] {}))
                         : std::make_unique<Foreground>()) {}
    std::unique_ptr<Task> start(Length length, std::function<void()> work) override {
      return inner_->start(length, [this, work = std::move(work)] {
        const auto begun = Clock::now();
        work();
        const std::lock_guard lock(mutex_);
        searches_.push_back(milliseconds_since(begun));
      });
    }
    std::vector<double> searches() {
      const std::lock_guard lock(mutex_);
      return searches_;
    }

   private:
    std::mutex mutex_;
    std::vector<double> searches_;
    std::unique_ptr<Background> inner_;  // last member: its threads end first
  };

  static JobFile file() {
    JobFile file;
    file.command = {"python", "train.py"};
    file.name = "resnet";
    file.work = WorkAmount{WorkUnit::samples, 1e9};
    file.profile = "resnet";
    file.gpus = {1, kMostGpus, {}};
    return file;
  }

  std::filesystem::path directory_;
  Obedient engine_;
  std::shared_ptr<Timed> background_;
  std::unique_ptr<Core> core_;
  std::uint64_t asked_ = 0;
  Clock::time_point begun_ = Clock::now();
};

double percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1,
                         static_cast<std::size_t>(part * static_cast<double>(values.size())))];
}

double thread_cpu_ms() {
  timespec used{};
  CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0);
  return 1e3 * static_cast<double>(used.tv_sec) + 1e-6 * static_cast<double>(used.tv_nsec);
}

void answer(benchmark::State& state, bool threads) {
  for (auto _ : state) {
    Cluster512 cluster(threads);
    cluster.measure();
    JobId oldest = cluster.state().next_job();
    cluster.submit(kJobs);
    std::vector<double> reads;
    std::vector<double> cancels;
    std::vector<double> cpu;
    const auto begun = Clock::now();
    int next = 0;
    const auto due = [&](int i) { return begun + i * kBetween; };
    while (due(next) < begun + kMeasured) {
      std::this_thread::sleep_until(due(next));
      std::vector<Input> inputs;
      const int first = next;
      for (const auto now = Clock::now(); due(next) <= now; ++next) {
        if (next % 20 == 0) {
          inputs.push_back(cluster.asked(CancelJob{oldest}));
          oldest = oldest.next();
        } else if (next % 20 == 10) {
          inputs.push_back(cluster.asked(Cluster512::new_job()));
        } else {
          const JobId shown(oldest.value() + static_cast<JobId::rep>(next % kJobs));
          inputs.push_back(cluster.asked(next % 20 == 5    ? Ask(ListJobs{})
                                         : next % 20 == 15 ? Ask(ShowNodes{})
                                                           : Ask(ShowJob{shown})));
        }
      }
      const double cpu_before = thread_cpu_ms();
      cluster.turn(std::move(inputs));
      cpu.push_back(thread_cpu_ms() - cpu_before);
      for (int i = first; i < next; ++i) {
        if (i % 20 == 0) {
          cancels.push_back(milliseconds_since(due(i)));
        } else if (i % 20 != 10) {
          reads.push_back(milliseconds_since(due(i)));
        }
      }
    }
    const auto searches = cluster.searches();
    state.counters["read_p50_ms"] = percentile(reads, 0.5);
    state.counters["read_p99_ms"] = percentile(reads, 0.99);
    state.counters["cancel_p99_ms"] = percentile(cancels, 0.99);
    state.counters["turn_cpu_p99_ms"] = percentile(cpu, 0.99);
    state.counters["turn_cpu_max_ms"] = percentile(cpu, 1);
    state.counters["turns"] = static_cast<double>(cpu.size());
    state.counters["decisions"] = static_cast<double>(searches.size());
    state.counters["longest_ms"] = percentile(searches, 1);
    int running = 0;
    for (const JobView& job : cluster.state().now().jobs) running += job.held.empty() ? 0 : 1;
    state.counters["running"] = running;
    state.counters["jobs"] = static_cast<double>(cluster.state().alive());
  }
}

BENCHMARK_CAPTURE(answer, threads, true)->Unit(benchmark::kSecond)->Iterations(1)->UseRealTime();
BENCHMARK_CAPTURE(answer, at_once, false)->Unit(benchmark::kSecond)->Iterations(1)->UseRealTime();

}  // namespace
}  // namespace rubato::bench
