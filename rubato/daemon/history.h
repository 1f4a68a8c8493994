// History for users: lines that are made only from rows of the journal, so old rows give the same
// lines as new ones.
//
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/core/ids.h"
#include "rubato/jobfile/job_file.h"
#include "rubato/journal/journal_file.h"

namespace rubato::daemon {

struct HistoryLine {
  RowNumber number;
  WallTime at{};
  std::string type;  // "submitted", "started", "resized", ...
  std::optional<JobId> job;
  std::string text;
};

// Most rows have no lines. `offset` is wall time minus loop time. A row that cannot be read has no
// lines either; the code that folds it reports it.
[[nodiscard]] std::vector<HistoryLine> lines_of(RowNumber number, const JournalRow& row,
                                                Duration offset);
// The same for a body that was parsed before.
[[nodiscard]] std::vector<HistoryLine> lines_of(RowNumber number, const JournalRow& row,
                                                const Json& body, Duration offset);

// "2 GPUs", "1 to 4 GPUs".
[[nodiscard]] std::string gpu_range(int least, int most);
// "once", "3 times".
[[nodiscard]] std::string times(int n);
// "0.0-3 1.2": slots as people read them.
[[nodiscard]] std::string short_slots(const Allocation& gpus);

}  // namespace rubato::daemon
