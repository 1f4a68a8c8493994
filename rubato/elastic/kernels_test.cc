#include "rubato/elastic/kernels.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <set>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::elastic {
namespace {

std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.uniform(-3, 3));
  return values;
}

bool same_bits(std::span<const float> one, std::span<const float> two) {
  if (one.size() != two.size()) return false;
  return one.empty() || std::memcmp(one.data(), two.data(), one.size_bytes()) == 0;
}

const std::vector<std::size_t> kSizes = {0, 1, 15, 16, 17, 4095, 4096, 4097, 8192, 20'011};

TEST(Kernels, CopyAddAndScaleDoWhatALoopDoes) {
  for (const std::size_t size : kSizes) {
    const std::vector<float> from = random_floats(size, 1);
    const std::vector<float> before = random_floats(size, 2);
    std::vector<float> sum = before;
    for (std::size_t i = 0; i < size; ++i) sum[i] = before[i] + from[i];

    std::vector<float> into = before;
    add(into, from);
    EXPECT_TRUE(same_bits(into, sum));
    into = before;
    (void)add_measured(into, from);
    EXPECT_TRUE(same_bits(into, sum));
    copy(into, from);
    EXPECT_TRUE(same_bits(into, from));
    into = before;
    (void)copy_measured(into, from);
    EXPECT_TRUE(same_bits(into, from));
    for (float& value : sum = from) value *= 0.3F;
    scale(into, from, 0.3F);
    EXPECT_TRUE(same_bits(into, sum));
  }
}

TEST(Kernels, TheSignOfZeroFollowsTheRulesOfAddition) {
  std::vector<float> into = {-0.0F, -0.0F};
  add(into, std::vector<float>{-0.0F, 0.0F});
  EXPECT_TRUE(std::signbit(into[0]));
  EXPECT_FALSE(std::signbit(into[1]));
  copy(into, std::vector<float>{0.0F, -0.0F});
  EXPECT_TRUE(std::signbit(into[1]));
}

TEST(Kernels, TheNormIsThatOfTheSourceAndTheSameInEveryVersionAndAlignment) {
  for (const std::size_t size : kSizes) {
    const std::vector<float> from = random_floats(size, 3);
    double expected = 0;
    for (const float value : from) expected += static_cast<double>(value) * value;
    const double norm = measure(from).sqr_norm;
    EXPECT_NEAR(norm, expected, kNormError * expected);
    std::vector<float> into = random_floats(size, 4);
    EXPECT_EQ(add_measured(into, from).sqr_norm, norm);
    EXPECT_EQ(copy_measured(into, from).sqr_norm, norm);
    for (std::size_t shift = 1; shift < 4; ++shift) {
      std::vector<float> shifted(size + shift);
      std::copy(from.begin(), from.end(), shifted.begin() + static_cast<std::ptrdiff_t>(shift));
      EXPECT_EQ(measure(std::span(shifted).subspan(shift)).sqr_norm, norm);
    }
  }
}

TEST(Kernels, LargeAndSmallGradientsNeitherOverflowNorVanishInTheNorm) {
  const std::vector<float> large(100, 1e30F);
  EXPECT_TRUE(measure(large).finite);
  EXPECT_NEAR(measure(large).sqr_norm / 1e62, 1, 1e-6);
  EXPECT_GT(measure(std::vector<float>{1e-30F}).sqr_norm, 0);
}

TEST(Kernels, EveryPlaceIsCheckedForFiniteness) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {infinity, -infinity, nan, -nan}) {
    for (const std::size_t place : {0U, 7U, 15U, 16U, 4095U, 4096U, 5000U, 5002U}) {
      std::vector<float> from = random_floats(5003, 5);
      std::vector<float> into(from.size());
      EXPECT_TRUE(copy_measured(into, from).finite);
      from[place] = bad;
      EXPECT_FALSE(copy_measured(into, from).finite);
      EXPECT_FALSE(add_measured(into, from).finite);
      EXPECT_FALSE(measure(from).finite);
    }
  }
  std::vector<float> into = {infinity};
  EXPECT_TRUE(add_measured(into, std::vector<float>{1}).finite) << "the source alone is judged";
}

TEST(Kernels, AHashChangesWithEveryBitTheLengthAndTheSeed) {
  for (const std::size_t size : {1U, 8U, 63U, 64U, 65U, 200U}) {
    std::vector<std::byte> bytes(size, std::byte{0x5A});
    std::set<std::uint64_t> seen = {hash(bytes, 1), hash(bytes, 2)};
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      seen.insert(hash(bytes, 1));
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    EXPECT_EQ(seen.size(), 2 + 8 * size);
  }
  const std::vector<std::byte> zeros(1000);
  std::set<std::uint64_t> lengths;
  for (std::size_t size = 0; size <= zeros.size(); ++size) {
    lengths.insert(hash(std::span(zeros).first(size), 1));
  }
  EXPECT_EQ(lengths.size(), zeros.size() + 1);
}

TEST(Kernels, TwoFlippedSignsDoNotCancelOutInTheHash) {
  std::vector<float> values(1024, 1.0F);
  std::set<std::uint64_t> seen = {hash(std::as_bytes(std::span(values)), 0)};
  for (std::size_t second = 1; second < values.size(); ++second) {
    values[0] = values[second] = -1.0F;
    seen.insert(hash(std::as_bytes(std::span(values)), 0));
    values[0] = values[second] = 1.0F;
  }
  EXPECT_EQ(seen.size(), values.size());
}

}  // namespace
}  // namespace rubato::elastic
