// Kills all processes of a job that are left on this machine, and knows when none is left.
//
// A process belongs to a job if one of these holds: the job's files name it (pid and start time);
// the job's token is in the environment it was started with, which also finds workers that were
// never written down; such a process has started it; it is in the job's cgroup, if there is one. A
// process that has hidden behind another environment and whose parents have died is found by their
// launcher or its agent (orphans.h).
//
// If a process cannot be inspected now (no descriptor, no memory), it may still be there. Such a
// pass reports no job as clean.
//
// A job's user may write anything into the job's files, so only processes of that user are killed.
//
// Never blocks: call pass() several times a second while there is work. Belongs to one thread.
#pragma once

#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

#include "rubato/launch/processes.h"

namespace rubato::node {

class Leftovers {
 public:
  // Replaces an earlier entry of the job. `owner`: the user of all its processes. `cgroup`: empty
  // if the job has none; it is removed in the end.
  void add(JobId job, uid_t owner, std::string token, std::vector<ProcessName> named,
           std::string cgroup = {});
  [[nodiscard]] bool busy() const { return !jobs_.empty(); }

  // Kills processes. Returns the jobs that have no process any more, each job once. If not
  // `others_gone`, there is a living process that may belong to any of the jobs.
  [[nodiscard]] std::vector<JobId> pass(bool others_gone = true);

 private:
  struct Job {
    uid_t owner = 0;
    std::string token;
    std::vector<ProcessName> named;
    std::string cgroup;
    int clean = 0;  // passes in a row that found nothing
  };

  static void name_all(Job& job, const std::vector<ProcessEntry>& table,
                       const std::multimap<std::string, int>& tokens);

  std::map<JobId, Job> jobs_;
};

// Whether a process of that name is known to be alive and to belong to this user.
[[nodiscard]] bool lives_as(uid_t owner, const ProcessName& process);

// The processes that the files of a job name: its master and its workers.
[[nodiscard]] std::vector<ProcessName> processes_named_in(const std::string& job_directory);

}  // namespace rubato::node
