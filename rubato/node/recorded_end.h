// What the files of a job say about the end of a start, and the rules for reading and writing that.
// Nodes share the directory of a job, so a file may belong to an earlier start, or to a later one
// on another node.
//
// Pure; the files are in job_files.h.
#pragma once

#include <optional>
#include <string>

#include "rubato/launch/master_messages.h"

namespace rubato::node {

struct RecordedEnd {
  Generation start;             // of the newest start, by launch.json; 0 if there is none
  std::string token;            // of the job, by the same file
  std::optional<JobExit> exit;  // exit.json
  Generation fence;             // starts up to this one must not begin any more, by fence.json
};

// Whether this start must not begin any more.
[[nodiscard]] bool must_not_begin(const RecordedEnd& recorded, Generation start);

// How the job has finished, if it is the job with this token and has finished in any start.
[[nodiscard]] std::optional<JobEnd> had_finished(const RecordedEnd& recorded,
                                                 const std::string& token);

// The end of this start: an exit of this start or a newer one, or the job has finished before, or
// the daemon has declared that it is too late for this start.
[[nodiscard]] std::optional<JobExit> exit_that_counts(const RecordedEnd& recorded,
                                                      const JobLaunch& launch);

// Whether an agent may write this exit. An agent may be able to write only long after the end, when
// the job has run on another node; the exit of that run must stay.
[[nodiscard]] bool may_record(const RecordedEnd& recorded, const JobExit& exit);

}  // namespace rubato::node
