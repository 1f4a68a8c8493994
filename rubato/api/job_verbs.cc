#include "rubato/api/job_verbs.h"

#include <array>
#include <utility>

namespace rubato::api {
namespace {

constexpr std::array<JobVerb, 2> kVerbs{{
    {"hold", "POST", "/v1/jobs/{job}/hold",
     [](JobRef job) -> Ask {
       return HoldJob{std::move(job), true};
     },
     "Hold jobs until they are released. Running jobs write a checkpoint and stop. Held jobs keep "
     "their place in the queue.",
     "  rubato hold 7"},
    {"release", "POST", "/v1/jobs/{job}/release",
     [](JobRef job) -> Ask {
       return HoldJob{std::move(job), false};
     },
     "Let held jobs continue. A job that waits after a failure (backoff) is tried again at once.",
     "  rubato release 7"},
}};

}  // namespace

std::string_view JobVerb::suffix() const {
  constexpr std::string_view kJob = "{job}";
  const std::string_view whole = path;
  return whole.substr(whole.find(kJob) + kJob.size());
}

std::span<const JobVerb> job_verbs() { return kVerbs; }

}  // namespace rubato::api
