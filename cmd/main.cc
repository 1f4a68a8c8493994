#include <algorithm>
#include <fmt/format.h>
#include <string_view>

#include "cmd/command_line.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Rubato: an elastic scheduler for deep-learning clusters.\n"
      "\n"
      "Try this:\n"
      "  rubato generate --jobs 300 --cluster 8x8 --load 1.1 --out jobs.csv\n"
      "  rubato simulate --trace jobs.csv --cluster 8x8 --policy fifo,srtf,afs-l --html "
      "report.html\n"
      "  rubato policies\n"
      "  rubato run --workers 1:4 --name demo -- ./train\n"
      "  rubato resize demo 3\n"
      "\n"
      "With a cluster (rubato up):\n"
      "  rubato submit --deadline +2h --work epochs=3 --gpus 1:8 -- ./train\n"
      "  rubato top",
      "rubato");
  app.set_version_flag("--version", "rubato " RUBATO_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  rubato::cmd::Action chosen;
  rubato::cmd::add_simulate(app, chosen, fmt::format("{}", fmt::join(argv, argv + argc, " ")));
  rubato::cmd::add_generate(app, chosen);
  rubato::cmd::add_policies(app, chosen);
  rubato::cmd::add_run(app, chosen);
  rubato::cmd::add_resize(app, chosen);
  rubato::cmd::add_master(app, chosen);
  rubato::cmd::add_agent(app, chosen);
  rubato::cmd::add_up(app, chosen);
  char** const dashes = std::find(argv, argv + argc, std::string_view("--"));
  rubato::cmd::add_submit(
      app, chosen, static_cast<std::size_t>(std::max<std::ptrdiff_t>(argv + argc - dashes, 1) - 1));
  rubato::cmd::add_client_jobs(app, chosen);
  rubato::cmd::add_top(app, chosen);
  rubato::cmd::add_client_cluster(app, chosen);
  rubato::cmd::add_completion(app, chosen);
  rubato::cmd::add_replay(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    return rubato::cmd::bad_input({std::string(error.what()) + "; see rubato --help"});
  }
  return chosen();
}
