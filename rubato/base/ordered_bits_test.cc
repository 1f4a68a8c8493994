#include "rubato/base/ordered_bits.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <set>

#include "rubato/base/random.h"

namespace rubato::base {
namespace {

std::size_t at_or_after(const std::set<std::size_t>& set, std::size_t i) {
  const auto at = set.lower_bound(i);
  return at == set.end() ? OrderedBits::kNone : *at;
}

class OrderedBitsOfSize : public ::testing::TestWithParam<std::size_t> {};

TEST_P(OrderedBitsOfSize, BehavesLikeASetUnderRandomChanges) {
  const std::size_t size = GetParam();
  OrderedBits bits(size);
  std::set<std::size_t> reference;
  Random random(size + 1);
  EXPECT_TRUE(bits.empty());
  EXPECT_EQ(bits.first(), OrderedBits::kNone);
  for (int step = 0; size > 0 && step < 6000; ++step) {
    // Waves of mostly insertions and mostly removals, so that it is full and empty at times.
    const bool insert = random.uniform() < ((step / 1500) % 2 == 0 ? 0.9 : 0.1);
    const std::size_t i = random.below(size);
    if (insert) {
      bits.insert(i);
      reference.insert(i);
    } else {
      bits.erase(i);
      reference.erase(i);
    }
    const std::size_t probe = random.below(size + 130);  // also beyond the end
    ASSERT_EQ(bits.at_or_after(probe), at_or_after(reference, probe)) << "from " << probe;
    ASSERT_EQ(bits.first(), at_or_after(reference, 0));
    ASSERT_EQ(bits.empty(), reference.empty());
    ASSERT_EQ(bits.contains(i), reference.contains(i));
  }
  std::set<std::size_t> walked;
  for (auto i = bits.first(); i != OrderedBits::kNone; i = bits.at_or_after(i + 1)) {
    walked.insert(walked.end(), i);
  }
  EXPECT_EQ(walked, reference);
  for (const std::size_t i : walked) bits.erase(i);
  EXPECT_TRUE(bits.empty());
}

TEST_P(OrderedBitsOfSize, FindsTheOnlyMemberFromEveryPlace) {
  const std::size_t size = GetParam();
  for (const std::size_t member : {std::size_t{0}, size / 2, size - 1}) {
    if (size == 0) return;
    OrderedBits bits(size);
    bits.insert(member);
    for (std::size_t i = 0; i < size + 70; ++i) {
      ASSERT_EQ(bits.at_or_after(i), i <= member ? member : OrderedBits::kNone) << member;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, OrderedBitsOfSize,
                         ::testing::Values(0, 1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 5000,
                                           262'145));

}  // namespace
}  // namespace rubato::base
