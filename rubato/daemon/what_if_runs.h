// The what-ifs that a daemon runs for admins: child processes at low priority, which read the
// journal and simulate (`rubato whatif --journal`). One runs at a time. The results of the last few
// are kept in memory, as text. They end with the daemon.
//
// A child writes lines: "progress SHARE", and at last "result JSON". If it fails, its standard
// error says why.
//
// ask() may be called from any thread; the rest belongs to the thread of the poller.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "rubato/api/what_if.h"
#include "rubato/launch/process.h"
#include "rubato/wire/poller.h"

namespace rubato::daemon {

class WhatIfRuns final : public WhatIfs {
 public:
  // `directory` has the journal.
  WhatIfRuns(wire::Poller& poller, std::string directory)
      : poller_(poller), directory_(std::move(directory)) {}
  ~WhatIfRuns() override;
  WhatIfRuns(const WhatIfRuns&) = delete;
  WhatIfRuns& operator=(const WhatIfRuns&) = delete;

  void ask(WhatIfAsk ask, std::function<void(TextAnswer)> callback) override;

 private:
  struct Run {
    std::string state = "running";  // "done", "failed", "cancelled"
    double progress = 0;
    std::string error;
    std::string result;  // JSON
    std::optional<launch::Process> process;
    std::string line;  // the part of its output that is not a whole line yet
    std::string said;  // on standard error
  };

  [[nodiscard]] TextAnswer answer(const StartWhatIf& ask);
  [[nodiscard]] TextAnswer answer(const ShowWhatIf& ask) const;
  [[nodiscard]] TextAnswer answer(const StopWhatIf& ask);
  [[nodiscard]] static TextAnswer show(std::uint64_t id, const Run& run, int status);
  void watch(std::uint64_t id);
  void read_output(std::uint64_t id);
  void take_line(Run& run, std::string_view line) const;
  void end(std::uint64_t id);
  void forget_old();

  wire::Poller& poller_;
  std::string directory_;
  std::map<std::uint64_t, Run> runs_;
  std::uint64_t next_ = 1;
};

}  // namespace rubato::daemon
