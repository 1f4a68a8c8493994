// The directory that a daemon and its agents share: where things are, and who may touch them.
//
// Only its owner can enter it. If the owner is root, jobs of other users may run. Then others can
// go through it (0711) to the daemon's socket, and through jobs/ to the directories of their own
// jobs. They can list neither, and everything else in it is 0700 or 0600. Such a user may put
// anything into their directory, also links. So nothing is ever opened for writing there: a file is
// created beside it, given to the user and moved in.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "rubato/launch/master_messages.h"
#include "rubato/launch/process.h"

namespace rubato::node {

[[nodiscard]] std::string job_directory(const std::string& state_directory, JobId job);
[[nodiscard]] std::string node_directory(const std::string& state_directory, NodeId node);
[[nodiscard]] std::string agent_token_file(const std::string& state_directory);
// The file in which the home of a job keeps the path of the job's cgroup, while it has one. In a
// copy of the state directory the file does not count, because the job belongs to the original.
[[nodiscard]] std::string cgroup_file(const std::string& state_directory, NodeId home, JobId job);
[[nodiscard]] Result<void> write_cgroup_of_job(const std::string& state_directory, NodeId home,
                                               JobId job, const std::string& cgroup);
// Empty if there is none.
[[nodiscard]] std::string cgroup_of_job(const std::string& state_directory, NodeId home, JobId job);

// Creates it if it is missing. An error if others can read or write it, or if it belongs to others.
[[nodiscard]] Result<void> make_own_directory(const std::string& path);
// The same with jobs/ and nodes/ in it. If we are root, others can go through to their own jobs.
[[nodiscard]] Result<void> make_state_directory(const std::string& path);
// The part of it that a directory for the jobs on other hosts has, too: itself and jobs/.
[[nodiscard]] Result<void> make_directory_of_jobs(const std::string& path);
// Creates the directory of a job and gives it to this user. Only this user can enter it.
[[nodiscard]] Result<void> make_job_directory(const std::string& state_directory, JobId job,
                                              const std::optional<RunAs>& user);

// The same for a directory of the job that all hosts see, and for the directory above it.
[[nodiscard]] Result<void> make_shared_directory(const std::string& path,
                                                 const std::optional<RunAs>& user);

// The numbers of all jobs that have a directory, ascending.
[[nodiscard]] Result<std::vector<JobId>> jobs_with_directory(const std::string& state_directory);

// Whether a job's directory belongs to this job, or does not exist yet. The token tells the job
// from another one that had the same number (because the journal was lost, or a directory was
// copied here). The error names the directory, which must then be neither used nor shown.
[[nodiscard]] Result<void> check_submission(const std::string& state_directory, JobId job,
                                            const std::string& token);

// The owner of the job: us, if it has no directory.
[[nodiscard]] uid_t owner_of_job(const std::string& state_directory, JobId job);

// Removes the secrets that a killed master has left. This is done with the permissions of the job's
// owner, because the owner may have changed the link to them.
void remove_secrets_of(const std::string& state_directory, JobId job);

// Removes everything in an ended job's directory that its owner could remove. This is done with the
// owner's permissions, because the owner may have put anything there. Links are not followed.
void remove_job_directory(const std::string& state_directory, JobId job);

// `name`: such as "exit.json". The file belongs to the owner of the job, and is complete or
// missing.
[[nodiscard]] Result<void> write_job_file(const std::string& state_directory, JobId job,
                                          const std::string& name, const Json& content);

}  // namespace rubato::node
