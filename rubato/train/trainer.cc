#include "rubato/train/trainer.h"

#include <csignal>
#include <fmt/format.h>

#include "rubato/train/replica.h"

namespace rubato::train {

using elastic::Driver;

namespace {

int refuse(const std::string& why) {
  elastic::say_on_stderr(why);
  return wire::kRefused;
}

}  // namespace

// A replica with the callbacks of its state, as the driver sees it.
class ReplicaModel : public elastic::Model {
 public:
  ReplicaModel(State& state, std::unique_ptr<Replica> replica)
      : state_(state), replica_(std::move(replica)) {}
  ~ReplicaModel() override { state_.commit_ = nullptr; }

  [[nodiscard]] static Result<std::unique_ptr<ReplicaModel>> create(State& state,
                                                                    const Options& options) {
    const Result<Device> device = Device::parse(options.device);
    if (!device) return device.error();
    auto replica = Replica::create(state.model_, state.optimizer_, *device,
                                   options.bucket_bytes / sizeof(float));
    if (!replica) return replica.error();
    return std::make_unique<ReplicaModel>(state, std::move(*replica));
  }

  [[nodiscard]] Replica& replica() { return *replica_; }
  void commits_through(Driver& driver) {
    if (state_.commit_requested_) driver.commit();
    state_.commit_ = [&driver] { driver.commit(); };
  }

  [[nodiscard]] const elastic::Layout& layout() const override { return replica_->layout(); }
  [[nodiscard]] Json schema() const override { return replica_->schema(); }
  [[nodiscard]] std::span<float> slot(int index) override { return replica_->slot(index); }
  [[nodiscard]] int chunks() const override { return replica_->chunks(); }

  [[nodiscard]] Result<elastic::StateChunk> chunk(int index) override {
    Chunk chunk = replica_->chunk(index);
    kept_.insert(kept_.end(), chunk.tensors.begin(), chunk.tensors.end());
    return elastic::StateChunk{std::move(chunk.head), std::move(chunk.body)};
  }
  void release() override { kept_.clear(); }

  [[nodiscard]] Result<void> load_chunk(int index, std::string_view head,
                                        std::span<const std::byte> body) override {
    return replica_->load_chunk(index, head, body);
  }

  [[nodiscard]] Result<void> apply(const Step& step) override {
    if (state_.learning_rate_) {
      const double rate = state_.learning_rate_(step.plan.step);
      for (auto& group : state_.optimizer_.param_groups()) group.options().set_lr(rate);
    }
    rate_ = state_.optimizer_.param_groups().front().options().get_lr() *
            step.plan.learning_rate_factor;
    replica_->apply(step.result, step.plan.learning_rate_factor, step.held);
    if (!step.held.empty()) return {};
    const elastic::Layout& layout = replica_->layout();
    const double loss = step.result[layout.buckets.back().offset];
    const StepResult result{step.plan.step, step.plan.epoch, step.plan.samples, loss, step.workers};
    for (const auto& callback : state_.on_step_) callback(result);
    return {};
  }

  void describe(std::span<const float> /*result*/, Json& report) override {
    report["learning_rate"] = rate_;
  }

  void members_changed(const World& world) override {
    for (const auto& callback : state_.on_reset_) callback(world);
  }

 private:
  State& state_;
  std::unique_ptr<Replica> replica_;
  double rate_ = 0;                  // learning rate of the last step
  std::vector<torch::Tensor> kept_;  // tensors that chunks on their way point into
};

namespace {

Result<LeafResult> compute(Replica& replica, const Driver::Leaf& leaf, const Dataset& data,
                           const std::function<torch::Tensor(const Batch&)>& loss) {
  try {
    const auto loss_of_leaf = [&] {
      Batch batch = data.batch(leaf.indices);
      if (!replica.device().is_cpu()) {
        batch = {batch.data.to(replica.device().torch), batch.target.to(replica.device().torch)};
      }
      return loss(batch);
    };
    return replica.leaf(leaf.summing, leaf.weight, leaf.seed, loss_of_leaf, leaf.measure,
                        leaf.ready);
  } catch (const std::exception& error) {
    return Error{error.what()};
  }
}

}  // namespace

int run(State& state, const Dataset& data, const std::function<torch::Tensor(const Batch&)>& loss,
        const Options& options) {
  const auto model = ReplicaModel::create(state, options);
  if (!model) return refuse(model.error().message);
  const auto opened = Driver::open(**model, options, static_cast<std::int64_t>(data.size()));
  if (!opened) return refuse(opened.error().message);
  Driver& driver = **opened;
  (*model)->commits_through(driver);
  // If the launcher is gone, its workers must continue.
  std::signal(SIGPIPE, SIG_IGN);
  for (;;) {
    const Driver::Task task = driver.next();
    if (const auto* end = std::get_if<Driver::End>(&task)) return end->code;
    const auto& leaf = std::get<Driver::Leaf>(task);
    const Result<LeafResult> result = compute((*model)->replica(), leaf, data, loss);
    if (leaf.warm_up) continue;
    if (!result) {
      driver.fail(fmt::format("step {}: {}", leaf.plan.step, result.error().message));
    } else {
      driver.leaf_done(result->gradient_sqr_norm);
    }
  }
}

}  // namespace rubato::train
