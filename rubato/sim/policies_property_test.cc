// Properties of every policy in the table, on small random workloads in the simulator. A policy
// that is added to the table is tested automatically.
#include <algorithm>
#include <cctype>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/model/typed_speed.h"
#include "rubato/policy/all.h"
#include "rubato/policy/testing.h"
#include "rubato/sim/report.h"
#include "rubato/sim/simulation.h"

namespace rubato::sim {
namespace {

using testing::Draft;
using testing::make_policy;

const std::vector<double> kSamples = {1, 2, 3, 3, 5, 8, 8, 13, 21, 40, 80};

struct Scene {
  Cluster cluster;
  Workload workload;
  SimulationOptions options;
  bool failures = false;
};

// Options of a random scenario.
struct Scope {
  bool several_types = true;
  bool curves = true;
  bool failures = true;
  bool intervals = true;
  bool placements = true;
  bool restart_costs = true;
  bool pairs = false;          // some jobs have speeds by type and may share GPUs
  bool unpreemptible = false;  // some jobs keep their GPUs once they have them
  bool opportunistic = false;  // some jobs are
};

bool promotes(std::string_view policy) { return policy.find("promote") != std::string::npos; }

Scope scope_of(std::string_view policy) {
  const auto entry = parse_policies(policy).value().front().entry;
  // At these scales the time between two promotions is shorter than a restart. By the paper's rule,
  // jobs would displace each other for ever and never end.
  return {.several_types = !entry->one_type,
          .restart_costs = !promotes(policy),
          .pairs = policy.starts_with("gavel") || policy.starts_with("antman"),
          .opportunistic = policy.starts_with("antman")};
}

// Few whole numbers, so that times and deadlines are often equal.
Draft draw_job(Random& random, const Scope& scope, double submit_s) {
  Draft job{.gpus = std::vector<int>{1, 1, 1, 2, 2, 3, 4, 6, 9}[random.below(9)],
            .work = static_cast<double>(random.below(25)),
            .submit_s = submit_s};
  if (random.below(3) != 0) job.deadline_s = submit_s + 5.0 * static_cast<double>(random.below(16));
  if (scope.curves && random.below(2) == 0) {
    double rate = 0.5;
    for (const int gpus : {1, 2, 4, 8, 16}) {
      if (gpus == 1 && random.below(6) == 0) continue;  // not measured on one GPU
      rate *= random.below(5) == 0 ? 0.8 : random.uniform(1, 2);
      job.curve.push_back({gpus, rate});
    }
    job.work *= 0.5;
    job.network = random.below(2) == 0 ? 0 : 1;
    job.batch = random.below(3) == 0 ? static_cast<int>(random.below(6)) + 1 : 0;
    if (random.below(3) == 0) {
      std::set<int> allowed = {job.gpus};
      while (random.below(3) != 0) allowed.insert(static_cast<int>(random.below(12)) + 1);
      job.allowed.assign(allowed.begin(), allowed.end());
    }
  }
  return job;
}

// Speeds by type, alone and in pairs, for every count that a job may ask for.
std::shared_ptr<const ThroughputTable> draw_pairs(Random random, std::size_t types) {
  constexpr std::size_t kRows = 3;
  auto table = std::make_shared<ThroughputTable>(kRows, types);
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t t = 0; t < types; ++t) {
      const GpuType type(static_cast<GpuType::rep>(t));
      const double rate = random.uniform(0.5, 2);
      for (int gpus = 1; gpus <= 9; ++gpus) {
        table->set_alone(row, type, gpus, row == 2 && t == 1 ? 0 : rate);
        for (std::size_t other = 0; other < kRows; ++other)
          table->set_beside(row, other, type, gpus, rate * random.uniform(0.3, 0.9));
      }
    }
  }
  return table;
}

