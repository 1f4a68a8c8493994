#include "rubato/loop/admission.h"

#include <fmt/format.h>

namespace rubato::loop {

std::optional<Reject> never_fits(const Submitted& job, const Policy& policy,
                                 const Cluster& cluster) {
  const int needed = policy.least_gpus(*job.spec, *job.speed);
  if (needed <= cluster.largest_type()) {
    bool runs = cluster.types() == 1;
    for (int t = 0; t < cluster.types() && !runs; ++t) {
      const GpuType type(static_cast<GpuType::rep>(t));
      runs = needed <= cluster.installed(type) && job.speed->on(type, needed) > 0;
    }
    if (runs) return std::nullopt;
    return Reject{
        job.job,
        fmt::format("the types of GPUs it runs on have fewer than the {} it needs", needed),
        std::nullopt};
  }
  return Reject{job.job,
                fmt::format("needs {} GPUs, and the cluster has {}{}", needed,
                            cluster.largest_type(), cluster.types() > 1 ? " of one type" : ""),
                std::nullopt};
}

}  // namespace rubato::loop
