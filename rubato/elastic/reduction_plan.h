// Which worker adds up what, and who passes results on (elastic/reduction.h).
//
// Each worker with leaves owns one shard of every bucket: it finishes the tree for this shard. On
// each other host, one worker collects the sums of its host first, and adds up what the tree
// allows. Only the rest crosses the network. The result crosses it once for each host, and the
// collector passes it on. So what a link carries depends on the number of hosts, not on that of
// workers. The collectors of a host take turns, by shard.
//
// Collecting changes only where a node of the tree is summed, never the tree.
//
// Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "rubato/elastic/tree.h"

namespace rubato::elastic {

struct ReductionWorker {
  std::string host;
  Range leaves;  // empty: it only gets results
};

// A sum that goes to another worker. An element is a subtree of the range of one worker, counted
// over all workers. After an addition it stands for a larger subtree.
struct Hand {
  int element = 0;
  std::size_t to = 0;
  friend bool operator==(const Hand&, const Hand&) = default;
};

// What one worker does for one shard.
struct ShardPart {
  bool adds = false;                    // it collects this shard for its host, or owns it
  std::vector<Hand> raw;                // if it does not: its own elements
  std::vector<int> awaited;             // elements of others
  std::vector<Addition> additions;      // in this order
  std::vector<Hand> sums;               // sent after the additions
  std::vector<std::size_t> results_to;  // workers to which it sends the result on
};

struct ReductionPlan {
  std::vector<std::size_t> owners;  // by shard: an index into the workers
  std::vector<Subtree> elements;
  std::vector<std::size_t> holders;  // by element: the worker in whose range it is
  std::vector<ShardPart> parts;      // by shard
};

// Of worker `self`; with any other number: of somebody who only listens.
[[nodiscard]] ReductionPlan plan_reduction(const std::vector<ReductionWorker>& workers,
                                           std::size_t self);

}  // namespace rubato::elastic