// In every third scene, jobs are placed by the share of their largest tensor, where it is known.
void draw_skews(Random random, Scene& scene) {
  if (random.below(3) != 0) return;
  scene.options.placement = random.below(4) == 0 ? Placement::gaps : Placement::skew;
  for (SimJob& job : scene.workload.jobs) {
    auto spec = std::make_shared<JobSpec>(*job.spec);
    if (random.below(3) != 0) spec->skew = random.uniform(0.01, 1);
    job.spec = std::move(spec);
  }
}

Scene draw_scene(std::uint64_t seed, const Scope& scope) {
  Random random(seed);
  Scene scene;
  const std::vector<std::string> clusters = {"1x4",  "2x4",         "5x2",
                                             "1x12", "2x3:a,1x4:b", "1x2:a,1x3:b,2x4:c"};
  scene.cluster = testing::cluster_of(clusters[random.below(scope.several_types ? 6 : 4)]);
  const double restart_s =
      random.below(2) == 0 || !scope.restart_costs ? 0 : static_cast<double>(random.below(4));
  Random typed = random.split(7), bound = random.split(8);
  const auto table = draw_pairs(typed.split(1), static_cast<std::size_t>(scene.cluster.types()));
  const auto jobs = random.below(30) + 3;
  double submit_s = 0;
  for (std::uint64_t i = 0; i < jobs; ++i) {
    Draft draft = draw_job(random, scope, submit_s);
    draft.restart_s = restart_s;
    scene.workload.jobs.push_back(
        {draft.spec(), time_at(draft.submit_s), draft.work, draft.speed()});
    if (scope.pairs && draft.curve.empty() && typed.below(3) != 0)
      scene.workload.jobs.back().speed = std::make_shared<TypedSpeed>(table, typed.below(3));
    if (scope.unpreemptible && bound.below(3) == 0) {
      auto spec = std::make_shared<JobSpec>(*scene.workload.jobs.back().spec);
      spec->preemptible = false;
      scene.workload.jobs.back().spec = std::move(spec);
    }
    if (scope.opportunistic && bound.below(2) == 0) {
      auto spec = std::make_shared<JobSpec>(*scene.workload.jobs.back().spec);
      spec->opportunistic = true;
      scene.workload.jobs.back().spec = std::move(spec);
    }
    submit_s += static_cast<double>(random.below(2) * random.below(8));
  }
  if (scope.placements) {
    scene.options.placement = static_cast<Placement>(random.below(5));
    draw_skews(random.split(9), scene);
  }
  if (scope.intervals && random.below(3) == 0)
    scene.options.interval = from_seconds(std::vector<double>{1, 7, 2.5}[random.below(3)]);
  scene.failures = scope.failures && random.below(2) == 0;
  if (scene.failures) {
    // Nodes fail one by one or all at once, at whole seconds, and come back to stay.
    for (std::size_t node = 0; node < scene.cluster.nodes().size(); ++node) {
      double at = static_cast<double>(random.below(30));
      const NodeId id(static_cast<NodeId::rep>(node));
      while (random.below(3) != 0) {
        scene.options.node_events.push_back({time_at(at), id, NodeState::down});
        at += static_cast<double>(random.below(10));
        scene.options.node_events.push_back({time_at(at), id, NodeState::up});
        at += static_cast<double>(random.below(30));
      }
    }
    std::stable_sort(scene.options.node_events.begin(), scene.options.node_events.end(),
                     [](const NodeEvent& a, const NodeEvent& b) { return a.at < b.at; });
  }
  return scene;
}

