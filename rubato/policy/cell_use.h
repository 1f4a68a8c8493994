// Which GPUs are whose cells, and which jobs are in the cells of their tenant or on borrowed GPUs
// (rubato/cells). It is of one decision.
#pragma once

#include <algorithm>
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
    Bar bar = Bar::none;
  };

  std::vector<Tenant> tenants;
  std::vector<Job> jobs;  // by job: those that the policy was asked about

  [[nodiscard]] const Job* of(JobId id) const {
    const auto at = std::lower_bound(jobs.begin(), jobs.end(), id,
                                     [](const Job& job, JobId other) { return job.job < other; });
    return at == jobs.end() || at->job != id ? nullptr : &*at;
  }
  // Whose cells these are; nullopt: nobody's.
  [[nodiscard]] std::optional<std::size_t> owner(NodeId node, std::uint64_t gpus) const {
    for (std::size_t t = 0; t < tenants.size(); ++t) {
      for (const Slice& slice : tenants[t].gpus) {
        if (slice.node == node && (slice.mask & gpus) != 0) return t;
      }
    }
    return std::nullopt;
  }
};

}  // namespace rubato::policy
