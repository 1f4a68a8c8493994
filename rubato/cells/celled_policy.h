// Keeps the cells of tenants under any policy (HiveD, Zhao et al., OSDI'20; docs/cells.md).
//
// The GPUs are divided into zones: the cells of each tenant, and the commons, which are in no cell.
// Every zone has a policy of its own, which decides about the zone's jobs as on a private cluster:
// it sees the zone's GPUs alone, and the placement sees them alone, too. So borrowers are never in
// the way of a tenant. One more policy, that of the borrowers, decides afterwards about the GPUs
// that no zone uses. It is asked about jobs that got no GPUs in their zone, and about the further
// GPUs of elastic jobs that did (`Extension`). Borrowers have no promises.
//
// Jobs that may not be preempted, that have a promise, or that may take longer than kNotice to stop
// never borrow. A job that cannot leave its GPUs (it may not be preempted, or is out of reach)
// keeps them, also in the cells of others; cells avoid such GPUs if they can.
//
// The answer names exact GPUs for every job, so the loop needs to know nothing of cells.
//
// Pure. Deviates from HiveD: cells are within nodes (no racks), and a job is guaranteed or not by
// where it fits, not by a priority that its owner chooses.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rubato/cells/quotas.h"
#include "rubato/place/diff.h"
#include "rubato/policy/policy.h"

namespace rubato::cells {

struct PolicyMaker {
  std::function<MadePolicy()> make;
  bool elastic = false;  // PolicyEntry::elastic
  bool admits = false;   // ChosenPolicy::admits()
};

// The policy itself if there are no quotas. `rule` is for the placement quiet, `skew_limit` for the
// placement skew.
[[nodiscard]] MadePolicy with_cells(const PolicyMaker& maker, const Quotas& quotas,
                                    Placement placement, QuietRule rule = {},
                                    double skew_limit = kSkewLimit);

// The state of a policy without cells as one with cells: it is that of the commons. And back.
[[nodiscard]] Json to_celled_state(Json plain);
[[nodiscard]] Json to_plain_state(const Json& celled);

class CelledPolicy final : public Policy {
 public:
  struct Zone {
    std::string tenant;
    std::unique_ptr<Policy> policy;
    std::vector<CellPlace> places;    // empty for the commons
    std::vector<std::uint64_t> gpus;  // by node
    bool busy = false;                // it had jobs when its policy was asked last
  };

  CelledPolicy(Quotas quotas, std::vector<Zone> zones, std::unique_ptr<Policy> borrowers,
               const PolicyMaker& maker, Placement placement, QuietRule rule, double skew_limit);

  Result<Decision> decide(const Snapshot& snapshot) override;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const override {
    return borrowers_->least_gpus(spec, speed);
  }
  [[nodiscard]] bool learns() const override { return borrowers_->learns(); }
  [[nodiscard]] bool knows_truth() const override { return borrowers_->knows_truth(); }
  [[nodiscard]] bool keeps_deadline(JobId job) const override;
  // Every zone is a market of its own. By type, the highest of their prices.
  [[nodiscard]] std::vector<double> prices() const override;
  [[nodiscard]] std::shared_ptr<const Quotes> quotes() const override;
  [[nodiscard]] std::shared_ptr<const CellUse> cell_use() const override { return use_; }
  [[nodiscard]] Json save() const override;
  Result<void> load(const Json& state) override;

 private:
  // What the further GPUs of a job are to the borrowers' policy: a job of its own.
  struct Extension {
    std::shared_ptr<const JobSpec> of_spec;
    std::shared_ptr<const SpeedModel> of_speed;
    Allocation inside;
    std::shared_ptr<const JobSpec> spec;
    std::shared_ptr<const SpeedModel> speed;
  };
  struct Placed {
    std::vector<Grant> grants;
    std::map<JobId, Allocation> gpus;
  };
  struct Working;  // one decision

  void divide(const Cluster& cluster);
  void settle_zones(const Snapshot& snapshot);
  [[nodiscard]] std::size_t zone_of(const JobView& job) const;
  [[nodiscard]] Allocation inside_now(const JobView& job) const;
  [[nodiscard]] bool at_home(const JobView& job) const;
  void ask_about(const JobView& job, Working& work) const;
  [[nodiscard]] Result<void> decide_in(std::size_t zone, Working& work);
  [[nodiscard]] Result<void> decide_about_borrowers(Working& work);
  [[nodiscard]] bool add_borrower(const JobView& job, Working& work, Snapshot& rest);
  [[nodiscard]] const Extension* extension_of(const JobView& job, const Grant& grant,
                                              const Allocation& inside);
  [[nodiscard]] Result<Placed> place(const Decision& decision, const Snapshot& part);
  void conclude(Working& work);

  Quotas quotas_;
  std::vector<Zone> zones_;  // by tenant; the last is the commons
  std::unique_ptr<Policy> borrowers_;
  bool elastic_ = false;
  bool admits_ = false;
  Placement placement_;
  QuietRule rule_;
  double skew_limit_;
  std::optional<Differ> differ_;
  std::size_t nodes_ = 0;                  // that differ_ was made for
  std::map<JobId, Allocation> inside_;     // of the last decision: the GPUs in the job's own zone
  std::map<JobId, Extension> extensions_;  // not saved
  // Nothing was decided with cells yet: jobs are where they were, and GPUs of its zone are its own.
  bool first_ = true;
  std::shared_ptr<const CellUse> use_;
};

}  // namespace rubato::cells
