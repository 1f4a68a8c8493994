// The rules of a share, which runs the workers of one host for the master of a job. Pure.
//
//   * It obeys the latest master that it has heard of, and no earlier one.
//   * It never starts a worker twice: a master that was adopted says Start again, because it cannot
//     know whether the first one arrived.
//   * It vouches for the end of a process only if it started that process, and says so again at
//   each
//     hello until a master has made it durable.
#pragma once

#include <set>
#include <utility>

#include "rubato/launch/roster.h"

namespace rubato::launch {

class ShareState {
 public:
  explicit ShareState(ShareName name) : name_(std::move(name)) {}

  // True: start the process, or kill it, now.
  [[nodiscard]] bool start(const wire::StartOrder& order);
  [[nodiscard]] bool kill(const wire::KillOrder& order);
  void kept(const wire::EndsKept& kept);
  // A process has ended, for whatever reason.
  void ended(Uid uid);

  // To say on this connection; the share counts them.
  [[nodiscard]] wire::ShareHello hello(std::int64_t connection) const;
  [[nodiscard]] std::int64_t epoch() const { return epoch_; }

 private:
  [[nodiscard]] bool obeys(std::int64_t epoch);

  ShareName name_;
  std::int64_t epoch_ = 0;
  std::set<Uid> started_;  // ever
  std::set<Uid> running_;
  std::set<Uid> ended_;  // not known to be durable
};

}  // namespace rubato::launch
