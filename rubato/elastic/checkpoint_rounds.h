// The directory of checkpoints of a job that spans hosts: member/checkpoint_fence.h on files. It
// needs no locks, which network file systems may lack, and holds against a worker that was frozen
// between its last look at the directory and its write.
//
//   claim-000000000004.json        who owns the directory since: a round of a job, and its base
//   round-000000000004.2-step-000000000123-g5.1-u3.ckpt
//                                  written in claim 4, after 2 recoveries, in generation (5, 1), by
//                                  worker 3
//   round-000000000004.base-...    what the owner of claim 4 began with
//
// A claim is written aside and then linked, so it is created once and is complete. It is never
// removed. The founder of a round loads the newest checkpoint of the last claim, links it to a name
// of the next claim, and then makes this claim. Whoever writes looks for a later claim first, which
// only saves work: a file of an earlier claim counts for nobody, whenever it is written.
//
// The functions may be called from any thread and process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rubato/elastic/checkpoint_directory.h"
#include "rubato/member/checkpoint_fence.h"

namespace rubato::elastic {

// A round of one start of one job.
struct CheckpointRound {
  std::string job;         // any text that differs between jobs; only its digest is stored
  std::int64_t start = 0;  // of two rounds of a job, the higher (start, round) is the later one
  std::int64_t round = 0;
};

// For the founder: makes the round the owner of the directory, and loads what it begins with.
// nullopt: a later round of the job owns the directory.
struct ClaimedCheckpoints {
  std::int64_t claim = 0;
  std::optional<Loaded> base;
};
[[nodiscard]] Result<std::optional<ClaimedCheckpoints>> claim_checkpoints(
    const std::string& directory, const CheckpointRound& round, member::Uid uid);

// For whoever leads the round later. Besides what CheckpointContent asks for, `about` has the
// integer "recovery". Keeps the newest `keep` of the round, and then none of earlier ones. An error
// if the directory belongs to another round.
[[nodiscard]] Result<std::string> write_checkpoint(const std::string& directory,
                                                   const CheckpointRound& round, member::Uid uid,
                                                   const CheckpointContent& content,
                                                   int keep = kCheckpointsKept);

// In its name, the `round` of a checkpoint is the number of the claim.
[[nodiscard]] std::string to_text(const member::CheckpointName& name);
[[nodiscard]] std::optional<member::CheckpointName> parse_checkpoint_name(std::string_view name);
// 0: there is none.
[[nodiscard]] std::int64_t newest_claim(const std::string& directory);

}  // namespace rubato::elastic
