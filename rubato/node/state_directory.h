// The directory that a daemon and its agents share: where things are, and who may touch them.
//
// It is its owner's alone. If the owner is root, jobs of other users may run: then others may pass
// through it (0711) to the daemon's socket, and through jobs/ to the one directory that is theirs.
// They can list neither, and all else in it is 0700 or 0600. Such a user may put anything into
// their directory, links too, so nothing is ever opened for writing there: a file is made beside
// it, given to the user and moved in.
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
// Where the home of a job keeps the path of the job's cgroup, while it has one. A copy of the
// directory says nothing: the job is not its own.
[[nodiscard]] std::string cgroup_file(const std::string& state_directory, NodeId home, JobId job);
[[nodiscard]] Result<void> write_cgroup_of_job(const std::string& state_directory, NodeId home,
                                               JobId job, const std::string& cgroup);
// Empty if there is none.
[[nodiscard]] std::string cgroup_of_job(const std::string& state_directory, NodeId home, JobId job);

// Makes it if it is not there; an error if others may read it or write to it, or if it is theirs.
[[nodiscard]] Result<void> make_own_directory(const std::string& path);
// The same with jobs/ and nodes/ in it; if we are root, others may pass to what is theirs.
[[nodiscard]] Result<void> make_state_directory(const std::string& path);
// Makes the directory of a job and gives it to this user, who alone may enter it.
[[nodiscard]] Result<void> make_job_directory(const std::string& state_directory, JobId job,
                                              const std::optional<RunAs>& user);

// The numbers of all jobs that have a directory, ascending.
[[nodiscard]] Result<std::vector<JobId>> jobs_with_directory(const std::string& state_directory);

// Whether a job's directory is its own, or nobody's yet. The token tells a job from another one
// that had the same number (because the journal was lost, or a directory was copied here): an error
// names the directory, which must be neither used nor shown then.
[[nodiscard]] Result<void> check_submission(const std::string& state_directory, JobId job,
                                            const std::string& token);

// Whose job it is: us, if it has no directory.
[[nodiscard]] uid_t owner_of_job(const std::string& state_directory, JobId job);

// Removes what a master that was killed has left of the job's secrets, with the rights of the job's
// owner: where they are is said by a link that the owner may have changed.
void remove_secrets_of(const std::string& state_directory, JobId job);

// Removes all of an ended job's directory that its owner could remove, with their rights, as they
// may have put anything there; links are not followed.
void remove_job_directory(const std::string& state_directory, JobId job);

// `name`: such as "exit.json". It belongs to the owner of the job, and is whole or not there.
[[nodiscard]] Result<void> write_job_file(const std::string& state_directory, JobId job,
                                          const std::string& name, const Json& content);

}  // namespace rubato::node
