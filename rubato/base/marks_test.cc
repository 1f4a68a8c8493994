#include "rubato/base/marks.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <set>

#include "rubato/base/random.h"

namespace rubato::base {
namespace {

TEST(Marks, BehaveLikeASetThatEachRoundEmpties) {
  Marks marks;
  Random random(3);
  EXPECT_FALSE(marks.marked(0));
  for (int round = 0; round < 200; ++round) {
    std::set<std::size_t> reference;
    for (int i = 0; i < 20; ++i) {
      const std::size_t number = random.below(30);
      EXPECT_EQ(marks.mark(number), reference.insert(number).second);
    }
    for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(marks.marked(i), reference.contains(i));
    marks.new_round();
    for (std::size_t i = 0; i < 40; ++i) EXPECT_FALSE(marks.marked(i));
  }
}

}  // namespace
}  // namespace rubato::base
