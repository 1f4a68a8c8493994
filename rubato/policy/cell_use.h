// Which GPUs are whose cells, and which jobs are in the cells of their tenant or on borrowed GPUs
// (rubato/cells). It is of one decision.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rubato/core/allocation.h"
#include "rubato/core/ids.h"

namespace rubato::policy {

struct CellUse {
  struct Tenant {
    std::string name;
    std::vector<Slice> gpus;  // its cells, by node
    int quota = 0;            // GPUs of all its cells, also of those that have no place
  };
  // Why a job may not borrow GPUs.
  enum class Bar : std::uint8_t { none, unpreemptible, promised, slow_to_stop };
  struct Job {
    JobId job;
    std::optional<std::size_t> tenant;  // nullopt: it has no cells
    Allocation inside;                  // of its tenant's cells, or of the GPUs in no cell
    Allocation borrowed;
    int room = 0;            // GPUs of its tenant's cells, or in no cell
    bool too_large = false;  // for these
    bool stays = false;  // it cannot leave its GPUs, also those in the cells of others: `inside`
    Bar bar = Bar::none;
  };

  std::vector<Tenant> tenants;
  std::vector<Job> jobs;  // by job: those that the policy was asked about

  [[nodiscard]] const Job* of(JobId id) const {
    const auto at = std::lower_bound(jobs.begin(), jobs.end(), id,
                                     [](const Job& job, JobId other) { return job.job < other; });
    return at == jobs.end() || at->job != id ? nullptr : &*at;
  }
  // How many of the GPUs are in the cells of each tenant.
  [[nodiscard]] std::vector<int> by_owner(const Allocation& gpus) const {
    std::vector<int> counts;
    for (const Tenant& tenant : tenants) {
      int& count = counts.emplace_back(0);
      for (const Slice& own : tenant.gpus)
        count += std::popcount(own.mask & gpus.mask_on(own.node));
    }
    return counts;
  }
};

}  // namespace rubato::policy
