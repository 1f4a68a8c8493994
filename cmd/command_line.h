// The commands of the `rubato` binary. Each adds itself to the command line and returns what main
// should exit with: 0, or 2 with one sentence on standard error for bad input.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/result.h"

namespace rubato::cmd {

using Action = std::function<int()>;

// Set by the sub-command that was chosen.
// `command_line` stands in the report, so that it can be made again.
void add_simulate(CLI::App& app, Action& chosen, const std::string& command_line);
void add_generate(CLI::App& app, Action& chosen);
void add_policies(CLI::App& app, Action& chosen);
void add_run(CLI::App& app, Action& chosen);
// resize, join, kill and runs: what one does to runs that live; resize is for jobs, too.
void add_resize(CLI::App& app, Action& chosen);
void add_master(CLI::App& app, Action& chosen);

// What `rubato up` starts for each node; hidden.
void add_agent(CLI::App& app, Action& chosen);

// The daemon.
void add_up(CLI::App& app, Action& chosen);

// Those that speak to the daemon. `behind_dashes` is how many words stand behind "--".
void add_submit(CLI::App& app, Action& chosen, std::size_t behind_dashes);
void add_client_jobs(CLI::App& app, Action& chosen);
void add_client_cluster(CLI::App& app, Action& chosen);
void add_top(CLI::App& app, Action& chosen);
// Scripts for shells, from the commands that `app` has when it is asked for.
void add_completion(CLI::App& app, Action& chosen);
void add_replay(CLI::App& app, Action& chosen);

// Where the sockets of this user's runs are.
[[nodiscard]] std::string run_directory();

// A file with one number a line, which a policy needs; a first line that is a word is the column's
// name.
[[nodiscard]] Result<std::vector<double>> read_numbers(const std::string& path);

// "0.5:1.5": how much time deadlines give, as a share of the duration.
[[nodiscard]] Result<std::pair<double, double>> parse_tightness(const char* flag,
                                                                const std::string& text);

// Checks of a number whose message a person can read.
[[nodiscard]] CLI::Validator above_zero();
[[nodiscard]] CLI::Validator zero_or_more();

// Prints "rubato: ..." and gives the exit code for bad input.
int bad_input(const Error& error);

// Writes to a temporary file beside it and renames, so that nobody ever sees half a file.
// "-" is standard output.
[[nodiscard]] Result<void> write_file(const std::string& path, const std::string& content);

}  // namespace rubato::cmd
