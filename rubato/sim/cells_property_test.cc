// The promises of docs/cells.md under every policy of the table, on small random workloads.
#include <algorithm>
#include <bit>
#include <cctype>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/cells/celled_policy.h"
#include "rubato/core/testing.h"
#include "rubato/model/typed_speed.h"
#include "rubato/policy/all.h"
#include "rubato/sim/simulation.h"
#include "rubato/sim/testing.h"

namespace rubato::sim {
namespace {

const std::vector<double> kCellSamples = {1, 2, 3, 5, 8, 13, 40};

MadePolicy celled(const std::string& text, const Quotas& quotas, Placement placement) {
  const ChosenPolicy chosen = parse_policies(text).value().front();
  const auto one = [chosen] {
    return chosen.make(
        {[](const std::string&) -> Result<std::vector<double>> { return kCellSamples; }});
  };
  return with_cells({one, chosen.entry->elastic, chosen.admits()}, quotas, placement);
}

struct CellScene {
  Cluster cluster;
  Quotas quotas;
  Workload workload;
  SimulationOptions options;
};

SimJob draw_celled_job(Random& random, double submit_s, double restart_s) {
  const double work = 1.0 + static_cast<double>(random.below(25));
  SimJob job = random.below(2) == 0
                   ? rigid_job(submit_s, 1 << random.below(4), work, restart_s)
                   : elastic_job(submit_s, work, {{1, 1}, {2, 1.8}, {4, 3}, {8, 4.5}}, restart_s);
  const char* const users[] = {"a", "b", "c", "d"};
  const auto user = users[random.below(4)];
  const bool due = random.below(3) == 0, bound = random.below(6) == 0, slow = random.below(8) == 0;
  const double deadline_s = submit_s + 5.0 * static_cast<double>(random.below(20));
  return with(std::move(job), [&](JobSpec& spec) {
    spec.user = user;
    if (due) spec.deadline = time_at(deadline_s);
    spec.preemptible = !bound;
    if (slow) spec.notice = 2 * kNotice;
  });
}

// Makes some jobs opportunistic, and gives some the speeds of pairs.
void add_guests(Random random, CellScene& scene) {
  auto table =
      std::make_shared<ThroughputTable>(2, static_cast<std::size_t>(scene.cluster.types()));
  for (int t = 0; t < scene.cluster.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    for (const std::size_t row : {0U, 1U}) {
      for (const int gpus : {1, 2, 4, 8}) {
        table->set_alone(row, type, gpus, gpus);
        for (const std::size_t other : {0U, 1U})
          table->set_beside(row, other, type, gpus, gpus * random.uniform(0.5, 1));
      }
    }
  }
  for (SimJob& job : scene.workload.jobs) {
    const bool opportunistic = random.below(2) == 0;
    job = with(std::move(job), [&](JobSpec& spec) { spec.opportunistic = opportunistic; });
    if (job.spec->limits.max == job.spec->limits.smallest() && random.below(4) != 0)
      job.speed = std::make_shared<TypedSpeed>(table, random.below(2));
  }
}

CellScene draw_cell_scene(std::uint64_t seed, bool several_types, bool restarts) {
  Random random(seed);
  CellScene scene;
  scene.cluster = cluster_of(std::vector<const char*>{
      "2x4", "3x4", "2x8", "2x4:x,1x8:y"}[random.below(several_types ? 4 : 3)]);
  for (const char* tenant : {"a", "b", "c"}) {
    const Node& node = scene.cluster.nodes()[random.below(scene.cluster.nodes().size())];
    TenantCells quota{tenant, {}, {}};
    quota.cells.assign(random.below(2) + 1, {node.type, node.gpus >> random.below(3)});
    static_cast<void>(scene.quotas.set(std::move(quota), scene.cluster));
  }
  const double restart_s = restarts && random.below(2) == 0 ? 1 : 0;
  double submit_s = 0;
  for (std::uint64_t i = random.below(25) + 5; i > 0; --i) {
    scene.workload.jobs.push_back(draw_celled_job(random, submit_s, restart_s));
    submit_s += static_cast<double>(random.below(2) * random.below(8));
  }
  scene.options.placement = static_cast<Placement>(random.below(7));
  if (random.below(3) == 0) scene.options.interval = from_seconds(3);
  if (random.below(3) == 0) {
    const NodeId node = node_id(random.below(scene.cluster.nodes().size()));
    scene.options.node_events = {{time_at(7), node, NodeState::down},
                                 {time_at(31), node, NodeState::up}};
  }
  return scene;
}

// Looks at every decision.
class CellsHold final : public Policy {
 public:
  CellsHold(std::unique_ptr<Policy> policy, const Quotas& quotas)
      : policy_(std::move(policy)), quotas_(quotas) {}

