#include "rubato/train/replica.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/elastic/kernels.h"
#include "rubato/elastic/schema.h"
#include "rubato/train/dataset.h"

namespace rubato::train {
namespace {

constexpr int kLeaves = 8;
constexpr std::int64_t kLeafSamples = 4;

struct Model : torch::nn::Module {
  virtual torch::Tensor loss(const Batch& batch) = 0;
};

// Dropout makes the result depend on the random numbers of a leaf.
struct Mlp : Model {
  torch::nn::Linear in{6, 16};
  torch::nn::Dropout dropout{0.3};
  torch::nn::Linear out{16, 3};
  Mlp() {
    register_module("in", in);
    register_module("dropout", dropout);
    register_module("out", out);
  }
  torch::Tensor loss(const Batch& batch) override {
    return torch::nn::functional::cross_entropy(out(dropout(torch::relu(in(batch.data)))),
                                                batch.target);
  }
};

struct ConvNet : Model {
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 4, 3).padding(1)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Linear out{4 * 6, 3};
  ConvNet() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("out", out);
  }
  torch::Tensor loss(const Batch& batch) override {
    const auto x = torch::relu(norm(conv(batch.data.view({-1, 1, 2, 3}))));
    return torch::nn::functional::cross_entropy(out(x.flatten(1)), batch.target);
  }
};

// Each sample is a function of its index.
class Samples : public Dataset {
 public:
  [[nodiscard]] std::size_t size() const override { return 1000; }
  [[nodiscard]] Batch batch(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    Batch batch{torch::empty({count, 6}), torch::empty({count}, torch::kInt64)};
    for (std::int64_t i = 0; i < count; ++i) {
      Random random(static_cast<std::uint64_t>(indices[static_cast<std::size_t>(i)]));
      for (std::int64_t j = 0; j < 6; ++j) {
        batch.data.data_ptr<float>()[i * 6 + j] = static_cast<float>(random.uniform(-1, 1));
      }
      batch.target.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(random.below(3));
    }
    return batch;
  }
};

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(
    const std::vector<torch::Tensor>& parameters)>;

std::unique_ptr<torch::optim::Optimizer> momentum(const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<torch::optim::SGD>(
      parameters, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
}

std::unique_ptr<torch::optim::Optimizer> adam(const std::vector<torch::Tensor>& parameters) {
  return std::make_unique<torch::optim::Adam>(parameters,
                                              torch::optim::AdamOptions(0.01).weight_decay(0.01));
}

// A process: its model, optimizer and replica.
struct Worker {
  std::shared_ptr<Model> model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::unique_ptr<Replica> replica;
};

template <class M>
Worker make_worker(const MakeOptimizer& make_optimizer, std::uint64_t seed = 7) {
  torch::manual_seed(seed);
  Worker worker;
  worker.model = std::make_shared<M>();
  worker.optimizer = make_optimizer(worker.model->parameters());
  auto replica = Replica::create(worker.model, *worker.optimizer, Device{}, 60);
  EXPECT_TRUE(replica) << replica.error().message;
  worker.replica = std::move(*replica);
  return worker;
}

// The input of a leaf does not depend on where it is computed.
Result<LeafResult> compute_leaf(Worker& worker, const elastic::LeafStep& step, int time,
                                bool measure = false,
                                const std::function<void(int)>& bucket_ready = {}) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < kLeafSamples; ++i) {
    indices.push_back((time * kLeaves + step.leaf) * kLeafSamples + i);
  }
  const auto loss = [&] { return worker.model->loss(Samples().batch(indices)); };
  return worker.replica->leaf(step, 1.0 / kLeaves,
                              static_cast<std::uint64_t>(1000 * time + step.leaf), loss, measure,
                              bucket_ready);
}

struct Reduced {
  std::vector<float> vector;
  std::vector<double> norms;  // by leaf
};

