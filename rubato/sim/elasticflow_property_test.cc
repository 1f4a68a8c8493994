// Every admitted deadline is kept, judged by real completion in the simulator, by every policy that
// promises, over thousands of random workloads with any curves, deadlines, restart costs, cluster
// sizes, GPU types and decision times.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/model/typed_speed.h"
#include "rubato/policy/testing.h"
#include "rubato/sim/simulation.h"

namespace rubato::sim {
namespace {

struct DeadlineScene {
  Cluster cluster;
  Workload workload;
  SimulationOptions options;
};

int draw(Random& random, int bound) {
  return static_cast<int>(random.below(static_cast<std::uint64_t>(bound)));
}

std::vector<CurvePoint> draw_curve(Random& random) {
  std::vector<CurvePoint> curve;
  double rate = random.uniform(0.2, 3);
  const int largest = 1 << draw(random, 7);
  for (int gpus = 1; gpus <= largest; gpus *= 2) {
    if (gpus < largest && draw(random, 8) == 0) continue;  // not measured
    curve.push_back({gpus, rate});
    rate *= draw(random, 6) == 0 ? random.uniform(0.5, 1) : random.uniform(1, 2.1);
  }
  return curve;
}

// Speeds on each of two types, for every count a job may ask for; on one type some cannot run.
std::shared_ptr<const ThroughputTable> draw_types(Random random) {
  auto table = std::make_shared<ThroughputTable>(3, 2);
  for (std::size_t row = 0; row < 3; ++row) {
    for (int t = 0; t < 2; ++t) {
      const double rate = row == 2 && t == 1 ? 0 : random.uniform(0.3, 2);
      for (int gpus = 1; gpus <= 6; ++gpus)
        table->set_alone(row, GpuType(static_cast<GpuType::rep>(t)), gpus, rate);
    }
  }
  return table;
}

// What the ends of some jobs are worth, for who goes by that.
void draw_utilities(DeadlineScene& scene, Random random) {
  for (SimJob& job : scene.workload.jobs) {
    if (!job.spec->deadline || random.below(2) == 0) continue;
    auto spec = std::make_shared<JobSpec>(*job.spec);
    const Duration target = *spec->deadline - job.submit;
    const double decay = random.log_uniform(0.1, 50) / std::max(1e-3, seconds(target));
    spec->utility = Utility{random.uniform(1, 100), random.below(4) == 0 ? 0 : decay, target};
    job.spec = std::move(spec);
  }
}

DeadlineScene draw_deadline_scene(std::uint64_t seed, bool two_types = false) {
  Random random(seed);
  DeadlineScene scene;
  const NodeGroup first{1 + draw(random, 5), 1 << draw(random, 4), GpuType()};
  scene.cluster = two_types ? Cluster({first, {2, 1 << (seed % 4), GpuType(1)}}, {"a", "b"})
                            : Cluster({first}, {"gpu"});
  const auto typed = two_types ? draw_types(Random(seed).split(1)) : nullptr;
  const double restart_s = draw(random, 3) == 0 ? 0 : random.uniform(0, 8);
  const double scale = random.log_uniform(5, 5000);
  const double gap = scale * random.log_uniform(0.02, 1);
  const double tightest = random.uniform(0.1, 1.2);
  const bool whole = draw(random, 3) == 0;  // many equal times
  double submit_s = 0;
  const int jobs = 3 + draw(random, 28);
  for (int i = 0; i < jobs; ++i) {
    testing::Draft draft;
    draft.submit_s = whole ? std::floor(submit_s) : submit_s;
    draft.restart_s = restart_s;
    const double length = scale * random.log_uniform(0.05, 2);
    if (draw(random, 6) != 0) {
      draft.curve = draw_curve(random);
      draft.network = random.uniform(0, 1);
      draft.work = length * draft.curve.front().rate;
    } else {
      draft.gpus = 1 + draw(random, 6);
      draft.work = length;
    }
    if (draw(random, 5) != 0) {
      const double time = restart_s + length * random.uniform(tightest, 3);
      draft.deadline_s = draft.submit_s + (whole ? std::floor(time) : time);
    }
    scene.workload.jobs.push_back(
        {draft.spec(), time_at(draft.submit_s), draft.work, draft.speed()});
    if (typed && draft.curve.empty())
      scene.workload.jobs.back().speed = std::make_shared<TypedSpeed>(typed, seed % 3);
    submit_s += draw(random, 3) == 0 ? 0 : random.exponential(gap);
  }
  // If the placement moves jobs, that must not break a promise either.
  if (draw(random, 4) == 0)
    scene.options.placement = draw(random, 2) == 0 ? Placement::buddy : Placement::netpack;
  if (draw(random, 3) == 0)
    scene.options.interval = from_seconds(std::vector<double>{1, 60, 2.5, 7.3}[random.below(4)]);
  return scene;
}

// Passes decisions on and stores the last promise to each job.
class Notary final : public Policy {
 public:
  explicit Notary(const std::string& name) : policy_(testing::make_policy(name)) {}

