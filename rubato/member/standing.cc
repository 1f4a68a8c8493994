#include "rubato/member/standing.h"

#include <algorithm>

namespace rubato::member {

bool Standing::is_gone(Uid uid) const {
  return std::find(gone_.begin(), gone_.end(), uid) != gone_.end();
}

Standing::Verdict Standing::hear(const wire::RosterWord& word) {
  if (word.epoch < epoch_) return Verdict::refused;
  epoch_ = word.epoch;
  if (word.round != round_) return Verdict::ends;
  for (const Uid uid : word.gone) {
    if (!is_gone(uid)) gone_.push_back(uid);
  }
  if (is_gone(self_)) return Verdict::ends;
  founder_ = word.founder == self_;
  return Verdict::heard;
}

bool Standing::may_found() {
  if (!founder_ || founded_) return false;
  founded_ = true;
  return true;
}

wire::WorkerHello Standing::hello(const Membership& membership, std::int64_t connection) const {
  wire::WorkerHello hello;
  hello.connection = connection;
  hello.round = round_;
  hello.uid = self_;
  hello.epoch = epoch_;
  hello.gone = static_cast<std::int64_t>(gone_.size());
  hello.applied = membership.applied();
  if (membership.record() && membership.applied() != kNoState) {
    hello.works = membership.role() == Role::working;
    hello.generation = membership.record()->generation;
  }
  return hello;
}

}  // namespace rubato::member
