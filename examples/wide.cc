// Twenty-five million parameters in square matrices, elastic, to measure the cost of growing and of
// moving state: `rubato run --workers 1:4 -- build/examples/wide --steps 100`.
#include "examples/models.h"
#include "rubato/train/trainer.h"

using namespace rubato;

int main(int argc, char** argv) {
  const train::Options options = train::parse_options(argc, argv, {.steps = 100, .batch = 64});
  torch::manual_seed(static_cast<std::int64_t>(options.seed));
  auto model = std::make_shared<examples::Wide>();
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const examples::Points data;

  train::State state(model, optimizer);
  return train::run(
      state, data, [&](const train::Batch& batch) { return model->loss(batch); }, options);
}
