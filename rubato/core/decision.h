// A policy's answer: the desired state of the cluster, not commands. place and diff turn it into
// the smallest change.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/base/marks.h"
#include "rubato/base/result.h"
#include "rubato/core/batch.h"
#include "rubato/core/snapshot.h"

namespace rubato::core {

struct Count {  // this many GPUs of a type; the placement chooses which
  GpuType type;
  int gpus = 0;
};
struct Spread {  // this many GPUs on each of these nodes, ascending
  std::vector<std::pair<NodeId, int>> gpus;
};
struct Exact {  // these GPUs
  Allocation gpus;
};
struct Beside {  // shares the GPUs of a host that this decision also runs
  JobId host;
};
using Want = std::variant<Count, Spread, Exact, Beside>;

struct Grant {
  JobId job;
  Want want;
  // How to spread the global batch over these GPUs, if the policy chooses it.
  std::optional<Batch> batch = std::nullopt;
};

struct Reject {  // only for a job that was never admitted
  JobId job;
  std::string reason;
  std::optional<Time> earliest;  // the earliest deadline that would have been admitted
};

// Advice about the size of the cluster, from policies that compare GPUs with their use.
struct Advice {
  double utility = 0;  // sum of speedups over one GPU / GPUs, from 0 to 1
  int nodes = 0;       // the advised number of nodes
};

struct GpuStep {  // this many GPUs from then on; 0 = paused
  Time from = kStart;
  int gpus = 0;
  friend bool operator==(const GpuStep&, const GpuStep&) = default;
};
// When a job will be done, and its plan, if there is no failure and no wrong estimate.
struct Promise {
  JobId job;
  Time finish = kNever;
  std::vector<GpuStep> plan;  // ascending; the last step lasts until `finish`
  bool movable = true;        // the promise holds even if the placement moves the job (one restart)
};

struct Decision {
  std::vector<Grant> run;  // all jobs that should run; other jobs are paused
  std::vector<Reject> reject;
  std::vector<Promise> promise;  // all present promises, not only the new ones
  std::optional<Time> again_at;  // when the policy wants to be asked again if nothing happens
  Sequence as_of;                // decides only about jobs that were present then
  std::optional<Advice> advice;
};

// How many GPUs the want itself takes; 0 for Beside, because the host takes them.
[[nodiscard]] int gpus_of(const Want& want);

// Whether the decision can be carried out on this snapshot: all jobs are known and named once,
// counts are legal, each type and node has the capacity, nodes are up, each guest is beside a
// running host without another guest, only jobs that were never admitted are rejected, promises are
// to jobs that stay, and again_at is in the future. The error names the first violation.
[[nodiscard]] Result<void> validate(const Decision& decision, const Snapshot& snapshot);

// The same check as an object that keeps its memory between calls, so that a check costs no more
// than a loop over the grants.
class Validator {
 public:
  [[nodiscard]] Result<void> check(const Decision& decision, const Snapshot& snapshot);

 private:
  [[nodiscard]] static Result<void> check_guests(const Decision& decision,
                                                 const Snapshot& snapshot);

  Marks named_;
  Marks promised_;
};

}  // namespace rubato::core
