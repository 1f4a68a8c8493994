// How well the model predicts real step times. For each application of the published profiles, it
// is fitted to a random third of the measurements and predicts the rest.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <istream>
#include <string>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing.h"
#include "rubato/base/text.h"
#include "rubato/model/fit.h"

namespace rubato::model {
namespace {

struct Expectation {
  const char* application;
  // Of the relative error of a step time: about 1.3 times the worst of 200 seeds.
  double median;
  double p90;
};

constexpr std::uint64_t kSeeds = 5;

// Columns placement,local_bsz,step_time,sync_time; the placement "44" is two nodes of four GPUs.
std::vector<StepMeasurement> read_placements(std::istream& file) {
  std::vector<StepMeasurement> all;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const auto cells = split(trim(line), ',');
    if (cells.size() != 4) continue;
    Footprint place{static_cast<int>(cells[0].size()), 0};
    for (const char digit : cells[0]) place.gpus += digit - '0';
    all.push_back(StepMeasurement::of_sync(place, static_cast<int>(parse_integer(cells[1]).value()),
                                           parse_double(cells[2]).value(),
                                           parse_double(cells[3]).value()));
  }
  return all;
}

struct Quality {
  double median = 0;
  double p90 = 0;
};

Quality quality(const std::vector<StepMeasurement>& all, std::uint64_t seed) {
  Random random(seed);
  std::vector<StepMeasurement> known;
  std::vector<StepMeasurement> rest;
  for (const auto& m : all) (random.below(3) == 0 ? known : rest).push_back(m);
  const auto model = fit_step_time(known);
  EXPECT_TRUE(model.ok());
  std::vector<double> errors;
  errors.reserve(rest.size());
  for (const auto& m : rest)
    errors.push_back(std::abs(model->iteration(m.place, m.batch) / m.step_seconds - 1));
  std::sort(errors.begin(), errors.end());
  return {errors[errors.size() / 2], errors[errors.size() * 9 / 10]};
}

class FitQuality : public ::testing::TestWithParam<Expectation> {};

TEST_P(FitQuality, AThirdPredictsTheRest) {
  const auto& expected = GetParam();
  const std::string path =
      fmt::format("{}/pollux/profiles/{}/placements.csv", shared_data(), expected.application);
  std::ifstream file(path);
  if (!file) GTEST_SKIP() << "no " << path;
  const auto all = read_placements(file);
  ASSERT_GT(all.size(), 500U);
  Quality mean;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Quality one = quality(all, seed);
    mean.median += one.median / kSeeds;
    mean.p90 += one.p90 / kSeeds;
    EXPECT_LT(one.median, expected.median) << "seed " << seed;
    EXPECT_LT(one.p90, expected.p90) << "seed " << seed;
  }
  RecordProperty("median_error", std::to_string(mean.median));
  RecordProperty("p90_error", std::to_string(mean.p90));
  std::printf("%-12s %4zu step times: median error %4.1f%%, 90th percentile %4.1f%%\n",
              expected.application, all.size(), 100 * mean.median, 100 * mean.p90);
}

INSTANTIATE_TEST_SUITE_P(
    Applications, FitQuality,
    ::testing::Values(Expectation{"bert", 0.08, 0.32}, Expectation{"cifar10", 0.09, 0.22},
                      Expectation{"deepspeech2", 0.09, 0.24}, Expectation{"imagenet", 0.07, 0.22},
                      Expectation{"ncf", 0.09, 0.28}, Expectation{"yolov3", 0.09, 0.33}),
    [](const auto& info) { return std::string(info.param.application); });

}  // namespace
}  // namespace rubato::model
