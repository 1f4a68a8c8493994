#include "rubato/http/connection_shares.h"

#include <algorithm>
#include <utility>

#include "rubato/base/check.h"

namespace rubato::http {

std::size_t ConnectionShares::count_of(const std::string& owner) const {
  const auto group = groups_.find(owner);
  return group == groups_.end() ? 0 : group->second.count;
}

bool ConnectionShares::crowded(const std::string& owner) const {
  return owner.empty() && count_of(owner) >= most_unidentified_;
}

// The connection that a new connection of this owner may replace, when there is no room.
std::optional<ConnectionShares::Id> ConnectionShares::whose_place(const std::string& owner) const {
  const auto largest = std::max_element(
      groups_.begin(), groups_.end(),
      [](const auto& a, const auto& b) { return a.second.count < b.second.count; });
  const bool others_have_more =
      !crowded(owner) && largest != groups_.end() && largest->second.count > count_of(owner) + 1;
  // A caller without an identity may be anybody, so it has no right to keep a place.
  if (!others_have_more && !owner.empty()) return std::nullopt;
  const auto group = others_have_more ? largest : groups_.find(owner);
  if (group == groups_.end() || group->second.idle.empty()) return std::nullopt;
  return group->second.idle.begin()->second;
}

ConnectionShares::Verdict ConnectionShares::enter(Id id, const std::string& owner) {
  Verdict verdict;
  if (count() >= most_ || crowded(owner)) {
    verdict.evicted = whose_place(owner);
    if (!verdict.evicted) return verdict;
    leave(*verdict.evicted);
  }
  verdict.admitted = true;
  connections_[id].owner = owner;
  ++groups_[owner].count;
  set_idle(id);
  return verdict;
}

void ConnectionShares::identify(Id id, const std::string& owner) {
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.owner == owner) return;
  const bool busy = found->second.idle_since == 0;
  leave(id);
  connections_[id].owner = owner;
  ++groups_[owner].count;
  if (!busy) set_idle(id);
}

void ConnectionShares::set_busy(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  groups_[found->second.owner].idle.erase(std::exchange(found->second.idle_since, 0));
}

void ConnectionShares::set_idle(Id id) {
  set_busy(id);
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  found->second.idle_since = ++next_;
  groups_[found->second.owner].idle.emplace(found->second.idle_since, id);
}

void ConnectionShares::leave(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const auto group = groups_.find(found->second.owner);
  CHECK(group != groups_.end());
  group->second.idle.erase(found->second.idle_since);
  if (--group->second.count == 0) groups_.erase(group);
  connections_.erase(found);
}

}  // namespace rubato::http
