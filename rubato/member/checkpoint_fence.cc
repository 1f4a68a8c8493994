#include "rubato/member/checkpoint_fence.h"

#include <algorithm>
#include <functional>

namespace rubato::member {

std::optional<CheckpointName> newest_checkpoint(const std::vector<CheckpointClaim>& claims,
                                                const std::vector<CheckpointName>& present) {
  const CheckpointClaim* last = nullptr;
  for (const CheckpointClaim& claim : claims) {
    if (last == nullptr || claim.round > last->round) last = &claim;
  }
  if (last == nullptr) return {};
  std::optional<CheckpointName> newest = last->base;
  for (const CheckpointName& name : present) {
    if (name.round == last->round && (!newest || name > *newest)) newest = name;
  }
  return newest;
}

CheckpointName base_of_round(const CheckpointName& from, std::int64_t round, Uid uid) {
  // Before everything that the round writes, whose recoveries count from 0.
  return {round, -1, from.step, from.generation, uid};
}

std::vector<CheckpointName> removable(std::int64_t round, std::size_t keep,
                                      std::vector<CheckpointName> present) {
  std::erase_if(present, [&](const CheckpointName& name) { return name.round != round; });
  std::sort(present.begin(), present.end(), std::greater<>());
  if (present.size() <= keep) return {};
  present.erase(present.begin(), present.begin() + static_cast<std::ptrdiff_t>(keep));
  return present;
}

}  // namespace rubato::member