SimulationResult must_simulate(const Scene& scene, Policy& policy) {
  auto result = simulate(scene.workload, scene.cluster, policy, scene.options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(*result);
}

struct Words {
  std::string operator()(const Want& want) const { return std::visit(*this, want); }
  std::string operator()(const Count& want) const {
    return "x" + std::to_string(want.gpus) + ":" + std::to_string(want.type.value());
  }
  std::string operator()(const Spread& want) const {
    std::string text;
    for (const auto& [node, gpus] : want.gpus)
      text += "/" + std::to_string(node.value()) + "x" + std::to_string(gpus);
    return text;
  }
  std::string operator()(const Exact& want) const {
    std::string text;
    for (const auto& slice : want.gpus.slices())
      text += "/" + std::to_string(slice.node.value()) + "=" + std::to_string(slice.mask);
    return text;
  }
  std::string operator()(const Beside& want) const {
    return "+" + std::to_string(want.host.value());
  }
};

// The whole decision as text, in order.
std::string words(const Decision& decision) {
  std::string text;
  for (const auto& grant : decision.run) {
    text += std::to_string(grant.job.value()) + Words()(grant.want) + " ";
    if (grant.batch) text += "b" + std::to_string(grant.batch->per_gpu) + " ";
  }
  for (const auto& reject : decision.reject) {
    text += "!" + std::to_string(reject.job.value());
    if (reject.earliest) text += "@" + std::to_string(reject.earliest->time_since_epoch().count());
    text += " ";
  }
  if (decision.again_at)
    text += "again " + std::to_string(decision.again_at->time_since_epoch().count());
  return text;
}

// Passes on the decisions of another policy and lets a test look at them.
class Watched : public Policy {
 public:
  explicit Watched(std::unique_ptr<Policy> policy) : policy_(std::move(policy)) {}

  Result<Decision> decide(const Snapshot& snapshot) override {
    auto decision = policy_->decide(snapshot);
    if (decision.ok() && !::testing::Test::HasFailure()) watch(snapshot, *decision);
    return decision;
  }
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const override {
    return policy_->least_gpus(spec, speed);
  }
  [[nodiscard]] Json save() const override { return policy_->save(); }
  Result<void> load(const Json& state) override { return policy_->load(state); }

 protected:
  virtual void watch(const Snapshot& snapshot, const Decision& decision) = 0;
  std::unique_ptr<Policy> policy_;
};

// No waiting job fits into what was left idle, on a type on which it runs.
class WorkConserving final : public Watched {
 public:
  using Watched::Watched;

 private:
  void watch(const Snapshot& snapshot, const Decision& decision) override {
    std::vector<int> idle;
    idle.reserve(static_cast<std::size_t>(snapshot.cluster.types()));
    for (int t = 0; t < snapshot.cluster.types(); ++t)
      idle.push_back(snapshot.cluster.usable(GpuType(static_cast<std::uint8_t>(t))));
    std::set<JobId> named;
    for (const auto& grant : decision.run) {
      if (std::holds_alternative<Beside>(grant.want)) {  // a guest takes no idle GPU
        named.insert(grant.job);
        continue;
      }
      const auto* exact = std::get_if<Exact>(&grant.want);
      const GpuType type = exact != nullptr ? exact->gpus.type() : std::get<Count>(grant.want).type;
      idle[type.index()] -= gpus_of(grant.want);
      named.insert(grant.job);
    }
    for (const auto& reject : decision.reject) named.insert(reject.job);
    for (const auto& job : snapshot.jobs) {
      if (named.contains(job.id)) continue;
      const int least = least_gpus(*job.spec, *job.speed);
      for (std::size_t t = 0; t < idle.size(); ++t) {
        const GpuType type(static_cast<GpuType::rep>(t));
        EXPECT_FALSE(least <= idle[t] && job.speed->on(type, least) > 0)
            << "job " << job.id.value() << " waits beside " << idle[t] << " idle GPUs of type " << t
            << " at " << seconds(snapshot.now);
      }
    }
  }
};

// The same policy three times: unchanged; saved as text and loaded into a new one before every
// decision; and never told what changed, so that it must look at everything.
class Triplets final : public Watched {
 public:
  explicit Triplets(std::string name)
      : Watched(make_policy(name, kSamples)),
        name_(std::move(name)),
        reloaded_(make_policy(name_, kSamples)),
        rebuilt_(make_policy(name_, kSamples)) {}

 private:
  void watch(const Snapshot& snapshot, const Decision& decision) override {
    const auto state = parse_json(reloaded_->save().dump(), "state");
    ASSERT_TRUE(state.ok());
    reloaded_ = make_policy(name_, kSamples);
    const auto loaded = reloaded_->load(*state);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(words(*reloaded_->decide(snapshot)), words(decision)) << "saved and loaded";

    Snapshot untold = snapshot;
    untold.changed_since = Sequence(static_cast<Sequence::rep>(-7));
    untold.changed.clear();
    EXPECT_EQ(words(*rebuilt_->decide(untold)), words(decision)) << "rebuilt";
    EXPECT_EQ(reloaded_->save().dump(), rebuilt_->save().dump());
    EXPECT_EQ(policy_->save_text().value(), canonical_json(policy_->save()).value());
  }
  std::string name_;
  std::unique_ptr<Policy> reloaded_, rebuilt_;
};

// A job that may not be preempted has the same GPUs from its first decision to its end.
class Undisturbed final : public Watched {
 public:
  using Watched::Watched;
  [[nodiscard]] int kept() const { return kept_; }

 private:
  void watch(const Snapshot& snapshot, const Decision& /*decision*/) override {
    for (const JobView& job : snapshot.jobs) {
      if (job.spec->preemptible) continue;
      const auto known = gpus_of_.find(job.id);
      if (known != gpus_of_.end()) {
        EXPECT_EQ(job.target, known->second) << "job " << job.id.value();
        EXPECT_EQ(job.held, known->second) << "job " << job.id.value();
        ++kept_;
      } else if (!job.held.empty()) {
        gpus_of_.emplace(job.id, job.held);
      }
    }
  }
  std::map<JobId, Allocation> gpus_of_;
  int kept_ = 0;
};

// Besides the policy that decides, a second one sees a worse world: one node is unknown, and some
// jobs are on hold. Its decisions must be valid. It must not touch jobs on the unknown node, and
// must give nothing to jobs on hold.
class InTheDark final : public Watched {
 public:
  InTheDark(std::unique_ptr<Policy> policy, std::unique_ptr<Policy> dark)
      : Watched(std::move(policy)), dark_(std::move(dark)) {}
  [[nodiscard]] int kept() const { return kept_; }

 private:
  void watch(const Snapshot& snapshot, const Decision& /*decision*/) override {
    Snapshot darker = snapshot;
    const auto nodes = darker.cluster.nodes().size();
    const NodeId node(static_cast<NodeId::rep>(++decisions_ / 7 % (nodes + 1)));
    if (node.index() < nodes) darker.cluster.set_state(node, NodeState::unknown);
    for (const JobView& job : snapshot.jobs) {
      if (!job.target.empty() || !job.held.empty() || job.id.value() % 4 != 1) continue;
      darker.jobs.find(job.id)->on_hold = true;
      ++darker.away;
    }
    auto decision = dark_->decide(darker);
    ASSERT_TRUE(decision.ok()) << decision.error().message;
    decision->again_at.reset();  // it is not carried out, so what it expects does not happen
    const auto valid = validate(*decision, darker);
    ASSERT_TRUE(valid.ok()) << valid.error().message;
    std::map<JobId, const Grant*> grants;
    for (const Grant& grant : decision->run) grants[grant.job] = &grant;
    for (const JobView& job : darker.jobs) {
      if (job.on_hold) {
        EXPECT_FALSE(grants.contains(job.id)) << job.id.value();
      }
      if (!out_of_reach(job, darker.cluster)) continue;
      ASSERT_TRUE(grants.contains(job.id)) << job.id.value();
      const auto* exact = std::get_if<Exact>(&grants[job.id]->want);
      EXPECT_TRUE(exact == nullptr ? job.shares_with.has_value() : exact->gpus == job.target);
      ++kept_;
    }
  }

  std::unique_ptr<Policy> dark_;
  std::size_t decisions_ = 0;
  int kept_ = 0;
};

// Each policy of the table with its defaults, and some with settings that matter at this scale.
// Pollux has a short search, because the full one would take most of the time of all these tests.
// How long it searches changes how good a decision is, not which code makes it.
std::vector<std::string> policies() {
  std::vector<std::string> names;
  for (const auto& entry : all_policies()) {
    names.push_back(entry.name == "pollux" ? "pollux:population=16,generations=8" : entry.name);
  }
  for (const auto* name : {"edf:count=peak",
                           "edf:count=trace",
                           "edf-admission:count=peak",
                           "edf-admission:count=trace",
                           "tiresias-las:limits=6/20",
                           "tiresias-las:limits=6/20,promote=1.5",
                           "tiresias-las:queues=2,limits=10,promote=0.1",
                           "tiresias-las:limits=6/20,victims=cheapest",
                           "sjf:victims=cheapest",
                           "srtf:victims=cheapest",
                           "srsf:victims=cheapest",
                           "elas:form=product,round=7",
                           "elas:victims=cheapest",
                           "antman:victims=cheapest",
                           "pickyman:epochs=5",
                           "tiresias-gittins:queues=1,quantum=4,samples=given",
                           "tiresias-gittins:queues=2,limits=9,quantum=6,promote=1,samples=given",
                           "learned:scorer=network",
                           "afs-l:find=scan",
                           "afs-p:prior=5",
                           "gavel-las:aware=off,round=7,resolve=10",
                           "gavel-las:packing=on,round=5,resolve=0",
                           "gavel-las:parts=3,round=20,resolve=30",
                           "gavel-ftf:packing=on,round=9,resolve=9",
                           "gavel-throughput:prices=3/2/1,round=10",
                           "gavel-hierarchical:inside=fifo,round=4,resolve=4",
                           "fifo-perf:round=0",
                           "fifo-perf:round=5,resolve=6",
                           "allox:alpha=1",
                           "gandiva:quantum=3,trial=1",
                           "gandiva:quantum=2,grow=off,migrate=off",
                           "gandiva-fair:quantum=2",
                           "themis:lease=4",
                           "themis:f=0,lease=3",
                           "optimus:oracle=on",
                           "optimus:prior=5",
                           "hesrpt:q=0.5",
                           "elastic-tiresias:limits=6/20,waiting=2",
                           "elastic-tiresias:limits=10,least=0.1",
                           "elasticflow:admission=off",
                           "oasis:slot=2",
                           "oasis:slot=7,horizon=0.01,low=0.01,high=0.5",
                           "aonline:unit=1",
                           "aonline:unit=5",
                           "edge-cloud:bandwidth=1/10/2,data=2",
                           "rubato:fairness=1,patience=9",
                           "rubato:promises=off,patience=3",
                           "rubato:lengths=unknown",
                           "rubato:lengths=fraction,fairness=0"}) {
    names.emplace_back(name);
  }
  return names;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char c : info.param)
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

class EveryPolicy : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] std::unique_ptr<Policy> make() const { return make_policy(GetParam(), kSamples); }

  template <class Check>
  void for_scenes(std::uint64_t scenes, const Check& check) const {
    for_exactly(tries(scenes), check);
  }
  template <class Check>
  void for_exactly(std::uint64_t scenes, const Check& check) const {
    for (std::uint64_t seed = 0; seed < scenes && !HasFailure(); ++seed) {
      SCOPED_TRACE("scene " + std::to_string(seed));
      check(draw_scene(seed, scope_of(GetParam())));
    }
  }
};

