// nodes, drain, resume, policy, metrics, health and users: the commands about the cluster.
#include <fmt/format.h>
#include <unistd.h>

#include "cmd/client.h"
#include "rubato/base/unicode.h"
#include "rubato/client/log_filter.h"
#include "rubato/client/metrics_json.h"

namespace rubato::cmd {
namespace {

// --- nodes ---------------------------------------------------------------------------------------

struct NodeFlags {
  ClientFlags client;
  std::vector<std::string> nodes;
  bool down = false;
};

int tell_nodes(const NodeFlags& flags, const std::string& state) {
  return for_each_word(
      flags.client, flags.nodes, [&](const Client& client, const std::string& node) {
        const Said said = client.post("/v1/nodes/" + escape(node), {{"state", state}});
        return print(flags.client, said, [&](const Json& body, const render::Look& /*look*/) {
          const std::string now = render::text(body, "state");
          return fmt::format("node {}: {}\n", for_terminal(node), now.empty() ? state : now);
        });
      });
}

void add_nodes(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<NodeFlags>();
  auto* nodes = app.add_subcommand(
      "nodes",
      "List the nodes: their state, their GPUs, the jobs on them, and why a node cannot be used.");
  add_connection(*nodes, flags->client);
  nodes->footer(with_exit_codes("  rubato nodes\n  rubato nodes --json", ""));
  nodes->callback([flags, &chosen] {
    chosen = [flags] {
      return with_client(flags->client, [&](const Client& client) {
        return print(flags->client, client.get("/v1/nodes"), render::nodes);
      });
    };
  });

  const auto positional = [&](CLI::App& command) {
    command
        .add_option("node", flags->nodes, "number or name of a node, as `rubato nodes` lists them")
        ->type_name("NODE ...")
        ->required();
    add_connection(command, flags->client);
  };
  auto* drain = app.add_subcommand(
      "drain",
      "Stop using nodes, for example before a repair (admin). Jobs on them move to other nodes, or "
      "write a checkpoint, stop and wait.");
  positional(*drain);
  drain->add_flag(
      "--down", flags->down,
      "declare that the node and everything on it is dead: its jobs start again on other "
      "nodes. If the node is alive, jobs may run twice");
  drain->footer(
      with_exit_codes("  rubato drain 1\n  rubato drain --down 1\n  rubato resume 1", ""));
  drain->callback([flags, &chosen] {
    chosen = [flags] { return tell_nodes(*flags, flags->down ? "down" : "drain"); };
  });

  auto* resume =
      app.add_subcommand("resume", "Use nodes again that were drained or declared dead (admin).");
  positional(*resume);
  resume->footer(with_exit_codes("  rubato resume 1\n  rubato resume 0 1", ""));
  resume->callback([flags, &chosen] { chosen = [flags] { return tell_nodes(*flags, "resume"); }; });
}

// --- policy, metrics -----------------------------------------------------------------------------

struct PolicyFlags {
  ClientFlags client;
  std::string policy;
};

int show_or_switch(const PolicyFlags& flags) {
  return with_client(flags.client, [&](const Client& client) {
    if (flags.policy.empty()) return print(flags.client, client.get("/v1/policy"), render::policy);
    const HttpCall call{
        "PUT",
        "/v1/policy",
        {},
        Json{{"policy", flags.policy}}.dump(-1, ' ', false, Json::error_handler_t::replace)};
    return print(flags.client, client.ask(call), render::policy);
  });
}

void add_policy(CLI::App& app, Action& chosen) {
  auto* command =
      app.add_subcommand("policy",
                         "Show the policy and what it has promised, or switch to another one "
                         "(admin). Jobs continue to "
                         "run. The answer lists the promises that the new policy does not keep.");
  auto flags = std::make_shared<PolicyFlags>();
  command
      ->add_option("policy", flags->policy,
                   "the new policy, as `rubato policies` lists them: NAME or NAME:key=value,...")
      ->type_name("[POLICY]");
  add_connection(*command, flags->client);
  command->footer(
      with_exit_codes("  rubato policy\n  rubato policy afs-l\n"
                      "  rubato policy elasticflow:admission=off",
                      ""));
  command->callback([flags, &chosen] { chosen = [flags] { return show_or_switch(*flags); }; });
}

int show_metrics(const ClientFlags& flags) {
  return with_client(flags, [&](const Client& client) {
    const auto reply = client.http().send({"GET", "/metrics", {}, {}});
    if (!reply || !reply->good()) return fail(client.get("/metrics"));
    if (flags.json) {
      print_json(metrics_json(reply->body));
    } else if (::isatty(STDOUT_FILENO) != 0) {
      fmt::print("{}", LogFilter().pass(reply->body));
    } else {
      fmt::print("{}", reply->body);
    }
    return 0;
  });
}

void add_metrics(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("metrics",
                                     "Print the metrics of the daemon in the text format of "
                                     "Prometheus. docs/http-api.md lists them.");
  auto flags = std::make_shared<ClientFlags>();
  add_connection(*command, *flags);
  command->footer(with_exit_codes("  rubato metrics | grep rubato_jobs", ""));
  command->callback([flags, &chosen] { chosen = [flags] { return show_metrics(*flags); }; });
}

// --- health --------------------------------------------------------------------------------------

int show_health(const ClientFlags& flags) {
  return with_client(flags, [&](const Client& client) {
    Said said = client.get("/v1/health");
    // A daemon that cannot store anything says so with a list, too.
    const bool looked = said.body.is_object() && said.body.contains("problems");
    if (!looked) return said.ok() ? print(flags, said, render::health) : fail(said);
    const bool well = said.ok() && said.body["problems"].empty();
    said.exit = Exit::ok;
    print(flags, said, render::health);
    return well ? 0 : 1;
  });
}

void add_health(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "health",
      "Say what is wrong now, and what to do about it. health looks for nodes that cannot be used, "
      "a "
      "full disk, deadlines that will be missed, and jobs that fail repeatedly.");
  auto flags = std::make_shared<ClientFlags>();
  add_connection(*command, *flags);
  command->footer(with_exit_codes("  rubato health\n  rubato health --json", "something is wrong"));
  command->callback([flags, &chosen] { chosen = [flags] { return show_health(*flags); }; });
}

// --- users ---------------------------------------------------------------------------------------

struct UserFlags {
  ClientFlags client;
  std::string name;
  std::string token;
  bool admin = false;
  double weight = 1;
  std::string cells;
  std::vector<std::string> members;
  int guaranteed = 0;
};

// The token is shown only once, because the daemon stores only its hash.
int print_token(const UserFlags& flags, const Said& said) {
  if (const std::string warning = render::text(said.body, "warning"); !warning.empty())
    fmt::print(stderr, "rubato: {}: {}\n", for_terminal(flags.name), warning);
  return print(flags.client, said, [&](const Json& body, const render::Look& /*look*/) {
    if (::isatty(STDOUT_FILENO) != 0) {
      fmt::print(stderr,
                 "The token of {}. It is shown only once. Keep it in a file with mode 600.\n",
                 for_terminal(flags.name));
    }
    return render::text(body, "token") + "\n";
  });
}

int add_one_user(const UserFlags& flags) {
  return with_client(flags.client, [&](const Client& client) {
    Json user = {
        {"name", flags.name}, {"role", flags.admin ? "admin" : "user"}, {"weight", flags.weight}};
    if (flags.guaranteed > 0) user["guaranteed"] = flags.guaranteed;
    return print_token(flags, client.post("/v1/users", user));
  });
}

int remove_at(const UserFlags& flags, const std::string& target, const std::string& what) {
  return with_client(flags.client, [&](const Client& client) {
    return print(flags.client, client.ask({"DELETE", target, {}, {}}),
                 [&](const Json& /*body*/, const render::Look& /*look*/) {
                   return fmt::format("{}: removed\n", for_terminal(what));
                 });
  });
}

int change_tokens(const UserFlags& flags) {
  const std::string target = fmt::format("/v1/users/{}/tokens", escape(flags.name));
  if (!flags.token.empty()) {
    return remove_at(flags, target + "/" + escape(flags.token), "token " + flags.token);
  }
  return with_client(flags.client, [&](const Client& client) {
    return print_token(flags, client.post(target, Json()));
  });
}

int list_users(const UserFlags& flags) {
  return with_client(flags.client, [&](const Client& client) {
    return print(flags.client, client.get("/v1/users"), render::users);
  });
}

int set_cells(const UserFlags& flags) {
  return with_client(flags.client, [&](const Client& client) {
    const Json body = {{"cells", flags.cells}, {"members", flags.members}};
    return print(flags.client,
                 client.ask({"PUT", "/v1/cells/" + escape(flags.name), {}, body.dump()}),
                 [](const Json& answer, const render::Look& look) {
                   return render::cells({{"tenants", Json::array({answer})}}, look);
                 });
  });
}

int list_cells(const UserFlags& flags) {
  return with_client(flags.client, [&](const Client& client) {
    return print(flags.client, client.get("/v1/cells"), render::cells);
  });
}

void add_cells(CLI::App& users, Action& chosen) {
  auto* cells = users.add_subcommand(
      "cells",
      "Give tenants cells: whole nodes or aligned parts of nodes that are theirs whenever they "
      "need them, and are lent to others while they do not (admin; docs/cells.md).");
  cells->require_subcommand(1);
  cells->footer(
      with_exit_codes("  rubato users cells set vision 2xnode,1x4 --members ada,ben\n"
                      "  rubato users cells list\n"
                      "  rubato users cells remove vision",
                      "the cells do not fit, or there is no such tenant"));
  auto flags = std::make_shared<UserFlags>();
  const auto with_tenant = [&](CLI::App& command, const char* example, const char* one) {
    command.add_option("tenant", flags->name, "name of the tenant")->type_name("NAME")->required();
    add_connection(command, flags->client);
    command.footer(with_exit_codes(example, one));
  };
  auto* set = cells->add_subcommand(
      "set", "Set the cells of a tenant. They replace those that it has. Jobs go on.");
  with_tenant(*set, "  rubato users cells set vision 2xnode,1x4 --members ada,ben",
              "the cells do not fit beside those of others");
  set->add_option("cells", flags->cells,
                  "how many cells of which size, in GPUs or \"node\", and of which type if there "
                  "are several: 2xnode,1x4 or 2xnode:v100")
      ->type_name("CELLS")
      ->required();
  set->add_option("--members", flags->members,
                  "users of the tenant, separated by commas (default: the user with its name)")
      ->type_name("USER,...")
      ->delimiter(',');
  set->callback([flags, &chosen] { chosen = [flags] { return set_cells(*flags); }; });
  auto* list = cells->add_subcommand(
      "list", "List the tenants with their cells, and how many GPUs of them are used and lent.");
  add_connection(*list, flags->client);
  list->footer(with_exit_codes("  rubato users cells list", ""));
  list->callback([flags, &chosen] { chosen = [flags] { return list_cells(*flags); }; });
  auto* remove = cells->add_subcommand(
      "remove", "Remove the cells of a tenant. Its jobs go on, as those of users without cells.");
  with_tenant(*remove, "  rubato users cells remove vision", "there is no such tenant");
  remove->callback([flags, &chosen] {
    chosen = [flags] { return remove_at(*flags, "/v1/cells/" + escape(flags->name), flags->name); };
  });
}

void add_users(CLI::App& app, Action& chosen) {
  auto* users = app.add_subcommand(
      "users",
      "Manage the users who may reach the daemon over TCP, and their tokens (admin). On the unix "
      "socket, the kernel says who the user is, and nobody needs a token.");
  users->require_subcommand(1);
  users->footer(
      with_exit_codes("  rubato users add ada --weight 2 > ada.token\n"
                      "  rubato users list\n"
                      "  rubato users token ada\n"
                      "  rubato users token ada --revoke 1f0c9a52b7de\n"
                      "  rubato users remove ada\n"
                      "  rubato users cells set vision 2xnode --members ada,ben",
                      "there is such a user already"));
  auto flags = std::make_shared<UserFlags>();
  const auto with_name = [&](CLI::App& command, const char* example, const char* one = "") {
    command.add_option("name", flags->name, "name of the user")->type_name("NAME")->required();
    add_connection(command, flags->client);
    command.footer(with_exit_codes(example, one));
  };
  auto* add = users->add_subcommand("add",
                                    "Add a user and print their first token. To submit jobs, the "
                                    "user needs an account of the same "
                                    "name on the daemon's machine.");
  with_name(*add, "  rubato users add ada --weight 2 > ada.token", "there is such a user already");
  add->add_flag("--admin", flags->admin, "the user sees and changes everything");
  add->add_option("--weight", flags->weight, "the largest weight that the user's jobs may have")
      ->type_name("NUMBER")
      ->check(above_zero())
      ->capture_default_str();
  add->add_option("--guaranteed", flags->guaranteed,
                  "how many GPUs the user's guaranteed jobs may have together under the policy "
                  "antman (default: no limit)")
      ->type_name("GPUS")
      ->check(from_to(1, 1 << 20U));
  add->callback([flags, &chosen] { chosen = [flags] { return add_one_user(*flags); }; });

  auto* list = users->add_subcommand(
      "list", "List the users, their roles and weights, and the names of their tokens.");
  add_connection(*list, flags->client);
  list->footer(with_exit_codes("  rubato users list", ""));
  list->callback([flags, &chosen] { chosen = [flags] { return list_users(*flags); }; });

  auto* token = users->add_subcommand("token", "Print a new token for a user, or revoke one.");
  with_name(*token, "  rubato users token ada\n  rubato users token ada --revoke 1f0c9a52b7de");
  token
      ->add_option("--revoke", flags->token,
                   "revoke the token with this name, as `rubato users list` shows it")
      ->type_name("TOKEN");
  token->callback([flags, &chosen] { chosen = [flags] { return change_tokens(*flags); }; });

  auto* remove = users->add_subcommand(
      "remove", "Remove a user with all their tokens. Their jobs continue to run.");
  with_name(*remove, "  rubato users remove ada");
  remove->callback([flags, &chosen] {
    chosen = [flags] { return remove_at(*flags, "/v1/users/" + escape(flags->name), flags->name); };
  });
  add_cells(*users, chosen);
}

}  // namespace

void add_client_cluster(CLI::App& app, Action& chosen) {
  add_nodes(app, chosen);
  add_policy(app, chosen);
  add_metrics(app, chosen);
  add_health(app, chosen);
  add_users(app, chosen);
}

}  // namespace rubato::cmd
