#include "rubato/model/typed_speed.h"

#include <gtest/gtest.h>

#include "rubato/model/curve.h"

namespace rubato::model {
namespace {

constexpr GpuType kFast(0), kSlow(1);

std::shared_ptr<ThroughputTable> two_rows() {
  auto table = std::make_shared<ThroughputTable>(2, 2);
  table->set_alone(0, kFast, 1, 10);
  table->set_alone(0, kFast, 4, 31);
  table->set_alone(0, kSlow, 1, 0);
  table->set_alone(0, kSlow, 4, 8);
  table->set_alone(1, kFast, 2, 6);
  table->set_beside(0, 1, kFast, 4, 20);
  table->set_beside(1, 0, kFast, 4, 5);
  table->set_beside(0, 1, kSlow, 4, 7);
  table->set_beside(1, 0, kSlow, 4, 0);
  return table;
}

TEST(TypedSpeed, EachTypeHasItsOwnCurve) {
  const TypedSpeed speed(two_rows(), 0);
  EXPECT_EQ(speed.on(kFast, 1), 10);
  EXPECT_EQ(speed.on(kFast, 2), 17);
  EXPECT_EQ(speed.on(kFast, 4), 31);
  EXPECT_EQ(speed.on(kFast, 5), 0) << "above the last measurement";
  EXPECT_EQ(speed.on(kFast, 0), 0);
  EXPECT_EQ(speed.on(kSlow, 1), 0) << "it was tried and does not fit";
  EXPECT_EQ(speed.on(kSlow, 3), 0) << "nobody knows from which count on it fits";
  EXPECT_EQ(speed.on(kSlow, 4), 8);
  EXPECT_EQ(speed.on(GpuType(2), 1), 0) << "a type nobody measured";
  EXPECT_EQ(std::vector<int>(speed.measured().begin(), speed.measured().end()),
            (std::vector<int>{1, 4}));
  EXPECT_EQ(TypedSpeed(two_rows(), 1).on(kFast, 1), 3) << "below the first: in proportion";
}

TEST(TypedSpeed, APairRunsAsMeasuredOrNotAtAll) {
  const auto table = two_rows();
  const TypedSpeed one(table, 0), two(table, 1);
  EXPECT_EQ(one.beside({kFast, 4, 0, 0}, two), 20);
  EXPECT_EQ(two.beside({kFast, 4, 0, 0}, one), 5);
  EXPECT_EQ(one.beside({kFast, 1, 0, 0}, two), 0) << "not measured";
  EXPECT_EQ(one.beside({kSlow, 4, 0, 0}, two), 0) << "the other cannot run";
  EXPECT_EQ(one.beside({kFast, 4, 0, 0}, one), 0);
  EXPECT_EQ(one.beside({kFast, 4, 0, 0}, TypedSpeed(two_rows(), 1)), 0) << "of another table";
  EXPECT_EQ(one.beside({kFast, 4, 0, 0}, ConstantSpeed(1)), 0);
  EXPECT_EQ(ConstantSpeed(1).beside({kFast, 4, 0, 0}, one), 0);
}

}  // namespace
}  // namespace rubato::model