// Whatever the policy does, a search stops its trials and lets the best one come to its end.
TEST_P(EveryPolicy, LetsSearchesStopTheirTrials) {
  std::size_t stopped = 0;
  for_exactly(seeds(20), [&](Scene scene) {
    std::size_t in_a_search = 0;
    for (SimJob& job : scene.workload.jobs)
      job.trial =
          SimTrial{in_a_search++ / 4, {4, 2, false}, 0.2, scene.workload.jobs.size() % 2 == 0};
    scene.workload.searches = (in_a_search + 3) / 4;
    const auto result = must_simulate(scene, *make());
    if (HasFailure()) return;
    std::vector<bool> any(scene.workload.searches, false);
    std::size_t rejected = 0;
    for (std::size_t i = 0; i < scene.workload.jobs.size(); ++i) {
      const JobRecord& record = result.recorder.jobs()[i];
      EXPECT_EQ((record.end ? 1 : 0) + (record.stopped ? 1 : 0) + (record.rejected.empty() ? 0 : 1),
                1)
          << "job " << i;
      if (record.end) any[i / 4] = true;
      rejected += record.rejected.empty() ? 0 : 1;
    }
    if (rejected == 0) {
      EXPECT_EQ(std::count(any.begin(), any.end(), false), 0);
    }
    stopped += result.metrics.searches->stopped;
  });
  if (!HasFailure()) {
    EXPECT_GT(stopped, 0U);
  }
}

