#include <memory>
#include <sys/prctl.h>

#include "cmd/command_line.h"
#include "rubato/node/node_agent.h"

namespace rubato::cmd {
namespace {

struct AgentFlags {
  std::string state, engine;
  std::uint32_t node = 0;
};

int run(const AgentFlags& flags) {
  prctl(PR_SET_NAME, "rubato");  // it was executed by another name
  auto agent = NodeAgent::open({flags.state, NodeId(flags.node), flags.engine});
  if (!agent) return bad_input(agent.error());
  (*agent)->run();
  return 0;
}

}  // namespace

void add_agent(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("agent", "The agent of one node, started by rubato up.");
  command->group("");  // hidden: rubato up starts it
  auto flags = std::make_shared<AgentFlags>();
  command->add_option("--state", flags->state, "the daemon's state directory")->required();
  command->add_option("--node", flags->node, "the number of the node")->required();
  command->add_option("--engine", flags->engine, "where the daemon listens for agents")->required();
  command->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace rubato::cmd
