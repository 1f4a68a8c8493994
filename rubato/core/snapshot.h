// All that a policy may know at one moment: the machines and the jobs that are not finished.
// A plain value: the simulator hands out its own by reference, the daemon a copy.
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

// Active jobs in id order, found by id in O(1). Ended jobs leave a hole; holes are squeezed out
// when they are half of the table, so each costs O(1) and walking stays contiguous.
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

  // nullptr if the job has ended or never was.
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

  // Ids below it have been used; they are never used again, whatever was erased.
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

// It has GPUs on a node of which nothing is known: whether it still uses them cannot be found out,
// so it keeps them.
[[nodiscard]] bool out_of_reach(const JobView& job, const Cluster& cluster);

struct Snapshot {
  Time now = kStart;
  Sequence as_of;
  Cluster cluster;
  JobTable jobs;
  // Decisions are taken at kStart + k x interval only; 0 = whenever something happens. Who plans
  // ahead must not plan a change between two decisions.
  Duration interval{0};
  // On a real clock, what is planned may come so much later: plans that are promised leave it
  // spare.
  Duration lateness{0};
  // The placement moves jobs to make room for others, each time at the cost of a restart.
  bool jobs_move = false;
  // Jobs with stays_away().
  std::size_t away = 0;

  // Jobs that arrived, ended, failed or were re-estimated after `changed_since`. A policy that saw
  // the snapshot as_of changed_since may update its indexes by these alone; any other must rebuild.
  Sequence changed_since;
  std::vector<JobId> changed;
};

}  // namespace rubato::core
