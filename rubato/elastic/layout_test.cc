#include "rubato/elastic/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <vector>

namespace rubato::elastic {
namespace {

TEST(Layout, BucketsHoldParametersFromTheLastToTheFirst) {
  const Layout layout = make_layout({10, 20, 30}, 5, 40);
  ASSERT_EQ(layout.buckets.size(), 3U);
  EXPECT_EQ(layout.parameters[2].offset, 0U);
  EXPECT_EQ(layout.parameters[1].offset, 30U);
  EXPECT_EQ(layout.parameters[0].offset, 50U);
  EXPECT_EQ(layout.bucket_of, (std::vector<int>{1, 0, 0}));
  EXPECT_EQ(layout.buckets[0].count, 50U);
  EXPECT_EQ(layout.buckets[1].count, 10U);
  EXPECT_EQ(layout.tail(), 2);
  EXPECT_EQ(layout.buckets[2].offset, 60U);
  EXPECT_EQ(layout.buckets[2].count, 5U);
  EXPECT_EQ(layout.total, 65U);
}

TEST(Layout, TheLargestParameterIsAShareOfAllWithoutTheTail) {
  EXPECT_DOUBLE_EQ(largest_share(make_layout({10, 25, 15}, 500, 40)), 0.5);
  EXPECT_EQ(largest_share(make_layout({}, 3, 40)), 0);
}

TEST(Layout, WithoutParametersOnlyTheTailRemains) {
  const Layout layout = make_layout({}, 3, 40);
  ASSERT_EQ(layout.buckets.size(), 1U);
  EXPECT_EQ(layout.tail(), 0);
  EXPECT_EQ(layout.total, 3U);
}

RC_GTEST_PROP(LayoutProperty, PiecesTileTheVectorAndLieInTheirBuckets, ()) {
  const auto sizes = *rc::gen::container<std::vector<unsigned>>(rc::gen::inRange(0U, 1000U));
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  const std::size_t tail = *rc::gen::inRange(1, 100);
  const std::size_t bucket_floats = *rc::gen::inRange(1, 3000);
  const Layout layout = make_layout(counts, tail, bucket_floats);

  std::size_t at = 0;
  for (const Piece& bucket : layout.buckets) {
    RC_ASSERT(bucket.offset == at);
    at += bucket.count;
  }
  RC_ASSERT(at == layout.total);
  at = 0;
  for (std::size_t i = counts.size(); i-- > 0;) {
    RC_ASSERT(layout.parameters[i].offset == at);
    RC_ASSERT(layout.parameters[i].count == counts[i]);
    at += counts[i];
    const Piece& bucket = layout.buckets[static_cast<std::size_t>(layout.bucket_of[i])];
    RC_ASSERT(layout.bucket_of[i] < layout.tail());
    RC_ASSERT(bucket.offset <= layout.parameters[i].offset);
    RC_ASSERT(at <= bucket.offset + bucket.count);
  }
  // All buckets are full, except the last one with parameters.
  for (std::size_t i = 0; i + 2 < layout.buckets.size(); ++i) {
    RC_ASSERT(layout.buckets[i].count >= bucket_floats);
  }
}

}  // namespace
}  // namespace rubato::elastic
