// The daemon's answers as people read them: pure functions from JSON to text.
//
// Whatever is in an answer may be shown: a field that is absent or of another type is left out, and
// text goes through for_terminal(), because names, reasons and users come from other people.
// Colours are the only control sequences that come out, and only where `colour` is set.
#pragma once

#include <string>
#include <string_view>

#include "rubato/base/json.h"
#include "rubato/jobfile/job_file.h"

namespace rubato::client::render {

struct Look {
  WallTime now{};
  Duration offset{};  // of the reader's clock from UTC
  bool colour = false;
  int columns = 0;  // lines are cut there; 0: not
};

// Fields of an answer, safe to print; empty where there is none of that type.
[[nodiscard]] std::string text(const Json& json, const char* name);
[[nodiscard]] std::string count(const Json& json, const char* name);

// "PD", as in the ST column of squeue.
[[nodiscard]] std::string short_state(std::string_view state);
[[nodiscard]] bool has_ended(std::string_view state);
// "1-02:03:04", "2:03:04", "5:03": elapsed time as Slurm writes it.
[[nodiscard]] std::string elapsed(double seconds);
// "1h20m", "45s": two units at most.
[[nodiscard]] std::string rough(double seconds);
// "[####------]"
[[nodiscard]] std::string bar(double share, int columns);
// "0[0-3],1[2]": the GPUs of each node.
[[nodiscard]] std::string node_list(const Json& slots);

// Each ends with a line break.
[[nodiscard]] std::string jobs(const Json& answer, const Look& look);
[[nodiscard]] std::string job(const Json& job, const Json& events, const Look& look);
[[nodiscard]] std::string submission(const Json& answer, const Look& look);
[[nodiscard]] std::string nodes(const Json& answer, const Look& look);
[[nodiscard]] std::string policy(const Json& answer, const Look& look);
[[nodiscard]] std::string health(const Json& answer, const Look& look);
[[nodiscard]] std::string explanation(const Json& answer, const Look& look);
[[nodiscard]] std::string history(const Json& answer, const Look& look);
[[nodiscard]] std::string users(const Json& answer, const Look& look);
// One frame of the live view, of at most `rows` lines (0: as many as it takes).
[[nodiscard]] std::string top(const Json& nodes, const Json& jobs, const Json& policy,
                              const Look& look, int rows);

// The same for a log: a line with who sits in which slot, and a short one for each job.
[[nodiscard]] std::string top_lines(const Json& nodes, const Json& jobs, const Look& look);
// Equal where a log has nothing new to tell: who holds what and the jobs' states, but neither times
// nor progress.
[[nodiscard]] std::string top_gist(const Json& nodes, const Json& jobs);

// Prometheus' text format as JSON: {"metrics": [{"name", "labels": {...}, "value"}]}.
[[nodiscard]] Json metrics(std::string_view text);

// The output of programs on its way to a terminal: line ends, tabs and colours pass, everything
// else that commands a terminal is spelled out. Characters may be cut anywhere between two calls.
class LogFilter {
 public:
  [[nodiscard]] std::string pass(std::string_view bytes);
  // What stands there unfinished.
  [[nodiscard]] std::string finish();

 private:
  std::string held_;
};

}  // namespace rubato::client::render
