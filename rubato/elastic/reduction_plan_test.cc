#include "rubato/elastic/reduction_plan.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <rapidcheck/gtest.h>
#include <set>
#include <string>
#include <utility>

namespace rubato::elastic {
namespace {

// The text of a sum says every addition and its order, as in tree_test.cc.
std::string tree_text(int first, int size, int leaves) {
  if (size == 1) return std::to_string(first);
  const int half = size / 2;
  if (first + half >= leaves) return tree_text(first, half, leaves);
  return "(" + tree_text(first, half, leaves) + "+" + tree_text(first + half, half, leaves) + ")";
}

std::string whole_tree(int leaves) {
  int size = 1;
  while (size < leaves) size *= 2;
  return tree_text(0, size, leaves);
}

std::vector<ReductionWorker> workers_on(int leaves, const std::vector<std::string>& hosts) {
  const std::vector<Range> ranges = split_leaves(leaves, static_cast<int>(hosts.size()));
  std::vector<ReductionWorker> workers;
  for (std::size_t i = 0; i < hosts.size(); ++i) workers.push_back({hosts[i], ranges[i]});
  return workers;
}

// Carries out the plans of all workers for one bucket, and counts what crosses the network.
struct Execution {
  Execution(int leaves, const std::vector<std::string>& hosts)
      : workers(workers_on(leaves, hosts)) {
    for (std::size_t i = 0; i < workers.size(); ++i) plans.push_back(plan_reduction(workers, i));
    shards = plans.front().owners.size();
    for (std::size_t shard = 0; shard < shards; ++shard) run(shard);
  }

  void run(std::size_t shard) {
    // By worker and element.
    std::vector<std::map<int, std::string>> sums(workers.size());
    const ReductionPlan& any = plans.front();
    for (std::size_t i = 0; i < any.elements.size(); ++i) {
      const Subtree& node = any.elements[i];
      int end = 0;
      for (const ReductionWorker& worker : workers) end = std::max(end, worker.leaves.last);
      sums[any.holders[i]][static_cast<int>(i)] = tree_text(node.first, node.size, end);
    }
    std::set<std::size_t> added;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      const ShardPart& part = plans[i].parts[shard];
      EXPECT_TRUE(part.raw.empty() || !part.adds);
      for (const Hand& hand : part.raw) move(sums, i, hand);
    }
    // Collectors need only what was raw, and the owner comes last.
    for (std::size_t i = 0; i < workers.size(); ++i) {
      if (i != any.owners[shard]) add_up(sums, i, shard);
    }
    const std::size_t owner = any.owners[shard];
    add_up(sums, owner, shard);
    root = sums[owner].at(0);
    std::set<std::size_t> have;
    pass_on(owner, shard, have);
    EXPECT_EQ(have.size(), workers.size());
  }

  void add_up(std::vector<std::map<int, std::string>>& sums, std::size_t worker,
              std::size_t shard) {
    const ShardPart& part = plans[worker].parts[shard];
    for (const int element : part.awaited) {
      EXPECT_TRUE(sums[worker].contains(element));
    }
    for (const Addition& addition : part.additions) {
      std::string& into = sums[worker].at(addition.into);
      into = "(" + into + "+" + sums[worker].at(addition.from) + ")";
    }
    for (const Hand& hand : part.sums) move(sums, worker, hand);
  }

  void move(std::vector<std::map<int, std::string>>& sums, std::size_t from, const Hand& hand) {
    EXPECT_TRUE(sums[hand.to].emplace(hand.element, sums[from].at(hand.element)).second);
    count(from, hand.to);
  }

  void pass_on(std::size_t worker, std::size_t shard, std::set<std::size_t>& have) {
    EXPECT_TRUE(have.insert(worker).second);
    for (const std::size_t next : plans[worker].parts[shard].results_to) {
      count(worker, next);
      pass_on(next, shard, have);
    }
  }

  // Shards of equal size.
  void count(std::size_t from, std::size_t to) {
    if (workers[from].host == workers[to].host) return;
    sent[workers[from].host] += 1.0 / static_cast<double>(shards);
    received[workers[to].host] += 1.0 / static_cast<double>(shards);
  }

  [[nodiscard]] double busiest() const {
    double most = 0;
    for (const auto& [host, vectors] : sent) most = std::max(most, vectors);
    for (const auto& [host, vectors] : received) most = std::max(most, vectors);
    return most;
  }

  std::vector<ReductionWorker> workers;
  std::vector<ReductionPlan> plans;
  std::size_t shards = 0;
  std::string root;
  std::map<std::string, double> sent, received;  // vectors
};

RC_GTEST_PROP(ReductionPlan, AllSplitsGiveTheSameTree, ()) {
  const int leaves = *rc::gen::inRange(1, 20);
  const auto numbers = *rc::gen::container<std::vector<int>>(*rc::gen::inRange<std::size_t>(1, 12),
                                                             rc::gen::inRange(0, 5));
  std::vector<std::string> hosts;
  for (const int number : numbers) hosts.push_back(std::to_string(number));
  const Execution execution(leaves, hosts);
  RC_ASSERT(execution.root == whole_tree(leaves));
}

// A ring of n workers sends 2 (n - 1) / n vectors on each link between two hosts.
TEST(ReductionPlan, ALinkCarriesWhatTheNumberOfHostsNeeds) {
  const auto busiest = [](int leaves, const std::vector<std::string>& hosts) {
    return Execution(leaves, hosts).busiest();
  };
  EXPECT_DOUBLE_EQ(busiest(8, {"a", "b"}), 1);                                  // the ring: 1
  EXPECT_DOUBLE_EQ(busiest(8, {"a", "b", "c", "d"}), 1.5);                      // the ring: 1.5
  EXPECT_DOUBLE_EQ(busiest(8, {"a", "a", "a", "a", "b", "b", "b", "b"}), 1);    // the ring: 1.75
  EXPECT_DOUBLE_EQ(busiest(8, {"a", "a", "b", "b", "c", "c", "d", "d"}), 1.5);  // 1.75
  EXPECT_DOUBLE_EQ(busiest(64, std::vector<std::string>(64, "a")), 0);
  // Ranges that are no subtrees.
  EXPECT_DOUBLE_EQ(busiest(8, {"a", "a", "a", "b", "b", "b", "c", "c"}), 2);  // 1.75
  EXPECT_DOUBLE_EQ(busiest(8, {"a", "b", "c"}), 2);                           // 1.33
  EXPECT_DOUBLE_EQ(busiest(12, {"a", "b", "c"}), 4.0 / 3);                    // 1.33
}

}  // namespace
}  // namespace rubato::elastic
