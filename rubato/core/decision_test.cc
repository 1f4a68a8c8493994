#include "rubato/core/decision.h"

#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rubato/core/testing.h"

namespace rubato::core {
namespace {

// Two types: nodes 0 and 1 have four A each, nodes 2 and 3 eight B each. Jobs: 0 takes 2, 1 takes
// 1..8, 2 takes 1, 4 or 16, 3 takes 4 and has run, 4 runs on an odd count that is no longer legal,
// 5 was admitted.
Snapshot example() {
  Snapshot snapshot;
  snapshot.now = time_at(100);
  snapshot.cluster = cluster_of("2x4:a,2x8:b");
  snapshot.jobs.insert(job_view(job_id(0), rigid_spec(2)));
  snapshot.jobs.insert(job_view(job_id(1), elastic_spec(1, 8)));
  snapshot.jobs.insert(job_view(job_id(2), elastic_spec(1, 16, {1, 4, 16})));
  snapshot.jobs.insert(job_view(job_id(3), rigid_spec(4))).first_start = time_at(5);
  snapshot.jobs.insert(job_view(job_id(4), rigid_spec(2))).target = gpus_on({{0, 0b111}});
  snapshot.jobs.insert(job_view(job_id(5), rigid_spec(2))).taken_in = true;
  return snapshot;
}

Decision run(std::vector<Grant> grants) {
  Decision decision;
  decision.run = std::move(grants);
  return decision;
}
Decision reject(std::vector<std::size_t> jobs) {
  Decision decision;
  for (const std::size_t job : jobs) decision.reject.push_back({job_id(job), "why", std::nullopt});
  return decision;
}
struct Promised {
  std::size_t job;
  double finish_s;
  std::vector<std::pair<double, int>> plan;
};
Decision promise(const std::vector<Promised>& promises) {
  Decision decision;
  for (const auto& [job, finish_s, plan] : promises) {
    decision.promise.push_back({job_id(job), time_at(finish_s), {}});
    for (const auto& [from_s, gpus] : plan)
      decision.promise.back().plan.push_back({time_at(from_s), gpus});
  }
  return decision;
}
Decision again_at(double s) {
  Decision decision;
  decision.again_at = time_at(s);
  return decision;
}

const GpuType kA = gpu_type(0);
const GpuType kB = gpu_type(1);

TEST(Validate, AcceptsWhatCanBeCarriedOut) {
  const Snapshot snapshot = example();
  for (const Decision& decision : {
           Decision{},
           run({grant_count(0, 2), grant_count(1, 6)}),
           run({grant_count(1, 8, kA), grant_count(2, 16, kB)}),
           run({grant_spread(1, {{0, 4}, {1, 1}}), grant_count(0, 2)}),
           run({grant_exact(0, gpus_on({{2, 0b11}}, kB)),
                grant_exact(1, gpus_on({{2, 0b1100}}, kB))}),
           run({grant_count(4, 3)}),  // as it is now
           run({grant_count(4, 2)}),  // as it asked
           reject({0, 1}),
           again_at(100.000001),
       }) {
    const auto valid = validate(decision, snapshot);
    EXPECT_TRUE(valid.ok()) << valid.error().message;
  }
}

TEST(Validate, NamesTheFirstViolation) {
  Snapshot snapshot = example();
  snapshot.cluster.set_state(node_id(3), NodeState::draining);
  Decision both = reject({0});
  both.run = {grant_count(0, 2)};
  struct Case {
    Decision decision;
    std::string message;
  };
  const std::vector<Case> cases = {
      {run({grant_count(9, 1)}), "job 9: grants GPUs to a job that is not there"},
      {run({grant_count(1, 1), grant_count(0, 2), grant_count(1, 1)}), "job 1: named twice"},
      {both, "job 0: named twice"},
      {reject({0, 0}), "job 0: named twice"},
      {run({grant_count(0, 3)}), "job 0: grants 3 GPUs, which the job cannot use"},
      {run({grant_count(1, 9)}), "job 1: grants 9 GPUs, which the job cannot use"},
      {run({grant_count(2, 2)}), "job 2: grants 2 GPUs, which the job cannot use"},
      {run({grant_count(1, 0)}), "job 1: grants less than one GPU"},
      {run({grant_count(1, -1)}), "job 1: grants -1 GPUs, which the job cannot use"},
      {run({grant_exact(1, Allocation())}), "job 1: grants less than one GPU"},
      {run({grant_count(0, 2, gpu_type(2))}), "job 0: names a GPU type the cluster lacks"},
      {run({grant_count(1, 7, kA), grant_count(0, 2, kA)}),
       "job 0: grants more than the 8 usable GPUs of type a"},
      {run({grant_count(2, 16, kB)}), "job 2: grants more than the 8 usable GPUs of type b"},
      {run({grant_spread(1, {{3, 2}})}), "job 1: uses a node that is not up"},
      {run({grant_exact(0, gpus_on({{3, 0b11}}, kB))}), "job 0: uses a node that is not up"},
      {run({grant_spread(1, {{4, 2}})}), "job 1: names a node the cluster lacks"},
      {run({grant_exact(0, gpus_on({{7, 0b11}}))}), "job 0: names a node the cluster lacks"},
      {run({grant_spread(1, {{0, 1}, {2, 1}})}), "job 1: mixes GPU types in one job"},
      {run({grant_exact(0, gpus_on({{0, 1}, {2, 1}}))}), "job 0: mixes GPU types in one job"},
      {run({grant_exact(0, gpus_on({{2, 0b11}}, kA))}), "job 0: names GPUs of another type"},
      {run({grant_spread(1, {})}), "job 1: spreads over no node"},
      {run({grant_spread(1, {{0, 2}, {1, 0}})}), "job 1: spreads less than one GPU on a node"},
      {run({grant_spread(1, {{1, 1}, {0, 1}})}),
       "job 1: spreads over nodes that are not ascending"},
      {run({grant_spread(1, {{0, 1}, {0, 1}})}),
       "job 1: spreads over nodes that are not ascending"},
      {run({grant_spread(1, {{0, 5}})}), "job 1: overfills a node"},
      {run({grant_spread(1, {{0, 3}}), grant_spread(0, {{0, 2}})}), "job 0: overfills a node"},
      {run({grant_spread(1, {{0, 3}}), grant_exact(0, gpus_on({{0, 0b11}}))}),
       "job 0: overfills a node"},
      {run({grant_exact(0, gpus_on({{0, 0b10001}}))}), "job 0: names a GPU its node lacks"},
      {run({grant_exact(0, gpus_on({{0, 0b11}})), grant_exact(1, gpus_on({{0, 0b110}}))}),
       "job 1: gives one GPU to two jobs"},
      {reject({3}), "job 3: rejected, but it was taken in before or is not there"},
      {reject({5}), "job 5: rejected, but it was taken in before or is not there"},
      {reject({17}), "job 17: rejected, but it was taken in before or is not there"},
      {promise({{17, 120, {{100, 1}}}}), "job 17: is promised an end, but it is not there"},
      {promise({{0, 99, {{90, 2}}}}), "job 0: is promised an end that has passed"},
      {promise({{0, 120, {}}}), "job 0: is promised an end without a plan"},
      {promise({{0, 120, {{100, 2}, {100, 0}}}}), "job 0: has a plan whose steps are not in order"},
      {promise({{0, 120, {{121, 2}}}}), "job 0: has a plan whose steps are not in order"},
      {promise({{0, 120, {{100, 2}}}, {0, 130, {{100, 2}}}}),
       "job 0: is promised an end twice, or though it is rejected"},
      {again_at(100), "asks to be called again at a time that has passed"},
      {again_at(5), "asks to be called again at a time that has passed"},
  };
  Validator reused;  // gives the same answers every time
  for (const auto& [decision, message] : cases) {
    const auto valid = validate(decision, snapshot);
    ASSERT_FALSE(valid.ok()) << message;
    EXPECT_EQ(valid.error().message, message);
    const auto again = reused.check(decision, snapshot);
    ASSERT_FALSE(again.ok()) << message;
    EXPECT_EQ(again.error().message, message);
    EXPECT_TRUE(reused.check(run({grant_count(0, 2), grant_count(1, 1)}), snapshot).ok());
  }
}

TEST(Validate, AJobMayKeepTheGpusItHasOnANodeThatLeaves) {
  Snapshot snapshot = example();
  snapshot.jobs.find(job_id(0))->target = gpus_on({{0, 0b1000}, {1, 0b1}});
  snapshot.cluster.set_state(node_id(1), NodeState::draining);
  const Grant keeps = grant_exact(0, gpus_on({{0, 0b1000}, {1, 0b1}}));
  EXPECT_TRUE(validate(run({keeps}), snapshot).ok());
  EXPECT_TRUE(validate(run({keeps, grant_count(1, 3)}), snapshot).ok())
      << "and takes nothing from the nodes that stay";
  EXPECT_FALSE(validate(run({keeps, grant_count(1, 4)}), snapshot).ok());
  EXPECT_FALSE(validate(run({grant_exact(0, gpus_on({{0, 0b1000}, {1, 0b10}}))}), snapshot).ok())
      << "but gets no other there";
}

TEST(Want, KnowsItsSize) {
  EXPECT_EQ(gpus_of(Count{GpuType(), 5}), 5);
  EXPECT_EQ(gpus_of(Spread{{{node_id(0), 2}, {node_id(4), 3}}}), 5);
  EXPECT_EQ(gpus_of(Exact{gpus_on({{0, 0b1011}})}), 3);
}

TEST(Validate, AGuestSharesTheGpusOfOneHostThatRuns) {
  Snapshot snapshot;
  snapshot.cluster = cluster_of("1x2");
  for (std::size_t i = 0; i < 3; ++i) snapshot.jobs.insert(job_view(job_id(i), rigid_spec(2)));
  snapshot.jobs.insert(job_view(job_id(3), rigid_spec(1)));
  const auto verdict = [&](std::vector<Grant> run) {
    Decision decision;
    decision.run = std::move(run);
    const auto valid = validate(decision, snapshot);
    return valid.ok() ? "" : valid.error().message;
  };
  EXPECT_EQ(verdict({grant_count(0, 2), grant_beside(1, 0)}), "") << "the host takes the room";
  EXPECT_EQ(verdict({grant_beside(1, 0), grant_count(0, 2)}), "") << "in any order";
  EXPECT_NE(verdict({grant_beside(1, 0)}), "") << "the host does not run";
  EXPECT_NE(verdict({grant_beside(0, 0)}), "");
  EXPECT_NE(verdict({grant_count(0, 2), grant_beside(1, 0), grant_beside(2, 0)}), "")
      << "space sharing is for two";
  EXPECT_NE(verdict({grant_count(0, 2), grant_beside(1, 0), grant_beside(2, 1)}), "");
  EXPECT_NE(verdict({grant_count(0, 2), grant_beside(3, 0)}), "") << "it cannot use 2 GPUs";
  EXPECT_NE(verdict({grant_count(0, 2), grant_beside(1, 0), grant_count(1, 2)}), "");
  EXPECT_EQ(gpus_of(Beside{job_id(0)}), 0);
}

}  // namespace
}  // namespace rubato::core
