// A binary min-heap of (key, member) with at most one entry per member, whose key can be changed:
// an event queue without stale entries. Members are small integers. Ties go to the smaller member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/namespaces.h"

namespace rubato::base {

template <class Key>
class IndexedHeap {
 public:
  using Member = std::uint32_t;
  struct Entry {
    Key key;
    Member member;
    friend bool operator<(const Entry& a, const Entry& b) {
      return a.key != b.key ? a.key < b.key : a.member < b.member;
    }
  };

  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] std::size_t size() const { return heap_.size(); }
  [[nodiscard]] const Entry& top() const { return heap_.front(); }
  [[nodiscard]] bool contains(Member m) const {
    return m < position_.size() && position_[m] != kAbsent;
  }

  // Inserts the member or changes its key.
  void set(Member m, Key key) {
    if (m >= position_.size()) position_.resize(m + std::size_t{1}, kAbsent);
    if (position_[m] == kAbsent) {
      position_[m] = static_cast<std::uint32_t>(heap_.size());
      heap_.push_back({key, m});
      up(position_[m]);
      return;
    }
    heap_[position_[m]].key = key;
    up(position_[m]);
    down(position_[m]);
  }

  void erase(Member m) {
    if (!contains(m)) return;
    const std::size_t hole = position_[m];
    position_[m] = kAbsent;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (hole == heap_.size()) return;
    put(hole, last);
    up(hole);
    down(position_[last.member]);
  }

  void pop() { erase(top().member); }

 private:
  static constexpr std::uint32_t kAbsent = static_cast<std::uint32_t>(-1);

  void put(std::size_t at, const Entry& e) {
    heap_[at] = e;
    position_[e.member] = static_cast<std::uint32_t>(at);
  }
  void up(std::size_t at) {
    const Entry moving = heap_[at];
    while (at > 0 && moving < heap_[(at - 1) / 2]) {
      put(at, heap_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    put(at, moving);
  }
  void down(std::size_t at) {
    const Entry moving = heap_[at];
    for (;;) {
      std::size_t child = 2 * at + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
      if (!(heap_[child] < moving)) break;
      put(at, heap_[child]);
      at = child;
    }
    put(at, moving);
  }

  std::vector<Entry> heap_;
  std::vector<std::uint32_t> position_;
};

}  // namespace rubato::base
