// Shared by the commands that send requests to the daemon: how to connect, how to print the answer,
// and which exit code to return.
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
  std::string ca;
  bool json = false;
};

// --state, --server, --token-file, --ca and --json.
void add_connection(CLI::App& command, ClientFlags& flags);

// `given` (--state), else RUBATO_STATE, else ~/.rubato.
[[nodiscard]] Result<std::string> state_directory(const std::string& given);
[[nodiscard]] Result<Client> connect(const ClientFlags& flags);

// Colours and width of standard output, and the present time.
[[nodiscard]] render::Look look_of_terminal();

// Prints the error to standard error and returns its exit code.
int fail(const Said& said);
// In ASCII, because texts in it come from other people and may contain escape sequences.
void print_json(const Json& json);

using Render = std::function<std::string(const Json& body, const render::Look& look)>;
// Prints the answer, as JSON or rendered, or the error. Returns the exit code.
int print(const ClientFlags& flags, const Said& said, const Render& render);

// Connects and calls `work`.
int with_client(const ClientFlags& flags, const std::function<int(const Client&)>& work);
// The same for each word. The exit code is that of the first word that failed.
int for_each_word(const ClientFlags& flags, const std::vector<std::string>& words,
                  const std::function<int(const Client&, const std::string&)>& work);

// Whether the daemon may run on another machine, where a path names another file.
[[nodiscard]] bool over_network(const ClientFlags& flags);

// The footer of a command's help. `one` is the meaning of exit code 1 for this command, if it has
// one, and `more` describes exit codes that only this command has.
[[nodiscard]] std::string with_exit_codes(const std::string& examples,
                                          const std::string& one = "job failed or refused",
                                          const std::string& more = "");

}  // namespace rubato::cmd
