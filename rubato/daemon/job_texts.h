// Keeps large job files on disk, so that a waiting job with 60 KB of arguments does not need 60 KB
// of memory.
//
// A file S/texts/DIGEST has the canonical JSON of a whole job file. Its name is the SHA-256 of the
// content, so equal jobs share one file, and a changed file is noticed. It is durable before the
// row of its job is stored. It is removed when no job that has not ended needs it (the state counts
// them). Meanwhile the record of the job has a shortened file, for display.
//
// Belongs to one thread.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "rubato/base/result.h"
#include "rubato/jobfile/job_file.h"
#include "rubato/journal/digest.h"

namespace rubato::daemon {

// Job files whose canonical JSON is longer are kept on disk.
inline constexpr std::size_t kLargestTextInMemory = 2048;
// How much of the command stays in memory.
inline constexpr std::size_t kShortCommand = 256;

// The canonical JSON of a job file, and the digest by which it is known.
[[nodiscard]] Result<std::string> text_of(const JobFile& file);
[[nodiscard]] Digest digest_of_text(std::string_view text);
// The file with only the beginning of its command, and without env and secrets. It must not be run.
[[nodiscard]] JobFile shortened(JobFile file);

class JobTexts {
 public:
  explicit JobTexts(std::string directory) : directory_(std::move(directory)) {}

  // Durable when it returns. Does nothing if it is there already.
  [[nodiscard]] Result<void> keep(const Digest& digest, std::string_view text);
  [[nodiscard]] Result<JobFile> load(const Digest& digest) const;
  // Does nothing if it is not there.
  void remove(const Digest& digest) const;
  // For the start of a daemon: also removes files that a daemon left when it died.
  void remove_all_but(const std::set<Digest>& needed);

  [[nodiscard]] std::string path_of(const Digest& digest) const;

 private:
  std::string directory_;
};

}  // namespace rubato::daemon
