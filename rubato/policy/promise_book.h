// The promises of deadlines on the GPUs of one type, in one decision: which plans stand, whether
// they are kept, and whether one more fits. elasticflow.h says how and why; whoever promises
// deadlines keeps such a book.
//
// Pure; it lives as long as a decision. The plans are its owner's to store.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "rubato/core/snapshot.h"
#include "rubato/policy/share_plan.h"

namespace rubato::policy {

// A job in the book, or one that would like to be.
struct Party {
  const JobView* view = nullptr;
  Traveller traveller;
  SharePlan plan;  // of a promised job
  int gpus = 0;    // now: by the plan, or as a guest
};

class PromiseBook {
 public:
  PromiseBook(const Snapshot& snapshot, GpuType type, int gpus);
  PromiseBook(const PromiseBook&) = delete;
  PromiseBook& operator=(const PromiseBook&) = delete;

  // A job as the book sees it. `levels` must outlive it.
  [[nodiscard]] Party party(const JobView& job, std::span<const Level> levels) const;

  // A promise of an earlier decision; keep() must follow.
  void enter(Party party, SharePlan plan);
  // A promise that its owner has just made, with a plan on GPUs that are free.
  void add(Party party, SharePlan plan);

  // Follows the plans from where their jobs really are, and reserves their GPUs. If some are off
  // their course, or the machines are others, all are planned anew; who can neither keep its plan
  // nor get another loses the promise and is handed back. Whether all was as planned.
  bool keep(bool same_machines, std::vector<Party>& lost);
  // The same, but every plan that can be kept stands.
  bool keep_plans(bool same_machines, std::vector<Party>& lost);

  // New promises leave so many GPUs free for ever: somebody has waited too long for them.
  void hold_back(int gpus) { held_back_ = gpus; }

  // Promises the party its deadline beside the plans that stand, or gives it back.
  [[nodiscard]] bool squeeze_in(Party& party);
  // The same for a newcomer, for whom others may be planned anew.
  [[nodiscard]] bool admit(Party& party);
  // The earliest deadline with which a party that was not admitted would have been; nullopt if it
  // cannot be finished at all.
  [[nodiscard]] std::optional<Time> earliest(Party party);

  // Without promises: in order of deadlines each as well as can be.
  void plan_all();

  // A promised job with its next level now, and a plan that ends sooner for it.
  struct Growth {
    const Level* level = nullptr;
    SharePlan plan;
    double saved = 0;  // GPU-seconds that the plan needs less later, for each one added now
  };
  // With so many GPUs more at most; nullopt if there is none.
  [[nodiscard]] std::optional<Growth> growth(Party& party, int gpus);
  void replace(Party& party, SharePlan plan);
  // Gives promised jobs so many GPUs more in all, if plans allow it: first to those who have none,
  // then to who saves most.
  void grow(int gpus);

  [[nodiscard]] std::vector<Party>& promised() { return promised_; }
  // GPUs that no plan uses, from now on.
  [[nodiscard]] const FutureGpus& free() const { return free_; }
  // GPUs that no plan uses now.
  [[nodiscard]] int idle() const { return free_.at(now_); }
  [[nodiscard]] bool free_until(int gpus, Time until) const {
    return free_.first_below(now_, gpus) >= until;
  }
  // Whether a move by the placement would break no promise.
  [[nodiscard]] static bool movable(const Party& party);

 private:
  [[nodiscard]] bool check_courses();
  bool reserve_all();
  [[nodiscard]] std::optional<SharePlan> begun_with(Party& party, const Level& level);
  void hold_back_now(int sign);
  void mend(std::vector<Party>& lost);
  void keep_what_can_be(std::vector<Party>& lost);
  [[nodiscard]] std::vector<std::size_t> by_deadline() const;
  [[nodiscard]] std::optional<std::vector<SharePlan>> plans_for_all();
  void take(std::vector<SharePlan> plans);
  [[nodiscard]] bool find_room_for_last();
  [[nodiscard]] bool find_room_by_stretching();
  [[nodiscard]] bool find_room_between_plans();
  [[nodiscard]] bool plan_some(std::vector<std::size_t> order);

  const Snapshot& snapshot_;
  GpuType type_;
  Time now_;
  int gpus_;
  FutureGpus free_;
  SharePlanner planner_;
  std::vector<Party> promised_;
  int held_back_ = 0;
  bool moved_ = false;  // the placement has moved a job
};

}  // namespace rubato::policy
