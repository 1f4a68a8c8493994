// The format of a checkpoint file, and how one is read.
//
//   "RUBATOCK" | version, u32 | length of the header, u32 | checksum of all these and the header
//   header, JSON: {"about": ..., "sections": [{"name", "head", "bytes", "checksum"}, ...]}
//   zeros up to a multiple of 64, then each section followed by zeros up to the next
//
// All numbers are little-endian. Version 2 differs from version 1 only in its checksum. Both can be
// read. Version 2 is written.
//
// The newer of two checkpoints is the one with the greater age (start, plan, revision, step).
// (plan, revision) is the generation that wrote it. The start counts the owners of the directory
// (elastic/checkpoint_directory.h).
//
// The functions may be called from any thread and process.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/elastic/checkpoint_checksum.h"

namespace rubato::elastic {

struct Section {
  std::string name;
  Json head;    // what the reader needs: type, shape
  Pieces body;  // written one after the other
};

struct CheckpointContent {
  // An object with the integers plan, revision and step, optionally start (default 0), and the
  // fields that the caller adds.
  Json about;
  std::vector<Section> sections;
};

struct CheckpointAge {
  std::int64_t start = 0;
  std::int64_t plan = 0;
  std::int64_t revision = 0;
  std::int64_t step = 0;
  friend auto operator<=>(const CheckpointAge&, const CheckpointAge&) = default;
  [[nodiscard]] std::tuple<std::int64_t, std::int64_t, std::int64_t> without_step() const {
    return {start, plan, revision};
  }
};
// nullopt if a field is missing or is not an integer.
[[nodiscard]] std::optional<CheckpointAge> age_of(const Json& about);

// A file as pieces in order. The sections are not copied.
struct CheckpointImage {
  std::string start;  // magic, version, lengths, header and zeros
  Pieces pieces;      // the first one points to `start`, so do not move the image
  std::uint64_t bytes = 0;

  explicit CheckpointImage(const CheckpointContent& content);
  CheckpointImage(const CheckpointImage&) = delete;
  CheckpointImage& operator=(const CheckpointImage&) = delete;
};

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
  CheckpointAge age;
  std::vector<LoadedSection> sections;
  std::vector<SkippedCheckpoint> skipped;  // damaged ones that were skipped; tell the user
  std::unique_ptr<std::byte, FreeMemory> memory;

  // nullptr if there is no section with this name.
  [[nodiscard]] const LoadedSection* find(const std::string& name) const;
};

// Loads one file and verifies all its checksums.
[[nodiscard]] Result<Loaded> load_checkpoint(const std::string& path);

// Reads and verifies only the header. nullopt if there is no such file.
[[nodiscard]] Result<std::optional<CheckpointAge>> read_age(const std::string& path);

// "PATH: WHAT: the reason that the system gives"
[[nodiscard]] Error file_error(const std::string& path, std::string_view what, int error);

}  // namespace rubato::elastic
