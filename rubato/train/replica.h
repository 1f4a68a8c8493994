// One copy of a model and its optimizer, and everything in the training library that needs torch.
//
// In a step, leaf() is called once for each virtual worker of this process. It leaves the subtree
// sums of weighted gradients (elastic/tree.h) in the slots. Other code reduces the slots over all
// processes. apply() takes the reduced vector (elastic/layout.h) and makes the optimizer step. The
// result does not depend on which process computes which leaf: the same leaves give the same bits,
// if every process runs torch with the same number of threads on the same type of processor.
//
// A module's buffers (batch-norm statistics) belong to the step, not to the leaf. Every leaf starts
// from their value at the start of the step. The step then changes them by the weighted mean of the
// changes in the leaves. So between leaf() and apply() the module's own buffers hold intermediate
// values. chunk() and digest() use those at the start of the step.
//
// State is sent to a joining worker in chunks: one for each parameter with its part of the
// optimizer, and a last one for the buffers. Learning rates are not state, because a schedule must
// be a function of the step. A chunk may be from an older step than the next chunk. A joining
// worker applies each step to the chunks that it has.
//
// For one thread at a time, except slot contents after bucket_ready. On the CPU, autograd runs in
// the thread that calls leaf(), so bucket_ready is called there, too. On CUDA, it is called in
// autograd's thread while leaf() waits. torch::manual_seed is global in the process, so two
// replicas in one process must take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/elastic/accumulator.h"
#include "rubato/elastic/layout.h"
#include "rubato/elastic/tree.h"
#include "rubato/train/device.h"
#include "rubato/train/torch.h"

namespace rubato::train {

struct OptimizerKind;

struct LeafResult {
  double loss = 0;  // as the function returned it, without the weight
  // For the weighted gradient. 0 and true unless measured.
  double gradient_sqr_norm = 0;
  bool finite = true;
};

struct Chunk {
  std::string head;                              // which optimizer tensors follow the value; steps
  std::vector<std::span<const std::byte>> body;  // to be sent one after the other
  std::vector<torch::Tensor> tensors;            // what the body points into
};

class Replica {
 public:
  // Moves the module to the device. The optimizer must outlive the replica. It must hold all
  // parameters that are trained, and may hold frozen ones. After this call the module's parameters
  // are fixed: to freeze or add one, make a new replica.
  [[nodiscard]] static Result<std::unique_ptr<Replica>> create(
      std::shared_ptr<torch::nn::Module> module, torch::optim::Optimizer& optimizer, Device device,
      std::size_t bucket_floats);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Covers the parameters that are trained. The tail is the loss, then all elements of all buffers.
  [[nodiscard]] const elastic::Layout& layout() const { return accumulator_->layout(); }
  // For the comparison with another worker's schema (elastic/schema.h).
  [[nodiscard]] Json schema() const;
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] torch::nn::Module& module() { return *module_; }

  // Computes the gradient of one leaf and adds it to the slots. `weight` is the leaf's share of the
  // step's samples. A parameter without a gradient counts as zero. `bucket_ready` may be set for
  // the last leaf of a range. It is called for every bucket when the slots hold all of it, in
  // ascending order, the tail last. It must not throw. After an error the content of the slots is
  // undefined.
  [[nodiscard]] Result<LeafResult> leaf(const elastic::LeafStep& step, double weight,
                                        std::uint64_t random_seed,
                                        const std::function<torch::Tensor()>& loss,
                                        bool measure_noise,
                                        const std::function<void(int bucket)>& bucket_ready = {});

  [[nodiscard]] std::span<float> slot(int index) { return accumulator_->slot(index); }

  // One optimizer step with the reduced vector. The learning rate of every group is the optimizer's
  // own, multiplied by `learning_rate_factor` for this step only. So a schedule may set the
  // optimizer's rate. `reduced` is only read, and not kept. `held` (by chunk) restricts the step to
  // the parameters and buffers that a joining worker already has. Empty means all.
  void apply(std::span<const float> reduced, double learning_rate_factor,
             const std::vector<bool>& held = {});

  [[nodiscard]] int chunks() const { return static_cast<int>(parameters_.size()) + 1; }
  // Points into the live state on the CPU. Valid until the next apply() or load_chunk(), also while
  // leaves are computed.
  [[nodiscard]] Chunk chunk(int index);
  // After an error nothing has changed.
  [[nodiscard]] Result<void> load_chunk(int index, std::string_view head,
                                        std::span<const std::byte> body);

  // Covers all parameters, buffers and optimizer state. Equal replicas have equal digests.
  [[nodiscard]] std::uint64_t digest();

 private:
  struct Parameter {
    std::string name;
    torch::Tensor tensor;
    int trained = -1;  // its index in the layout; -1 = frozen
  };
  struct Buffer {
    std::string name;
    torch::Tensor tensor;    // the module's own
    torch::Tensor start;     // its value at the start of the step, on the CPU
    std::size_t offset = 0;  // in the tail
  };
  // The node of autograd that stores a parameter's gradient. It is kept alive for the hook on it.
  struct Hooked {
    std::shared_ptr<torch::autograd::Node> node;
    std::uintptr_t hook = 0;
  };
  class Hook;

  Replica(std::shared_ptr<torch::nn::Module> module, torch::optim::Optimizer& optimizer,
          const OptimizerKind& kind, Device device);

  [[nodiscard]] Result<void> adopt_parameters();
  [[nodiscard]] Result<void> adopt_buffers();
  [[nodiscard]] Result<void> compare_with_optimizer() const;
  void lay_out(std::size_t bucket_floats);
  void hook_gradients();

  void gradient_arrived(int trained);
  void fill_tail(double weighted_loss, double weight);
  void clear_gradients();
  void restore_buffers();
  void step_optimizer(double learning_rate_factor);
  void move_buffers(std::span<const float> tail);

  [[nodiscard]] torch::optim::OptimizerParamState* state_of(const Parameter& parameter);
  [[nodiscard]] Result<void> load_parameter(Parameter& parameter, std::string_view head,
                                            std::span<const std::byte> body);
  [[nodiscard]] Result<void> load_buffers(std::span<const std::byte> body);

  std::shared_ptr<torch::nn::Module> module_;
  torch::optim::Optimizer& optimizer_;
  const OptimizerKind& kind_;
  Device device_;
  std::size_t bucket_floats_ = 0;
  std::vector<Parameter> parameters_;  // in order of registration, each tensor once
  std::vector<int> trained_;           // indices of the trained ones
  std::vector<Buffer> buffers_;
  std::optional<elastic::Accumulator> accumulator_;
  std::vector<Hooked> hooked_;
  float weight_ = 1;         // of the leaf
  std::string problem_;      // of the pass that is running
  std::vector<float> tail_;  // memory in which a leaf's tail is composed
};

}  // namespace rubato::train
