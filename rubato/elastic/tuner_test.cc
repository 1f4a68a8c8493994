#include "rubato/elastic/tuner.h"

#include <cmath>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rubato/base/random.h"
#include "rubato/model/testing.h"

namespace rubato::elastic {
namespace {

// A job with a known true model. It measures what the model says, with some jitter.
class Job {
 public:
  Job(const Goodput& truth, double jitter, std::uint64_t seed = 1)
      : truth_(truth), jitter_(jitter), random_(seed) {}

  void step(Tuner& tuner, const Footprint& place, const Batch& batch) {
    const auto about = [&](double x) { return x * random_.uniform(1 - jitter_, 1 + jitter_); };
    const double grad = truth_.time.grad(batch.per_gpu);
    const double optim = truth_.time.iteration(place, batch) - batch.accumulation * grad;
    const double grad_measured = about(grad);
    EXPECT_TRUE(tuner.measured(
        {place, batch, about(optim) + batch.accumulation * grad_measured, grad_measured}));
    // n micro-gradients of m samples: E|g_i|^2 = sqr + var M0/m, E|mean|^2 = sqr + var M0/M.
    const double global = batch.global(place.gpus);
    const int count = place.gpus * (batch.accumulation + 1);
    const double ratio = global / truth_.limits.initial;
    const auto norm = [&](double samples) {
      return truth_.noise.sqr + truth_.noise.var * truth_.limits.initial / samples;
    };
    if (count > 1) {
      tuner.noise(MicroGradients{count, norm(batch.per_gpu), norm(global)}, ratio);
    } else {
      tuner.noise(SuccessiveGradients{norm(global), norm(global), norm(2 * global)}, ratio);
    }
  }

  // Runs steps and chooses after every tenth. Returns how often the batch changed.
  int run(Tuner& tuner, const Footprint& place, Batch& batch, int steps) {
    int changes = 0;
    for (int i = 1; i <= steps; ++i) {
      step(tuner, place, batch);
      if (i % 10 != 0) continue;
      const auto choice = tuner.choose(place, batch, place.gpus);
      EXPECT_TRUE(choice.ok());
      if (choice->batch == batch) continue;
      batch = choice->batch;
      ++changes;
    }
    return changes;
  }

  Goodput truth_;