// All processes compute their ranges. Then the tree adds up the sums of all subtrees.
Reduced reduce(std::vector<Worker>& workers, const std::vector<int>& sizes, int time) {
  Reduced reduced;
  std::vector<elastic::Subtree> subtrees;
  std::vector<std::vector<float>> elements;
  int first = 0;
  for (std::size_t w = 0; w < sizes.size(); ++w) {
    const elastic::SummationOrder order = elastic::summation_order(first, first + sizes[w]);
    first += sizes[w];
    for (const elastic::LeafStep& step : order.steps) {
      const auto result = compute_leaf(workers[w], step, time, true);
      EXPECT_TRUE(result) << result.error().message;
      reduced.norms.push_back(result->gradient_sqr_norm);
    }
    for (std::size_t i = 0; i < order.subtrees.size(); ++i) {
      subtrees.push_back(order.subtrees[i]);
      const auto slot = workers[w].replica->slot(static_cast<int>(i));
      elements.emplace_back(slot.begin(), slot.end());
    }
  }
  EXPECT_EQ(first, kLeaves);
  for (const elastic::Addition& addition : elastic::finish_tree(subtrees)) {
    elastic::add(elements[static_cast<std::size_t>(addition.into)],
                 elements[static_cast<std::size_t>(addition.from)]);
  }
  reduced.vector = std::move(elements[0]);
  return reduced;
}

struct Trained {
  std::vector<std::uint64_t> digests;  // by step
  std::vector<double> norms;
  std::vector<float> losses;
};

template <class M>
Trained train(const MakeOptimizer& make_optimizer, const std::vector<int>& sizes, int steps = 5) {
  std::vector<Worker> workers;
  for (std::size_t w = 0; w < sizes.size(); ++w) workers.push_back(make_worker<M>(make_optimizer));
  Trained trained;
  for (int time = 0; time < steps; ++time) {
    const Reduced reduced = reduce(workers, sizes, time);
    for (Worker& worker : workers) worker.replica->apply(reduced.vector, 1.0);
    for (Worker& worker : workers) {
      EXPECT_EQ(worker.replica->digest(), workers[0].replica->digest());
    }
    const elastic::Layout& layout = workers[0].replica->layout();
    trained.digests.push_back(workers[0].replica->digest());
    trained.losses.push_back(reduced.vector[layout.buckets.back().offset]);
    trained.norms.insert(trained.norms.end(), reduced.norms.begin(), reduced.norms.end());
  }
  return trained;
}

const std::vector<std::vector<int>> kSplits = {
    {3, 3, 2}, {4, 4}, {1, 1, 1, 1, 1, 1, 1, 1}, {5, 0, 3}, {1, 7}};

template <class M>
void expect_any_split_gives_the_same_bits(const MakeOptimizer& make_optimizer) {
  const Trained alone = train<M>(make_optimizer, {kLeaves});
  EXPECT_EQ(std::set<std::uint64_t>(alone.digests.begin(), alone.digests.end()).size(), 5U);
  for (const auto& split : kSplits) {
    const Trained shared = train<M>(make_optimizer, split);
    EXPECT_EQ(shared.digests, alone.digests);
    EXPECT_EQ(shared.losses, alone.losses);
    EXPECT_EQ(shared.norms, alone.norms);
  }
}

TEST(Replica, AnySplitOfTheLeavesGivesTheSameBitsWithMomentumAndDropout) {
  expect_any_split_gives_the_same_bits<Mlp>(momentum);
}

TEST(Replica, AnySplitOfTheLeavesGivesTheSameBitsWithBatchNormAndAdam) {
  expect_any_split_gives_the_same_bits<ConvNet>(adam);
}

