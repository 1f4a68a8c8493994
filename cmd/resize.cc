#include <fmt/format.h>
#include <memory>

#include "cmd/command_line.h"
#include "rubato/base/text.h"
#include "rubato/engine/run_control.h"

namespace rubato {
namespace {

struct ControlFlags {
  std::vector<std::string> words;
  bool json = false;
};

Result<Json> ask(const std::optional<std::string>& name, const Json& request) {
  const auto path = find_run(run_directory(), name);
  if (!path) return path.error();
  return ask_run(*path, request);
}

std::optional<std::string> name_in(const std::vector<std::string>& words) {
  return words.empty() ? std::nullopt : std::optional(words.front());
}

int resize(const std::optional<std::string>& name, const std::string& to) {
  const auto answer = ask(name, {{"type", "resize"}, {"to", to}});
  if (!answer) return bad_input(answer.error());
  fmt::print("{}: from {} to {} workers\n", answer->value("name", ""), answer->value("from", 0),
             answer->value("to", 0));
  return 0;
}

int kill_worker(const std::vector<std::string>& words) {
  // One word is a worker if it is a number: no run has such a name.
  std::optional<std::string> name = name_in(words);
  Json request = {{"type", "kill"}};
  const auto uid = words.empty() ? std::nullopt : parse_integer(words.back());
  if (uid) request["worker"] = *uid;
  if (uid && words.size() == 1) name.reset();
  if (words.size() == 2 && !uid) {
    return bad_input({fmt::format("{} is not the number of a worker; see rubato runs",
                                  rubato::quoted(words.back()))});
  }
  const auto answer = ask(name, request);
  if (!answer) return bad_input(answer.error());
  fmt::print("{}: worker {} killed\n", answer->value("name", ""), answer->value("worker", 0));
  return 0;
}

int list(bool json) {
  const auto runs = live_runs(run_directory());
  if (!runs) return bad_input(runs.error());
  if (json) {
    Json all = Json::array();
    for (const LiveRunInfo& run : *runs) all.push_back(run.info);
    fmt::print("{}\n", Json{{"runs", all}}.dump(2, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  if (runs->empty()) fmt::print("no run of this user lives\n");
  for (const LiveRunInfo& run : *runs) {
    const Json& info = run.info;
    const std::string step =
        info.contains("step") ? fmt::format(", step {}", info["step"].dump()) : "";
    fmt::print("{:<20} {} workers of {}:{}{}, {:.0f} s\n", info.value("name", ""),
               info.value("wanted", 0), info.value("least", 0), info.value("most", 0), step,
               info.value("seconds", 0.0));
  }
  return 0;
}

}  // namespace

void add_resize(CLI::App& app, Action& chosen) {
  auto* resize_command = app.add_subcommand(
      "resize", "Change the number of workers of a run: rubato resize [NAME] N, +K or -K.");
  auto flags = std::make_shared<ControlFlags>();
  resize_command
      ->add_option("workers", flags->words, "the run, if there are several, and the workers")
      ->type_name("[NAME] N|+K|-K")
      ->required()
      ->expected(1, 2);
  resize_command->callback([flags, &chosen] {
    chosen = [flags] {
      const auto& words = flags->words;
      return resize(words.size() == 2 ? name_in(words) : std::nullopt, words.back());
    };
  });

  auto* join = app.add_subcommand("join", "Add one worker to a run.");
  join->add_option("name", flags->words, "the run, if there are several")
      ->type_name("[NAME]")
      ->expected(0, 1);
  join->callback(
      [flags, &chosen] { chosen = [flags] { return resize(name_in(flags->words), "+1"); }; });

  auto* kill =
      app.add_subcommand("kill", "Kill one worker of a run with signal 9, to see what happens.");
  kill->add_option("worker", flags->words,
                   "the run, if there are several; the worker, else the newest")
      ->type_name("[NAME] [WORKER]")
      ->expected(0, 2);
  kill->callback([flags, &chosen] { chosen = [flags] { return kill_worker(flags->words); }; });

  auto* runs = app.add_subcommand("runs", "List this user's runs that live.");
  runs->add_flag("--json", flags->json, "one JSON object instead of text");
  runs->callback([flags, &chosen] { chosen = [flags] { return list(flags->json); }; });
}

}  // namespace rubato
