// Buddy placement (ElasticFlow, Gu et al., ASPLOS'23): a job gets GPUs in aligned blocks of powers
// of two on the tree of GPUs, nodes and racks. If no block is free, other jobs are migrated. The
// same blocks, not larger than a node, are the network packing of CoDDL (Hwang et al., NSDI'21).
//
// All GPUs of a type form a line: the nodes by size, the largest first. A node whose size is not a
// power of two is split into pieces that are. A block of size s covers the places k s to k s + s -
// 1 of the line. So a block within a node is aligned there, and a larger block is a group of whole
// neighbouring nodes. A count that is not a power of two takes one block for each of its bits.
//
// If enough GPUs are free and none of the line is missing, a block is always found. Of the blocks
// that no job of that size or larger covers, the algorithm takes one with the fewest used GPUs, and
// moves its contents out, largest first. The moved blocks are smaller, and enough GPUs are free
// outside, so they find a place in the same way. Missing GPUs (nodes that are down, jobs that may
// not move) can make large blocks impossible; then smaller ones are used.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "rubato/core/allocation.h"
#include "rubato/core/cluster.h"

namespace rubato::place {

// The place of each GPU of a type on the line.
class GpuLine {
 public:
  GpuLine(const Cluster& cluster, GpuType type);

  struct Place {
    NodeId node;
    std::uint8_t gpu = 0;
  };
  [[nodiscard]] const std::vector<Place>& places() const { return places_; }
  [[nodiscard]] int at(NodeId node, int gpu) const {
    return position_[node.index()][static_cast<std::size_t>(gpu)];
  }
  [[nodiscard]] GpuType type() const { return type_; }
  [[nodiscard]] int node_size() const { return node_size_; }

 private:
  GpuType type_;
  int node_size_ = 0;  // of the largest
  std::vector<Place> places_;
  std::vector<std::vector<int>> position_;  // by node and GPU; empty for other types
};

// Which job is where on a line, and how to make room for one more.
class BuddyBlocks {
 public:
  // The largest block is the whole line (buddy) or a node (network packing).
  enum class Reach : std::uint8_t { line, node };
  BuddyBlocks(const GpuLine& line, Reach reach);

  struct Holder {
    JobId job;
    bool movable = true;
    double move_cost = 1;  // per GPU
  };

  // A GPU is missing until it is offered or put.
  void offer(NodeId node, std::uint64_t free);
  // The job holds these GPUs.
  void put(const Holder& holder, const Allocation& gpus);

  // Takes `gpus` GPUs for the job, near what it `had` if possible. Other jobs may be moved. Enough
  // GPUs must be free.
  void place(const Holder& holder, int gpus, const Allocation& had);

  // What a job holds now.
  [[nodiscard]] Allocation of(JobId job) const;
  // Jobs that were moved after they had been put.
  [[nodiscard]] std::vector<JobId> moved() const;

 private:
  static constexpr int kFree = -1, kMissing = -2;

  struct Item {  // a used block
    std::size_t holder = 0;
    int at = 0, size = 0;
  };
  struct Entry {
    Holder holder;
    bool moved = false;
  };

  void occupy(std::size_t holder, int at, int size);
  void vacate(int item);
  void set_free(int at, int size, bool free);
  [[nodiscard]] std::vector<int> positions(const Allocation& gpus) const;
  [[nodiscard]] std::optional<int> free_block(int size, const std::vector<int>& near) const;
  [[nodiscard]] std::optional<int> cheapest_to_clear(int size) const;
  [[nodiscard]] std::optional<double> cost_to_clear(int at, int size) const;
  // Takes one block, or several smaller ones if there is none. Adds what was taken to `near`.
  void place_block(std::size_t holder, int size, std::vector<int>& near);
  void clear(int at, int size, std::size_t for_holder);

  const GpuLine& line_;
  int largest_ = 1;                     // block
  std::vector<int> item_at_;            // by place: item, kFree or kMissing
  std::vector<Item> items_;             // size 0 means removed
  std::vector<std::vector<int>> free_;  // by level and block: free places
  std::vector<Entry> entries_;
};

}  // namespace rubato::place
