#include "rubato/elastic/reduction_plan.h"

#include <algorithm>
#include <map>

namespace rubato::elastic {

namespace {

// The workers of one host and their elements, which are the same for all shards.
struct HostPart {
  std::vector<std::size_t> workers;  // those with leaves, or all if none has
  std::vector<std::size_t> all;
  std::vector<int> elements;
  std::vector<Addition> additions;
  std::vector<int> left;  // elements after the additions
  std::vector<Subtree> left_nodes;

  [[nodiscard]] std::size_t collector(std::size_t shard) const {
    return workers[shard % workers.size()];
  }
};

// Adds up what the tree allows without other hosts.
void join_elements(HostPart& host, const ReductionPlan& plan) {
  std::vector<Subtree> nodes;
  for (const int element : host.elements) {
    nodes.push_back(plan.elements[static_cast<std::size_t>(element)]);
  }
  const bool at_the_edge =
      !host.elements.empty() && host.elements.back() + 1 == static_cast<int>(plan.elements.size());
  const JoinedSubtrees joined = join_subtrees(nodes, at_the_edge);
  const auto element = [&](int index) { return host.elements[static_cast<std::size_t>(index)]; };
  for (const Addition& addition : joined.additions) {
    host.additions.push_back({element(addition.into), element(addition.from)});
  }
  for (const int index : joined.left) host.left.push_back(element(index));
  host.left_nodes = joined.nodes;
}

std::vector<HostPart> parts_of_hosts(const std::vector<ReductionWorker>& workers,
                                     const ReductionPlan& plan, std::vector<std::size_t>& host_of) {
  std::vector<HostPart> hosts;
  std::map<std::string, std::size_t> numbers;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const auto [found, fresh] = numbers.try_emplace(workers[i].host, hosts.size());
    if (fresh) hosts.emplace_back();
    host_of.push_back(found->second);
    hosts[found->second].all.push_back(i);
    if (!workers[i].leaves.empty()) hosts[found->second].workers.push_back(i);
  }
  for (std::size_t i = 0; i < plan.elements.size(); ++i) {
    hosts[host_of[plan.holders[i]]].elements.push_back(static_cast<int>(i));
  }
  for (HostPart& host : hosts) {
    if (host.workers.empty()) host.workers = host.all;
    join_elements(host, plan);
  }
  return hosts;
}

void add(std::vector<int>& to, const std::vector<int>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// The owner has the sums of its own host, and gets what is left of the others.
void finish_at_owner(ShardPart& part, const std::vector<HostPart>& hosts, std::size_t own_host) {
  std::vector<std::pair<int, Subtree>> rest;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const HostPart& host = hosts[i];
    for (std::size_t k = 0; k < host.left.size(); ++k) {
      rest.emplace_back(host.left[k], host.left_nodes[k]);
    }
    if (i != own_host) add(part.awaited, host.left);
  }
  std::sort(rest.begin(), rest.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Subtree> nodes;
  nodes.reserve(rest.size());
  for (const auto& [element, node] : rest) nodes.push_back(node);
  for (const Addition& addition : finish_tree(nodes)) {
    part.additions.push_back({rest[static_cast<std::size_t>(addition.into)].first,
                              rest[static_cast<std::size_t>(addition.from)].first});
  }
  std::sort(part.awaited.begin(), part.awaited.end());
}

}  // namespace

ReductionPlan plan_reduction(const std::vector<ReductionWorker>& workers, std::size_t self) {
  ReductionPlan plan;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (workers[i].leaves.empty()) continue;
    plan.owners.push_back(i);
    const SummationOrder order = summation_order(workers[i].leaves.first, workers[i].leaves.last);
    plan.elements.insert(plan.elements.end(), order.subtrees.begin(), order.subtrees.end());
    plan.holders.insert(plan.holders.end(), order.subtrees.size(), i);
  }
  plan.parts.resize(plan.owners.size());
  if (self >= workers.size()) return plan;
  std::vector<std::size_t> host_of;
  const std::vector<HostPart> hosts = parts_of_hosts(workers, plan, host_of);
  const HostPart& here = hosts[host_of[self]];
  for (std::size_t shard = 0; shard < plan.owners.size(); ++shard) {
    ShardPart& part = plan.parts[shard];
    const std::size_t owner = plan.owners[shard];
    const bool at_home = host_of[owner] == host_of[self];
    const std::size_t collector = at_home ? owner : here.collector(shard);
    if (self != collector) {
      for (const int element : here.elements) {
        if (plan.holders[static_cast<std::size_t>(element)] == self) {
          part.raw.push_back({element, collector});
        }
      }
      continue;
    }
    for (const std::size_t worker : here.all) {
      if (worker != self) part.results_to.push_back(worker);
    }
    if (here.elements.empty()) continue;  // nobody here has leaves
    part.adds = true;
    for (const int element : here.elements) {
      if (plan.holders[static_cast<std::size_t>(element)] != self) part.awaited.push_back(element);
    }
    part.additions = here.additions;
    if (self != owner) {
      for (const int element : here.left) part.sums.push_back({element, owner});
      continue;
    }
    finish_at_owner(part, hosts, host_of[self]);
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      if (i != host_of[self]) part.results_to.push_back(hosts[i].collector(shard));
    }
  }
  return plan;
}

}  // namespace rubato::elastic
