// Which checkpoint of a shared directory counts, when workers of an earlier round may still write
// to it. Safety comes from names and from readers, not from locks: a worker that was frozen after
// its last check writes in any case.
//
//   * The name of a checkpoint says who wrote it: round, recovery, generation, step and uid. No
//   name
//     is ever used again, so nobody writes over the file of another.
//   * A round claims the directory before its founder reads it. A claim is created exclusively and
//     names the checkpoint that the round begins with (its base). The base is first linked to a
//     name of the new round, because a worker of the old round may remove the old name. A founder
//     that finds the claim of a later round comes too late, and ends.
//   * A reader takes only files of the round of the highest claim, and if there is none, its base.
//   * Newer means later in (round, recovery, step). The generation does not come before the step:
//     after a recovery it can be lower than that of a leader that died.
//
// Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "rubato/member/record.h"

namespace rubato::member {

struct CheckpointName {
  std::int64_t round = 0;
  std::int64_t recovery = 0;
  Step step = 0;
  MembershipGeneration generation;
  Uid uid = 0;
  friend auto operator<=>(const CheckpointName&, const CheckpointName&) = default;
};

struct CheckpointClaim {
  std::int64_t round = 0;
  std::optional<CheckpointName> base;  // of this round; nullopt: it begins with nothing
};

// The checkpoint to resume from; nullopt: there is none, and the job begins with nothing.
[[nodiscard]] std::optional<CheckpointName> newest_checkpoint(
    const std::vector<CheckpointClaim>& claims, const std::vector<CheckpointName>& present);

// The name of this round under which the founder keeps what it resumes from.
[[nodiscard]] CheckpointName base_of_round(const CheckpointName& from, std::int64_t round, Uid uid);

// What a writer of this round may remove, so that the newest `keep` of the round stay.
[[nodiscard]] std::vector<CheckpointName> removable(std::int64_t round, std::size_t keep,
                                                    std::vector<CheckpointName> present);

}  // namespace rubato::member
