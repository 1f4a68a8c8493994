#include "rubato/place/buddy.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "rubato/base/check.h"

namespace rubato::place {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

int level_of(int size) { return std::countr_zero(static_cast<unsigned>(size)); }

int floor_power(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n))); }

}  // namespace

GpuLine::GpuLine(const Cluster& cluster, GpuType type)
    : type_(type), node_size_(cluster.node_size(type)), position_(cluster.nodes().size()) {
  struct Piece {
    int size;
    NodeId node;
    int first;
  };
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    const Node& node = cluster.nodes()[i];
    if (node.type != type) continue;
    position_[i].resize(index(node.gpus));
    for (int first = 0; first < node.gpus;) {
      const int size = floor_power(node.gpus - first);
      pieces.push_back({size, NodeId(static_cast<NodeId::rep>(i)), first});
      first += size;
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.size > b.size; });
  for (const Piece& piece : pieces) {
    for (int gpu = piece.first; gpu < piece.first + piece.size; ++gpu) {
      position_[piece.node.index()][index(gpu)] = static_cast<int>(places_.size());
      places_.push_back({piece.node, static_cast<std::uint8_t>(gpu)});
    }
  }
}

BuddyBlocks::BuddyBlocks(const GpuLine& line, Reach reach) : line_(line) {
  const int length = static_cast<int>(line.places().size());
  largest_ = floor_power(std::max(1, reach == Reach::line ? length : line.node_size()));
  item_at_.assign(index(length), kMissing);
  for (int size = 1; size <= largest_; size *= 2) free_.emplace_back(index(length / size), 0);
}

// Whether all places of a block are free, or none of them.
void BuddyBlocks::set_free(int at, int size, bool free) {
  for (int level = 0; level < static_cast<int>(free_.size()); ++level) {
    const int block = 1 << level;
    if (block <= size) {
      for (int b = at / block; b < (at + size) / block; ++b)
        free_[index(level)][index(b)] = free ? block : 0;
    } else if (index(at / block) < free_[index(level)].size()) {
      free_[index(level)][index(at / block)] += free ? size : -size;
    }
  }
}

void BuddyBlocks::offer(NodeId node, std::uint64_t free) {
  for (; free != 0; free &= free - 1) {
    const int at = line_.at(node, std::countr_zero(free));
    CHECK(item_at_[index(at)] == kMissing);
    item_at_[index(at)] = kFree;
    set_free(at, 1, true);
  }
}

std::vector<int> BuddyBlocks::positions(const Allocation& gpus) const {
  std::vector<int> at;
  for (const auto& slice : gpus.slices()) {
    for (std::uint64_t rest = slice.mask; rest != 0; rest &= rest - 1)
      at.push_back(line_.at(slice.node, std::countr_zero(rest)));
  }
  std::sort(at.begin(), at.end());
  return at;
}

void BuddyBlocks::put(const Holder& holder, const Allocation& gpus) {
  entries_.push_back({holder, false});
  const std::vector<int> held = positions(gpus);
  for (std::size_t i = 0; i < held.size();) {
    int size = 1;  // the largest aligned block from here on that belongs to the job
    while (size < largest_ && held[i] % (2 * size) == 0 && i + index(2 * size) <= held.size() &&
           held[i + index(2 * size) - 1] == held[i] + 2 * size - 1) {
      size *= 2;
    }
    for (int at = held[i]; at < held[i] + size; ++at) {
      CHECK(item_at_[index(at)] == kMissing);
      item_at_[index(at)] = static_cast<int>(items_.size());
    }
    items_.push_back({entries_.size() - 1, held[i], size});
    i += index(size);
  }
}

void BuddyBlocks::occupy(std::size_t holder, int at, int size) {
  for (int place = at; place < at + size; ++place) {
    CHECK(item_at_[index(place)] == kFree);
    item_at_[index(place)] = static_cast<int>(items_.size());
  }
  items_.push_back({holder, at, size});
  set_free(at, size, false);
}

void BuddyBlocks::vacate(int item) {
  Item& gone = items_[index(item)];
  for (int place = gone.at; place < gone.at + gone.size; ++place) item_at_[index(place)] = kFree;
  set_free(gone.at, gone.size, true);
  gone.size = 0;
}

