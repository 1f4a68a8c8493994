// The promises of deadlines on a cluster with several GPU types: a book for each (promise_book.h).
// A promised job stays on one type; a newcomer is admitted on the first type that has room for it,
// in an order that its policy chooses.
//
// Pure; it lives as long as a decision.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/core/decision.h"
#include "rubato/policy/promise_book.h"

namespace rubato::policy {

// What a policy remembers of a job that may have a promise.
struct Standing {
  bool promised = false;
  GpuType type;
  SharePlan plan;
  std::vector<std::vector<Level>> levels;  // by type; made of its spec and speed, so not saved

  void set_levels(const JobView& job, const Cluster& cluster);
};

[[nodiscard]] Json to_json(const Standing& standing);
[[nodiscard]] Result<Standing> standing_of(const Json& json);  // throws what Json throws, too

class PromiseBooks {
 public:
  explicit PromiseBooks(const Snapshot& snapshot);

  // A promise of an earlier decision. The standing must outlive the books.
  void enter(const JobView& job, Standing& standing);
  // All promises were entered: keeps them as well as can be. `usable` are the GPUs by type at the
  // last decision, and is made those of now. Answers whether all went as planned; who lost its
  // promise is no longer promised.
  bool keep(std::vector<int>& usable);

  void hold_back(GpuType type, int gpus) { book(type).hold_back(gpus); }
  // On one of these types; `beside`: all other plans stand.
  bool admit(const JobView& job, Standing& standing, const std::vector<GpuType>& types,
             bool beside);
  [[nodiscard]] std::optional<Time> earliest(const JobView& job, Standing& standing);

  [[nodiscard]] int idle(GpuType type) const { return books_[type.index()]->idle(); }
  // Whether so many GPUs are free from now until then.
  [[nodiscard]] bool free_until(GpuType type, int gpus, Time until) const {
    return books_[type.index()]->free_until(gpus, until);
  }

  // No more promises will be given: what follows is about those that are.
  void settle();
  // How many GPUs the plan of a promised job has now.
  [[nodiscard]] int planned(JobId job) const;
  // Lets promised jobs of a type grow by so many GPUs in all (PromiseBook::grow).
  void grow(GpuType type, int gpus) { book(type).grow(gpus); }

  // Puts the plans back where they are remembered, and says them.
  void conclude(Decision& decision);

 private:
  [[nodiscard]] PromiseBook& book(GpuType type) { return *books_[type.index()]; }
  const Snapshot& snapshot_;
  std::vector<std::unique_ptr<PromiseBook>> books_;  // by type
  std::map<JobId, Standing*> standing_;              // of those promised
  std::map<JobId, Party*> parties_;                  // once settled
};

}  // namespace rubato::policy
