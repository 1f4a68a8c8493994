#include "rubato/policy/round_times.h"

#include <cstdint>
#include <limits>

namespace rubato::policy {

Decision as_it_is(const Snapshot& snapshot) {
  Decision decision;
  for (const JobView& job : snapshot.jobs) {
    if (!job.target.empty()) decision.run.push_back({job.id, Exact{job.target}, job.batch});
  }
  return decision;
}

Time first_multiple_after(Time now, Duration interval) {
  return kStart + ((now - kStart) / interval + 1) * interval;
}

bool is_count(const Json& json) {
  return json.is_number_integer() && json.get<std::int64_t>() >= 0 &&
         json.get<std::int64_t>() <= std::numeric_limits<int>::max();
}

Json counts_json(const std::map<JobId, int>& counts) {
  Json json = Json::array();
  for (const auto& [job, count] : counts) json.push_back({job.value(), count});
  return json;
}

std::optional<std::map<JobId, int>> counts_of(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::map<JobId, int> counts;
  for (const auto& entry : json) {
    if (!entry.is_array() || entry.size() != 2 || !is_count(entry[0]) || !is_count(entry[1]))
      return std::nullopt;
    counts[JobId(entry[0].get<JobId::rep>())] = entry[1].get<int>();
  }
  return counts;
}

}  // namespace rubato::policy
