#include "rubato/daemon/state_store.h"

#include <fmt/format.h>
#include <utility>

namespace rubato::daemon {

StateStore::StateStore(Journal journal, std::optional<JournalSnapshot> newest,
                       StateStoreOptions options)
    : journal_(std::move(journal)),
      options_(std::move(options)),
      base_(std::move(newest)),
      rows_since_snapshot_(journal_.last().value() - (base_ ? base_->number.value() : 0)) {}

Result<std::unique_ptr<DaemonState>> StateStore::load() {
  auto state = std::make_unique<DaemonState>(options_.state);
  if (base_) {
    if (base_->version != DaemonState::kSnapshotVersion)
      return Error{fmt::format("the journal's snapshot has version {}", base_->version)};
    if (auto ok = state->load(*base_); !ok) return ok.error();
  }
  const RowNumber last = journal_.last();
  auto read = journal_.read(base_ ? base_->number : RowNumber(),
                            [&](RowNumber number, const JournalRow& row) -> Result<void> {
                              if (number > last) return {};  // of a transaction that failed
                              return state->apply(number, row);
                            });
  if (!read) return read.error();
  if (auto ok = state->load_policy(); !ok) return ok.error();
  if (!snapshot_at_) snapshot_at_ = state->time();
  return state;
}

Result<void> StateStore::append(const std::vector<JournalRow>& rows) {
  if (rows.empty()) return {};
  if (auto stored = journal_.append(rows); !stored) return stored.error();
  rows_since_snapshot_ += rows.size();
  return {};
}

void StateStore::snapshot_if_due(const DaemonState& state, Time now, bool quiet) {
  const bool rows_due = rows_since_snapshot_ >= options_.snapshot_rows;
  const bool time_due =
      rows_since_snapshot_ > 0 && now - snapshot_at_.value_or(now) >= options_.snapshot_every;
  if (!rows_due && !time_due) return;
  if (!quiet && rows_since_snapshot_ < 2 * options_.snapshot_rows) return;
  snapshot_at_ = now;
  static_cast<void>(save(state, now));  // if it fails, the next start only takes longer
}

Result<void> StateStore::save(const DaemonState& state, Time now) {
  if (rows_since_snapshot_ == 0) return {};
  auto body = state.snapshot();
  if (!body) return body.error();
  JournalSnapshot snapshot{journal_.last(), DaemonState::kSnapshotVersion, std::move(*body)};
  if (auto ok = journal_.write_snapshot(snapshot); !ok) return ok;
  base_ = std::move(snapshot);
  rows_since_snapshot_ = 0;
  if (auto ok = journal_.compact(); !ok) return ok;
  prune(state, now);
  return {};
}

// If something cannot be removed now, the next call tries again.
void StateStore::prune(const DaemonState& state, Time now) {
  if (options_.keep_journal == Duration(0)) return;
  const WallTime oldest = state.wall(now) - options_.keep_journal;
  static_cast<void>(journal_.prune([&](RowNumber number, Time at) {
    return WallTime(at.time_since_epoch() + state.offset_at(number)) < oldest;
  }));
}

}  // namespace rubato::daemon
