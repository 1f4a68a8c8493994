// The commands of the `rubato` program. Each `add_` function describes commands to the parser. The
// command that the user chose sets `chosen`, which returns the exit code: for bad input 2, after
// one sentence on standard error.
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

// The report shows `command_line`, so that a reader can make the report again.
void add_simulate(CLI::App& app, Action& chosen, const std::string& command_line);
void add_generate(CLI::App& app, Action& chosen);
void add_policies(CLI::App& app, Action& chosen);
void add_contention(CLI::App& app, Action& chosen);
void add_learn(CLI::App& app, Action& chosen);
void add_graph(CLI::App& app, Action& chosen);
void add_run(CLI::App& app, Action& chosen);
// resize, join, kill and runs: they control a run that is going on. resize is for jobs, too.
void add_resize(CLI::App& app, Action& chosen);

// Hidden commands. `rubato up` starts an agent for each node, and an agent starts a master for each
// job.
void add_agent(CLI::App& app, Action& chosen);
void add_master(CLI::App& app, Action& chosen);
// Hidden, too: `rubato run --hosts` starts one on each host.
void add_share(CLI::App& app, Action& chosen);
// Hidden, too: the reference in Markdown, and the man pages, of the commands that `app` has when it
// is called.
void add_reference(CLI::App& app, Action& chosen);

// The daemon.
void add_up(CLI::App& app, Action& chosen);

// Commands that send requests to the daemon. `behind_dashes` is the number of words after "--".
void add_submit(CLI::App& app, Action& chosen, std::size_t behind_dashes);
void add_client_jobs(CLI::App& app, Action& chosen);
void add_client_cluster(CLI::App& app, Action& chosen);
void add_top(CLI::App& app, Action& chosen);
void add_page(CLI::App& app, Action& chosen);
// login and logout.
void add_login(CLI::App& app, Action& chosen);
// Completion scripts for shells, of the commands that `app` has when it is called.
void add_completion(CLI::App& app, Action& chosen);
void add_replay(CLI::App& app, Action& chosen);
void add_whatif(CLI::App& app, Action& chosen);

// The directory with the sockets of this user's runs.
[[nodiscard]] std::string run_directory();

// Reads a file with one number per line, for a policy that needs one. If the first line is not a
// number, it is the name of the column.
[[nodiscard]] Result<std::vector<double>> read_numbers(const std::string& path);

// "0.5:1.5": the time from submission to deadline, as a multiple of the job's duration.
[[nodiscard]] Result<std::pair<double, double>> parse_tightness(const char* flag,
                                                                const std::string& text);

// Checks of an option's value, with messages in plain words.
[[nodiscard]] CLI::Validator above_zero();
[[nodiscard]] CLI::Validator zero_or_more();
[[nodiscard]] CLI::Validator from_to(double least, double most);
[[nodiscard]] CLI::Validator one_of(const std::vector<std::string>& words);

// Prints "rubato: ..." to standard error and returns 2, the exit code for bad input.
int bad_input(const Error& error);

// Writes a temporary file in the same directory and renames it, so that nobody ever sees half a
// file. "-" is standard output.
[[nodiscard]] Result<void> write_file(const std::string& path, const std::string& content);

}  // namespace rubato::cmd
