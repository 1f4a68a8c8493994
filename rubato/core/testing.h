// Helpers for tests: clusters, GPUs, specs and jobs in one line each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "rubato/core/cluster.h"
#include "rubato/core/decision.h"
#include "rubato/core/job.h"
#include "rubato/core/snapshot.h"

namespace rubato::core {

constexpr JobId job_id(std::size_t i) { return JobId(static_cast<JobId::rep>(i)); }
constexpr NodeId node_id(std::size_t i) { return NodeId(static_cast<NodeId::rep>(i)); }
constexpr GpuType gpu_type(std::size_t i) { return GpuType(static_cast<GpuType::rep>(i)); }

inline Cluster cluster_of(std::string_view text) { return parse_cluster(text).value(); }

// gpus_on({{0, 0b11}, {3, 0b1}}): GPUs 0 and 1 of node 0, GPU 0 of node 3.
inline Allocation gpus_on(std::initializer_list<std::pair<std::size_t, std::uint64_t>> slices,
                          GpuType type = GpuType()) {
  Allocation gpus(type);
  for (const auto& [node, mask] : slices) gpus.add({node_id(node), mask});
  return gpus;
}

// Single GPUs, for comparison.
using GpuSet = std::set<std::pair<std::size_t, int>>;

inline GpuSet gpu_set(const Allocation& gpus) {
  GpuSet set;
  for (const auto& slice : gpus.slices()) {
    for (int bit = 0; bit < kMaxGpusPerNode; ++bit) {
      if ((slice.mask >> static_cast<unsigned>(bit) & 1U) != 0)
        set.insert({slice.node.index(), bit});
    }
  }
  return set;
}

inline std::shared_ptr<JobSpec> rigid_spec(int gpus) {
  auto spec = std::make_shared<JobSpec>();
  spec->requested = gpus;
  spec->limits = {gpus, gpus, {}};
  return spec;
}

inline std::shared_ptr<JobSpec> elastic_spec(int min, int max, std::vector<int> allowed = {}) {
  auto spec = std::make_shared<JobSpec>();
  spec->requested = min;
  spec->limits = {min, max, std::move(allowed)};
  return spec;
}

inline JobView job_view(JobId id, std::shared_ptr<const JobSpec> spec) {
  JobView job;
  job.id = id;
  job.spec = std::move(spec);
  return job;
}

inline Grant grant_count(std::size_t job, int gpus, GpuType type = GpuType()) {
  return {job_id(job), Count{type, gpus}};
}
inline Grant grant_exact(std::size_t job, Allocation gpus) {
  return {job_id(job), Exact{std::move(gpus)}};
}
inline Grant grant_beside(std::size_t job, std::size_t host) {
  return {job_id(job), Beside{job_id(host)}};
}
inline Grant grant_spread(std::size_t job,
                          std::initializer_list<std::pair<std::size_t, int>> gpus) {
  Spread spread;
  for (const auto& [node, count] : gpus) spread.gpus.emplace_back(node_id(node), count);
  return {job_id(job), std::move(spread)};
}

}  // namespace rubato::core
