// One copy of a model and its optimizer, and all that the training library needs to know of torch.
//
// A step: leaf() once for each virtual worker of this process, which leaves the subtree sums of
// weighted gradients (elastic/tree.h) in the slots; others reduce the slots over all processes;
// apply() takes the reduced vector (elastic/layout.h) and steps. What a process adds up does not
// show in the result: the same leaves give the same bits however they are spread, provided that
// every process runs torch with the same number of threads on the same type of processor.
//
// A module's buffers (batch-norm statistics) belong to the step, not to the leaf: every leaf starts
// from their value at the start of the step, and the step moves them by the weighted mean of the
// moves of the leaves. Between leaf() and apply() the module's own buffers are therefore in the
// middle of something; chunk() and digest() speak of those at the start of the step.
//
// State is handed to a joining worker in chunks, one for each parameter with its part of the
// optimizer and a last one for the buffers. Learning rates are not state: a schedule must be a
// function of the step. A chunk may be of an older step than the next: a joiner applies each step
// to the chunks that it holds.
//
// One thread at a time, but for slot contents handed out by bucket_ready. On the CPU autograd runs
// in the thread that calls leaf(), so bucket_ready is called there too (on CUDA in autograd's
// thread, while leaf() waits). torch::manual_seed is the process's: two replicas in one process
// must take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/elastic/layout.h"
#include "rubato/elastic/tree.h"
#include "rubato/train/device.h"
#include "rubato/train/torch.h"

namespace rubato::train {

struct OptimizerKind;

struct LeafResult {
  double loss = 0;  // as the function returned it, without the weight
  // Of the weighted gradient; 0 and true unless measured.
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
  // Moves the module to the device. The optimizer must outlive the replica and hold exactly the
  // parameters that are trained; frozen ones it may hold. The module's parameters are fixed from
  // now on: whoever freezes or adds one makes a new replica.
  [[nodiscard]] static Result<std::unique_ptr<Replica>> create(
      std::shared_ptr<torch::nn::Module> module, torch::optim::Optimizer& optimizer, Device device,
      std::size_t bucket_floats);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // Over the parameters that are trained; the tail is the loss, then all elements of all buffers.
  [[nodiscard]] const elastic::Layout& layout() const { return layout_; }
  // To compare with another worker's (elastic/schema.h).
  [[nodiscard]] Json schema() const;
  [[nodiscard]] const Device& device() const { return device_; }
  [[nodiscard]] torch::nn::Module& module() { return *module_; }

  // Computes the gradient of one leaf and adds it into the slots. `weight` is the leaf's share of
  // the step's samples. A parameter without a gradient counts as zero. If `bucket_ready` is
  // set, which is for the last leaf of a range, it is called for every bucket once the slots hold
  // all of it, in ascending order, the tail last; it must not throw. After an error the slots hold
  // rubbish.
  [[nodiscard]] Result<LeafResult> leaf(const elastic::LeafStep& step, double weight,
                                        std::uint64_t random_seed,
                                        const std::function<torch::Tensor()>& loss,
                                        bool measure_noise,
                                        const std::function<void(int bucket)>& bucket_ready = {});

  // layout().total floats on a 64-byte boundary, allocated when first asked for, then in its place
  // for good.
  [[nodiscard]] std::span<float> slot(int index);

  // One optimizer step with the reduced vector. The learning rate of every group is the optimizer's
  // own, times `learning_rate_factor` for this step only, so a schedule may set the optimizer's.
  // `reduced` is only read, and not kept. `held`, by chunk, restricts the step to the parameters
  // and buffers that a joiner has already; empty = all.
  void apply(std::span<const float> reduced, double learning_rate_factor,
             const std::vector<bool>& held = {});

  [[nodiscard]] int chunks() const { return static_cast<int>(parameters_.size()) + 1; }
  // Points into the live state on the CPU: good until the next apply() or load_chunk(), also while
  // leaves are computed.
  [[nodiscard]] Chunk chunk(int index);
  // Nothing is changed if an error is returned.
  [[nodiscard]] Result<void> load_chunk(int index, std::string_view head,
                                        std::span<const std::byte> body);

  // Of all parameters, buffers and optimizer state: equal replicas have equal digests.
  [[nodiscard]] std::uint64_t digest();

 private:
  struct Parameter {
    std::string name;
    torch::Tensor tensor;
    int trained = -1;  // its place in the layout; -1 = frozen
  };
  struct Buffer {
    std::string name;
    torch::Tensor tensor;    // the module's own
    torch::Tensor start;     // its value at the start of the step, on the CPU
    std::size_t offset = 0;  // in the tail
  };
  // Autograd's node that stores a parameter's gradient, kept alive for the hook on it.
  struct Hooked {
    std::shared_ptr<torch::autograd::Node> node;
    std::uintptr_t hook = 0;
  };
  // A backward pass under way.
  struct Pass {
    const elastic::LeafStep* step = nullptr;
    const std::function<void(int)>* bucket_ready = nullptr;
    bool measure = false;
    std::vector<bool> arrived;      // by trained parameter
    std::vector<double> sqr_norms;  // by trained parameter: added up in one order
    std::vector<int> missing;       // by bucket: parameters not arrived
    int next_bucket = 0;
    bool finite = true;
    std::string problem;
  };
  struct FreeAligned {
    void operator()(float* floats) const;
  };

  class Hook;

  Replica(std::shared_ptr<torch::nn::Module> module, torch::optim::Optimizer& optimizer,
          const OptimizerKind& kind, Device device);

  [[nodiscard]] Result<void> adopt_parameters();
  [[nodiscard]] Result<void> adopt_buffers();
  [[nodiscard]] Result<void> compare_with_optimizer() const;
  void lay_out(std::size_t bucket_floats);
  void hook_gradients();

  void begin_pass(const elastic::LeafStep& step, bool measure,
                  const std::function<void(int)>& bucket_ready);
  void gradient_arrived(int trained);
  void add_absent_gradients();
  void fill_tail(double weighted_loss, double weight);
  void deposit(std::size_t offset, std::span<const float> values, int trained);
  void count_arrival(int trained);
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
  elastic::Layout layout_;
  std::vector<Hooked> hooked_;
  std::vector<std::unique_ptr<float[], FreeAligned>> slots_;
  Pass pass_;
  std::vector<float> tail_;  // room to compose a leaf's tail in
};

}  // namespace rubato::train
