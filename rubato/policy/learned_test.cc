#include "rubato/policy/learned.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::cluster_of;
using testing::Draft;

// A learned policy with weights of the tests' own, on jobs whose GPUs are given.
struct Site {
  explicit Site(std::string_view cluster) { snapshot.cluster = cluster_of(cluster); }

  JobView& add(const Draft& draft, std::string model, Allocation gpus = {}) {
    JobView job;
    job.id = JobId(static_cast<JobId::rep>(snapshot.jobs.size()));
    auto spec = std::make_shared<JobSpec>(*draft.spec());
    spec->model = std::move(model);
    job.spec = spec;
    job.speed = draft.speed();
    job.work = draft.work;
    job.held = job.target = std::move(gpus);
    job.progress = {draft.work, kStart, job.held.empty() ? 0.0 : 1.0};
    if (!job.held.empty()) job.first_start = kStart;
    return snapshot.jobs.insert(std::move(job));
  }
  // The jobs begin as the decision says.
  void begin(const Decision& decision) {
    for (const Grant& grant : decision.run) {
      JobView& job = *snapshot.jobs.find(grant.job);
      job.held = job.target = std::get<Exact>(grant.want).gpus;
      job.first_start = kStart;
    }
  }
  Decision decide(const Learned::Config& config) {
    Learned::State state;
    auto decision = Learned(config).decide(snapshot, state);
    const auto valid = validate(decision, snapshot);
    EXPECT_TRUE(valid.ok()) << valid.error().message;
    return decision;
  }

  Snapshot snapshot;
};

Allocation on(std::initializer_list<std::pair<int, std::uint64_t>> slices) {
  Allocation gpus;
  for (const auto& [node, mask] : slices) gpus.add({NodeId(static_cast<NodeId::rep>(node)), mask});
  return gpus;
}

Learned::Config plain() { return {first_weights(), false, nullptr}; }

const Allocation& gpus_for(const Decision& decision, std::size_t i) {
  return std::get<Exact>(decision.run[i].want).gpus;
}

TEST(Learned, BeginsWithTheShortestRemainingServiceOnTheFewestNodes) {
  Site site("2x4");
  site.add({.gpus = 4, .work = 1000}, "m");
  site.add({.gpus = 4, .work = 10}, "m");
  site.add({.gpus = 4, .work = 100}, "m");
  const auto decision = site.decide(plain());
  ASSERT_EQ(decision.run.size(), 2U);
  EXPECT_EQ(decision.run[0].job, JobId(1));
  EXPECT_EQ(gpus_for(decision, 0).nodes(), 1);
  EXPECT_EQ(decision.run[1].job, JobId(2));
}

TEST(Learned, PreemptsForAShorterJobAndLeavesTheOthersWhereTheyAre) {
  Site site("2x4");
  site.add({.gpus = 4, .work = 10000}, "m", on({{0, 0b1111}}));
  site.add({.gpus = 4, .work = 100}, "m", on({{1, 0b1111}}));
  site.add({.gpus = 4, .work = 10}, "m");
  const auto decision = site.decide(plain());
  ASSERT_EQ(decision.run.size(), 2U);
  EXPECT_EQ(decision.run[0].job, JobId(2));
  EXPECT_EQ(decision.run[1].job, JobId(1));
}

TEST(Learned, AvoidsNeighboursThatLoseSpeedUnlessContentionIsHidden) {
  const auto known = std::make_shared<PairLoss>(PairLoss::Numbers{{"m", {1, 1}}});
  Site site("4x4");
  site.add({.gpus = 6, .work = 10}, "m", on({{0, 0b1111}, {1, 0b11}}));
  site.add({.gpus = 6, .work = 100}, "m");
  Weights weights = first_weights();
  weights[10] = 0;  // fragments do not matter
  const auto beside = [&](bool hidden) {
    const auto decision = site.decide({weights, hidden, known});
    return gpus_for(decision, 1).mask_on(NodeId(1)) != 0;
  };
  EXPECT_TRUE(beside(true));
  EXPECT_FALSE(beside(false));
}

TEST(Learned, RunsSomethingWhateverTheWeightsSay) {
  Site site("1x4");
  site.add({.gpus = 2, .work = 10}, "m");
  Learned::Config config = plain();
  config.weights.fill(-100);
  EXPECT_EQ(site.decide(config).run.size(), 1U);
}

TEST(Learned, ChoosesCountsOfElasticJobs) {
  Site site("1x8");
  site.add({.gpus = 2, .work = 100, .curve = {{1, 1}, {2, 2}, {4, 3.9}, {8, 7}}}, "m");
  const auto decision = site.decide(plain());
  ASSERT_EQ(decision.run.size(), 1U);
  EXPECT_EQ(gpus_for(decision, 0).gpus(), 8) << "four times as many as it asks for";
}

TEST(Learned, WeightsAreReadBackAsTheyWereWritten) {
  const auto again = parse_weights(to_text(shipped_weights()), "file");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, shipped_weights());
}

// Any network is safe: it chooses among valid candidates, and something always runs.
TEST(Learned, AnyNetworkDecidesValidlyAndIsReadBack) {
  Site site("2x4");
  site.add({.gpus = 4, .work = 1000}, "m", on({{0, 0b1111}}));
  site.add({.gpus = 6, .work = 10}, "m");
  site.add({.gpus = 2, .work = 100, .curve = {{1, 1}, {2, 2}, {4, 3.9}, {8, 7}}}, "m");
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    NetworkWeights weights = shipped_network();
    for (double& weight : weights.network) weight = static_cast<float>(random.uniform(-0.3, 0.3));
    EXPECT_FALSE(site.decide(network_config(weights)).run.empty());
    EXPECT_EQ(parse_network(to_text(weights), "file").value(), weights);
  }
  EXPECT_FALSE(site.decide(network_config(shipped_network())).run.empty());
}

TEST(Learned, BothScorersDecideForAThousandJobs) {
  for (const auto& config : {Learned::Config{}, network_config(shipped_network())}) {
    Site site("64x8");
    for (int i = 0; i < 1000; ++i) {
      site.add(
          {.gpus = 1 << (i % 4), .work = 100.0 + i, .curve = {{1, 1}, {2, 2}, {4, 3.9}, {8, 7}}},
          i % 3 == 0 ? "a" : "b");
    }
    const auto first = site.decide(config);
    EXPECT_FALSE(first.run.empty());
    site.begin(first);
    EXPECT_FALSE(site.decide(config).run.empty());
  }
}

TEST(Learned, SaysWhatIsWrongWithANetwork) {
  EXPECT_FALSE(parse_network("[]", "file").ok());
  EXPECT_FALSE(parse_network(R"({"order": [1, 2, 3, 4, 5], "network": [1]})", "file").ok());
}

TEST(Learned, SaysWhatIsWrongWithWeights) {
  EXPECT_EQ(parse_weights("[]", "file").error().message, "file: is not an object of weights");
  EXPECT_EQ(parse_weights("{}", "file").error().message,
            "file: has no number for the feature service_left");
  std::string more = to_text(first_weights());
  more.insert(1, "\"luck\": 1,");
  EXPECT_EQ(parse_weights(more, "file").error().message, "file: there is no feature \"luck\"");
  const auto chosen = parse_policies("learned:contention=oracle");
  EXPECT_EQ(chosen->front().make({}).error().message,
            "policy learned: contention=oracle needs --contention FILE");
}

}  // namespace
}  // namespace rubato::policy
