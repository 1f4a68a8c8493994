// Elastic data-parallel training of code that was written for one device.
//
//   torch::manual_seed(options.seed);
//   auto model = std::make_shared<Net>();
//   torch::optim::SGD optimizer(model->parameters(), 0.1);
//   train::State state(model, optimizer);
//   return train::run(state, data, [&](const train::Batch& batch) { return loss(batch); },
//   options);
//
// If `rubato run` starts the program, it is one of several workers, and their number changes while
// they train. Workers join without stopping the others, leave after finishing their step, and may
// be killed. If you start it by hand, it trains alone. In the fixed batch mode the trained model is
// the same in all cases, bit for bit. docs/elastic.md says how.
//
// Names are those of Horovod where it has one: the state is what a joining worker receives,
// commit() makes it durable, and reset callbacks are called when the members have changed. Unlike
// Horovod, nothing is rolled back to a commit, because every step is one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rubato/elastic/driver.h"
#include "rubato/train/dataset.h"
#include "rubato/train/options.h"
#include "rubato/train/torch.h"

namespace rubato::train {

using elastic::World;

struct StepResult {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t samples = 0;
  double loss = 0;
  int workers = 1;
};

// What a joining worker receives, and what a checkpoint holds.
class State {
 public:
  State(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer)
      : model_(std::move(model)), optimizer_(optimizer) {}

  // Called on every worker between two steps when the members have changed.
  void on_reset(std::function<void(const World&)> callback) {
    on_reset_.push_back(std::move(callback));
  }
  // Called on every worker after each step that it has applied.
  void on_step(std::function<void(const StepResult&)> callback) {
    on_step_.push_back(std::move(callback));
  }
  // Sets the learning rate of each step. It must be a function of the step alone, so that all
  // workers agree.
  void schedule(std::function<double(std::int64_t step)> learning_rate) {
    learning_rate_ = std::move(learning_rate);
  }
  // Writes a checkpoint at the next step boundary.
  void commit() {
    commit_requested_ = true;
    if (commit_) commit_();
  }

 private:
  friend class ReplicaModel;

  std::shared_ptr<torch::nn::Module> model_;
  torch::optim::Optimizer& optimizer_;
  std::vector<std::function<void(const World&)>> on_reset_;
  std::vector<std::function<void(const StepResult&)>> on_step_;
  std::function<double(std::int64_t)> learning_rate_;
  bool commit_requested_ = false;
  std::function<void()> commit_;  // while it trains
};

// Trains until the end and returns the worker's exit code (wire/launch.h). If it is 0, the state
// holds the trained model, on every worker that was a member at the end.
[[nodiscard]] int run(State& state, const Dataset& data,
                      const std::function<torch::Tensor(const Batch&)>& loss,
                      const Options& options);

}  // namespace rubato::train
