// Plans a job by prices: a GPU of a time slot costs more the more of them are taken, and the job
// takes the plan whose end is worth most more than its GPUs cost. Shared by the policies of the
// OASiS family (oasis.h says what is whose).
//
// The search is a dynamic program over slots and discretised work: of all ways to have done about
// so much work by the end of a slot it keeps the cheapest. Each way carries its exact work and its
// last count, so a change costs the restart, and a plan that is found ends exactly when it says.
//
// Long waits are planned in coarse slots: at first slots as they are, then of twice the length, and
// so on, each time the same number of them.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/policy/share_plan.h"

namespace rubato::policy {

// The price of a GPU for a slot, by the share of the GPUs that is taken: low (high/low)^share.
struct PriceRange {
  double low = 1;
  double high = 1;
  [[nodiscard]] double at(double share) const;
};

// What an end at some time is worth. It falls with time, and is nothing after `until`.
struct Worth {
  std::function<double(Time)> at;
  Time until = kNever;
};

// What is known of the jobs that have come so far, to find the range of prices:
//   high  the most that the end of a job was worth, for one GPU and one slot
//   low   so little that all GPUs of all slots together cost a quarter of the least that any job
//         was worth for each GPU-slot that it needs
class SeenJobs {
 public:
  // Its worth at its fastest, at its latest, and the GPU-slots that it needs at least.
  void see(double soonest, double latest, double gpu_slots);
  [[nodiscard]] PriceRange range(double gpu_slots_of_all) const;

  [[nodiscard]] Json save() const;
  [[nodiscard]] static SeenJobs load(const Json& json);  // throws what Json throws

 private:
  double most_ = 0;      // worth
  double least_ = 0;     // worth a GPU-slot; 0: no job so far
  double smallest_ = 0;  // GPU-slots
};

class SlotPlanner {
 public:
  static constexpr int kSlots = 64;   // of a search
  static constexpr int kUnits = 128;  // into which the work is divided

  // Slots begin at kStart + k slot. `gpus` are all there are, and `range` is their price.
  SlotPlanner(const FutureGpus& free, int gpus, Duration slot, PriceRange range)
      : free_(free), gpus_(gpus), slot_(slot), range_(range) {}

  struct Offer {
    SharePlan plan;
    double cost = 0;
    double gain = 0;  // worth - cost, above 0
  };
  // The plan with the largest gain that ends by `horizon`; nullopt if there is no gain.
  [[nodiscard]] std::optional<Offer> best(const Traveller& job, Time now, const Worth& worth,
                                          Time horizon) const;
  // The first of the ends after `after` for which there is a plan with a gain, if all ends are
  // worth as much; found as best() would find it with that deadline.
  [[nodiscard]] std::optional<Time> first_end(const Traveller& job, Time now, double worth,
                                              Time after, Time horizon) const;
  // The fewest GPU-slots in which the job could be done.
  [[nodiscard]] double least_gpu_slots(const Traveller& job, Time now) const;

 private:
  struct Stretch;
  struct Label;
  struct Candidate;
  class Search;

  [[nodiscard]] std::vector<Stretch> stretches(Time now, Duration length) const;

  const FutureGpus& free_;
  int gpus_;
  Duration slot_;
  PriceRange range_;
};

}  // namespace rubato::policy
