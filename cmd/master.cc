// master: runs one job of the live cluster. A node's agent starts it; it is not for people.
#include "rubato/node/master.h"

#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <sys/prctl.h>
#include <unistd.h>

#include "cmd/command_line.h"

namespace rubato::cmd {
namespace {

// Starts a session, so that no signal to the group of our parent reaches us. The leader of a
// process group, as under a shell, cannot start one; its child can.
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
  command->group("");  // hidden: agents start it
  auto directory = std::make_shared<std::string>();
  command->add_option("directory", *directory, "directory of the job, with its launch.json")
      ->type_name("DIRECTORY")
      ->required();
  command->callback([directory, &chosen] { chosen = [directory] { return run(*directory); }; });
}

}  // namespace rubato::cmd
