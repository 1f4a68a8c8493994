#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/command_line.h"
#include "cmd/command_page.h"
#include "rubato/api/job_verbs.h"
#include "rubato/base/text.h"

namespace rubato::cmd {
namespace {

// Commands under one heading of `rubato --help`, and the function that describes them to the
// parser.
struct Section {
  const char* heading;
  std::vector<std::string> names;
  std::function<void(CLI::App&, Action&)> add;
};

std::vector<std::string> job_commands() {
  std::vector<std::string> names = {"ls", "status", "logs", "cancel"};
  for (const auto& verb : api::job_verbs()) names.emplace_back(verb.command);
  names.insert(names.end(), {"wait", "explain", "history"});
  return names;
}

std::vector<Section> sections(int argc, char** argv) {
  const std::string whole = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  char** const dashes = std::find(argv, argv + argc, std::string_view("--"));
  const auto behind =
      static_cast<std::size_t>(std::max<std::ptrdiff_t>(argv + argc - dashes, 1) - 1);
  const char* const jobs = "Jobs of a cluster";
  const char* const cluster = "A cluster";
  const char* const here = "Training on this machine, without a cluster";
  const char* const simulation = "Simulation";
  return {
      {jobs,
       {"submit"},
       [behind](CLI::App& app, Action& chosen) { add_submit(app, chosen, behind); }},
      {jobs, job_commands(), add_client_jobs},
      {cluster, {"up"}, add_up},
      {cluster, {"top"}, add_top},
      {cluster,
       {"nodes", "drain", "resume", "policy", "health", "metrics", "users"},
       add_client_cluster},
      {cluster, {"page"}, add_page},
      {cluster, {"login", "logout"}, add_login},
      {cluster, {"replay"}, add_replay},
      {cluster, {"whatif"}, add_whatif},
      {here, {"run"}, add_run},
      {here, {"resize", "join", "kill", "runs"}, add_resize},
      {simulation,
       {"simulate"},
       [whole](CLI::App& app, Action& chosen) { add_simulate(app, chosen, whole); }},
      {simulation, {"generate"}, add_generate},
      {simulation, {"policies"}, add_policies},
      {simulation, {"contention"}, add_contention},
      {simulation, {"learn"}, add_learn},
      {simulation, {"graph"}, add_graph},
      {"", {"agent"}, add_agent},
      {"", {"master"}, add_master},
      {"", {"share"}, add_share},
  };
}

void describe(CLI::App& app) {
  app.description(
      "Rubato: an elastic scheduler for deep-learning clusters.\n"
      "\n"
      "Compare policies on a simulated cluster:\n"
      "  rubato generate --jobs 300 --cluster 8x8 --load 1.1 --out jobs.csv\n"
      "  rubato simulate --trace jobs.csv --cluster 8x8 --policy fifo,srtf,afs-l\n"
      "\n"
      "Run a cluster on this machine, and submit a job with a deadline:\n"
      "  rubato up --cluster 2x4 --policy elasticflow &\n"
      "  rubato submit --deadline +2h --work epochs=3 --gpus 1:4 -- ./train\n"
      "  rubato top\n"
      "\n"
      "Train without a cluster, and change the number of workers while training runs:\n"
      "  rubato run --workers 1:4 --name demo -- ./train\n"
      "  rubato resize demo 3");
  app.footer("`rubato COMMAND --help` describes a command and has examples.");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", "rubato " RUBATO_VERSION, "print the version and exit");
  app.set_help_flag("-h,--help", "print this help and exit");
  app.require_subcommand(1);
}

// Describes only the command that was asked for. To describe all of them takes longer than many
// commands take to run. If the first word is not one of these commands, all are described.
void add_commands(CLI::App& app, Action& chosen, const std::vector<Section>& all,
                  const std::string& word) {
  const auto asked = std::find_if(all.begin(), all.end(), [&](const Section& section) {
    return std::count(section.names.begin(), section.names.end(), word) > 0;
  });
  const auto add = [&](const Section& section) {
    section.add(app, chosen);
    for (const auto& name : section.names) app.get_subcommand(name)->group(section.heading);
  };
  if (asked != all.end()) return add(*asked);
  for (const auto& section : all) add(section);
  add_completion(app, chosen);
  app.get_subcommand("completion")->group("Shell");
  add_reference(app, chosen);
}

Error unknown_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) names.push_back(command->get_name());  // else hidden
  }
  const auto meant = closest(word, names);
  return {fmt::format("there is no command {}{}; see rubato --help", base::quoted(word),
                      meant ? fmt::format(" (did you mean {}?)", *meant) : "")};
}

// The command whose help says what was wrong: "rubato users add".
std::string path_of(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app.get_name() : app.get_name() + " " + path_of(*chosen.front());
}

int run(int argc, char** argv) {
  CLI::App app("", "rubato");
  describe(app);
  Action chosen;
  const std::string word = argc > 1 ? argv[1] : "";
  add_commands(app, chosen, sections(argc, argv), word);
  const auto is_asked = [&](const CLI::App* command) { return command->get_name() == word; };
  if (!word.empty() && !word.starts_with('-') && app.get_subcommands(is_asked).empty())
    return bad_input(unknown_command(app, word));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    std::string what = error.what();  // "The following argument was not expected: --foo"
    if (what.starts_with("The ") || what.starts_with("A ")) what[0] += 'a' - 'A';
    return bad_input({fmt::format("{}; see {} --help", what, path_of(app))});
  }
  return chosen();
}

}  // namespace
}  // namespace rubato::cmd

int main(int argc, char** argv) { return rubato::cmd::run(argc, argv); }