  Result<Decision> decide(const Snapshot& snapshot) override {
    auto decision = policy_->decide(snapshot);
    std::set<JobId> promised;
    for (const auto& promise : decision->promise) {
      promised.insert(promise.job);
      last[promise.job] = promise.finish;
      const JobSpec& spec = *snapshot.jobs.find(promise.job)->spec;
      if (!spec.utility) {
        EXPECT_LE(promise.finish, *spec.deadline);
      }
    }
    for (const auto& reject : decision->reject) {
      promised.insert(reject.job);
      EXPECT_TRUE(snapshot.jobs.find(reject.job)->spec->deadline.has_value());
    }
    for (const auto& job : snapshot.jobs) {
      EXPECT_EQ(promised.contains(job.id), job.spec->deadline.has_value())
          << "job " << job.id.value() << " at " << seconds(snapshot.now);
    }
    return decision;
  }
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const override {
    return policy_->least_gpus(spec, speed);
  }
  [[nodiscard]] Json save() const override { return policy_->save(); }
  Result<void> load(const Json& state) override { return policy_->load(state); }

  std::map<JobId, Time> last;

 private:
  std::unique_ptr<Policy> policy_;
};

struct Terms {
  bool two_types = false;
  bool utilities = false;
  std::uint64_t scenes_a_move = 12;  // at most, so that moves are tested; fewer plans, fewer moves
};

void expect_promises_kept(const std::string& name, std::uint64_t first, std::uint64_t last,
                          Terms terms = {}) {
  last = first + tries(last - first);
  std::size_t kept = 0, refused = 0, migrations = 0;
  for (std::uint64_t seed = first; seed < last && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("scene " + std::to_string(seed));
    DeadlineScene scene = draw_deadline_scene(seed, terms.two_types);
    if (terms.utilities) draw_utilities(scene, Random(seed).split(2));
    Notary policy(name);
    const auto result = simulate(scene.workload, scene.cluster, policy, scene.options);
    ASSERT_TRUE(result.ok()) << result.error().message;
    migrations += result->metrics.migrations;
    for (std::size_t i = 0; i < scene.workload.jobs.size(); ++i) {
      const SimJob& job = scene.workload.jobs[i];
      const JobRecord& record = result->recorder.jobs()[i];
      if (!record.rejected.empty()) {
        ++refused;
        EXPECT_FALSE(record.start.has_value());
        continue;
      }
      ASSERT_TRUE(record.end.has_value()) << "job " << i;
      if (!job.spec->deadline) continue;
      ++kept;
      if (!job.spec->utility) {
        EXPECT_LE(*record.end, *job.spec->deadline) << "job " << i;
      }
      if (scene.options.placement != Placement::count) continue;
      EXPECT_EQ(*record.end, policy.last[JobId(static_cast<JobId::rep>(i))]) << "job " << i;
    }
  }
  EXPECT_GT(kept, 5 * (last - first));
  EXPECT_GT(refused, 5 * (last - first) / 6);
  if (!terms.two_types) {
    EXPECT_GT(migrations, (last - first) / terms.scenes_a_move);
  }
}

TEST(ElasticFlowProperty, EveryPromiseIsKeptToTheMicrosecond) {
  expect_promises_kept("elasticflow", 0, 6000);
}

TEST(RubatoProperty, EveryPromiseIsKeptToTheMicrosecond) {
  expect_promises_kept("rubato", 0, 3000);
}

TEST(RubatoProperty, EveryPromiseIsKeptOnSeveralTypes) {
  expect_promises_kept("rubato", 3000, 6000, {.two_types = true});
}

TEST(RubatoProperty, EveryPromiseIsKeptBesideTurns) {
  expect_promises_kept("rubato:patience=20", 6000, 7000);
}

// Who is admitted gets the plan it was promised, so its end is worth what it was taken in for.
TEST(OasisProperty, EveryPlanIsKeptToTheMicrosecond) {
  expect_promises_kept("oasis", 0, 1000, {.scenes_a_move = 20});
  expect_promises_kept("oasis:slot=20", 1000, 2000, {.scenes_a_move = 20});
  expect_promises_kept("oasis:slot=3", 2000, 3000, {.scenes_a_move = 20});
}

TEST(OasisProperty, EveryPlanIsKeptWithUtilities) {
  expect_promises_kept("oasis:slot=60", 3000, 4500, {.utilities = true, .scenes_a_move = 20});
}

// With the deadline that the refusal names, the job would have been admitted.
TEST(ElasticFlowProperty, ARefusalNamesADeadlineThatIsAdmitted) {
  int asked_again = 0;
  for (std::uint64_t seed = 0; seed < tries(600) && !HasFailure(); ++seed) {
    SCOPED_TRACE("scene " + std::to_string(seed));
    DeadlineScene scene = draw_deadline_scene(seed);
    const auto first = simulate(scene.workload, scene.cluster, *testing::make_policy("elasticflow"),
                                scene.options);
    ASSERT_TRUE(first.ok());
    for (std::size_t i = 0; i < scene.workload.jobs.size(); ++i) {
      const auto& earliest = first->recorder.jobs()[i].earliest;
      if (!earliest) continue;
      SimJob& job = scene.workload.jobs[i];
      EXPECT_GT(*earliest, *job.spec->deadline);
      auto spec = std::make_shared<JobSpec>(*job.spec);
      spec->deadline = *earliest;
      job.spec = std::move(spec);
      const auto second = simulate(scene.workload, scene.cluster,
                                   *testing::make_policy("elasticflow"), scene.options);
      ASSERT_TRUE(second.ok());
      const JobRecord& record = second->recorder.jobs()[i];
      ASSERT_TRUE(record.end.has_value()) << "job " << i << ": " << record.rejected;
      EXPECT_LE(*record.end, *earliest) << "job " << i;
      ++asked_again;
      break;
    }
  }
  EXPECT_GT(asked_again, static_cast<int>(tries(300)));
}

}  // namespace
}  // namespace rubato::sim
