// The state on disk: the journal with its snapshots, and how a DaemonState is read back from them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "rubato/daemon/daemon_state.h"
#include "rubato/journal/journal.h"

namespace rubato::daemon {

struct StateStoreOptions {
  DaemonStateOptions state;
  // A snapshot is due after so many rows, or so long after the last one.
  std::uint64_t snapshot_rows = 50'000;
  Duration snapshot_every = std::chrono::hours(1);
  Duration keep_journal{};  // how long archived rows are kept; 0: for ever
};

class StateStore {
 public:
  StateStore(Journal journal, std::optional<JournalSnapshot> newest, StateStoreOptions options);

  // Reads the newest snapshot and the rows after it.
  [[nodiscard]] Result<std::unique_ptr<DaemonState>> load();

  // Stores all rows in one transaction, durable when it returns. On an error, stores none.
  [[nodiscard]] Result<void> append(const std::vector<JournalRow>& rows);

  // Writes a snapshot if one is due. This takes a while, so it is done in a turn in which no
  // request waits for its answer (`quiet`), unless it was put off for long.
  void snapshot_if_due(const DaemonState& state, Time now, bool quiet);
  // Writes a snapshot unless the newest one is up to date. `state` is the state after all rows.
  [[nodiscard]] Result<void> save(const DaemonState& state, Time now);

  // An error if the journal's files are no longer where they were (journal.h).
  [[nodiscard]] Result<void> check_place() { return journal_.check_place(); }
  [[nodiscard]] const Journal& journal() const { return journal_; }
  [[nodiscard]] RowNumber last() const { return journal_.last(); }

 private:
  void prune(const DaemonState& state, Time now);

  Journal journal_;
  StateStoreOptions options_;
  std::optional<JournalSnapshot> base_;  // the newest snapshot: where load() begins
  std::uint64_t rows_since_snapshot_;
  std::optional<Time> snapshot_at_;  // when the last one was tried, or when the state was loaded
};

}  // namespace rubato::daemon
