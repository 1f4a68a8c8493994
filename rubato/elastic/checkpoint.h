// Checkpoints on disk: what a job restarts from when all its workers are gone.
//
// A file DIR/step-000000000123.ckpt is
//
//   "RUBATOCK" | version, u32 | length of the header, u32 | checksum of all these and the header
//   header, JSON: {"about": ..., "sections": [{"name", "head", "bytes", "checksum"}, ...]}
//   zeros up to a multiple of 64, then each section followed by zeros up to the next
//
// all little-endian. It appears under its name only when complete and durable: written to a
// temporary file, fsync, rename, fsync of the directory; only then are older ones removed. A
// disk that is full, a kill at any moment or a flipped bit costs at most the newest checkpoint.
//
// Which of two checkpoints is newer is decided by (start, plan, revision, step), with (plan,
// revision) the generation that wrote it. A writer of an older generation than the newest
// checkpoint is refused: it belongs to a part of the job that was given up and would overwrite
// history. Whoever resumes from a checkpoint must therefore take a generation that is not older
// than the checkpoint's own.
//
// The start counts the owners of the directory: each start of a job claims it before it reads, and
// so does another job. From then on a worker of the owner before, one that was stopped for an hour,
// say, and wakes up, can write nothing there, even before the new owner has written anything.
//
// DIR/.lock says who has claimed the directory. It is held (flock)
// while a temporary is made and from the check of the generation to the end; each temporary is
// locked by its writer, so one that can be locked was left by the dead.
//
// The functions may be called from any thread and process; CheckpointWriter has a thread of its
// own.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"

namespace rubato::elastic {

// A checksum against accidents, not against malice; about the speed of memory. Four lanes, each fed
// every fourth word by steps that can be undone, so a change within one word is always seen.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t value() const;

 private:
  static constexpr std::size_t kBlock = 32;

  void add_block(const std::byte* block);

  std::array<std::uint64_t, 4> lanes_{0x243F6A8885A308D3ULL, 0x13198A2E03707344ULL,
                                      0xA4093822299F31D0ULL, 0x082EFA98EC4E6C89ULL};
  std::array<std::byte, kBlock> partial_{};
  std::uint64_t length_ = 0;
};

struct Section {
  std::string name;
  Json head;                                     // whatever the reader needs: type, shape
  std::vector<std::span<const std::byte>> body;  // written one after the other
};

struct CheckpointContent {
  // An object with the integers plan, revision and step, perhaps start (0 if it is not there), and
  // whatever the caller adds.
  Json about;
  std::vector<Section> sections;
};

constexpr int kCheckpointsKept = 2;

// Writes durably, keeps the newest `keep` (>= 1) and returns the path. Makes the directory if it is
// missing. On an error earlier checkpoints are as they were.
[[nodiscard]] Result<std::string> write_checkpoint(const std::string& directory,
                                                   const CheckpointContent& content,
                                                   int keep = kCheckpointsKept);

struct LoadedSection {
  std::string name;
  Json head;
  std::span<const std::byte> body;  // in Loaded::memory, aligned to 64 bytes
};

struct SkippedCheckpoint {
  std::string path;
  std::string reason;  // a sentence that names the path
};

struct FreeMemory {
  void operator()(std::byte* memory) const;
};

struct Loaded {
  std::string path;
  Json about;
  std::int64_t start = 0;
  std::int64_t plan = 0;
  std::int64_t revision = 0;
  std::int64_t step = 0;
  std::vector<LoadedSection> sections;
  std::vector<SkippedCheckpoint> skipped;  // damaged ones that were passed over; tell the user
  std::unique_ptr<std::byte, FreeMemory> memory;

  // nullptr if there is none of this name.
  [[nodiscard]] const LoadedSection* find(const std::string& name) const;
};

// Who writes to a directory: one start of one job.
struct CheckpointOwner {
  std::string job;         // whatever tells jobs apart; only a digest of it is stored
  std::int64_t start = 0;  // of two owners with one job, the higher is the later
};
// The directory is the owner's from now on; makes it if it is missing. Gives the start to write
// with, the same for all who claim for the same owner. nullopt: a later start of the job has it.
[[nodiscard]] Result<std::optional<std::int64_t>> claim_checkpoints(const std::string& directory,
                                                                    const CheckpointOwner& owner);

// One file, with all its checksums verified.
[[nodiscard]] Result<Loaded> load_checkpoint(const std::string& path);

// The newest one that is whole. nullopt if the directory holds none or does not exist; an error
// if it holds some but none can be used, because to begin anew is then the owner's decision.
[[nodiscard]] Result<std::optional<Loaded>> load_newest(const std::string& directory);

// Writes checkpoints while training goes on. At most one is being written and one waits; a newer
// one replaces the one that waits, which is then never written nor reported.
class CheckpointWriter {
 public:
  // Called on the writer's thread for each one written or failed, with its path.
  using Done = std::function<void(const Result<std::string>&)>;

  CheckpointWriter(std::string directory, int keep, Done done);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  // Finishes first.
  ~CheckpointWriter();

  // Returns at once. `memory` owns what the sections point to, a copy that training does not touch;
  // it is released when no longer needed.
  void begin(CheckpointContent content, std::shared_ptr<const void> memory);
  // Waits until nothing is being written and nothing waits.
  void finish();

 private:
  struct Order {
    CheckpointContent content;
    std::shared_ptr<const void> memory;
  };

  void run();

  const std::string directory_;
  const int keep_;
  const Done done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Order> waiting_;
  bool writing_ = false;
  bool closing_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace rubato::elastic
