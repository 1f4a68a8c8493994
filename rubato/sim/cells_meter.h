// What tenants with cells got in a simulation: GPU time inside their cells and on borrowed GPUs,
// what they lent, how often and how soon it was taken back, and how long their jobs waited.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/core/snapshot.h"
#include "rubato/policy/cell_use.h"

namespace rubato::sim {

struct TenantReport {
  std::string tenant;  // empty: users without cells
  int quota = 0;       // GPUs
  int jobs = 0;        // that ended
  double wait_s = 0;   // sum over the jobs that started
  int started = 0;
  double jct_s = 0;  // sum over the jobs that ended
  double inside_gpu_s = 0, borrowed_gpu_s = 0, lent_gpu_s = 0;
  int taken_back = 0;    // how often a job got GPUs that were lent until then
  double reclaim_s = 0;  // sum of the times from the need to the GPUs
  double longest_reclaim_s = 0;
};

class CellsMeter {
 public:
  void decided(const Snapshot& snapshot, const CellUse& use);
  void ended(Time now, JobId job);
  [[nodiscard]] bool empty() const { return reports_.empty(); }
  // By tenant; the last has the users without cells.
  [[nodiscard]] const std::vector<TenantReport>& reports() const { return reports_; }

 private:
  struct Held {
    std::size_t tenant = 0;
    Time submitted = kStart;
    int inside = 0;
    Allocation borrowed;
    std::vector<int> from;  // borrowed GPUs by owner
    bool started = false;
  };
  void advance(Time now);
  void note_taken_back(const Snapshot& snapshot, const CellUse& use);

  std::vector<TenantReport> reports_;
  std::map<JobId, Held> held_;
  Time at_ = kStart;  // of the last change
  Time decided_at_ = kStart;
};

[[nodiscard]] Json to_json(const std::vector<TenantReport>& reports);
[[nodiscard]] std::string to_text(const std::vector<TenantReport>& reports);

}  // namespace rubato::sim