TEST(Replica, TheReducedGradientIsThatOfTheWholeBatch) {
  std::vector<Worker> workers;
  workers.push_back(make_worker<Mlp>(momentum));
  Worker& worker = workers[0];
  static_cast<Mlp&>(*worker.model).dropout->options.p(0);
  const Reduced reduced = reduce(workers, {kLeaves}, 0);
  std::vector<std::int64_t> indices(kLeaves * kLeafSamples);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
  const torch::Tensor loss = worker.model->loss(Samples().batch(indices));
  loss.backward();
  const elastic::Layout& layout = worker.replica->layout();
  const auto parameters = worker.model->parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const torch::Tensor gradient = parameters[p].grad().contiguous();
    for (std::size_t i = 0; i < layout.parameters[p].count; ++i) {
      EXPECT_NEAR(reduced.vector[layout.parameters[p].offset + i], gradient.data_ptr<float>()[i],
                  1e-6);
    }
  }
  EXPECT_NEAR(reduced.vector[layout.buckets.back().offset], loss.item<double>(), 1e-6);
}

TEST(Replica, ApplyDoesWhatTorchDoesAndLeavesTheVectorAlone) {
  std::vector<Worker> workers;
  workers.push_back(make_worker<Mlp>(momentum));
  Worker plain = make_worker<Mlp>(momentum);
  for (int time = 0; time < 3; ++time) {
    const Reduced reduced = reduce(workers, {kLeaves}, time);
    const std::vector<float> before = reduced.vector;
    workers[0].replica->apply(reduced.vector, 0.5);
    EXPECT_EQ(reduced.vector, before);
    const elastic::Layout& layout = plain.replica->layout();
    auto parameters = plain.model->parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      auto gradient = torch::empty_like(parameters[p]).set_requires_grad(false);
      std::memcpy(gradient.data_ptr(), reduced.vector.data() + layout.parameters[p].offset,
                  gradient.nbytes());
      parameters[p].mutable_grad() = gradient;
    }
    auto& options = plain.optimizer->param_groups()[0].options();
    options.set_lr(0.05);
    plain.optimizer->step();
    EXPECT_EQ(plain.replica->digest(), workers[0].replica->digest());
    EXPECT_EQ(workers[0].optimizer->param_groups()[0].options().get_lr(), 0.1)
        << "the factor is for one step";
    for (const auto& parameter : workers[0].model->parameters()) {
      EXPECT_FALSE(parameter.grad().defined()) << "no view of the vector stays behind";
    }
  }
}

TEST(Replica, BatchNormCountsOneBatchAStepAndAveragesTheLeaves) {
  std::vector<Worker> workers;
  workers.push_back(make_worker<ConvNet>(adam));
  const auto& norm = static_cast<ConvNet&>(*workers[0].model).norm;
  for (int time = 0; time < 3; ++time) {
    const torch::Tensor before = norm->running_mean.clone();
    torch::Tensor moves = torch::zeros_like(before);
    const elastic::SummationOrder order = elastic::summation_order(0, kLeaves);
    for (const elastic::LeafStep& step : order.steps) {
      ASSERT_TRUE(compute_leaf(workers[0], step, time));
      EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), time + 1);
      moves += (norm->running_mean - before) / kLeaves;
    }
    const auto slot = workers[0].replica->slot(0);
    const std::vector<float> reduced(slot.begin(), slot.end());
    workers[0].replica->apply(reduced, 1);
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), time + 1);
    EXPECT_TRUE(torch::allclose(norm->running_mean, before + moves, 1e-5, 1e-7));
    EXPECT_GT((norm->running_mean - before).abs().max().item<double>(), 0);
  }
}

