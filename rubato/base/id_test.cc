#include "rubato/base/id.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <type_traits>
#include <unordered_set>

namespace rubato::base {
namespace {

using CatId = Id<struct CatTag>;
using DogId = Id<struct DogTag>;
using SmallId = Id<struct SmallTag, std::uint8_t>;

static_assert(!std::is_convertible_v<int, CatId>, "a number is not an id");
static_assert(!std::is_convertible_v<CatId, DogId>, "ids of two kinds do not mix");
static_assert(!std::is_constructible_v<CatId, DogId>);
static_assert(sizeof(SmallId) == 1, "an id costs what its number costs");

TEST(Id, CountsUpFromZeroAndCompares) {
  const CatId first;
  EXPECT_EQ(first.value(), 0U);
  EXPECT_EQ(first.next(), CatId(1));
  EXPECT_LT(first, first.next());
  EXPECT_EQ(CatId(7).index(), std::size_t{7});
  EXPECT_EQ(SmallId(41).next().value(), 42);
}

TEST(Id, CanBeHashed) {
  const std::unordered_set<CatId> cats = {CatId(1), CatId(2), CatId(1)};
  EXPECT_EQ(cats.size(), 2U);
}

}  // namespace
}  // namespace rubato::base
