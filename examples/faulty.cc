// A trainer that fails or waits as the environment variables say. e2e/elastic.sh uses it.
//
//   MODEL=NAME        perceptron (the default, and a narrow one), resnet or transformer, each as
//                     its example trains it
//   SAMPLES=NUMBER    size of the data set
//   FAULT=nan:STEP    the loss of step STEP is not a number
//   FAULT=throw:STEP  the loss of step STEP throws
//   FAULT=shape       workers from the second on have a wider layer than the first
//   FAULT=slow        workers from the second on take 30 ms longer for each part of a batch
//   GATES=STEP,...    whoever computes step STEP waits until the file gate-STEP is in the working
//                     directory; so a script can resize and kill at a known step. From the first
//                     of these steps on each part of a batch takes 50 ms longer while there is no
//                     file named fast, so that workers can join in few steps
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "examples/models.h"
#include "rubato/train/trainer.h"

using namespace rubato;

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::int64_t number(const char* name, std::int64_t otherwise) {
  const std::string text = environment(name);
  return text.empty() ? otherwise : std::stoll(text);
}

// The step of "nan:STEP" if `text` begins with `kind`. Otherwise a step that is never reached.
std::int64_t fault_step(const std::string& text, const std::string& kind) {
  return text.starts_with(kind + ":") ? std::stoll(text.substr(kind.size() + 1)) : -1;
}

std::set<std::int64_t> gates() {
  std::set<std::int64_t> steps;
  std::istringstream text(environment("GATES"));
  for (std::string step; std::getline(text, step, ',');) steps.insert(std::stoll(step));
  return steps;
}

void wait_at_gate(const std::set<std::int64_t>& gates, std::int64_t step) {
  if (gates.empty() || step < *gates.begin()) return;
  if (!std::filesystem::exists("fast")) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (!gates.contains(step)) return;
  const std::string file = "gate-" + std::to_string(step);
  while (!std::filesystem::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

struct Job {
  std::shared_ptr<examples::Model> model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::unique_ptr<train::Dataset> data;
};

std::unique_ptr<torch::optim::Optimizer> sgd(examples::Model& model) {
  return std::make_unique<torch::optim::SGD>(model.parameters(),
                                             torch::optim::SGDOptions(0.05).momentum(0.9));
}

Job make_job(const std::string& name, bool wider) {
  const auto samples = static_cast<std::size_t>(number("SAMPLES", 50'000));
  Job job;
  if (name == "resnet") {
    job.model = std::make_shared<examples::ResNet>();
    job.optimizer = sgd(*job.model);
    job.data = std::make_unique<examples::Gratings>(1, samples);
  } else if (name == "transformer") {
    job.model = std::make_shared<examples::Transformer>();
    job.optimizer = std::make_unique<torch::optim::AdamW>(job.model->parameters(),
                                                          torch::optim::AdamWOptions(0.003));
    job.data = std::make_unique<examples::Sentences>(1, samples);
  } else {
    job.model = std::make_shared<examples::Perceptron>(wider ? 96 : 64);
    job.optimizer = sgd(*job.model);
    job.data = std::make_unique<examples::Points>(1, samples);
  }
  return job;
}

}  // namespace

int main(int argc, char** argv) {
  const train::Options options = train::parse_options(argc, argv, {.steps = 150, .batch = 16});
  const std::string fault = environment("FAULT");
  const bool late = number("RUBATO_WORKER", 0) >= 2;
  const std::int64_t nan_step = fault_step(fault, "nan");
  const std::int64_t throw_step = fault_step(fault, "throw");
  const std::set<std::int64_t> waits = gates();
  const std::chrono::milliseconds slower(fault == "slow" && late ? 30 : 0);

  torch::manual_seed(static_cast<std::int64_t>(options.seed));
  const Job job = make_job(environment("MODEL"), fault == "shape" && late);
  train::State state(job.model, *job.optimizer);
  std::atomic<std::int64_t> step = 1;  // the one being computed
  state.on_step([&](const train::StepResult& result) { step = result.step + 1; });
  const auto loss = [&](const train::Batch& batch) {
    wait_at_gate(waits, step);
    std::this_thread::sleep_for(slower);
    if (step == throw_step) throw std::runtime_error("this loss was asked to throw");
    const torch::Tensor value = job.model->loss(batch);
    return step == nan_step ? value * NAN : value;
  };
  return train::run(state, *job.data, loss, options);
}
