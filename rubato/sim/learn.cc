#include "rubato/sim/learn.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>
#include <numeric>
#include <optional>
#include <thread>

#include "rubato/base/json.h"
#include "rubato/base/random.h"
#include "rubato/policy/all.h"
#include "rubato/sim/generator.h"

namespace rubato::sim {
namespace {

constexpr double kFirstSpread = 0.15;
constexpr double kLeastSpread = 0.02;
// How much of the old mean and spread a generation keeps.
constexpr double kMemory = 0.3;

struct ClusterShape {
  const char* cluster;
  std::vector<GpuShare> mix;
  double load;
  bool rigid;
};

// Counts that divide a node, and counts that must share nodes with others.
const std::vector<GpuShare> kAligned = {{1, 4}, {2, 3}, {4, 3}, {8, 2}};
const std::vector<GpuShare> kCrooked = {{2, 2}, {3, 2}, {6, 3}, {10, 2}};

const std::vector<ClusterShape>& shapes() {
  static const std::vector<ClusterShape> all = {
      {"4x8", kAligned, 0.7, true},  {"8x4", kCrooked, 0.7, true},  {"4x8", kCrooked, 0.9, true},
      {"12x2", kCrooked, 0.6, true}, {"8x4", kAligned, 0.9, false}, {"4x8", kCrooked, 0.7, false},
  };
  return all;
}

double normal(Random& random) {  // Box and Muller
  const double u = std::max(random.uniform(), 0x1.0p-60), v = random.uniform();
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

SimulationOptions scene_options(const LearnOptions& options) {
  SimulationOptions simulation;
  simulation.placement = Placement::pack;
  simulation.contention = options.contention;
  return simulation;
}

Result<Workload> draw_workload(const LearnOptions& options, const ClusterShape& shape,
                               std::uint64_t seed, int gpus) {
  GeneratorOptions generator;
  generator.jobs = options.jobs;
  generator.seed = seed;
  generator.cluster_gpus = gpus;
  generator.load = shape.load;
  generator.gpu_mix = shape.mix;
  generator.model_names = options.models;
  const auto trace = generate(generator);
  if (!trace) return trace.error();
  WorkloadOptions workload;
  workload.assign_curves = !shape.rigid;
  workload.restart_cost_s = 30;
  workload.seed = seed;
  return make_workload(*trace, workload);
}

Json weights_json(const Weights& weights) {
  return std::vector<double>(weights.begin(), weights.end());
}

bool read_weights(const Json& json, const char* key, Weights& weights) {
  if (!json.contains(key) || !json.at(key).is_array() || json.at(key).size() != kWeights)
    return false;
  for (std::size_t i = 0; i < kWeights; ++i) {
    const Json& value = json.at(key)[i];
    if (!value.is_number() || !(std::abs(value.get<double>()) <= 1e6)) return false;
    weights[i] = value.get<double>();
  }
  return true;
}

std::optional<double> finite_number(const Json& json, const char* key) {
  if (!json.is_object() || !json.contains(key) || !json.at(key).is_number()) return std::nullopt;
  const double value = json.at(key).get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

}  // namespace

LearnState first_state() {
  LearnState state;
  state.mean = first_weights();
  state.spread.fill(kFirstSpread);
  state.best = state.mean;
  return state;
}

std::string LearnState::to_text() const {
  Json points = Json::array();
  for (const Point& point : curve) points.push_back({point.mean_cost, point.best_cost});
  const Json json = {{"generation", generation},       {"mean", weights_json(mean)},
                     {"spread", weights_json(spread)}, {"best", weights_json(best)},
                     {"best_cost", best_cost},         {"curve", points}};
  return json.dump(1) + "\n";
}

Result<LearnState> LearnState::parse(std::string_view text, const std::string& source) {
  const Error wrong{fmt::format("{}: is not a checkpoint of rubato learn", source)};
  auto json = parse_json(text, source);
  if (!json) return json.error();
  if (!json->is_object()) return wrong;
  LearnState state;
  const auto generation = finite_number(*json, "generation"),
             cost = finite_number(*json, "best_cost");
  if (!generation || *generation < 0 || *generation > 1e6 ||
      *generation != std::floor(*generation) || !cost || !read_weights(*json, "mean", state.mean) ||
      !read_weights(*json, "spread", state.spread) || !read_weights(*json, "best", state.best) ||
      !json->contains("curve") || !json->at("curve").is_array())
    return wrong;
  state.generation = static_cast<int>(*generation);
  state.best_cost = *cost;
  for (const Json& point : json->at("curve")) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number())
      return wrong;
    state.curve.push_back({point[0].get<double>(), point[1].get<double>()});
  }
  if (state.curve.size() != static_cast<std::size_t>(state.generation)) return wrong;
  return state;
}

Result<std::vector<LearnScene>> draw_scenes(const LearnOptions& options, const Random& root) {
  std::vector<LearnScene> scenes;
  const auto srsf = parse_policies("srsf").value().front();
  for (int i = 0; i < options.scenes; ++i) {
    const ClusterShape& shape = shapes()[static_cast<std::size_t>(i) % shapes().size()];
    LearnScene scene;
    scene.cluster = parse_cluster(shape.cluster).value();
    auto workload = draw_workload(options, shape, root.split(static_cast<std::uint64_t>(i)).next(),
                                  scene.cluster.installed());
    if (!workload) return workload.error();
    scene.workload = std::move(*workload);
    auto policy = srsf.make({});
    if (!policy) return policy.error();
    const auto jct = scene_jct(options, scene, **policy);
    if (!jct) return jct.error();
    scene.srsf_jct_s = *jct;
    scenes.push_back(std::move(scene));
  }
  return scenes;
}

Result<double> scene_jct(const LearnOptions& options, const LearnScene& scene, Policy& policy,
                         Placement placement) {
  SimulationOptions simulation = scene_options(options);
  simulation.placement = placement;
  const auto result = simulate(scene.workload, scene.cluster, policy, simulation);
  if (!result) return result.error();
  return result->metrics.avg_jct_s.value_or(0);
}

void in_parallel(std::size_t runs, unsigned threads, const std::function<void(std::size_t)>& run) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < runs; i = next++) run(i);
  };
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::thread> crew;
  for (unsigned t = 1; t < threads; ++t) crew.emplace_back(work);
  work();
  for (auto& thread : crew) thread.join();
}

