#include "rubato/daemon/history_query.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>

#include "rubato/daemon/views.h"

namespace rubato::daemon {
namespace {

// Calls `take` for the lines of all rows after `after`, until it has enough. If too many rows were
// read, it stops before that and returns the last row, so that other requests do not wait.
Result<std::optional<RowNumber>> each_line(const DaemonState& state, const Journal& journal,
                                           std::uint64_t most_rows, RowNumber after,
                                           const std::function<bool(const HistoryLine&)>& take) {
  std::optional<RowNumber> left_at;
  if (after.next() >= state.first_line_row()) {
    const auto& lines = state.lines();
    auto line = std::upper_bound(lines.begin(), lines.end(), after,
                                 [](RowNumber n, const HistoryLine& l) { return n < l.number; });
    while (line != lines.end() && take(*line)) ++line;
    return left_at;
  }
  const auto first = journal.first();
  if (!first) return first.error();
  after = std::max(after, RowNumber(first->value() - 1));
  bool enough = false;
  auto read = journal.read(after, [&](RowNumber number, const JournalRow& row) -> Result<void> {
    for (const HistoryLine& line : lines_of(number, row, state.offset_at(number))) {
      enough = !take(line);
      if (enough) return Error{"enough"};
    }
    if (number.value() - after.value() < most_rows) return {};
    if (number < journal.last()) left_at = number;
    enough = true;
    return Error{"enough"};
  });
  if (!read && !enough) return read.error();
  return left_at;
}

}  // namespace

Answer history_for(const Caller& caller, const History& ask, std::optional<JobId> only,
                   const DaemonState& state, const Journal& journal, std::uint64_t most_rows) {
  const auto visible = [&](const HistoryLine& line) {
    if (only && line.job != only) return false;
    if (caller.admin) return true;
    const JobRecord* job = line.job ? state.job(*line.job) : nullptr;
    if (line.job) return job != nullptr && job->user == caller.user;
    return line.type != "user" && line.type != "cells" &&
           line.type != "undecided";  // they may name other users and jobs
  };
  const auto most = static_cast<std::size_t>(std::max(ask.limit, 1));
  std::deque<Json> events;
  RowNumber last;
  bool more = false;
  Result<std::optional<RowNumber>> read = std::optional<RowNumber>();
  if (ask.after) {
    // The lines of a row stay together, so that the next page misses none.
    read =
        each_line(state, journal, most_rows, RowNumber(*ask.after), [&](const HistoryLine& line) {
          if (!visible(line)) return true;
          more = events.size() >= most && line.number != last;
          if (more) return false;
          last = line.number;
          events.push_back(show_line(line));
          return true;
        });
    if (read && *read) {  // the next page begins where this one stopped
      more = true;
      last = **read;
    }
  } else {
    // Few rows have lines that this caller sees, so it reads further and further back.
    const std::uint64_t newest = journal.last().value();
    for (std::uint64_t back = 16 * most; read; back *= 8) {
      back = std::min(back, most_rows);
      const std::uint64_t from = newest - std::min(back, newest);
      events.clear();
      read = each_line(state, journal, most_rows, RowNumber(from), [&](const HistoryLine& line) {
        if (visible(line)) events.push_back(show_line(line));
        if (events.size() > most) events.pop_front();
        return true;
      });
      if (events.size() == most || from == 0 || back == most_rows) break;
    }
  }
  const auto first = journal.first();
  if (!read || !first) return refusal(500, (read ? first.error() : read.error()).message);
  return {200,
          {{"events", events},
           {"first", first->value()},
           {"next", more ? Json(last.value()) : Json(nullptr)}}};
}

}  // namespace rubato::daemon