// simulate() fails on the first decision that is not valid or not within the capacity.
TEST_P(EveryPolicy, DecidesValidlyAndBringsEveryJobToAnEnd) {
  for_scenes(150, [&](const Scene& scene) {
    const auto policy = make();
    const auto result = must_simulate(scene, *policy);
    if (HasFailure()) return;
    for (std::size_t i = 0; i < scene.workload.jobs.size(); ++i) {
      const JobRecord& record = result.recorder.jobs()[i];
      const SimJob& job = scene.workload.jobs[i];
      EXPECT_NE(record.end.has_value(), !record.rejected.empty()) << "job " << i;
      if (policy->least_gpus(*job.spec, *job.speed) > scene.cluster.largest_type()) {
        EXPECT_FALSE(record.rejected.empty()) << "job " << i << " never fits";
      }
      if (record.end) {
        EXPECT_GE(*record.start, job.submit);
        EXPECT_GE(*record.end, *record.start + job.spec->restart_cost);
      }
    }
    EXPECT_EQ(result.metrics.completed + result.metrics.rejected, scene.workload.jobs.size());
  });
}

TEST_P(EveryPolicy, GivesTheSameBytesTwice) {
  for_scenes(40, [&](Scene scene) {
    scene.options.record.history = true;
    std::vector<std::string> files;
    for (int i = 0; i < 2; ++i) {
      auto result = must_simulate(scene, *make());
      std::vector<sim::Run> runs;
      runs.push_back({GetParam(), "", false, result.metrics, std::move(result.recorder)});
      files.push_back(jobs_csv(scene.workload, runs));
    }
    EXPECT_EQ(files[0], files[1]);
  });
}

