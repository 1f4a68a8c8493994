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
#include "rubato/core/snapshot.h"

namespace rubato {

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
using Want = std::variant<Count, Spread, Exact>;

struct Grant {
  JobId job;
  Want want;
};

struct Reject {  // only a job that never ran
  JobId job;
  std::string reason;
  std::optional<Time> earliest;  // the earliest deadline that would have been admitted
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
};

[[nodiscard]] int gpus_of(const Want& want);

// Whether the decision can be carried out on this snapshot: known jobs, each named once, legal
// counts, capacity of each type and node, nothing on nodes that are not up, only jobs that never
// ran rejected, promises to jobs that stay, again_at in the future. The error names the first
// violation.
[[nodiscard]] Result<void> validate(const Decision& decision, const Snapshot& snapshot);

// The same, remembering which jobs a decision named between calls, so that a check costs no more
// than a walk over the grants.
class Validator {
 public:
  [[nodiscard]] Result<void> check(const Decision& decision, const Snapshot& snapshot);

 private:
  Marks named_;
  Marks promised_;
};

}  // namespace rubato
