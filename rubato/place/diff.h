// The smallest change that turns the present targets into what a Decision wants.
#pragma once

#include <optional>
#include <vector>

#include "rubato/base/marks.h"
#include "rubato/base/result.h"
#include "rubato/core/change.h"
#include "rubato/core/decision.h"
#include "rubato/place/buddy.h"
#include "rubato/place/placement.h"

namespace rubato::place {

class Differ {
 public:
  Differ(Placement placement, const Cluster& cluster);

  // `targeted` are the jobs that may have a target now. Takes and gives GPUs in `free`; the caller
  // stores the new targets. Jobs keep the GPUs they have wherever the wish allows; shrinks come
  // before grows. Fails if wishes for exact GPUs or nodes collide with GPUs that other jobs keep;
  // `free` is then spoilt, so who grants such wishes keeps a copy. Numbers that fit never fail.
  [[nodiscard]] Result<std::vector<Change>> diff(const Decision& decision, const JobTable& jobs,
                                                 const std::vector<JobId>& targeted,
                                                 FreeGpus& free);

 private:
  void choose_owners(const Decision& decision, const JobTable& jobs);
  [[nodiscard]] Allocation own_part(const JobView& job, const JobTable& jobs) const;
  // A wish for a number of GPUs, and the change that is to fulfil it.
  struct Wish {
    std::size_t change = 0;
    Count want;
  };
  // Blocks for all wishes, and moves of other jobs where that needs them; the first job for which
  // there are not enough GPUs, if any.
  [[nodiscard]] std::optional<JobId> place_in_blocks(const Decision& decision, const JobTable& jobs,
                                                     std::vector<Wish> wishes, FreeGpus& free,
                                                     std::vector<Change>& changes) const;
  [[nodiscard]] Count rounded(const Count& want, const JobView& job) const;

  Placement placement_;
  std::vector<GpuLine> lines_;  // by type, for placements in blocks
  Marks named_;
  // Of two jobs that share their GPUs now, the one that leaves them to the other: for the diff they
  // belong to one job only.
  Marks yields_;
};

}  // namespace rubato::place
