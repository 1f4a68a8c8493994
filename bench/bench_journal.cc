// How many rows per second the journal stores durably, by the number of rows per transaction, and
// what it costs to open the journal again. The result depends on the disk: the state directory is
// created below the current directory.
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/journal/journal.h"

namespace rubato::bench {
namespace {

// A submitted job, about as `rubato submit` sends it.
std::string typical_body() {
  return R"({"job":12345,"spec":{"adaptive_batch":false,"batch":0,"deadline":86400000000,)"
         R"("limits":{"allowed":[],"max":16,"min":1},"model":"resnet50","name":"imagenet-64",)"
         R"("preemptible":true,"requested":4,"restart_cost":30000000,"user":"ann","weight":1.0},)"
         R"("speed":{"kind":"curve","network":0.25,"points":[[1,1.0],[2,1.9],[4,3.5],[8,6.1]]},)"
         R"("work":90000.0})";
}

class StateDirectory {
 public:
  StateDirectory() {
    std::string name = (std::filesystem::current_path() / "bench-journal-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    options_.directory = name;
    options_.types = {{"submitted", 1}};
  }
  ~StateDirectory() { std::filesystem::remove_all(options_.directory); }
  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;

  [[nodiscard]] const JournalOptions& options() const { return options_; }

 private:
  JournalOptions options_;
};

void append_rows(benchmark::State& state) {
  const StateDirectory directory;
  auto opened = Journal::open(directory.options());
  CHECK(opened.ok());
  const std::vector<JournalRow> rows(static_cast<std::size_t>(state.range(0)),
                                     {time_at(1), "submitted", 1, typical_body()});
  for (auto _ : state) CHECK(opened->journal.append(rows).ok());
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(append_rows)->Arg(1)->Arg(10)->Arg(100)->Arg(500)->UseRealTime();

// Verifies the structure of the file and the chain of all rows.
void open_journal(benchmark::State& state) {
  const StateDirectory directory;
  const auto many = state.range(0);
  {
    auto opened = Journal::open(directory.options());
    CHECK(opened.ok());
    const std::vector<JournalRow> rows(1000, {time_at(1), "submitted", 1, typical_body()});
    for (std::int64_t stored = 0; stored < many; stored += 1000)
      CHECK(opened->journal.append(rows).ok());
  }
  for (auto _ : state) CHECK(Journal::open(directory.options()).ok());
  state.SetItemsProcessed(state.iterations() * many);
}
BENCHMARK(open_journal)->Arg(10'000)->Arg(100'000)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rubato::bench
