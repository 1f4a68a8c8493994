// What the commands that speak to the daemon share: how to reach it, how to print what it said, and
// with which code to end.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cmd/command_line.h"
#include "rubato/client/client.h"
#include "rubato/client/render.h"

namespace rubato::cmd {

struct ClientFlags {
  std::string state;
  std::string server;
  std::string token_file;
  bool json = false;
};

// --state, --server, --token-file and --json.
void add_connection(CLI::App& command, ClientFlags& flags);

// From --state, RUBATO_STATE or ~/.rubato.
[[nodiscard]] Result<std::string> state_directory(const std::string& given);
[[nodiscard]] Result<Client> connect(const ClientFlags& flags);

// Of standard output: colours, width and clock.
[[nodiscard]] render::Look look_of_terminal();

// The sentence on standard error, and the code.
int fail(const Said& said);
// Never raw text of others: JSON in ASCII.
void print_json(const Json& json);

using Render = std::function<std::string(const Json& body, const render::Look& look)>;
// What was said, as JSON or rendered; or the error.
int print(const ClientFlags& flags, const Said& said, const Render& render);

// Connects and does it.
int with_client(const ClientFlags& flags, const std::function<int(const Client&)>& work);
// The same for each word; the code is that of the first that failed.
int for_each_word(const ClientFlags& flags, const std::vector<std::string>& words,
                  const std::function<int(const Client&, const std::string&)>& work);

// Whether the daemon may be on another machine, where paths mean other files.
[[nodiscard]] bool over_network(const ClientFlags& flags);

// The footer of each command's help. Exit codes are the same everywhere but for what 1 means, and
// what a command has beyond them.
[[nodiscard]] std::string with_exit_codes(const std::string& examples,
                                          const std::string& one = "job failed or refused",
                                          const std::string& more = "");

}  // namespace rubato::cmd