TEST(Replica, BucketsAreReadyInOrderInTheCallersThreadOnceTheirContentStands) {
  Worker worker = make_worker<Mlp>(momentum);
  const elastic::Layout& layout = worker.replica->layout();
  ASSERT_GT(layout.buckets.size(), 2U);
  const elastic::SummationOrder order = elastic::summation_order(0, 4);
  std::vector<std::vector<float>> seen;
  const auto ready = [&](int bucket) {
    EXPECT_EQ(bucket, static_cast<int>(seen.size()));
    const elastic::Piece& piece = layout.buckets[static_cast<std::size_t>(bucket)];
    const auto part = worker.replica->slot(0).subspan(piece.offset, piece.count);
    seen.emplace_back(part.begin(), part.end());
  };
  const std::thread::id caller = std::this_thread::get_id();
  for (const elastic::LeafStep& step : order.steps) {
    const bool last = step.leaf == 3;
    ASSERT_TRUE(compute_leaf(worker, step, 0, false, [&](int bucket) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      if (last) ready(bucket);
    }));
  }
  ASSERT_EQ(seen.size(), layout.buckets.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const auto part =
        worker.replica->slot(0).subspan(layout.buckets[i].offset, layout.buckets[i].count);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), seen[i].begin(), seen[i].end()))
        << "bucket " << i << " changed after it was said to be ready";
  }
}

TEST(Replica, SlotsAreAlignedAndStay) {
  Worker worker = make_worker<Mlp>(momentum);
  const float* first = worker.replica->slot(0).data();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(worker.replica->slot(i).data()) % 64, 0U);
    EXPECT_EQ(worker.replica->slot(i).size(), worker.replica->layout().total);
  }
  EXPECT_EQ(worker.replica->slot(0).data(), first);
}

std::vector<std::byte> flat(const Chunk& chunk) {
  std::vector<std::byte> bytes;
  for (const auto& part : chunk.body) bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

void hand_over(Replica& from, Replica& to, int index) {
  const Chunk chunk = from.chunk(index);
  const auto loaded = to.load_chunk(index, chunk.head, flat(chunk));
  ASSERT_TRUE(loaded) << loaded.error().message;
}

template <class M>
void expect_chunks_round_trip(const MakeOptimizer& make_optimizer) {
  for (const int steps_before : {0, 3}) {
    std::vector<Worker> donors;
    donors.push_back(make_worker<M>(make_optimizer));
    for (int time = 0; time < steps_before; ++time) {
      donors[0].replica->apply(reduce(donors, {kLeaves}, time).vector, 1);
    }
    Worker fresh = make_worker<M>(make_optimizer, 99);
    EXPECT_NE(fresh.replica->digest(), donors[0].replica->digest());
    for (int i = 0; i < fresh.replica->chunks(); ++i) {
      hand_over(*donors[0].replica, *fresh.replica, i);
    }
    EXPECT_EQ(fresh.replica->digest(), donors[0].replica->digest());
    donors.push_back(std::move(fresh));
    for (int time = steps_before; time < steps_before + 3; ++time) {
      const Reduced reduced = reduce(donors, {3, 5}, time);
      for (Worker& worker : donors) worker.replica->apply(reduced.vector, 1);
      EXPECT_EQ(donors[0].replica->digest(), donors[1].replica->digest());
    }
  }
}

TEST(Replica, ChunksCarryTheWholeState) {
  expect_chunks_round_trip<Mlp>(momentum);
  expect_chunks_round_trip<ConvNet>(adam);
  expect_chunks_round_trip<ConvNet>(momentum);
}

TEST(Replica, ChunksCarryTheStateOfEveryOptimizer) {
  using Parameters = std::vector<torch::Tensor>;
  expect_chunks_round_trip<Mlp>([](const Parameters& parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1));
  });
  expect_chunks_round_trip<Mlp>([](const Parameters& parameters) {
    return std::make_unique<torch::optim::Adam>(parameters,
                                                torch::optim::AdamOptions(0.01).amsgrad(true));
  });
  expect_chunks_round_trip<Mlp>([](const Parameters& parameters) {
    return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(0.01));
  });
  expect_chunks_round_trip<Mlp>([](const Parameters& parameters) {
    return std::make_unique<torch::optim::RMSprop>(
        parameters, torch::optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
  });
  expect_chunks_round_trip<Mlp>([](const Parameters& parameters) {
    return std::make_unique<torch::optim::Adagrad>(parameters, torch::optim::AdagradOptions(0.01));
  });
}

