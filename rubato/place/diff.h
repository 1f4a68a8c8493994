// Computes the smallest change that turns the present targets into what a Decision wants.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "rubato/base/marks.h"
#include "rubato/base/result.h"
#include "rubato/core/change.h"
#include "rubato/core/decision.h"
#include "rubato/place/buddy.h"
#include "rubato/place/placement.h"
#include "rubato/place/quiet.h"

namespace rubato::place {

class Differ {
 public:
  // `rule` is for the placement quiet, `skew_limit` for the placement skew.
  Differ(Placement placement, const Cluster& cluster, QuietRule rule = {},
         double skew_limit = kSkewLimit);

  // `targeted`: the jobs that may have a target now. Takes GPUs from `free` and returns GPUs to it.
  // The caller stores the new targets. Jobs keep their GPUs wherever the wish allows it; with a
  // wish for a number, they leave nodes that are not up. Shrinks come before grows. Fails if wishes
  // for exact GPUs or nodes collide with GPUs that other jobs keep. `free` is then in an undefined
  // state, so a caller with such wishes keeps a copy. Wishes for numbers of GPUs that fit never
  // fail. With the placement quiet, a job may get no GPUs, or no more than it has, although it was
  // granted some.
  [[nodiscard]] Result<std::vector<Change>> diff(const Decision& decision, const JobTable& jobs,
                                                 const std::vector<JobId>& targeted,
                                                 FreeGpus& free);

 private:
  void choose_owners(const Decision& decision, const JobTable& jobs);
  [[nodiscard]] Allocation own_part(const JobView& job, const JobTable& jobs) const;
  // A wish for a number of GPUs, and the change that fulfils it.
  struct Wish {
    std::size_t change = 0;
    Count want;
  };
  // Finds blocks for all wishes, and moves other jobs if necessary. Returns the first job for which
  // there are not enough GPUs, if any.
  [[nodiscard]] std::optional<JobId> place_in_blocks(const Decision& decision, const JobTable& jobs,
                                                     std::vector<Wish> wishes, FreeGpus& free,
                                                     std::vector<Change>& changes) const;
  // With the placement quiet: who will have which GPUs, apart from wishes not fulfilled yet.
  void settle_tenants(const JobTable& jobs, const std::vector<JobId>& targeted,
                      const std::vector<Change>& changes);
  // Fulfils a wish for a number of GPUs, or leaves the job with the GPUs that it has.
  void fill_quietly(const JobView& job, const Count& want, FreeGpus& free, Allocation& gpus) const;
  // Of one job: with the placement skew, jobs differ.
  [[nodiscard]] Placement placement_of(const JobView& job) const;
  // The places of wishes for numbers of GPUs, in the order in which they choose.
  [[nodiscard]] std::vector<std::size_t> in_order(const JobTable& jobs,
                                                  const std::vector<const Want*>& wants,
                                                  std::span<const Change> changes,
                                                  std::size_t kind) const;
  [[nodiscard]] Count rounded(const Count& want, const JobView& job) const;

  Placement placement_;
  double skew_limit_;
  Quiet quiet_;
  Marks loud_;                  // jobs that must not wait: they have a promise or a guest
  std::vector<GpuLine> lines_;  // by type, for placements in blocks
  Marks named_;
  // Two jobs may share their GPUs. For the diff the GPUs belong to only one of them; this is the
  // other one.
  Marks yields_;
};

}  // namespace rubato::place
