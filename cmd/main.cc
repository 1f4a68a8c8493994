#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cmd/command_line.h"
#include "rubato/api/job_verbs.h"

namespace rubato::cmd {
namespace {

// Commands that stand under one heading of `rubato --help`, and the function that adds them.
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
      {cluster, {"replay"}, add_replay},
      {here, {"run"}, add_run},
      {here, {"resize", "join", "kill", "runs"}, add_resize},
      {simulation,
       {"simulate"},
       [whole](CLI::App& app, Action& chosen) { add_simulate(app, chosen, whole); }},
      {simulation, {"generate"}, add_generate},
      {simulation, {"policies"}, add_policies},
      {"", {"agent"}, add_agent},
      {"", {"master"}, add_master},
  };
}

// In the list of commands, the first sentence says enough.
class BriefFormatter : public CLI::Formatter {
 public:
  std::string make_subcommand(const CLI::App* command) const override {
    const std::string text = command->get_description();
    const std::string first = text.substr(0, std::min(text.find(". "), text.find('\n')));
    return fmt::format("  {:<12}{}{}\n", command->get_name(), first,
                       first.ends_with('.') ? "" : ".");
  }
};

void describe(CLI::App& app) {
  app.description(
      "Rubato: an elastic scheduler for deep-learning clusters.\n"
      "\n"
      "Compare policies on a simulated cluster:\n"
      "  rubato generate --jobs 300 --cluster 8x8 --load 1.1 --out jobs.csv\n"
      "  rubato simulate --trace jobs.csv --cluster 8x8 --policy fifo,srtf,afs-l --html r.html\n"
      "\n"
      "Run a cluster on this machine, and submit a job with a deadline:\n"
      "  rubato up --cluster 2x4 --policy elasticflow &\n"
      "  rubato submit --deadline +2h --work epochs=3 --gpus 1:4 -- ./train\n"
      "  rubato top\n"
      "\n"
      "Train without a cluster, and change the number of workers meanwhile:\n"
      "  rubato run --workers 1:4 --name demo -- ./train\n"
      "  rubato resize demo 3");
  app.footer("\nrubato COMMAND --help describes a command and has examples.");
  app.formatter(std::make_shared<BriefFormatter>());
  app.get_formatter()->column_width(34);
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.set_version_flag("--version", "rubato " RUBATO_VERSION, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(1);
}

// Only the command that is asked for, because the others take longer to describe than it may take
// to run. All of them if the first word is no command.
void add_commands(CLI::App& app, Action& chosen, int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  const auto all = sections(argc, argv);
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
}

int run(int argc, char** argv) {
  CLI::App app("", "rubato");
  describe(app);
  Action chosen;
  add_commands(app, chosen, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    return bad_input({std::string(error.what()) + "; see rubato --help"});
  }
  return chosen();
}

}  // namespace
}  // namespace rubato::cmd

int main(int argc, char** argv) { return rubato::cmd::run(argc, argv); }
