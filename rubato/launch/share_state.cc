#include "rubato/launch/share_state.h"

#include <algorithm>

namespace rubato::launch {

bool ShareState::obeys(std::int64_t epoch) {
  if (epoch < epoch_) return false;
  epoch_ = epoch;
  return true;
}

bool ShareState::start(const wire::StartOrder& order) {
  if (!obeys(order.epoch) || !started_.insert(order.uid).second) return false;
  running_.insert(order.uid);
  return true;
}

bool ShareState::kill(const wire::KillOrder& order) {
  return obeys(order.epoch) && running_.contains(order.uid);
}

void ShareState::kept(const wire::EndsKept& kept) {
  if (!obeys(kept.epoch)) return;
  for (const Uid uid : kept.uids) ended_.erase(uid);
}

void ShareState::ended(Uid uid) {
  if (running_.erase(uid) > 0) ended_.insert(uid);
}

wire::ShareHello ShareState::hello(std::int64_t connection) const {
  return {connection,
          name_,
          epoch_,
          {running_.begin(), running_.end()},
          {ended_.begin(), ended_.end()}};
}

}  // namespace rubato::launch