// The placement quiet may let a job wait that was granted GPUs. Every job still ends.
TEST_P(EveryPolicy, EndsAllJobsWithThePlacementQuiet) {
  for_scenes(40, [&](Scene scene) {
    scene.options.placement = Placement::quiet;
    scene.options.contention = std::make_shared<FixedLoss>(0.3);
    const auto result = must_simulate(scene, *make());
    if (scene.failures) return;
    EXPECT_EQ(result.metrics.completed + result.metrics.rejected, scene.workload.jobs.size());
  });
}

TEST_P(EveryPolicy, IsWorkConservingWhereTheTableSaysSo) {
  if (!parse_policies(GetParam())->front().entry->work_conserving)
    GTEST_SKIP() << "the table says that it is not";
  for_scenes(80, [&](const Scene& scene) {
    WorkConserving policy(make());
    must_simulate(scene, policy);
  });
}

TEST_P(EveryPolicy, DecidesTheSameSavedAndLoadedOrRebuilt) {
  for_scenes(60, [&](const Scene& scene) {
    Triplets policy(GetParam());
    must_simulate(scene, policy);
  });
}

TEST_P(EveryPolicy, LeavesAloneWhatIsNotItsToDecide) {
  if (promotes(GetParam()))
    GTEST_SKIP() << "it keeps account of its own decisions, which nobody carries out in the dark";
  int kept = 0;
  for (std::uint64_t seed = 0; seed < tries(60) && !HasFailure(); ++seed) {
    SCOPED_TRACE("scene " + std::to_string(seed));
    Scope scope = scope_of(GetParam());
    scope.failures = false;
    const Scene scene = draw_scene(seed, scope);
    InTheDark policy(make(), make());
    must_simulate(scene, policy);
    kept += policy.kept();
  }
  EXPECT_GT(kept, static_cast<int>(tries(100)));
}

