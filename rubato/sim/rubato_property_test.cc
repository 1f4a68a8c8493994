// What rubato guarantees beyond its promises: nobody waits longer than its header says, whatever
// comes after it.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/policy/rubato.h"
#include "rubato/policy/testing.h"
#include "rubato/sim/simulation.h"

namespace rubato::sim {
namespace {

using testing::Draft;

constexpr double kPatience = 40;

struct RubatoScene {
  Cluster cluster;
  Workload workload;
  SimulationOptions options;
  double turn_s = 0;
};

// Short jobs come faster than they can be served; among them are long ones that no market would
// serve before the end.
RubatoScene draw_rubato_scene(std::uint64_t seed, bool deadlines) {
  Random random(seed);
  RubatoScene scene;
  scene.cluster = testing::cluster_of(
      std::vector<std::string>{"1x2", "1x4", "2x3", "1x2:a,1x4:b"}[random.below(4)]);
  const double restart_s = random.below(2) == 0 ? 0 : random.uniform(0, 0.005);
  scene.turn_s = std::max(kPatience / 1440, 10 * restart_s);
  double submit_s = 0;
  for (int i = 0; i < 120; ++i) {
    Draft draft{.gpus = 1 + static_cast<int>(random.below(2)), .submit_s = submit_s};
    draft.restart_s = restart_s;
    draft.work = random.below(8) == 0 ? random.uniform(50, 400) : random.uniform(1, 8);
    if (random.below(2) == 0) draft.curve = testing::rates({1, 1.8, 2.4, 2.8});
    if (deadlines && random.below(5) == 0)
      draft.deadline_s = submit_s + draft.work * random.uniform(1.1, 4);
    scene.workload.jobs.push_back(
        {draft.spec(), time_at(draft.submit_s), draft.work, draft.speed()});
    submit_s += random.exponential(1.5);
  }
  if (random.below(3) == 0) scene.options.interval = from_seconds(random.below(2) == 0 ? 1 : 2.5);
  scene.options.record.history = true;
  return scene;
}

// The longest time between submission, or the loss of its GPUs, and the next GPUs; jobs that were
// refused are left out.
double longest_wait(const RubatoScene& scene, const SimulationResult& result, double& promised_s) {
  double longest = 0;
  for (std::size_t i = 0; i < scene.workload.jobs.size(); ++i) {
    const JobRecord& record = result.recorder.jobs()[i];
    const SimJob& job = scene.workload.jobs[i];
    if (!record.rejected.empty()) continue;
    if (job.spec->deadline) {
      promised_s = std::max(promised_s, seconds(*job.spec->deadline - job.submit));
      continue;
    }
    Time waits_since = job.submit;
    bool waits = true;
    for (const auto& [at, gpus] : record.gpus) {
      if (gpus > 0 && waits) longest = std::max(longest, seconds(at - waits_since));
      if (gpus == 0 && !waits) waits_since = at;
      waits = gpus == 0;
    }
  }
  return longest;
}

// How many jobs were there at once, at most.
std::size_t most_present(const RubatoScene& scene, const SimulationResult& result) {
  std::map<Time, int> change;
  for (std::size_t i = 0; i < scene.workload.jobs.size(); ++i) {
    if (!result.recorder.jobs()[i].end) continue;
    ++change[scene.workload.jobs[i].submit];
    --change[*result.recorder.jobs()[i].end];
  }
  int now = 0, most = 0;
  for (const auto& [at, by] : change) most = std::max(most, now += by);
  return static_cast<std::size_t>(most);
}

void expect_nobody_starves(bool deadlines) {
  std::size_t beyond_patience = 0;
  for (std::uint64_t seed = 0; seed < tries(120) && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("scene " + std::to_string(seed));
    const RubatoScene scene = draw_rubato_scene(seed, deadlines);
    const auto policy = testing::make_policy("rubato:fairness=0,patience=40");
    const auto result = simulate(scene.workload, scene.cluster, *policy, scene.options);
    ASSERT_TRUE(result.ok()) << result.error().message;
    double promised_s = 0;  // the longest time that a promise can stand
    const double longest = longest_wait(scene, *result, promised_s);
    const double share = 200.0 * 2 / scene.cluster.installed();  // no job needs more than 2 GPUs
    const double step = scene.turn_s * (1 + share) + seconds(scene.options.interval);
    const auto jobs = static_cast<double>(most_present(scene, *result));
    EXPECT_LE(longest, kPatience + jobs * step + promised_s + 1e-6);
    beyond_patience += longest > 0.9 * kPatience ? 1 : 0;
  }
  EXPECT_GT(beyond_patience, tries(30));  // or the test would show nothing
}

TEST(RubatoProperty, NobodyWaitsLongerThanTheBound) { expect_nobody_starves(false); }

TEST(RubatoProperty, NobodyWaitsLongerThanTheBoundBesidePromises) { expect_nobody_starves(true); }

}  // namespace
}  // namespace rubato::sim
