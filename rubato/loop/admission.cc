#include "rubato/loop/admission.h"

#include <fmt/format.h>

namespace rubato {

std::optional<Reject> never_fits(const Submitted& job, const Policy& policy,
                                 const Cluster& cluster) {
  const int needed = policy.least_gpus(*job.spec, *job.speed);
  if (needed <= cluster.largest_type()) return std::nullopt;
  return Reject{job.job,
                fmt::format("needs {} GPUs, and the cluster has {}{}", needed,
                            cluster.largest_type(), cluster.types() > 1 ? " of one type" : ""),
                std::nullopt};
}

}  // namespace rubato