// The loop adds the jobs that a decision left out. If the policy had left no room for them, the
// decision would be refused.
TEST_P(EveryPolicy, LeavesWhoMayNotBePreemptedWhereItIs) {
  int kept = 0;
  for (std::uint64_t seed = 0; seed < tries(120) && !HasFailure(); ++seed) {
    SCOPED_TRACE("scene " + std::to_string(seed));
    Scope scope = scope_of(GetParam());
    scope.unpreemptible = true;
    scope.pairs = scope.pairs || GetParam().starts_with("gandiva");
    scope.failures = seed % 2 == 1;
    const Scene scene = draw_scene(seed, scope);
    Undisturbed undisturbed(make());
    Triplets triplets(GetParam());
    Policy& policy = scene.failures ? static_cast<Policy&>(triplets) : undisturbed;
    const auto result = must_simulate(scene, policy);
    if (HasFailure()) return;
    kept += undisturbed.kept();
    EXPECT_EQ(result.metrics.completed + result.metrics.rejected, scene.workload.jobs.size());
    for (std::size_t i = 0; i < scene.workload.jobs.size(); ++i) {
      if (!scene.workload.jobs[i].spec->preemptible) {
        EXPECT_EQ(result.recorder.jobs()[i].preemptions, 0) << "job " << i;
      }
    }
  }
  EXPECT_GT(kept, static_cast<int>(tries(200)));
}

INSTANTIATE_TEST_SUITE_P(All, EveryPolicy, ::testing::ValuesIn(policies()), test_name);

// Compares each grant with the simplest possible policy, over thousands of decisions.
class AgainstNaive final : public Watched {
 public:
  AgainstNaive(std::unique_ptr<Policy> policy, std::unique_ptr<Policy> naive)
      : Watched(std::move(policy)), naive_(std::move(naive)) {}
  [[nodiscard]] int decisions() const { return decisions_; }
  [[nodiscard]] int preemptions() const { return preemptions_; }

 private:
  void watch(const Snapshot& snapshot, const Decision& decision) override {
    const auto in_order = [](Decision d) {
      std::sort(d.run.begin(), d.run.end(),
                [](const Grant& a, const Grant& b) { return a.job < b.job; });
      return words(d);
    };
    EXPECT_EQ(in_order(decision), in_order(*naive_->decide(snapshot)))
        << "at " << seconds(snapshot.now) << " s";
    ++decisions_;
    std::set<JobId> granted;
    for (const auto& grant : decision.run) granted.insert(grant.job);
    for (const auto& job : snapshot.jobs)
      preemptions_ += !job.target.empty() && !granted.contains(job.id) ? 1 : 0;
  }
  std::unique_ptr<Policy> naive_;
  int decisions_ = 0, preemptions_ = 0;
};

std::unique_ptr<Policy> make_naive(const std::string& name) {
  using testing::NaiveTiresias;
  if (auto twin = testing::naive_twin(name)) return twin;
  const auto chosen = parse_policies(name).value().front();
  const KeyValues& values = *chosen.values;
  auto limits = values.numbers("limits");
  limits.resize(static_cast<std::size_t>(values.whole("queues")) - 1);
  const bool gittins = chosen.entry->name == "tiresias-gittins";
  return std::make_unique<NaiveTiresias>(limits, values.number("promote"),
                                         gittins ? kSamples : std::vector<double>(),
                                         gittins ? values.number("quantum") : 0);
}

class NaiveTwin : public ::testing::TestWithParam<std::string> {};

