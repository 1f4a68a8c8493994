// Kills all that is left of jobs on this machine, and knows when nothing is.
//
// A process belongs to a job if it is named (pid and time of start, from the job's files), if the
// job's token is in the environment it was started with, which catches workers that nobody had time
// to write down, if such a process has started it, or if it is in the job's cgroup, where it has
// one. What a program has hidden in another environment, and whose parents have died, is with their
// launcher or its agent (orphans.h).
//
// What cannot be looked at now (no descriptor, no memory) is not known to be gone: such a pass
// finds no job clean.
//
// A job's user may write what it likes into the job's files; so nothing is killed that is not the
// user's own.
//
// Never blocks: pass() is to be called several times a second while there is work. Belongs to one
// thread.
#pragma once

#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

#include "rubato/launch/processes.h"

namespace rubato::node {

class Leftovers {
 public:
  // Replaces what was said of the job before. `owner`: of all its processes. `cgroup`: empty if it
  // has none; it is removed in the end.
  void add(JobId job, uid_t owner, std::string token, std::vector<ProcessName> named,
           std::string cgroup = {});
  [[nodiscard]] bool busy() const { return !jobs_.empty(); }

  // Kills; answers the jobs of which nothing lives any more, once each. Without `others_gone`
  // something lives that may be of any of them.
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

// Whether a process of that name is known to live and to be this user's.
[[nodiscard]] bool lives_as(uid_t owner, const ProcessName& process);

// Everything the files of a job name: its master and its workers.
[[nodiscard]] std::vector<ProcessName> processes_named_in(const std::string& job_directory);

}  // namespace rubato::node
