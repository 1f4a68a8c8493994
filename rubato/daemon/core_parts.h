// The parts of the core. Only the core changes them. Requests and views get them const, so they can
// read everything and change nothing.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rubato/api/metrics.h"
#include "rubato/daemon/core_options.h"
#include "rubato/daemon/daemon_state.h"
#include "rubato/daemon/forecast.h"
#include "rubato/daemon/reports.h"
#include "rubato/daemon/state_store.h"
#include "rubato/daemon/timeline.h"
#include "rubato/daemon/views.h"

namespace rubato::daemon {

struct CoreParts {
  CoreOptions options;
  StateStore store;
  std::unique_ptr<DaemonState> state;  // null: it could not be read back (Core::lost)
  Reports reports;
  api::Metrics metrics;  // what is counted
  std::string trouble;   // why nothing can be stored; or empty
  Time time = kStart;    // of the present turn
  DecisionTimes took = {};
  // When jobs may start. Computed at the first request after the state has changed.
  mutable std::optional<std::map<JobId, Outlook>> outlooks = std::nullopt;

  [[nodiscard]] ViewContext view() const {
    if (!outlooks) outlooks = forecast(*state);
    return {*state, *outlooks, [this](JobId id) { return reports.of(id); }};
  }
  // The job's file as it was submitted, from disk if it is large.
  [[nodiscard]] Result<JobFile> whole_file(const JobRecord& job) const {
    if (!job.text_bytes || !job.digest) return job.file;
    if (!options.texts) return Error{"large job files are not kept here"};
    return options.texts->load(*job.digest);
  }
};

}  // namespace rubato::daemon