// Chunk j is from step t + j. The joining worker applies steps to what it has, and gets the rest
// later.
template <class M>
void expect_joiner_catches_up(const MakeOptimizer& make_optimizer) {
  std::vector<Worker> donors;
  donors.push_back(make_worker<M>(make_optimizer));
  donors[0].replica->apply(reduce(donors, {kLeaves}, 0).vector, 1);
  Worker joiner = make_worker<M>(make_optimizer, 99);
  const int chunks = joiner.replica->chunks();
  std::vector<bool> held(static_cast<std::size_t>(chunks), false);
  for (int j = 0; j < chunks; ++j) {
    // The chunk is sent while the donor computes the next step, whose leaves change the buffers.
    const Chunk chunk = donors[0].replica->chunk(j);
    const Reduced reduced = reduce(donors, {kLeaves}, 1 + j);
    const auto loaded = joiner.replica->load_chunk(j, chunk.head, flat(chunk));
    ASSERT_TRUE(loaded) << loaded.error().message;
    held[static_cast<std::size_t>(j)] = true;
    donors[0].replica->apply(reduced.vector, 0.9);
    joiner.replica->apply(reduced.vector, 0.9, held);
  }
  EXPECT_EQ(joiner.replica->digest(), donors[0].replica->digest());
}

TEST(Replica, AJoinerFedOverSeveralStepsEndsWithTheDonorsBits) {
  expect_joiner_catches_up<Mlp>(momentum);
  expect_joiner_catches_up<ConvNet>(adam);
}

struct PartlyUsed : Model {
  torch::nn::Linear used{6, 3};
  torch::nn::Linear unused{4, 4};
  torch::nn::Linear frozen{3, 3};
  PartlyUsed() {
    register_module("used", used);
    register_module("unused", unused);
    register_module("frozen", frozen);
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  }
  torch::Tensor loss(const Batch& batch) override {
    return torch::nn::functional::cross_entropy(frozen(used(batch.data)), batch.target);
  }
};

TEST(Replica, UnusedParametersHaveZeroGradientsAndFrozenOnesNone) {
  Worker worker = make_worker<PartlyUsed>(adam);
  EXPECT_EQ(worker.replica->layout().parameters.size(), 4U);
  EXPECT_EQ(worker.replica->chunks(), 7) << "frozen parameters are state";
  for (float& value : worker.replica->slot(0)) value = 17;
  int buckets = 0;
  ASSERT_TRUE(compute_leaf(worker, elastic::summation_order(0, 1).steps[0], 0, true,
                           [&](int bucket) { EXPECT_EQ(bucket, buckets++); }));
  EXPECT_EQ(buckets, static_cast<int>(worker.replica->layout().buckets.size()));
  for (const std::size_t parameter : {2U, 3U}) {
    const elastic::Piece& piece = worker.replica->layout().parameters[parameter];
    for (const float value : worker.replica->slot(0).subspan(piece.offset, piece.count)) {
      EXPECT_EQ(value, 0);
      EXPECT_FALSE(std::signbit(value));
    }
  }
  const torch::Tensor frozen = static_cast<PartlyUsed&>(*worker.model).frozen->weight.clone();
  const auto slot = worker.replica->slot(0);
  worker.replica->apply(std::vector<float>(slot.begin(), slot.end()), 1);
  EXPECT_TRUE(torch::equal(static_cast<PartlyUsed&>(*worker.model).frozen->weight, frozen));
  expect_any_split_gives_the_same_bits<PartlyUsed>(adam);
  expect_chunks_round_trip<PartlyUsed>(adam);
}

// Its gradients pass in several tiles, and the last tile is not full.
struct LargeModel : Model {
  torch::nn::Linear in{6, 7001};
  torch::nn::Linear unused{190, 190};
  torch::nn::Linear out{7001, 3};
  LargeModel() {
    register_module("in", in);
    register_module("unused", unused);
    register_module("out", out);
  }
  torch::Tensor loss(const Batch& batch) override {
    return torch::nn::functional::cross_entropy(out(torch::relu(in(batch.data))), batch.target);
  }
};

