#include "rubato/node/recorded_end.h"

namespace rubato::node {

bool must_not_begin(const RecordedEnd& recorded, Generation start) {
  return recorded.fence >= start || (recorded.exit && recorded.exit->generation >= start);
}

std::optional<JobEnd> had_finished(const RecordedEnd& recorded, const std::string& token) {
  const bool finished = recorded.exit && recorded.exit->end.how == JobEnd::How::finished;
  const bool of_this_job = recorded.start > Generation(0) && recorded.token == token;
  return finished && of_this_job ? std::optional(recorded.exit->end) : std::nullopt;
}

std::optional<JobExit> exit_that_counts(const RecordedEnd& recorded, const JobLaunch& launch) {
  const bool of_this_start = recorded.exit && recorded.exit->generation >= launch.generation;
  if (of_this_start || had_finished(recorded, launch.token)) return recorded.exit;
  if (recorded.fence < launch.generation) return std::nullopt;
  return JobExit{
      launch.generation, {JobEnd::How::failed, 1, "its node is dead or was lost"}, {}, 0, 0};
}

bool may_record(const RecordedEnd& recorded, const JobExit& exit) {
  return recorded.start <= exit.generation;
}

}  // namespace rubato::node
