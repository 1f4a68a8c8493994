#include "rubato/core/snapshot.h"

#include <algorithm>
#include <utility>

namespace rubato::core {
namespace {

bool must_stay(const JobView& job) { return job.spec != nullptr && !job.spec->preemptible; }

bool has_cooldown(const JobView& job) {
  return job.spec != nullptr && job.spec->cooldown > Duration();
}

bool on_unknown_node(const Allocation& gpus, const Cluster& cluster) {
  return std::any_of(gpus.slices().begin(), gpus.slices().end(), [&](const Slice& slice) {
    return cluster.node(slice.node).state == NodeState::unknown;
  });
}

}  // namespace

bool out_of_reach(const JobView& job, const Cluster& cluster) {
  return cluster.unknown() > 0 && !job.target.empty() &&
         (on_unknown_node(job.held, cluster) || on_unknown_node(job.target, cluster));
}

JobView& JobTable::insert(JobView view) {
  CHECK(view.id.index() >= row_of_.size());
  unpreemptible_ += must_stay(view) ? 1 : 0;
  with_cooldown_ += has_cooldown(view) ? 1 : 0;
  row_of_.resize(view.id.index() + 1, kGone);
  row_of_[view.id.index()] = static_cast<std::uint32_t>(rows_.size());
  rows_.push_back(std::move(view));
  alive_.push_back(true);
  ++size_;
  return rows_.back();
}

void JobTable::erase(JobId id) {
  const std::uint32_t row = row_of_[id.index()];
  CHECK(row != kGone);
  row_of_[id.index()] = kGone;
  alive_[row] = false;
  unpreemptible_ -= must_stay(rows_[row]) ? 1 : 0;
  with_cooldown_ -= has_cooldown(rows_[row]) ? 1 : 0;
  rows_[row] = JobView();
  --size_;
  if (rows_.size() >= 32 && size_ * 2 < rows_.size()) squeeze();
}

void JobTable::use_up_to(JobId next) {
  CHECK(next.index() >= row_of_.size());
  row_of_.resize(next.index(), kGone);
}

void JobTable::squeeze() {
  std::size_t to = 0;
  for (std::size_t from = 0; from < rows_.size(); ++from) {
    if (!alive_[from]) continue;
    row_of_[rows_[from].id.index()] = static_cast<std::uint32_t>(to);
    if (to != from) rows_[to] = std::move(rows_[from]);
    ++to;
  }
  rows_.resize(to);
  alive_.assign(to, true);
}

}  // namespace rubato::core