 private:
  double jitter_;
  Random random_;
};

// About ResNet-50 on ImageNet.
const Goodput kTruth{
    {0.064, 0.0045, 0.044, 0.0001, 0.29, 0.0055, 2.3}, {1.0, 5.0}, {200, 12800, 20, 200, true}};
const TunerLimits kLimits{kTruth.limits, LearningRateRule::adascale};

TEST(Tuner, BeforeTheFirstStepTheSmallestBatchThatFills) {
  Tuner tuner(kLimits);
  const auto few = tuner.choose({1, 4}, {50, 0}, 4);
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->batch, (Batch{50, 0}));
  EXPECT_EQ(few->learning_rate_factor, 1);
  EXPECT_EQ(few->goodput, 0);
  EXPECT_EQ(few->reason, "M 200 on 4 workers: no step measured yet");
  const auto many = tuner.choose({4, 16}, {50, 0}, 4);
  ASSERT_TRUE(many.ok());
  EXPECT_EQ(many->batch, (Batch{20, 0}));
  EXPECT_EQ(many->reason, "M 200 -> 320 on 16 workers: no step measured yet");
}

TEST(Tuner, FindsTheBestBatchFromWhatItMeasures) {
  for (const Footprint place : {Footprint{1, 1}, {1, 2}, {1, 4}, {4, 16}}) {
    Tuner tuner(kLimits);
    Job job(kTruth, 0.05);
    Batch batch = tuner.choose(place, {}, place.gpus)->batch;
    job.run(tuner, place, batch, 600);
    const double best = kTruth.best(place)->goodput;
    EXPECT_GE(kTruth.at(place, batch), 0.93 * best)
        << place.gpus << " GPUs, batch " << batch.global(place.gpus);
    EXPECT_EQ(job.run(tuner, place, batch, 1000), 0) << "and stays";
  }
}

TEST(Tuner, ExplainsItself) {
  Tuner tuner(kLimits);
  Job job(kTruth, 0);
  const Footprint place{1, 4};
  Batch batch{50, 0};
  for (int i = 0; i < 10; ++i) job.step(tuner, place, batch);
  auto choice = tuner.choose(place, batch, 4);
  ASSERT_TRUE(choice.ok());
  const auto begins = [&](const std::string& start) { return choice->reason.starts_with(start); };
  EXPECT_TRUE(begins("M 200 -> ")) << choice->reason;
  EXPECT_TRUE(choice->reason.ends_with("samples/s, noise scale 1000")) << choice->reason;
  EXPECT_TRUE(choice->reason.find(" on 4 workers: goodput ") != std::string::npos);
  batch = choice->batch;
  job.run(tuner, place, batch, 100);
  choice = tuner.choose(place, batch, 4);
  EXPECT_TRUE(begins("kept ")) << choice->reason;
  choice = tuner.choose({1, 2}, batch, 4);
  EXPECT_TRUE(choice->reason.find("on 2 workers, after 4 workers: goodput") != std::string::npos)
      << choice->reason;
}

TEST(Tuner, TheLearningRateFollowsTheNoise) {
  const Footprint place{1, 4};
  Job job(kTruth, 0);
  for (const auto rule : {LearningRateRule::adascale, LearningRateRule::adascale_adam,
                          LearningRateRule::linear, LearningRateRule::sqrt}) {
    Tuner tuner({kTruth.limits, rule});
    for (int i = 0; i < 10; ++i) job.step(tuner, place, {100, 0});
    EXPECT_NEAR(tuner.noise().scale(200), 1000, 1e-6);
    const auto choice = tuner.choose(place, {100, 0}, 4);
    ASSERT_TRUE(choice.ok());
    EXPECT_NEAR(choice->learning_rate_factor,
                learning_rate_factor(rule, kTruth.noise, choice->batch.global(4) / 200), 1e-6);
  }
}

TEST(Tuner, ImpossibleLimitsAreASentence) {
  Tuner tuner({{64, 64, 16, 32, false}, LearningRateRule::linear});
  EXPECT_TRUE(tuner.choose({1, 2}, {32, 0}, 2).ok());
  for (const int gpus : {1, 8}) {  // too large for one, too small for eight
    const auto choice = tuner.choose({1, gpus}, {32, 0}, 2);
    ASSERT_FALSE(choice.ok());
    EXPECT_TRUE(choice.error().message.starts_with("no batch is allowed on "))
        << choice.error().message;
  }
}

TEST(Tuner, ABatchThatDoesNotDivideIsCutRatherThanRefused) {
  const Goodput fixed{kTruth.time, kTruth.noise, {100, 100, 1, 200, true}};
  Tuner tuner({fixed.limits, LearningRateRule::linear});
  Job job(fixed, 0);
  const Batch first = tuner.choose({1, 3}, {100, 0}, 1)->batch;
  EXPECT_EQ(first, (Batch{33, 0}));
  job.step(tuner, {1, 3}, first);
  EXPECT_EQ(tuner.choose({1, 3}, first, 3)->batch, first) << "the model offers none";
}

TEST(Tuner, WhatCannotBeIsIgnored) {
  Tuner tuner(kLimits);
  const Footprint place{1, 2};
  for (const double bad : {0.0, -1.0, 1e9, std::nan("")}) {
    EXPECT_FALSE(tuner.measured({place, {100, 0}, bad, 0.1}));
    EXPECT_FALSE(tuner.measured({place, {100, 0}, 0.1, bad}));
  }
  tuner.noise(MicroGradients{2, INFINITY, 1}, 1);
  EXPECT_TRUE(tuner.measured({place, {100, 3}, 0.1, 0.2})) << "alone its passes are too long";
  const auto choice = tuner.choose(place, {100, 0}, 2);
  ASSERT_TRUE(choice.ok());
  EXPECT_FALSE(tuner.step_time().has_value());
  EXPECT_EQ(choice->batch, (Batch{100, 0}));
}

TEST(Tuner, FitsAgainForANewKindOfStepOrAfterThirty) {
  Tuner tuner(kLimits);
  const Footprint place{1, 2};
  const auto fitted = [&] {
    EXPECT_TRUE(tuner.choose(place, {100, 0}, 2).ok());
    return tuner.step_time()->iteration(place, {100, 0});
  };
  tuner.measured({place, {100, 0}, 1, 0.5});
  const double first = fitted();
  for (int i = 0; i < 29; ++i) tuner.measured({place, {100, 0}, 2, 1});
  EXPECT_EQ(fitted(), first);
  tuner.measured({place, {100, 0}, 2, 1});
  const double second = fitted();
  EXPECT_GT(second, 1.5 * first);
  tuner.measured({place, {150, 0}, 5, 3});
  EXPECT_NE(fitted(), second);
}

RC_GTEST_PROP(Tuner, AveragesNoiseAsTheModelDoes, (std::uint64_t seed)) {
  Random random(seed);
  Tuner tuner(kLimits);
  NoiseAverage average;
  for (int i = 0; i < 50; ++i) {
    const double ratio = random.log_uniform(1, 100);
    const double a = random.log_uniform(1e-3, 1e3);
    const double b = random.log_uniform(1e-3, 1e3);
    if (random.below(3) == 0) {
      const SuccessiveGradients gradients{a, b, (a + b) / 4};
      tuner.noise(gradients, ratio);
      average.add(gradients, ratio);
    } else {
      const MicroGradients gradients{2 + static_cast<int>(random.below(20)), a, b};
      tuner.noise(gradients, ratio);
      average.add(gradients, ratio);
    }
    RC_ASSERT(tuner.noise().sqr == average.value().sqr);
    RC_ASSERT(tuner.noise().var == average.value().var);
  }
}

RC_GTEST_PROP(Tuner, KeepsTheLimitsAndComesToRest, (std::uint64_t seed)) {
  Random random(seed);
  const Goodput truth = random_goodput(random);
  const auto& limits = truth.limits;
  Tuner tuner({limits, LearningRateRule::adascale});
  Job job(truth, 0, random.next());
  const Footprint place = random_place(random, 16);
  Batch batch;
  int last_change = 0;
  for (int i = 0; i < 100; ++i) {
    const auto choice = tuner.choose(place, batch, i == 0 ? place.gpus + 1 : place.gpus);
    if (!choice.ok()) {
      RC_ASSERT(i == 0);
      return;
    }
    if (choice->batch != batch) last_change = i;
    batch = choice->batch;
    const double global = batch.global(place.gpus);
    RC_ASSERT(batch.per_gpu >= limits.per_gpu_min && batch.per_gpu <= limits.per_gpu_max);
    RC_ASSERT(global <= limits.largest);
    RC_ASSERT(limits.accumulate || batch.accumulation == 0);
    RC_ASSERT(choice->learning_rate_factor > 0 && std::isfinite(choice->learning_rate_factor));
    RC_ASSERT(!choice->reason.empty());
    for (int k = 0; k < 5; ++k) job.step(tuner, place, batch);
  }
  RC_ASSERT(last_change < 60);
}

RC_GTEST_PROP(Tuner, GoesOnFromJsonWithTheSameDecisions, (std::uint64_t seed)) {
  Random random(seed);
  const Goodput truth = random_goodput(random);
  const TunerLimits limits{truth.limits, LearningRateRule::adascale_adam};
  Tuner tuner(limits);
  Job job(truth, 0.2, random.next());
  Footprint place = random_place(random, 8);
  Batch batch;
  int gpus = 1;
  for (int i = 0; i < 60; ++i) {
    // Through text, as it is sent.
    const auto text = tuner.to_json().dump();
    auto copy = Tuner::from_json(limits, *parse_json(text, "state"));
    RC_ASSERT(copy.ok());
    RC_ASSERT(copy->to_json().dump() == text);
    const auto choice = tuner.choose(place, batch, gpus);
    const auto same = copy->choose(place, batch, gpus);
    RC_ASSERT(choice.ok() == same.ok());
    if (choice.ok()) {
      RC_ASSERT(choice->batch == same->batch && choice->goodput == same->goodput);
      RC_ASSERT(choice->learning_rate_factor == same->learning_rate_factor);
      RC_ASSERT(choice->reason == same->reason);
      batch = choice->batch;
      gpus = place.gpus;
      for (std::uint64_t k = random.below(12); k > 0; --k) job.step(tuner, place, batch);
    }
    if (random.below(8) == 0) place = random_place(random, 8);
  }
}

TEST(Tuner, BadJsonIsASentence) {
  Tuner tuner(kLimits);
  Job job(kTruth, 0);
  job.step(tuner, {1, 4}, {50, 0});
  ASSERT_TRUE(tuner.choose({1, 4}, {50, 0}, 4).ok());
  const Json good = tuner.to_json();
  const auto message = [&](const char* pointer, const Json& value) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = value;
    const auto read = Tuner::from_json(kLimits, bad);
    return read.ok() ? "no error" : read.error().message;
  };
  const std::string start = "state of the batch tuner";
  const std::string from_1 = ": must be a whole number from 1 to 2147483647";
  EXPECT_EQ(message("/steps/0/count", 0), start + ".steps[0].count" + from_1);
  EXPECT_EQ(message("/steps/0/gpus", 1.5), start + ".steps[0].gpus" + from_1);
  EXPECT_EQ(message("/steps/0/nodes", 5),
            start + ".steps[0]: must be a step with at least one GPU on each node");
  EXPECT_EQ(message("/steps", 1), start + ".steps: must be a list");
  EXPECT_EQ(message("/noise/var", "x"), start + ".noise.var: must be a number");
  EXPECT_EQ(message("/noise/weight", nullptr),
            start + ".noise.weight: must be a number from 0 to 1");
  EXPECT_EQ(message("/fit", 3), start + ".fit: must be an object");
  EXPECT_EQ(message("/fit/overlap", 0), start + ".fit: must be the fit of a step");
  EXPECT_EQ(message("/new_key", 1), start + ".new_key: must be true or false");
  EXPECT_EQ(Tuner::from_json(kLimits, Json::array()).error().message,
            start + ": must be an object");
  EXPECT_EQ(Tuner::from_json(kLimits, Json::object()).error().message,
            start + ": lacks the field \"new_key\"");
}

}  // namespace
}  // namespace rubato::elastic