TEST(Replica, LargeParametersAreAddedUpToTheLastElement) {
  expect_any_split_gives_the_same_bits<LargeModel>(momentum);
  std::vector<Worker> workers;
  workers.push_back(make_worker<LargeModel>(momentum));
  const Reduced reduced = reduce(workers, {kLeaves}, 0);
  std::vector<std::int64_t> indices(kLeaves * kLeafSamples);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
  workers[0].model->loss(Samples().batch(indices)).backward();
  const elastic::Layout& layout = workers[0].replica->layout();
  const auto parameters = workers[0].model->parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const torch::Tensor expected = parameters[p].grad().defined()
                                       ? parameters[p].grad().flatten()
                                       : torch::zeros({parameters[p].numel()});
    const auto part =
        std::span(reduced.vector).subspan(layout.parameters[p].offset, layout.parameters[p].count);
    const std::vector<float> values(part.begin(), part.end());
    EXPECT_TRUE(torch::allclose(torch::tensor(values), expected, 1e-4, 1e-7));
  }
}

struct Tied : Model {
  torch::nn::Linear layer{6, 6};
  torch::nn::Linear out{6, 3};
  Tied() {
    register_module("once", layer);
    register_module("again", layer);
    register_module("out", out);
  }
  torch::Tensor loss(const Batch& batch) override {
    return torch::nn::functional::cross_entropy(out(layer(torch::relu(layer(batch.data)))),
                                                batch.target);
  }
};

TEST(Replica, ATiedParameterIsOneParameter) {
  const MakeOptimizer distinct = [](const std::vector<torch::Tensor>& parameters) {
    std::vector<torch::Tensor> once = {parameters[0], parameters[1]};
    once.insert(once.end(), parameters.end() - 2, parameters.end());
    return momentum(once);
  };
  Worker worker = make_worker<Tied>(distinct);
  EXPECT_EQ(worker.replica->layout().parameters.size(), 4U);
  expect_any_split_gives_the_same_bits<Tied>(distinct);
  expect_chunks_round_trip<Tied>(distinct);
}

TEST(Replica, MeasuresTheWeightedGradientAndSeesWhatIsNotFinite) {
  Worker worker = make_worker<Mlp>(momentum);
  const elastic::LeafStep step = elastic::summation_order(0, 1).steps[0];
  const auto measured = compute_leaf(worker, step, 0, true);
  ASSERT_TRUE(measured);
  EXPECT_TRUE(measured->finite);
  const std::size_t gradients = worker.replica->layout().buckets.back().offset;
  EXPECT_NEAR(measured->gradient_sqr_norm,
              elastic::measure(worker.replica->slot(0).first(gradients)).sqr_norm,
              elastic::kNormError * measured->gradient_sqr_norm);
  EXPECT_EQ(compute_leaf(worker, step, 0, false)->gradient_sqr_norm, 0);
  const auto infinite = worker.replica->leaf(
      step, 1, 0,
      [&] { return worker.model->loss(Samples().batch(std::vector<std::int64_t>{1})) / 0.0; },
      true);
  ASSERT_TRUE(infinite);
  EXPECT_FALSE(infinite->finite);
}

TEST(Replica, SchemasOfEqualModelsAgreeAndOthersDoNot) {
  const Json schema = make_worker<ConvNet>(adam).replica->schema();
  EXPECT_FALSE(elastic::difference(schema, make_worker<ConvNet>(adam, 99).replica->schema()));
  EXPECT_TRUE(elastic::difference(schema, make_worker<Mlp>(adam).replica->schema()));
  EXPECT_EQ(elastic::difference(schema, make_worker<ConvNet>(momentum).replica->schema()),
            "the optimizer is adam here but sgd at the other worker: start both with the same");
  EXPECT_EQ(schema["parameters"][0]["name"], "conv.weight");
  EXPECT_EQ(schema["buffers"][2]["dtype"], "int64");
}

