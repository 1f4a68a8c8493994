// The cost of the goodput model on one core: choosing a batch, looking it up, fitting.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/random.h"
#include "rubato/model/fit.h"
#include "rubato/model/goodput.h"

namespace rubato::bench {
namespace {

// About ResNet-50 on ImageNet with 4-GPU nodes.
const Goodput kGoodput{
    {0.064, 0.0045, 0.044, 0.0001, 0.29, 0.0055, 2.3}, {1.1, 5.2}, {200, 12800, 20, 200, true}};

Footprint place_of(int gpus) { return {(gpus + 3) / 4, gpus}; }

void best_batch(benchmark::State& state) {
  const Footprint place = place_of(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    auto best = kGoodput.best(place);
    benchmark::DoNotOptimize(best);
  }
}
BENCHMARK(best_batch)->ArgName("gpus")->Arg(1)->Arg(4)->Arg(16)->Arg(64);

void table_lookup(benchmark::State& state) {
  GoodputTable table(kGoodput, 64);
  int gpus = 0;
  for (auto _ : state) {
    gpus = gpus % 64 + 1;
    benchmark::DoNotOptimize(table.at(place_of(gpus)));
  }
}
BENCHMARK(table_lookup);

// Everything that a scheduler may ask about one job after a new fit.
void fill_table(benchmark::State& state) {
  for (auto _ : state) {
    GoodputTable table(kGoodput, 64);
    for (int gpus = 1; gpus <= 64; ++gpus) {
      benchmark::DoNotOptimize(table.at({1, gpus}));
      benchmark::DoNotOptimize(table.at({std::min(gpus, 2), gpus}));
    }
  }
}
BENCHMARK(fill_table)->Unit(benchmark::kMicrosecond);

// Measurements with 5% noise at random places and batches.
void fit_measurements(benchmark::State& state) {
  Random random(1);
  std::vector<StepMeasurement> measurements;
  for (int i = 0; i < state.range(0); ++i) {
    const Footprint place = place_of(1 << random.below(5));
    const Batch batch{static_cast<int>(random.log_uniform(20, 200)), 0};
    const double noise = random.uniform(0.95, 1.05);
    measurements.push_back({place, batch, kGoodput.time.iteration(place, batch) * noise,
                            kGoodput.time.grad(batch.per_gpu) * noise});
  }
  for (auto _ : state) {
    auto fitted = fit_step_time(measurements);
    CHECK(fitted.ok());
    benchmark::DoNotOptimize(fitted->overlap);
  }
}
BENCHMARK(fit_measurements)
    ->ArgName("count")
    ->Arg(1)
    ->Arg(10)
    ->Arg(50)
    ->Arg(300)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rubato::bench
