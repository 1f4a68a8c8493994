// Everything that a policy may know at one moment: the machines and the jobs that have not ended. A
// plain value: the simulator passes its own by reference, the daemon passes a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/time.h"
#include "rubato/core/cluster.h"
#include "rubato/core/ids.h"
#include "rubato/core/job.h"

namespace rubato::core {

// Active jobs in id order, found by id in O(1). Ended jobs leave holes. When half of the table is
// holes, they are removed. So each removal costs O(1), and iteration stays contiguous.
class JobTable {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = const JobView;
    using difference_type = std::ptrdiff_t;
    using pointer = const JobView*;
    using reference = const JobView&;

    Iterator(const JobTable* table, std::size_t at) : table_(table), at_(at) { skip_holes(); }
    reference operator*() const { return table_->rows_[at_]; }
    pointer operator->() const { return &table_->rows_[at_]; }
    Iterator& operator++() {
      ++at_;
      skip_holes();
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }

   private:
    void skip_holes() {
      while (at_ < table_->rows_.size() && !table_->alive_[at_]) ++at_;
    }
    const JobTable* table_;
    std::size_t at_;
  };

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  // How many of them may not be preempted.
  [[nodiscard]] std::size_t unpreemptible() const { return unpreemptible_; }
  // How many of them have a cooldown.
  [[nodiscard]] std::size_t with_cooldown() const { return with_cooldown_; }
  [[nodiscard]] Iterator begin() const { return {this, 0}; }
  [[nodiscard]] Iterator end() const { return {this, rows_.size()}; }

  // nullptr if the job has ended or never existed.
  [[nodiscard]] const JobView* find(JobId id) const {
    return id.index() < row_of_.size() && row_of_[id.index()] != kGone ? &rows_[row_of_[id.index()]]
                                                                       : nullptr;
  }
  [[nodiscard]] JobView* find(JobId id) {
    return const_cast<JobView*>(
        std::as_const(*this).find(id));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  }

  // Ids must be inserted in ascending order.
  JobView& insert(JobView view);
  void erase(JobId id);

  // Ids below this have been used and are never used again, even if they were erased.
  [[nodiscard]] JobId next_id() const { return JobId(static_cast<JobId::rep>(row_of_.size())); }
  void use_up_to(JobId next);

 private:
  static constexpr std::uint32_t kGone = static_cast<std::uint32_t>(-1);

  void squeeze();

  std::vector<JobView> rows_;
  std::vector<bool> alive_;
  std::vector<std::uint32_t> row_of_;  // by job id
  std::size_t size_ = 0;
  std::size_t unpreemptible_ = 0;
  std::size_t with_cooldown_ = 0;
};

// Whether the job has GPUs on an unknown node. Nobody can find out whether it still uses them, so
// it keeps them.
[[nodiscard]] bool out_of_reach(const JobView& job, const Cluster& cluster);

struct Snapshot {
  Time now = kStart;
  Sequence as_of;
  Cluster cluster;
  JobTable jobs;
  // Decisions are taken only at kStart + k x interval; 0 = whenever something happens. A policy
  // that plans ahead must not plan a change between two decisions.
  Duration interval{0};
  // On a real clock, planned changes may come this much later. Promised plans leave this time
  // spare.
  Duration lateness{0};
  // Whether the placement moves jobs to make room for others. Each move costs a restart.
  bool jobs_move = false;
  // Jobs with stays_away().
  std::size_t away = 0;

  // Jobs that arrived, ended, failed or have a new estimate after `changed_since`. A policy that
  // saw the snapshot as_of changed_since may update its indexes from these alone. Any other policy
  // must rebuild them.
  Sequence changed_since;
  std::vector<JobId> changed;
};

}  // namespace rubato::core
