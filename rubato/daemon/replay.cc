#include "rubato/daemon/replay.h"

#include <deque>
#include <fmt/format.h>
#include <utility>

#include "rubato/journal/journal.h"

namespace rubato::daemon {
namespace {

constexpr const char* kNothing = "nothing";

class Replay {
 public:
  explicit Replay(const DaemonStateOptions& options) : state_(options) {}

  Result<void> begin(const JournalSnapshot& snapshot) {
    if (snapshot.version != DaemonState::kSnapshotVersion)
      return Error{fmt::format("the journal's snapshot has version {}", snapshot.version)};
    if (auto ok = state_.load(snapshot); !ok) return ok;
    result.after = snapshot.number;
    return state_.load_policy();
  }

  Result<void> take(RowNumber number, const JournalRow& row) {
    ++result.rows;
    if (row.type == "decided" || row.type == "undecided") return decide(number, row);
    if (row.type == "policy_state" && unasked_) {
      if (auto ok = state_.apply(number, row); !ok) return ok;
      return state_.load_policy();
    }
    unasked_ = false;
    if (row.type == "policy_state") {
      ++result.policy_states;
      compare(number, row);
      return {};
    }
    if (!expected_.empty()) {
      return differ(number, expected_.front().type, kNothing, expected_.front().body);
    }
    if (row.type == "asked") {
      if (!state_.begun()) return Error{"asks before it begins"};
      if (state_.asked()) return Error{"asks while the policy is deciding"};
      question_ = state_.ask(row.time);
      think(*question_);
    } else if (row.type == "unanswered" || row.type == "policy" || row.type == "cells") {
      question_.reset();
    } else if (row.type == "commands") {
      ++result.commands;
      const auto computed = state_.row_of_commands(row.time);
      if (!computed) return computed.error();
      const std::string text = *computed ? (*computed)->body : kNothing;
      if (text != row.body) return differ(number, row.type, row.body, text);
    }
    result.jobs += row.type == "job" ? 1 : 0;
    return state_.apply(number, row);
  }

  void finish(RowNumber last) {
    if (result.difference) return;
    if (!expected_.empty()) {
      static_cast<void>(
          differ(last.next(), expected_.front().type, kNothing, expected_.front().body));
      return;
    }
    if (!state_.begun()) return;
    const auto computed = state_.row_of_commands(state_.time());
    if (computed && *computed)
      static_cast<void>(differ(last.next(), "commands", kNothing, (*computed)->body));
  }

  Replayed result;

 private:
  Result<void> decide(RowNumber number, const JournalRow& row) {
    if (!expected_.empty())
      return differ(number, expected_.front().type, kNothing, expected_.front().body);
    if (!state_.begun()) return Error{"decides before it begins"};
    unasked_ = state_.asked() && !question_;
    if (unasked_) return state_.apply(number, row);
    ++result.decisions;
    if (!question_) {
      question_ = state_.ask(row.time);
      think(*question_);
    }
    auto rows = state_.answer(std::move(*std::exchange(question_, std::nullopt)), row.time, number);
    if (!rows) return rows.error();
    expected_.assign(rows->begin(), rows->end());
    compare(number, row);
    return {};
  }

  void compare(RowNumber number, const JournalRow& row) {
    if (expected_.empty()) {
      static_cast<void>(differ(number, row.type, row.body, kNothing));
      return;
    }
    const JournalRow computed = std::move(expected_.front());
    expected_.pop_front();
    if (computed.type != row.type || computed.version != row.version || computed.body != row.body)
      static_cast<void>(differ(number, row.type, row.body, computed.body));
  }

  // The rest would follow from other results, so replay ends here.
  Result<void> differ(RowNumber number, std::string type, std::string stored,
                      std::string computed) {
    if (!result.difference)
      result.difference = {number, std::move(type), std::move(stored), std::move(computed)};
    return Error{"differs"};
  }

  DaemonState state_;
  std::optional<Question> question_;  // with its answer, which comes by a later row
  // The last decision answers a question from before the snapshot at which replay began. It cannot
  // be repeated, so it is taken as it is, with the policy's state after it.
  bool unasked_ = false;
  std::deque<JournalRow> expected_;  // the rows that should come next
};

}  // namespace

Result<Replayed> replay(const std::filesystem::path& directory, const DaemonStateOptions& options,
                        const std::function<void(RowNumber at, RowNumber last)>& progress) {
  const auto extent = look_at_journal(directory);
  if (!extent) return extent.error();
  Replay replay(options);
  if (extent->first > RowNumber(1)) {
    if (!extent->begin) {
      return Error{
          fmt::format("row 1 is no longer there, and there is no snapshot to begin with "
                      "before row {}",
                      extent->last.value())};
    }
    if (auto ok = replay.begin(*extent->begin); !ok) return ok.error();
  }
  RowNumber last = replay.result.after;
  auto read =
      read_journal(directory, last, [&](RowNumber number, const JournalRow& row) -> Result<void> {
        last = number;
        if (progress) progress(number, extent->last);
        if (auto ok = replay.take(number, row); !ok) return ok;
        if (replay.result.difference) return Error{"differs"};
        return {};
      });
  replay.finish(last);
  if (!read && !replay.result.difference) return read.error();
  return replay.result;
}

}  // namespace rubato::daemon
