// Plain data-parallel training without our library, for comparison (bench/overhead.sh): the model,
// the optimizer and the micro-batches of examples/wide.cc on two processes. Autograd accumulates
// the gradients, and gloo's ring sums them. As in PyTorch's DDP, the gradients are views of flat
// buckets, and a bucket is sent while the last backward pass continues.
//
//   build/bench/plain_gloo [--steps 20]      prints the seconds of every step, one a line
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <mutex>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "examples/models.h"
#include "rubato/elastic/layout.h"

namespace rubato::bench {
namespace {

constexpr int kProcesses = 2;
constexpr int kLeaves = 8;
constexpr int kBatch = 64;
constexpr std::size_t kBucketFloats = (std::size_t{8} << 20U) / sizeof(float);

// Sums buckets over all processes, in order, on its own thread.
class Ring {
 public:
  Ring(int rank, const std::string& directory, float* flat, const elastic::Layout& layout)
      : flat_(flat), layout_(layout) {
    gloo::rendezvous::FileStore store(directory);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, kProcesses);
    auto device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    context->connectFullMesh(store, device);
    context_ = context;
    thread_ = std::thread([this] { run(); });
  }
  ~Ring() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // All buckets up to this one have their gradients.
  void ready(int bucket) {
    {
      const std::lock_guard lock(mutex_);
      ready_ = bucket + 1;
    }
    changed_.notify_all();
  }
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == layout_.tail(); });
    ready_ = done_ = 0;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closing_ || done_ < ready_; });
      if (closing_) return;
      const int bucket = done_;
      lock.unlock();
      reduce(bucket);
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  void reduce(int bucket) {
    const elastic::Piece& piece = layout_.buckets[static_cast<std::size_t>(bucket)];
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(flat_ + piece.offset, piece.count);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    options.setTag(static_cast<std::uint32_t>(bucket));
    gloo::allreduce(options);
  }

  float* flat_;
  const elastic::Layout& layout_;
  std::shared_ptr<gloo::Context> context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int ready_ = 0;
  int done_ = 0;
  bool closing_ = false;
  std::thread thread_;
};

class Hook : public torch::autograd::FunctionPostHook {
 public:
  explicit Hook(std::function<void()> arrived) : arrived_(std::move(arrived)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    arrived_();
    return outputs;
  }

 private:
  std::function<void()> arrived_;
};

elastic::Layout layout_of(const std::vector<torch::Tensor>& parameters) {
  std::vector<std::size_t> counts;
  for (const torch::Tensor& parameter : parameters) {
    counts.push_back(static_cast<std::size_t>(parameter.numel()));
  }
  return elastic::make_layout(counts, 1, kBucketFloats);
}

class PlainTrainer {
 public:
  PlainTrainer(int rank, const std::string& directory)
      : rank_(rank),
        model_(seeded_model()),
        parameters_(model_->parameters()),
        optimizer_(parameters_, torch::optim::SGDOptions(0.01).momentum(0.9)),
        layout_(layout_of(parameters_)),
        flat_(torch::zeros({static_cast<std::int64_t>(layout_.total)})),
        ring_(rank, directory, flat_.data_ptr<float>(), layout_) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const elastic::Piece& piece = layout_.parameters[i];
      parameters_[i].mutable_grad() = flat_
                                          .narrow(0, static_cast<std::int64_t>(piece.offset),
                                                  static_cast<std::int64_t>(piece.count))
                                          .view(parameters_[i].sizes());
      nodes_.push_back(torch::autograd::impl::grad_accumulator(parameters_[i]));
      nodes_.back()->add_post_hook(std::make_unique<Hook>([this, i] { arrived(i); }));
    }
  }

  void step(std::int64_t number) {
    flat_.zero_();
    missing_.assign(layout_.buckets.size(), 0);
    for (const int bucket : layout_.bucket_of) ++missing_[static_cast<std::size_t>(bucket)];
    next_ = 0;
    constexpr int kOwn = kLeaves / kProcesses;
    for (int leaf = rank_ * kOwn; leaf < (rank_ + 1) * kOwn; ++leaf) {
      last_ = leaf == (rank_ + 1) * kOwn - 1;
      std::vector<std::int64_t> indices;
      for (int i = 0; i < kBatch / kLeaves; ++i) {
        indices.push_back(number * kBatch + leaf * (kBatch / kLeaves) + i);
      }
      (model_->loss(data_.batch(indices)) * (1.0 / kLeaves)).backward();
    }
    ring_.wait_for_all();
    optimizer_.step();
  }

 private:
  static std::shared_ptr<examples::Wide> seeded_model() {
    torch::manual_seed(1);
    return std::make_shared<examples::Wide>();
  }

  void arrived(std::size_t parameter) {
    if (!last_) return;
    --missing_[static_cast<std::size_t>(layout_.bucket_of[parameter])];
    const int before = next_;
    while (next_ < layout_.tail() && missing_[static_cast<std::size_t>(next_)] == 0) ++next_;
    if (next_ > before) ring_.ready(next_ - 1);
  }

  int rank_;
  std::shared_ptr<examples::Wide> model_;
  std::vector<torch::Tensor> parameters_;
  torch::optim::SGD optimizer_;
  examples::Points data_;
  elastic::Layout layout_;
  torch::Tensor flat_;
  Ring ring_;
  std::vector<std::shared_ptr<torch::autograd::Node>> nodes_;
  std::vector<int> missing_;  // by bucket: gradients of the last backward pass
  int next_ = 0;              // the first bucket that is not ready
  bool last_ = false;
};

void train(int rank, const std::string& directory, int steps) {
  torch::set_num_threads(1);
  PlainTrainer trainer(rank, directory);
  auto before = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    trainer.step(step);
    const auto after = std::chrono::steady_clock::now();
    if (rank == 0) std::printf("%.6f\n", std::chrono::duration<double>(after - before).count());
    before = after;
  }
  std::fflush(stdout);
}

// Torch is used only in the children, because threads do not survive a fork.
int run(int steps) {
  std::string directory = std::filesystem::temp_directory_path() / "rubato-plain-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) return 1;
  std::vector<pid_t> children;
  for (int rank = 0; rank < kProcesses; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      train(rank, directory, steps);
      _exit(0);
    }
    children.push_back(child);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) failed = 1;
  }
  std::filesystem::remove_all(directory);
  return failed;
}

}  // namespace
}  // namespace rubato::bench

int main(int argc, char** argv) {
  const bool given = argc == 3 && std::string(argv[1]) == "--steps" && std::atoi(argv[2]) > 0;
  if (argc != 1 && !given) {
    std::fprintf(stderr, "plain_gloo: use --steps NUMBER\n");
    return 2;
  }
  return rubato::bench::run(given ? std::atoi(argv[2]) : 20);
}
