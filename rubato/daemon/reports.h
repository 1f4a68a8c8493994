// The newest status of each job that has not ended, as its master reported it, and which of them
// are not yet evaluated.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "rubato/core/ids.h"
#include "rubato/launch/master_messages.h"

namespace rubato::daemon {

class Reports {
 public:
  void take(JobStatus status) {
    const JobId job = status.job;
    newest_[job] = std::move(status);
    unread_.insert(job);
  }
  // nullptr if the job has reported nothing.
  [[nodiscard]] const JobStatus* of(JobId job) const {
    const auto found = newest_.find(job);
    return found == newest_.end() ? nullptr : &found->second;
  }
  void forget(JobId job) {
    newest_.erase(job);
    unread_.erase(job);
  }

  [[nodiscard]] const std::set<JobId>& unread() const { return unread_; }
  void set_unread(std::set<JobId> jobs) { unread_ = std::move(jobs); }
  // Marks a status for a later turn.
  void postpone(JobId job) { unread_.insert(job); }

 private:
  std::map<JobId, JobStatus> newest_;
  std::set<JobId> unread_;
};

}  // namespace rubato::daemon