TEST_P(NaiveTwin, GrantsTheSameAtEveryDecision) {
  int decisions = 0, preemptions = 0;
  for (std::uint64_t seed = 1000; seed < 1000 + tries(250) && !HasFailure(); ++seed) {
    SCOPED_TRACE("scene " + std::to_string(seed));
    Scene scene = draw_scene(seed, scope_of(GetParam()));
    // Between a failure and the next decision of an interval, a promotion would be overdue.
    if (promotes(GetParam()) && scene.failures) scene.options.interval = Duration(0);
    AgainstNaive policy(make_policy(GetParam(), kSamples), make_naive(GetParam()));
    must_simulate(scene, policy);
    decisions += policy.decisions();
    preemptions += policy.preemptions();
  }
  EXPECT_GT(decisions, static_cast<int>(tries(5000)));
  if (GetParam().substr(0, 4) != "fifo") {
    EXPECT_GT(preemptions, static_cast<int>(tries(50)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, NaiveTwin,
    ::testing::Values("fifo", "fifo-backfill", "sjf", "srtf", "srsf", "edf:count=trace", "afs-l",
                      "tiresias-las:limits=6/20", "tiresias-las:queues=1",
                      "tiresias-las:limits=6/20,promote=1.5",
                      "tiresias-las:queues=2,limits=10,promote=0.1",
                      "tiresias-gittins:limits=9/30,quantum=6,samples=given",
                      "tiresias-gittins:queues=1,quantum=4,samples=given",
                      "tiresias-gittins:queues=2,limits=9,quantum=6,promote=1,samples=given"),
    test_name);

// Without failures, and with a decision at every event, an admission is a promise.
class Admission : public ::testing::TestWithParam<std::string> {};

TEST_P(Admission, EveryAdmittedDeadlineIsKept) {
  std::size_t kept = 0, refused = 0;
  Scope scope = scope_of(GetParam());
  scope.failures = scope.intervals = scope.placements = false;
  for (std::uint64_t seed = 0; seed < tries(400) && !HasFailure(); ++seed) {
    const Scene scene = draw_scene(seed, scope);
    const auto result = must_simulate(scene, *make_policy(GetParam()));
    for (std::size_t i = 0; i < scene.workload.jobs.size(); ++i) {
      const JobRecord& record = result.recorder.jobs()[i];
      const auto& deadline = scene.workload.jobs[i].spec->deadline;
      if (!record.rejected.empty()) {
        ++refused;
        if (record.earliest) {
          EXPECT_GT(*record.earliest, *deadline);
        }
      } else if (deadline) {
        ++kept;
        EXPECT_LE(*record.end, *deadline) << "scene " << seed << ", job " << i;
      }
    }
  }
  EXPECT_GT(kept, tries(1000));
  EXPECT_GT(refused, tries(500));
}

// A running job stays on its type. The GPUs that are left decide whether two others fit.
TEST(AdmissionOnSeveralTypes, PlansWithTheTypesJobsAreOn) {
  Scene scene;
  scene.cluster = testing::cluster_of("1x6:a,1x4:b");
  for (const Draft& draft :
       std::vector<Draft>{{.gpus = 6, .work = 1, .deadline_s = 1},      // on a until 1 s
                          {.gpus = 2, .work = 100, .deadline_s = 100},  // on b, and stays there
                          {.gpus = 4, .work = 200, .submit_s = 2, .deadline_s = 210},  // on a
                          // Not before 100 s, when b has 4 again; if job 1 were on a, at once.
                          {.gpus = 4, .work = 200, .submit_s = 2, .deadline_s = 220}}) {
    scene.workload.jobs.push_back(
        {draft.spec(), time_at(draft.submit_s), draft.work, draft.speed()});
  }
  const auto result = must_simulate(scene, *make_policy("edf-admission"));
  const auto& jobs = result.recorder.jobs();
  EXPECT_EQ(jobs[1].end, time_at(100));
  EXPECT_EQ(jobs[2].end, time_at(202));
  EXPECT_EQ(jobs[3].end, std::nullopt);
  EXPECT_EQ(jobs[3].earliest, time_at(300));
}

INSTANTIATE_TEST_SUITE_P(All, Admission,
                         ::testing::Values("edf-admission", "edf-admission:count=peak",
                                           "edf-admission:count=trace", "elasticflow", "oasis",
                                           "oasis:slot=3", "rubato", "rubato:patience=5"),
                         test_name);

}  // namespace
}  // namespace rubato::sim