TEST(Replica, TheDigestSeesEveryKindOfState) {
  Worker worker = make_worker<ConvNet>(adam);
  std::set<std::uint64_t> digests = {worker.replica->digest()};
  std::vector<Worker> workers;
  workers.push_back(std::move(worker));
  workers[0].replica->apply(reduce(workers, {kLeaves}, 0).vector, 1);
  Replica& replica = *workers[0].replica;
  digests.insert(replica.digest());
  for (int i = 0; i < replica.chunks(); ++i) {
    const Chunk chunk = replica.chunk(i);
    const std::vector<std::byte> bytes = flat(chunk);
    for (const std::size_t place : {std::size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
      std::vector<std::byte> changed = bytes;
      changed[place] ^= std::byte{1};
      ASSERT_TRUE(replica.load_chunk(i, chunk.head, changed));
      digests.insert(replica.digest());
    }
    ASSERT_TRUE(replica.load_chunk(i, chunk.head, bytes));
  }
  EXPECT_EQ(digests.size(), 2 + 3 * static_cast<std::size_t>(replica.chunks()));
}

TEST(Replica, AHookOutsideAPassDoesNothingAndOneOutlivedIsGone) {
  Worker worker = make_worker<Mlp>(momentum);
  const Batch batch = Samples().batch(std::vector<std::int64_t>{1, 2});
  const torch::Tensor graph = worker.model->loss(batch);
  worker.model->loss(batch).backward();
  EXPECT_TRUE(worker.model->parameters()[0].grad().defined());
  worker.replica.reset();
  graph.backward();
}

// ---- what is refused ----

template <class M = Mlp>
std::string refusal(const std::shared_ptr<M>& module, torch::optim::Optimizer& optimizer) {
  const auto replica = Replica::create(module, optimizer, Device{}, 100);
  return replica ? "" : replica.error().message;
}

TEST(ReplicaRefuses, ParametersThatAreNotFloat32) {
  auto model = std::make_shared<Mlp>();
  model->out->to(torch::kFloat64);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  EXPECT_EQ(refusal(model, optimizer),
            "parameter out.weight is float64: gradients are added up in float32, so make every "
            "parameter float32");
}

TEST(ReplicaRefuses, AnOptimizerOfOtherParameters) {
  auto model = std::make_shared<Mlp>();
  torch::optim::SGD part(model->out->parameters(), 0.1);
  EXPECT_EQ(refusal(model, part),
            "no group of the optimizer holds parameter in.weight: give it to the optimizer or "
            "freeze it with set_requires_grad(false)");
  auto parameters = model->parameters();
  parameters.push_back(torch::zeros({2, 5}, torch::requires_grad()));
  torch::optim::SGD more(parameters, 0.1);
  EXPECT_EQ(refusal(model, more),
            "group 0 of the optimizer holds a tensor of shape [2,5] that is no parameter of the "
            "module: register it with the module");
}

TEST(ReplicaRefuses, OptimizersThatAreNotPerParameter) {
  auto model = std::make_shared<Mlp>();
  torch::optim::LBFGS whole(model->parameters(), 0.1);
  EXPECT_NE(refusal(model, whole).find("LBFGS"), std::string::npos);
  struct Own : torch::optim::SGD {
    using SGD::SGD;
  };
  Own own(model->parameters(), torch::optim::SGDOptions(0.1));
  EXPECT_NE(refusal(model, own).find("not a class derived"), std::string::npos);
}

struct SparseModel : Model {
  torch::nn::Embedding embedding{torch::nn::EmbeddingOptions(10, 3).sparse(true)};
  SparseModel() { register_module("embedding", embedding); }
  torch::Tensor loss(const Batch& batch) override { return embedding(batch.target).sum(); }
};

TEST(ReplicaRefuses, SparseGradients) {
  Worker worker = make_worker<SparseModel>(
      [](const auto& p) { return std::make_unique<torch::optim::SGD>(p, 0.1); });
  const auto result = compute_leaf(worker, elastic::summation_order(0, 1).steps[0], 0);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message,
            "the gradient of parameter embedding.weight is sparse, and sparse gradients cannot be "
            "added up in a fixed order here: create the layer with sparse(false)");
}

