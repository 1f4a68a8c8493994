// The smallest change that turns the present targets into what a Decision wants.
#pragma once

#include <cstdint>
#include <vector>

#include "rubato/base/marks.h"
#include "rubato/base/result.h"
#include "rubato/core/decision.h"
#include "rubato/place/placement.h"

namespace rubato {

struct Change {
  enum class Kind : std::uint8_t { start, stop, resize, move };
  JobId job;
  Kind kind = Kind::start;
  Allocation target;
};

class Differ {
 public:
  explicit Differ(Placement placement) : placement_(placement) {}

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

  Placement placement_;
  Marks named_;
  // Of two jobs that share their GPUs now, the one that leaves them to the other: for the diff they
  // belong to one job only.
  Marks yields_;
};

}  // namespace rubato