// The block with most of the `near` GPUs; else one on the same node; else the smallest gap that
// fits.
std::optional<int> BuddyBlocks::free_block(int size, const std::vector<int>& near) const {
  const auto& free = free_[index(level_of(size))];
  std::optional<int> best;
  std::tuple<int, bool, int> best_fit;
  for (std::size_t b = 0; b < free.size(); ++b) {
    if (free[b] != size) continue;
    const int at = static_cast<int>(b) * size;
    const auto overlap = static_cast<int>(std::lower_bound(near.begin(), near.end(), at + size) -
                                          std::lower_bound(near.begin(), near.end(), at));
    const bool beside =
        !near.empty() && line_.places()[index(near.front())].node == line_.places()[index(at)].node;
    int gap = size;
    while (2 * gap <= largest_) {
      const auto& wider = free_[index(level_of(2 * gap))];
      const std::size_t around = index(at / (2 * gap));
      if (around >= wider.size() || wider[around] != 2 * gap) break;
      gap *= 2;
    }
    const std::tuple fit(overlap, beside, -gap);
    if (best && fit <= best_fit) continue;
    best = at;
    best_fit = fit;
  }
  return best;
}

std::optional<double> BuddyBlocks::cost_to_clear(int at, int size) const {
  double cost = 0;
  for (int place = at; place < at + size;) {
    const int item = item_at_[index(place)];
    if (item == kMissing) return std::nullopt;
    if (item == kFree) {
      ++place;
      continue;
    }
    const Holder& holder = entries_[items_[index(item)].holder].holder;
    if (items_[index(item)].size >= size || !holder.movable) return std::nullopt;
    cost += items_[index(item)].size * holder.move_cost;
    place += items_[index(item)].size;
  }
  return cost;
}

std::optional<int> BuddyBlocks::cheapest_to_clear(int size) const {
  std::optional<int> best;
  double least = 0;
  for (std::size_t b = 0; b < free_[index(level_of(size))].size(); ++b) {
    const int at = static_cast<int>(b) * size;
    const auto cost = cost_to_clear(at, size);
    if (!cost || (best && *cost >= least)) continue;
    best = at;
    least = *cost;
  }
  return best;
}

void BuddyBlocks::clear(int at, int size, std::size_t for_holder) {
  std::vector<Item> out;
  for (int place = at; place < at + size; ++place) {
    const int item = item_at_[index(place)];
    if (item == kFree) continue;
    out.push_back(items_[index(item)]);
    vacate(item);
  }
  occupy(for_holder, at, size);
  std::stable_sort(out.begin(), out.end(),
                   [](const Item& a, const Item& b) { return a.size > b.size; });
  for (const Item& item : out) {
    entries_[item.holder].moved = true;
    std::vector<int> near;
    place_block(item.holder, item.size, near);
  }
}

void BuddyBlocks::place_block(std::size_t holder, int size, std::vector<int>& near) {
  auto at = free_block(size, near);
  if (at) {
    occupy(holder, *at, size);
  } else if ((at = cheapest_to_clear(size))) {
    clear(*at, size, holder);
  } else {
    CHECK(size > 1);  // a single free GPU is always a block
    place_block(holder, size / 2, near);
    place_block(holder, size / 2, near);
    return;
  }
  for (int place = *at; place < *at + size; ++place) near.push_back(place);
  std::sort(near.begin(), near.end());
}

void BuddyBlocks::place(const Holder& holder, int gpus, const Allocation& had) {
  entries_.push_back({holder, false});
  const std::size_t entry = entries_.size() - 1;
  std::vector<int> near = positions(had);
  while (gpus > 0) {
    const int size = std::min(largest_, floor_power(gpus));
    place_block(entry, size, near);
    gpus -= size;
  }
}

Allocation BuddyBlocks::of(JobId job) const {
  Allocation gpus(line_.type());
  for (const Item& item : items_) {
    if (item.size == 0 || entries_[item.holder].holder.job != job) continue;
    for (int at = item.at; at < item.at + item.size; ++at) {
      const auto& place = line_.places()[index(at)];
      gpus.add(Slice{place.node, std::uint64_t{1} << place.gpu});
    }
  }
  return gpus;
}

std::vector<JobId> BuddyBlocks::moved() const {
  std::vector<JobId> jobs;
  for (const Entry& entry : entries_) {
    if (entry.moved) jobs.push_back(entry.holder.job);
  }
  return jobs;
}

}  // namespace rubato::place