  Result<Decision> decide(const Snapshot& snapshot) override {
    auto decision = policy_->decide(snapshot);
    if (decision && !::testing::Test::HasFailure()) look(snapshot, *decision);
    return decision;
  }
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const override {
    return policy_->least_gpus(spec, speed);
  }
  [[nodiscard]] bool learns() const override { return policy_->learns(); }
  [[nodiscard]] bool knows_truth() const override { return policy_->knows_truth(); }
  [[nodiscard]] std::shared_ptr<const CellUse> cell_use() const override {
    return policy_->cell_use();
  }
  [[nodiscard]] Json save() const override { return policy_->save(); }
  Result<void> load(const Json& state) override { return policy_->load(state); }

 private:
  void look(const Snapshot& snapshot, const Decision& decision) const {
    const CellUse& use = *policy_->cell_use();
    std::vector<std::uint64_t> cells(snapshot.cluster.nodes().size(), 0);
    ASSERT_EQ(use.tenants.size(), quotas_.all().size());
    for (std::size_t t = 0; t < use.tenants.size(); ++t) {
      int gpus = 0;
      for (const Slice& slice : use.tenants[t].gpus) {
        ASSERT_EQ(cells[slice.node.index()] & slice.mask, 0U) << "one GPU in two tenants' cells";
        cells[slice.node.index()] |= slice.mask;
        gpus += slice.gpus();
      }
      ASSERT_EQ(gpus, quotas_.all()[t].gpus());
    }
    std::set<JobId> promised;
    for (const Promise& promise : decision.promise) promised.insert(promise.job);
    for (const Grant& grant : decision.run) {
      const CellUse::Job* job = use.of(grant.job);
      ASSERT_NE(job, nullptr);
      const JobView& view = *snapshot.jobs.find(grant.job);
      const bool firm = promised.contains(grant.job) || !view.spec->preemptible ||
                        view.spec->notice > kNotice || policy_->keeps_deadline(grant.job);
      if (firm) {
        ASSERT_TRUE(job->borrowed.empty()) << "job " << grant.job.value() << " must not borrow";
      }
      const auto* exact = std::get_if<Exact>(&grant.want);
      if (exact != nullptr) {
        ASSERT_EQ(exact->gpus.gpus(), job->inside.gpus() + job->borrowed.gpus());
      }
      if (job->stays) continue;  // it may be where it was before a cell moved
      for (const Slice& slice : job->inside.slices()) {
        std::uint64_t own = ~cells[slice.node.index()];
        if (job->tenant) {
          own = 0;
          for (const Slice& cell : use.tenants[*job->tenant].gpus) {
            if (cell.node == slice.node) own |= cell.mask;
          }
        }
        ASSERT_EQ(slice.mask & ~own, 0U) << "job " << grant.job.value() << " is not in its cells";
      }
    }
  }

  std::unique_ptr<Policy> policy_;
  const Quotas& quotas_;
};

std::vector<std::string> celled_policies() {
  std::vector<std::string> names;
  for (const auto& entry : all_policies())
    names.push_back(entry.name == "pollux" ? "pollux:population=16,generations=8" : entry.name);
  for (const char* name : {"tiresias-las:limits=6/20", "gavel-las:packing=on,round=5,resolve=0",
                           "gandiva:quantum=3,trial=1", "edf-admission:count=peak", "oasis:slot=2",
                           "rubato:fairness=1,patience=9", "rubato:promises=off"})
    names.emplace_back(name);
  return names;
}

class CellsUnder : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] const PolicyEntry& entry() const {
    return *parse_policies(GetParam()).value().front().entry;
  }
};

TEST_P(CellsUnder, NobodyIsWhereItMayNotBe) {
  const bool shares = GetParam() == "antman" || GetParam().find("packing=on") != std::string::npos;
  for (std::uint64_t seed = 0; seed < seeds(20) && !HasFailure(); ++seed) {
    SCOPED_TRACE("scene " + std::to_string(seed));
    CellScene scene = draw_cell_scene(seed, !entry().one_type, true);
    if (shares && seed % 2 == 1) add_guests(Random(seed).split(1), scene);
    if (scene.quotas.empty()) continue;
    auto policy = celled(GetParam(), scene.quotas, scene.options.placement);
    ASSERT_TRUE(policy.ok()) << policy.error().message;
    CellsHold watched(std::move(*policy), scene.quotas);
    const auto result = simulate(scene.workload, scene.cluster, watched, scene.options);
    ASSERT_TRUE(result.ok()) << result.error().message;
    for (const auto& job : result->recorder.jobs())
      ASSERT_TRUE(job.end.has_value() || !job.rejected.empty());
  }
}

