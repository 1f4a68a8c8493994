// Secrets on their way to the workers of a job.
//
// A secret is named by the file it is in, which its owner alone needs to be able to read; the
// master, which runs as that owner, copies it into a private directory (0700, files 0600), and a
// worker finds the path of its copy in the variable of the secret's name. The directory is in
// memory (/dev/shm) where that can be written, else in the job's own; the job's directory has a
// link to it, so that what a master left that was killed can be removed by whoever finds it. The
// content is never in a variable, an argument, a message, a log or a JSON file.
#pragma once

#include <map>
#include <string>

#include "rubato/node/job_files.h"

namespace rubato::node {

inline constexpr const char* kMemoryDirectory = "/dev/shm";

// NAME -> path of the file -> NAME -> path of the copy. Removes what was left before.
[[nodiscard]] Result<std::map<std::string, std::string>> hand_out_secrets(
    const JobFiles& files, const std::map<std::string, std::string>& secrets,
    const std::string& memory = kMemoryDirectory);

// Follows the job's link only to a directory of the link's owner, and no link from there.
void remove_secrets(const JobFiles& files);

}  // namespace rubato::node
