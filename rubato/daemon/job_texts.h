// Large job files on disk: a job that waits with 60 KB of arguments should not cost 60 KB of
// memory.
//
// A file S/texts/DIGEST has the canonical JSON of a whole job file, and its name is the SHA-256 of
// it: equal jobs share one, and a file that was changed is noticed. It is durable before the row of
// its job is stored, and it is removed when no job that has not ended needs it any more (the state
// counts). Meanwhile the record of the job has a shortened file, for people to look at.
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
// So much of the command stays in memory.
inline constexpr std::size_t kShortCommand = 256;

// The canonical JSON of a job file, and the digest by which it is known.
[[nodiscard]] Result<std::string> text_of(const JobFile& file);
[[nodiscard]] Digest digest_of_text(std::string_view text);
// With the beginning of its command, and without env and secrets. Not to be run.
[[nodiscard]] JobFile shortened(JobFile file);

class JobTexts {
 public:
  explicit JobTexts(std::string directory) : directory_(std::move(directory)) {}

  // Durable when it returns. Does nothing if it is there already.
  [[nodiscard]] Result<void> keep(const Digest& digest, std::string_view text);
  [[nodiscard]] Result<JobFile> load(const Digest& digest) const;
  // Does nothing if it is not there.
  void remove(const Digest& digest) const;
  // At a start: whatever a daemon that died has left behind.
  void remove_all_but(const std::set<Digest>& needed);

  [[nodiscard]] std::string path_of(const Digest& digest) const;

 private:
  std::string directory_;
};

}  // namespace rubato::daemon