// A job of a tenant that borrowed may end sooner than alone. A policy in rounds then begins its
// next round at another moment, so a later job may wait longer for it (docs/cells.md).
bool in_rounds(const std::string& policy) {
  return policy.starts_with("gavel-") || policy.starts_with("isolated") ||
         policy.starts_with("fifo-perf");
}

// Sharing safety: a tenant whose demand fits its cells is as well off as alone on a private cluster
// of that shape, whatever the others do.
TEST_P(CellsUnder, ATenantIsNotWorseOffThanAlone) {
  if (in_rounds(GetParam())) GTEST_SKIP() << "decides in rounds";
  for (std::uint64_t seed = 0; seed < seeds(12) && !HasFailure(); ++seed) {
    SCOPED_TRACE("scene " + std::to_string(seed));
    Random random(seed);
    const Cluster shared = cluster_of("2x4"), alone = cluster_of("1x4");
    Quotas quotas;
    ASSERT_TRUE(quotas.set({"a", parse_cells("1xnode", shared).value(), {}}, shared).ok());
    std::vector<SimJob> own, all;
    double submit_s = 0;
    int gpus = 4;  // of the cells: no more is ever wanted at a time
    for (int i = 0; i < 14; ++i) {
      const int wants = 1 << random.below(3);
      const double work = 5 + static_cast<double>(random.below(20));
      SimJob job = rigid_job(submit_s, wants, work);
      const bool of_tenant = wants <= gpus && random.below(2) == 0;
      if (of_tenant) gpus -= wants;
      job = with(std::move(job), [&](JobSpec& spec) { spec.user = of_tenant ? "a" : "b"; });
      if (of_tenant) own.push_back(job);
      all.push_back(std::move(job));
      submit_s += static_cast<double>(random.below(4));
    }
    if (own.empty()) continue;
    SimulationOptions options;
    options.placement = Placement::pack;
    const double first_s = seconds(own.front().submit - kStart);
    auto policy = std::move(*celled(GetParam(), quotas, options.placement));
    auto lonely = std::move(*celled(GetParam(), {}, options.placement));
    const auto together = simulate(workload_of(all), shared, *policy, options);
    const auto apart = simulate(workload_of(own), alone, *lonely, options);
    ASSERT_TRUE(together.ok()) << together.error().message;
    ASSERT_TRUE(apart.ok()) << apart.error().message;
    std::size_t at = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].spec->user != "a") continue;
      const auto& here = together->recorder.jobs()[i];
      const auto& there = apart->recorder.jobs()[at++];
      if (!there.rejected.empty()) continue;
      ASSERT_TRUE(here.end.has_value()) << "job " << i << ": " << here.rejected;
      EXPECT_LE(seconds(*here.end), seconds(*there.end) + 1e-6)
          << "job " << i << ", the first comes at " << first_s;
    }
  }
}

std::string celled_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char c : info.param)
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, CellsUnder, ::testing::ValuesIn(celled_policies()), celled_name);

// GPU time is inside, borrowed or lent, and what is lent is what others borrowed.
TEST(CellsMeter, CountsWhatTenantsHadAndLent) {
  const Cluster cluster = cluster_of("2x4");
  const Quotas quotas = parse_quotas("a 1xnode\nb 1xnode\n", "cells", cluster).value();
  auto policy = std::move(*celled("fifo", quotas, Placement::pack));
  const auto of = [](const char* user, SimJob job) {
    return with(std::move(job), [&](JobSpec& spec) { spec.user = user; });
  };
  const auto result =
      simulate(workload_of({of("a", rigid_job(0, 4, 100)), of("a", rigid_job(0, 4, 30)),
                            of("b", rigid_job(10, 2, 20))}),
               cluster, *policy, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->tenants.size(), 3U);
  const auto& a = result->tenants[0];
  const auto& b = result->tenants[1];
  EXPECT_EQ(a.jobs, 2);
  // The second job of a has b's node for 10 s, waits while b needs half of it, and goes on.
  EXPECT_DOUBLE_EQ(a.inside_gpu_s, 400);
  EXPECT_DOUBLE_EQ(a.borrowed_gpu_s, 120);
  EXPECT_DOUBLE_EQ(b.inside_gpu_s, 40);
  EXPECT_DOUBLE_EQ(b.lent_gpu_s, 120);
  EXPECT_EQ(b.taken_back, 1);
  EXPECT_DOUBLE_EQ(b.longest_reclaim_s, 0);
  EXPECT_DOUBLE_EQ(b.wait_s, 0);
}

}  // namespace
}  // namespace rubato::sim
