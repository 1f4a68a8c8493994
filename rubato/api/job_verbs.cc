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
     "Hold jobs: those that run write a checkpoint and stop. They keep their place in the queue.",
     "  rubato hold 7"},
    {"release", "POST", "/v1/jobs/{job}/release",
     [](JobRef job) -> Ask {
       return HoldJob{std::move(job), false};
     },
     "Release jobs that were held.", "  rubato release 7"},
}};

}  // namespace

std::string_view JobVerb::suffix() const {
  constexpr std::string_view kJob = "{job}";
  const std::string_view whole = path;
  return whole.substr(whole.find(kJob) + kJob.size());
}

std::span<const JobVerb> job_verbs() { return kVerbs; }

}  // namespace rubato::api
