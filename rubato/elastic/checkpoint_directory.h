// The directory of a job's checkpoints: what the job restarts from when all its workers are gone.
//
// A checkpoint DIR/step-000000000123.ckpt appears under its name only when complete and durable:
// written to a temporary file, fsync, rename, fsync of the directory; only then are older ones
// removed. A full disk, a kill at any moment or a flipped bit costs at most the newest
// checkpoint.
//
// A writer of an older generation than the newest checkpoint is refused: it belongs to a part of
// the job that was given up and would overwrite history. Whoever resumes from a checkpoint must
// therefore take a generation that is not older than the checkpoint's own.
//
// The start counts the owners of the directory. Each start of a job claims the directory before it
// reads, and so does another job. From then on a worker of the previous owner can write nothing
// there, even before the new owner has written anything: for example one that was stopped for an
// hour and wakes up.
//
// DIR/.lock says who has claimed the directory. A writer locks it (flock) while it makes a
// temporary file, and again from the check of the generation to the end. Each temporary file is
// locked by its writer, so one that can be locked was left behind by a process that died.
//
// The functions may be called from any thread and process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rubato/elastic/checkpoint_format.h"

namespace rubato::elastic {

constexpr int kCheckpointsKept = 2;

// Writes durably, keeps the newest `keep` (>= 1) and returns the path. Makes the directory if it is
// missing. On an error earlier checkpoints are as they were.
[[nodiscard]] Result<std::string> write_checkpoint(const std::string& directory,
                                                   const CheckpointContent& content,
                                                   int keep = kCheckpointsKept);

// Who writes to a directory: one start of one job.
struct CheckpointOwner {
  std::string job;         // whatever tells jobs apart; only a digest of it is stored
  std::int64_t start = 0;  // of two owners with one job, the higher is the later
};
// The directory is the owner's from now on; makes it if it is missing. Gives the start to write
// with, the same for all who claim for the same owner. nullopt: a later start of the job has it.
[[nodiscard]] Result<std::optional<std::int64_t>> claim_checkpoints(const std::string& directory,
                                                                    const CheckpointOwner& owner);

// The newest one that is whole. nullopt if the directory holds none or does not exist; an error
// if it holds some but none can be used, because to begin anew is then the owner's decision.
[[nodiscard]] Result<std::optional<Loaded>> load_newest(const std::string& directory);

}  // namespace rubato::elastic
