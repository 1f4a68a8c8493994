// How secrets get to the workers of a job.
//
// A secret is named by its file, which only its owner needs to be able to read. The master, which
// runs as that owner, copies it to a private directory (0700, files 0600). A worker finds the path
// of the copy in the variable with the secret's name. The directory is in memory (/dev/shm) if that
// can be written, else in the job's directory. The job's directory has a link to it, so that the
// copies can be removed if the master was killed. The content is never in a variable, an argument,
// a log or a JSON file. It is in a message only on its way to another host.
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

// NAME -> path of the file -> NAME -> content. For workers on other hosts, which get it on an
// encrypted connection.
[[nodiscard]] Result<std::map<std::string, std::string>> read_secrets(
    const std::map<std::string, std::string>& secrets);

// Follows the job's link only to a directory of the link's owner, and no link from there.
void remove_secrets(const JobFiles& files);

}  // namespace rubato::node
