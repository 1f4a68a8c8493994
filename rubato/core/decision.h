// What a policy answers: the desired state of the cluster, not commands. place and diff turn it
// into the smallest change.
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

struct Count {  // so many GPUs of a type, wherever the placement likes
  GpuType type;
  int gpus = 0;
};
struct Spread {  // so many GPUs on each of these nodes, ascending
  std::vector<std::pair<NodeId, int>> gpus;
};
struct Exact {  // these GPUs
  Allocation gpus;
};
struct Beside {  // the GPUs of a host that this decision runs: the two share them
  JobId host;
};
using Want = std::variant<Count, Spread, Exact, Beside>;

struct Grant {
  JobId job;
  Want want;
  // How to spread the global batch over these GPUs, if the policy chooses it.
  std::optional<Batch> batch = std::nullopt;
};

struct Reject {  // only a job that nobody has taken in
  JobId job;
  std::string reason;
  std::optional<Time> earliest;  // the earliest deadline that would have been admitted
};

// What a policy that weighs GPUs against their use says of the cluster's size.
struct Advice {
  double utility = 0;  // sum of speedups over one GPU / GPUs, from 0 to 1
  int nodes = 0;       // how many it would have
};

struct PlanStep {  // from then on so many GPUs; 0 = paused
  Time from = kStart;
  int gpus = 0;
  friend bool operator==(const PlanStep&, const PlanStep&) = default;
};
// When a job will be done, and how, if no fault and no wrong estimate intervenes.
struct Promise {
  JobId job;
  Time finish = kNever;
  std::vector<PlanStep> plan;  // ascending; the last step lasts until `finish`
  bool movable = true;  // it can lose a restart to the placement, which moves it, and be kept
};

struct Decision {
  std::vector<Grant> run;  // all that should run; a job not named is paused
  std::vector<Reject> reject;
  std::vector<Promise> promise;  // all that hold now, not only the new ones
  std::optional<Time> again_at;  // when the policy wants to be asked again if nothing happens
  Sequence as_of;                // judges only jobs present then
  std::optional<Advice> advice;
};

// How many GPUs the want itself takes: none for Beside, whose host takes them.
[[nodiscard]] int gpus_of(const Want& want);

// Whether the decision can be carried out on this snapshot: known jobs, each named once, legal
// counts, capacity of each type and node, nothing on nodes that are not up, guests beside a host
// that runs and has no other, only jobs that nobody took in rejected, promises to jobs that stay,
// again_at in the future. The error names the first violation.
[[nodiscard]] Result<void> validate(const Decision& decision, const Snapshot& snapshot);

// The same, remembering which jobs a decision named between calls, so that a check costs no more
// than a walk over the grants.
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
