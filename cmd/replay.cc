#include "rubato/daemon/replay.h"

#include <fmt/format.h>
#include <memory>
#include <optional>

#include "cmd/command_line.h"
#include "cmd/progress_bar.h"

namespace rubato::cmd {
namespace {

int run_replay(const std::string& directory) {
  DaemonStateOptions options;
  options.inputs.numbers = read_numbers;
  const auto replayed = [&] {
    std::optional<ProgressBar> bar;
    return replay(directory, options, [&](RowNumber at, RowNumber last) {
      if (!bar) bar.emplace("replaying", last.value());
      bar->done() = at.value();
    });
  }();
  if (!replayed) return bad_input(replayed.error());
  if (replayed->after != RowNumber()) {
    fmt::print("rows up to {} are no longer kept; the replay begins with the snapshot after them\n",
               replayed->after.value());
  }
  fmt::print("{} rows, {} jobs, {} decisions, {} states of the policy, {} rows of commands\n",
             replayed->rows, replayed->jobs, replayed->decisions, replayed->policy_states,
             replayed->commands);
  if (!replayed->difference) {
    fmt::print("all reproduced byte for byte\n");
    return 0;
  }
  const auto& [number, type, stored, computed] = *replayed->difference;
  fmt::print("row {} ({}) differs\nstored:   {}\ncomputed: {}\n", number.value(), type, stored,
             computed);
  return 1;
}

}  // namespace

void add_replay(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "replay",
      "Take every decision of a daemon's journal again, and compare it with the recorded one. The "
      "policy sees the same events at the same times, so it must decide the same, byte for byte. "
      "replay only reads: the daemon may be running.");
  auto directory = std::make_shared<std::string>();
  command->add_option("directory", *directory, "state directory of the daemon")
      ->type_name("DIR")
      ->required();
  command->footer(
      "Examples:\n"
      "  rubato replay ~/.rubato\n"
      "  rubato replay /backup/rubato-2026-11-16\n"
      "\n"
      "Exit code: 0 all decisions are the same, 1 one differs, 2 the journal cannot be read.");
  command->callback(
      [directory, &chosen] { chosen = [directory] { return run_replay(*directory); }; });
}

}  // namespace rubato::cmd
