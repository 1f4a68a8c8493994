// The directory of a job's checkpoints. If all workers of a job are gone, the job restarts from
// here.
//
// A checkpoint DIR/step-000000000123.ckpt appears under its name only when it is complete and
// durable: write a temporary file, fsync, rename, fsync of the directory. Older checkpoints are
// removed only after that. So a full disk, a kill at any moment or a flipped bit costs at most the
// newest checkpoint.
//
// A writer of an older generation than that of the newest checkpoint is refused. It belongs to a
// part of the job that was given up, and it would overwrite newer work. So a worker that resumes
// from a checkpoint must take a generation that is not older than the checkpoint's own.
//
// The start counts the owners of the directory. Each start of a job claims the directory before it
// reads, and so does another job. After that, a worker of the previous owner can write nothing
// there, even if the new owner has not written anything yet. An example is a worker that was
// stopped for an hour and wakes up.
//
// DIR/.lock says who has claimed the directory. A writer locks this file (flock) while it makes a
// temporary file, and again from the check of the generation to the end. Each temporary file is
// locked by its writer. If one can be locked, its writer has died.
//
// A job that spans hosts uses the directory in another way (checkpoint_rounds.h). Both ways count
// their owners together, so a job may go on in the other way.
//
// The functions may be called from any thread and process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rubato/elastic/checkpoint_format.h"

namespace rubato::elastic {

constexpr int kCheckpointsKept = 2;

// Writes a checkpoint durably, keeps the newest `keep` (>= 1) and returns the path. Creates the
// directory if it is missing. After an error, the earlier checkpoints are unchanged.
[[nodiscard]] Result<std::string> write_checkpoint(const std::string& directory,
                                                   const CheckpointContent& content,
                                                   int keep = kCheckpointsKept);

// The owner of a directory: one start of one job.
struct CheckpointOwner {
  std::string job;         // any text that differs between jobs; only its digest is stored
  std::int64_t start = 0;  // if two owners have the same job, the higher start is the later one
};
// Makes `owner` the owner of the directory, which is created if it is missing. Returns the start to
// write with. All workers that claim for the same owner get the same start. nullopt: a later start
// of the job owns the directory.
[[nodiscard]] Result<std::optional<std::int64_t>> claim_checkpoints(const std::string& directory,
                                                                    const CheckpointOwner& owner);

// The highest number that an owner of the directory has had; 0: none.
[[nodiscard]] std::int64_t newest_start(const std::string& directory);

// The newest checkpoint that is whole. nullopt if the directory has none or does not exist. If it
// has checkpoints but none can be used, this is an error, because the user must decide whether to
// start from the beginning.
[[nodiscard]] Result<std::optional<Loaded>> load_newest(const std::string& directory);

}  // namespace rubato::elastic
