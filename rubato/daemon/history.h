// What happened, for people: lines made from rows of the journal and from nothing else, so that
// those of last month read as those of today.
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

// None for most rows. `offset` is from the loop's time to the wall's. A row that cannot be read has
// no lines either: who folds it says so.
[[nodiscard]] std::vector<HistoryLine> lines_of(RowNumber number, const JournalRow& row,
                                                Duration offset);
// The same by the row's body, for those who have read it already.
[[nodiscard]] std::vector<HistoryLine> lines_of(RowNumber number, const JournalRow& row,
                                                const Json& body, Duration offset);

// "2 GPUs", "1 to 4 GPUs".
[[nodiscard]] std::string gpu_range(int least, int most);
// "once", "3 times".
[[nodiscard]] std::string times(int n);
// "0.0-3 1.2": slots as people read them.
[[nodiscard]] std::string short_slots(const Allocation& gpus);

}  // namespace rubato::daemon
