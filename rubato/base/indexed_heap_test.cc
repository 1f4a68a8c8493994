#include "rubato/base/indexed_heap.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <utility>

#include "rubato/base/random.h"

namespace rubato::base {
namespace {

TEST(IndexedHeap, BehavesLikeASortedSetUnderRandomChanges) {
  for (const std::uint32_t members : {1U, 2U, 3U, 10U, 300U}) {
    IndexedHeap<int> heap;
    std::map<std::uint32_t, int> keys;
    std::set<std::pair<int, std::uint32_t>> order;
    Random random(members);
    const auto forget = [&](std::uint32_t m) {
      if (const auto at = keys.find(m); at != keys.end()) {
        order.erase({at->second, m});
        keys.erase(at);
      }
    };
    for (int step = 0; step < 4000; ++step) {
      const auto member = static_cast<std::uint32_t>(random.below(members));
      const double what = random.uniform();
      if (what < 0.6) {
        const int key = static_cast<int>(random.below(20));  // many ties
        heap.set(member, key);
        forget(member);
        keys[member] = key;
        order.insert({key, member});
      } else if (what < 0.8) {
        heap.erase(member);
        forget(member);
      } else if (!heap.empty()) {
        const std::uint32_t top = heap.top().member;
        heap.pop();
        forget(top);
      }
      ASSERT_EQ(heap.size(), order.size());
      ASSERT_EQ(heap.empty(), order.empty());
      ASSERT_EQ(heap.contains(member), keys.contains(member));
      if (order.empty()) continue;
      ASSERT_EQ(heap.top().key, order.begin()->first);
      ASSERT_EQ(heap.top().member, order.begin()->second) << "ties go to the smaller member";
    }
  }
}

TEST(IndexedHeap, ForgetsWhatItNeverHad) {
  IndexedHeap<double> heap;
  heap.erase(7);
  EXPECT_FALSE(heap.contains(7));
  heap.set(7, 0.5);
  heap.set(7, 0.25);
  EXPECT_EQ(heap.size(), 1U) << "one entry a member";
  EXPECT_EQ(heap.top().key, 0.25);
}

}  // namespace
}  // namespace rubato::base