Result<std::unique_ptr<Learner>> Learner::make(const LearnOptions& options) {
  std::unique_ptr<Learner> learner(new Learner(options));
  auto scenes = draw_scenes(options, Random(options.seed));
  if (!scenes) return scenes.error();
  learner->scenes_ = std::move(*scenes);
  return learner;
}

Result<std::vector<double>> Learner::costs(const std::vector<Weights>& all,
                                           std::atomic<std::size_t>* done) const {
  const std::size_t runs = all.size() * scenes_.size();
  std::vector<std::optional<Result<double>>> results(runs);
  in_parallel(runs, options_.threads, [&](std::size_t i) {
    const LearnScene& scene = scenes_[i % scenes_.size()];
    const auto policy = erase(Learned({all[i / scenes_.size()], options_.hidden, nullptr}));
    results[i].emplace(scene_jct(options_, scene, *policy));
    if (done != nullptr) done->fetch_add(1, std::memory_order_relaxed);
  });
  std::vector<double> costs(all.size(), 0);
  for (std::size_t i = 0; i < runs; ++i) {
    if (!*results[i]) return results[i]->error();
    costs[i / scenes_.size()] +=
        **results[i] / scenes_[i % scenes_.size()].srsf_jct_s / static_cast<double>(scenes_.size());
  }
  return costs;
}

Result<double> Learner::cost(const Weights& weights) const {
  const auto all = costs({weights}, nullptr);
  if (!all) return all.error();
  return all->front();
}

Result<LearnState> Learner::step(LearnState state, std::atomic<std::size_t>* done) const {
  // The mean's own weights are a member, too, so that the best never gets worse than the first.
  std::vector<Weights> drawn = {state.mean};
  const Random generation =
      Random(options_.seed).split(1'000'003).split(static_cast<std::uint64_t>(state.generation));
  for (int i = 1; i < options_.population; ++i) {
    Random random = generation.split(static_cast<std::uint64_t>(i));
    Weights weights = state.mean;
    for (std::size_t w = 0; w < kWeights; ++w) weights[w] += state.spread[w] * normal(random);
    drawn.push_back(weights);
  }
  const auto found = costs(drawn, done);
  if (!found) return found.error();
  std::vector<std::size_t> order(drawn.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return (*found)[a] < (*found)[b]; });
  const std::size_t elite = static_cast<std::size_t>(options_.elite);
  for (std::size_t w = 0; w < kWeights; ++w) {
    double mean = 0, square = 0;
    for (std::size_t e = 0; e < elite; ++e) mean += drawn[order[e]][w] / options_.elite;
    for (std::size_t e = 0; e < elite; ++e)
      square += (drawn[order[e]][w] - mean) * (drawn[order[e]][w] - mean) / options_.elite;
    state.mean[w] = kMemory * state.mean[w] + (1 - kMemory) * mean;
    state.spread[w] =
        std::max(kLeastSpread, kMemory * state.spread[w] + (1 - kMemory) * std::sqrt(square));
  }
  const double best = (*found)[order.front()];
  if (state.generation == 0 || best < state.best_cost) {
    state.best = drawn[order.front()];
    state.best_cost = best;
  }
  state.curve.push_back({found->front(), best});
  ++state.generation;
  return state;
}

}  // namespace rubato::sim
