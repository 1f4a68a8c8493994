// How many submissions per second the core accepts, stores durably, decides and answers, with a
// given number per turn. The queue grows to 10,000 jobs meanwhile. Run it in a directory on the
// disk that you want to measure.
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/daemon/background_threads.h"
#include "rubato/daemon/core.h"

namespace rubato::bench {
namespace {

using namespace std::chrono_literals;

// Machines that never report anything.
class Silence final : public Engine {
 public:
  void carry_out(Time /*now*/, std::span<const Command> /*commands*/) override {}
  void collect(Time /*now*/, std::vector<Fact>& /*facts*/) override {}
};

constexpr int kJobs = 10'000;

// With `threads`, policies decide as in the daemon; otherwise always inside of the turn.
void take_in(benchmark::State& state, const std::string& policy, bool threads) {
  const auto in_a_turn = static_cast<int>(state.range(0));
  for (auto _ : state) {
    state.PauseTiming();
    std::string name = (std::filesystem::current_path() / "bench-core-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    JournalOptions journal;
    journal.directory = name;
    journal.types = DaemonState::row_types();
    CoreOptions options;
    options.cluster = parse_cluster("2x4").value();
    options.policy = policy;
    if (threads) options.background = std::make_shared<BackgroundThreads>(10ms, [] {});
    Silence engine;
    const WallTime wall(std::chrono::hours(500'000));
    auto core =
        std::move(Core::recover(std::move(*Journal::open(journal)), options, engine, wall).value());
    JobFile file;
    file.command = {"python", "train.py", "--model", "resnet50"};
    file.name = "resnet";
    file.work = WorkAmount{WorkUnit::samples, 1e6};
    file.gpus = {2, 2, {}};
    state.ResumeTiming();
    int next = 0;
    while (next < kJobs) {
      std::vector<Input> inputs;
      for (int i = 0; i < in_a_turn && next < kJobs; ++i, ++next) {
        inputs.emplace_back(Asked{static_cast<std::uint64_t>(next),
                                  {{"ada", false}, SubmitJob{file, std::to_string(next), false}}});
      }
      const auto at = from_seconds(0.001 * next);
      const Turn turn = core->turn(kStart + at, wall + at, std::move(inputs));
      for (const auto& [id, answer] : turn.answers) CHECK(answer.status == 201);
    }
    state.PauseTiming();
    core.reset();
    std::filesystem::remove_all(name);
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * kJobs);
}

BENCHMARK_CAPTURE(take_in, fifo_backfill, "fifo-backfill", true)
    ->Arg(16)
    ->Arg(64)
    ->Unit(benchmark::kSecond)
    ->Iterations(1)
    ->UseRealTime();
BENCHMARK_CAPTURE(take_in, fifo_backfill_in_turn, "fifo-backfill", false)
    ->Arg(16)
    ->Arg(64)
    ->Unit(benchmark::kSecond)
    ->Iterations(1)
    ->UseRealTime();
BENCHMARK_CAPTURE(take_in, afs, "afs-l", true)
    ->Arg(64)
    ->Unit(benchmark::kSecond)
    ->Iterations(1)
    ->UseRealTime();

}  // namespace
}  // namespace rubato::bench