TEST(ReplicaRefuses, LossesThatAreNotOneNumber) {
  Worker worker = make_worker<Mlp>(momentum);
  const elastic::LeafStep step = elastic::summation_order(0, 1).steps[0];
  const auto message = [&](const std::function<torch::Tensor()>& loss) {
    const auto result = worker.replica->leaf(step, 1, 0, loss, false);
    return result ? "" : result.error().message;
  };
  EXPECT_NE(message([] { return torch::zeros({2}); }).find("single"), std::string::npos);
  EXPECT_NE(message([] { return torch::Tensor(); }).find("single"), std::string::npos);
  EXPECT_NE(message([] { return torch::zeros({}); }).find("depend"), std::string::npos);
  EXPECT_NE(message([] {
              return torch::zeros({2, 3}).mm(torch::zeros({2, 3}));
            }).find("leaf 0: torch"),
            std::string::npos);
  EXPECT_TRUE(compute_leaf(worker, step, 0)) << "an error of one leaf does no harm to the next";
}

TEST(ReplicaRefuses, ChunksThatDoNotFitAndChangesNothing) {
  std::vector<Worker> workers;
  workers.push_back(make_worker<ConvNet>(adam));
  workers[0].replica->apply(reduce(workers, {kLeaves}, 0).vector, 1);
  Replica& replica = *workers[0].replica;
  const std::uint64_t before = replica.digest();
  const Chunk chunk = replica.chunk(0);
  const std::vector<std::byte> bytes = flat(chunk);
  const auto refused = [&](int index, std::string_view head, std::span<const std::byte> body) {
    const auto loaded = replica.load_chunk(index, head, body);
    EXPECT_FALSE(loaded) << head;
    EXPECT_EQ(replica.digest(), before);
    return loaded ? "" : loaded.error().message;
  };
  EXPECT_NE(refused(-1, "{}", bytes).find("does not exist"), std::string::npos);
  EXPECT_NE(refused(replica.chunks(), "{}", bytes).find("does not exist"), std::string::npos);
  EXPECT_NE(refused(0, chunk.head, std::span(bytes).first(7)).find("7 bytes arrived"),
            std::string::npos);
  EXPECT_NE(refused(replica.chunks() - 1, "{}", bytes).find("bytes arrived"), std::string::npos);
  for (const char* head : {"", "[]", "7", R"({"step": 1})", R"({"step": "x", "tensors": []})",
                           R"({"step": 1, "tensors": [3]})", R"({"step": 1, "tensors": 3})"}) {
    refused(0, head, bytes);
  }
  EXPECT_NE(refused(0, R"({"step":1,"tensors":["momentum_buffer"]})", bytes).find("same optimizer"),
            std::string::npos);
  refused(0, R"({"step":1,"tensors":["exp_avg","exp_avg"]})", bytes);
}

TEST(Device, IsReadFromText) {
  EXPECT_TRUE(Device::parse("cpu")->is_cpu());
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda1", "CPU"}) {
    const auto device = Device::parse(text);
    ASSERT_FALSE(device) << text;
    EXPECT_NE(device.error().message.find("must be cpu, cuda or cuda:N"), std::string::npos);
  }
  if (torch::cuda::is_available()) return;
  EXPECT_EQ(Device::parse("cuda:0").error().message,
            "device \"cuda:0\": this libtorch was built without CUDA or sees no GPU; use cpu, the "
            "only device that is tested");
}

}  // namespace
}  // namespace rubato::train
