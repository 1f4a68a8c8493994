// The master of one job of the live cluster; started by the node agent, not by people.
#include "rubato/node/master.h"

#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <sys/prctl.h>
#include <unistd.h>

#include "cmd/command_line.h"

namespace rubato::cmd {
namespace {

// So that no signal of the one who started us reaches us. One that leads a group, as under a shell,
// must leave it to a child.
void lead_session() {
  if (getsid(0) == getpid() || setsid() >= 0) return;
  if (fork() != 0) _exit(0);
  setsid();
}

int run(const std::string& directory) {
  lead_session();
  prctl(PR_SET_NAME, "rubato");  // it was executed by another name
  auto master = Master::open(std::filesystem::absolute(directory).lexically_normal().string(),
                             own_environment(), gpus_of_this_machine());
  return master ? (*master)->run() : bad_input(master.error());
}

}  // namespace

void add_master(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("master", "Run the job of a directory; for the node agent.");
  command->group("");  // not shown
  auto directory = std::make_shared<std::string>();
  command->add_option("directory", *directory, "of the job, with its launch.json")
      ->type_name("DIRECTORY")
      ->required();
  command->callback([directory, &chosen] { chosen = [directory] { return run(*directory); }; });
}

}  // namespace rubato::cmd
