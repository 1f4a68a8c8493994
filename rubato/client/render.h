// Renders the daemon's answers for people: pure functions from JSON to text.
//
// An answer may contain anything. A field that is missing or has another type is left out. Texts go
// through for_terminal(), because names, reasons and users come from other people. Colours are the
// only control sequences in the output, and only if `colour` is set.
#pragma once

#include <string>
#include <string_view>

#include "rubato/base/json.h"
#include "rubato/jobfile/job_file.h"

namespace rubato::client::render {

struct Look {
  WallTime now{};
  Duration offset{};  // of the reader's time zone from UTC
  bool colour = false;
  int columns = 0;  // lines are cut at this width; 0: not cut
};

// Fields of an answer, safe to print. Empty if there is no field of this type.
[[nodiscard]] std::string text(const Json& json, const char* name);
[[nodiscard]] std::string count(const Json& json, const char* name);

// "PD", as in the ST column of squeue.
[[nodiscard]] std::string short_state(std::string_view state);
[[nodiscard]] bool has_ended(std::string_view state);
// "1-02:03:04", "2:03:04", "5:03": elapsed time as Slurm writes it.
[[nodiscard]] std::string elapsed(double seconds);
// "1h20m", "45s": at most two units.
[[nodiscard]] std::string rough(double seconds);
// "[####------]"
[[nodiscard]] std::string bar(double share, int columns);
// "0[0-3],1[2]": the GPUs of each node.
[[nodiscard]] std::string node_list(const Json& slots);

// Each text ends with a line break.
[[nodiscard]] std::string jobs(const Json& answer, const Look& look);
[[nodiscard]] std::string job(const Json& job, const Json& events, const Look& look);
[[nodiscard]] std::string submission(const Json& answer, const Look& look);
[[nodiscard]] std::string nodes(const Json& answer, const Look& look);
[[nodiscard]] std::string policy(const Json& answer, const Look& look);
[[nodiscard]] std::string health(const Json& answer, const Look& look);
[[nodiscard]] std::string explanation(const Json& answer, const Look& look);
[[nodiscard]] std::string history(const Json& answer, const Look& look);
[[nodiscard]] std::string users(const Json& answer, const Look& look);
[[nodiscard]] std::string cells(const Json& answer, const Look& look);
// One frame of the live view, with at most `rows` lines (0: no limit).
[[nodiscard]] std::string top(const Json& nodes, const Json& jobs, const Json& policy,
                              const Look& look, int rows);

// The same for a log: a line that shows which worker is in which slot, and a short line for each
// job.
[[nodiscard]] std::string top_lines(const Json& nodes, const Json& jobs, const Look& look);
// Equal if a log has nothing new to report: covers who holds which slot and the states of jobs, but
// no times and no progress.
[[nodiscard]] std::string top_gist(const Json& nodes, const Json& jobs);

}  // namespace rubato::client::render
