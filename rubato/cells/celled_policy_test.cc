#include "rubato/cells/celled_policy.h"

#include <gtest/gtest.h>

#include "rubato/core/testing.h"
#include "rubato/loop/scheduler.h"
#include "rubato/model/curve.h"
#include "rubato/policy/all.h"

namespace rubato::cells {
namespace {

// A loop under a policy with cells, without machines: commands are carried out at once.
class Shared {
 public:
  Shared(const std::string& cluster, std::string policy, std::string_view cells)
      : loop(cluster_of(cluster), Placement::pack), policy_(std::move(policy)) {
    quotas_ = parse_quotas(cells, "cells", loop.snapshot().cluster).value();
    object = make();
  }

  [[nodiscard]] std::unique_ptr<Policy> make() const {
    const ChosenPolicy chosen = parse_policies(policy_).value().front();
    const auto one = [chosen] { return chosen.make({}); };
    auto made = with_cells({one, chosen.entry->elastic, chosen.admits()}, quotas_, Placement::pack);
    return std::move(*made);
  }

  JobId submit(const std::string& user, std::shared_ptr<JobSpec> spec, bool elastic = false) {
    spec->user = user;
    const JobId id = next_;
    next_ = next_.next();
    std::shared_ptr<const SpeedModel> speed = std::make_shared<ConstantSpeed>(1);
    if (elastic)
      speed = std::make_shared<CurveSpeed>(
          std::vector<CurvePoint>{{1, 1}, {2, 1.9}, {4, 3.6}, {8, 6.8}});
    post(Submitted{id, std::move(spec), std::move(speed), 1000});
    return id;
  }
  JobId rigid(const std::string& user, int gpus) { return submit(user, rigid_spec(gpus)); }

  void end(JobId job) { post(Finished{job, view(job).generation}); }

  void decide() {
    auto decision = object->decide(loop.ask(now()));
    ASSERT_TRUE(decision.ok()) << decision.error().message;
    last = *decision;
    post(Decided{std::move(*decision)});
    now_ += std::chrono::seconds(1);
  }

  [[nodiscard]] const JobView& view(JobId job) const { return *loop.snapshot().jobs.find(job); }
  [[nodiscard]] int gpus(JobId job) const { return view(job).held.gpus(); }
  [[nodiscard]] const CellUse::Job& use(JobId job) const { return *object->cell_use()->of(job); }
  [[nodiscard]] Time now() const { return kStart + now_; }

  void post(Event event) {
    std::vector<Event> events;
    events.push_back(std::move(event));
    while (!events.empty()) {
      Event next = std::move(events.front());
      events.erase(events.begin());
      Reaction reaction;
      loop.on(now(), std::move(next), reaction);
      EXPECT_EQ(reaction.refused, "");
      for (const Reject& reject : reaction.rejected) rejected.push_back(reject.reason);
      for (const Command& command : reaction.commands) answer(command, events);
    }
  }

  Scheduler loop;
  std::unique_ptr<Policy> object;
  Decision last;
  std::vector<std::string> rejected;

 private:
  void answer(const Command& command, std::vector<Event>& events) {
    if (const auto* stop = std::get_if<Stop>(&command)) {
      const JobView& job = view(stop->job);
      events.emplace_back(Released{stop->job, stop->generation, job.held, {1000, now(), 0}, true});
    } else if (const auto* resize = std::get_if<Resize>(&command)) {
      const Allocation lost = minus(view(resize->job).held, resize->gpus);
      if (!lost.empty())
        events.emplace_back(
            Released{resize->job, resize->generation, lost, {1000, now(), 1}, false});
    } else {
      const auto& start = std::get<Start>(command);
      events.emplace_back(Running{start.job, start.generation, {1000, now(), 1}});
    }
  }

  std::string policy_;
  Quotas quotas_;
  JobId next_{1};
  Duration now_{};
};

// HiveD's example: two nodes of 8 GPUs, two tenants with a node each.
TEST(CelledPolicy, TheNinthJobOfATenantBorrows) {
  Shared shared("2x8", "fifo", "a 1xnode\nb 1xnode\n");
  std::vector<JobId> of_a;
  for (int i = 0; i < 9; ++i) of_a.push_back(shared.rigid("a", 1));
  shared.decide();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(shared.use(of_a[static_cast<std::size_t>(i)]).inside.gpus(), 1);
    EXPECT_EQ(shared.view(of_a[static_cast<std::size_t>(i)]).held.slices()[0].node, node_id(0));
  }
  EXPECT_EQ(shared.use(of_a[8]).borrowed.gpus(), 1);
  EXPECT_EQ(shared.object->cell_use()->by_owner(shared.use(of_a[8]).borrowed),
            (std::vector<int>{0, 1}));
  // The tenant takes its node back at its next decision, whole.
  const JobId whole = shared.rigid("b", 8);
  shared.decide();
  EXPECT_EQ(shared.gpus(whole), 8);
  EXPECT_EQ(shared.gpus(of_a[8]), 0);
  // A job of its own ends: the ninth gets its place.
  shared.end(of_a[0]);
  shared.decide();
  EXPECT_EQ(shared.use(of_a[8]).inside.gpus(), 1);
}

TEST(CelledPolicy, AnElasticJobGrowsOnBorrowedGpusAndGivesThemBack) {
  Shared shared("2x4", "afs-l", "a 1xnode\n");
  const JobId b = shared.submit("b", elastic_spec(1, 8), true);
  shared.decide();
  EXPECT_EQ(shared.gpus(b), 8);
  EXPECT_EQ(shared.use(b).inside.gpus(), 4);
  EXPECT_EQ(shared.use(b).borrowed.gpus(), 4);
  const JobId a = shared.rigid("a", 4);
  shared.decide();
  EXPECT_EQ(shared.gpus(a), 4);
  EXPECT_EQ(shared.gpus(b), 4);
  EXPECT_EQ(shared.view(b).restarts, 0);
  shared.end(a);
  shared.decide();
  EXPECT_EQ(shared.gpus(b), 8);
}

TEST(CelledPolicy, WhatCannotBeTakenBackBorrowsNothing) {
  Shared shared("2x4", "fifo-backfill", "a 1xnode\n");
  auto bound = rigid_spec(4);
  bound->preemptible = false;
  auto slow = rigid_spec(4);
  slow->notice = kNotice + Duration(1);
  auto too_large = rigid_spec(8);
  too_large->preemptible = false;
  const JobId first = shared.submit("b", bound);
  const JobId second = shared.submit("b", slow);
  static_cast<void>(shared.submit("b", too_large));
  shared.decide();
  EXPECT_EQ(shared.gpus(first), 4);
  EXPECT_EQ(shared.gpus(second), 0);
  EXPECT_EQ(shared.use(first).bar, CellUse::Bar::unpreemptible);
  EXPECT_EQ(shared.use(second).bar, CellUse::Bar::slow_to_stop);
  auto slow_and_large = rigid_spec(8);
  slow_and_large->notice = kNotice + Duration(1);
  static_cast<void>(shared.submit("b", slow_and_large));
  shared.decide();
  ASSERT_EQ(shared.rejected.size(), 2U);
  for (const std::string& reason : shared.rejected)
    EXPECT_EQ(reason,
              "needs 8 GPUs that nobody may take back, and outside of all cells there are 4");
}

// It was taken in before there were cells. No promise for it fits them.
TEST(CelledPolicy, WhatFitsItsCellsNoMoreRunsWithoutAPromise) {
  Shared shared("2x4", "elasticflow", "nobody 1x1\n");
  Shared later("2x4", "elasticflow", "a 1xnode\n");
  auto spec = rigid_spec(6);
  spec->deadline = kStart + std::chrono::hours(10);
  const JobId job = shared.submit("b", spec, true);
  shared.decide();
  ASSERT_EQ(shared.last.promise.size(), 1U);
  later.loop = Scheduler(State(shared.loop.state()), Placement::pack);
  later.decide();
  later.decide();
  EXPECT_TRUE(later.last.promise.empty());
  EXPECT_TRUE(later.use(job).too_large);
  EXPECT_EQ(later.use(job).borrowed.gpus(), 6);
}

TEST(CelledPolicy, APromisedJobIsNotOnBorrowedGpus) {
  Shared shared("2x4", "elasticflow", "a 1xnode\n");
  auto spec = elastic_spec(1, 8);
  spec->deadline = kStart + std::chrono::hours(1);
  const JobId b = shared.submit("b", spec, true);
  auto tight = elastic_spec(1, 8);
  tight->deadline = kStart + std::chrono::seconds(200);  // in time on 8 GPUs, not on 4
  static_cast<void>(shared.submit("b", tight, true));
  const JobId best_effort = shared.submit("b", elastic_spec(1, 8), true);
  shared.decide();
  ASSERT_EQ(shared.last.promise.size(), 1U);
  EXPECT_EQ(shared.use(b).borrowed.gpus(), 0);
  EXPECT_GT(shared.use(b).inside.gpus(), 0);
  EXPECT_EQ(shared.rejected.size(), 1U);
  // Its speed is known on 1, 2, 4 and 8 GPUs, so it gets 4 of the 8.
  EXPECT_GT(shared.use(best_effort).borrowed.gpus(), 0);
  EXPECT_EQ(shared.gpus(best_effort), 4);
}

TEST(CelledPolicy, CellsThatAreGivenLaterStopNobodyWhoCanStay) {
  Shared shared("2x4", "fifo", "nobody 1x1\n");
  auto spec = rigid_spec(4);
  spec->preemptible = false;
  const JobId bound = shared.submit("b", spec);  // on the node where nobody has a cell
  const JobId other = shared.rigid("b", 2);
  shared.decide();
  ASSERT_EQ(shared.gpus(bound), 4);
  // A policy with other cells begins: the whole node that is free of `bound` becomes a cell.
  Shared later("2x4", "fifo", "a 1xnode\n");
  later.loop = Scheduler(State(shared.loop.state()), Placement::pack);
  later.decide();
  EXPECT_EQ(later.gpus(bound), 4);
  const auto cells = later.object->cell_use()->tenants[0].gpus;
  ASSERT_EQ(cells.size(), 1U);
  EXPECT_EQ(later.view(bound).held.mask_on(cells[0].node), 0U);
  EXPECT_EQ(later.use(other).borrowed.gpus() + later.use(other).inside.gpus(), 2);
}

TEST(CelledPolicy, FurtherCellsAvoidWhoCannotLeave) {
  Shared shared("3x4", "fifo", "a 1xnode\n");
  auto spec = rigid_spec(4);
  spec->preemptible = false;
  const JobId first = shared.submit("b", spec);
  shared.decide();
  ASSERT_EQ(shared.gpus(first), 4);
  Shared later("3x4", "fifo", "a 1xnode\nc 1xnode\n");
  later.loop = Scheduler(State(shared.loop.state()), Placement::pack);
  ASSERT_TRUE(later.object->load(shared.object->save()).ok());
  later.decide();
  const auto counts = later.object->cell_use()->by_owner(later.view(first).held);
  EXPECT_EQ(counts, (std::vector<int>{0, 0}));
  EXPECT_FALSE(later.use(first).stays);
}

// Where the cells are is known before it is asked who cannot leave.
TEST(CelledPolicy, KnowsItsCellsAsSoonAsItIsLoaded) {
  Shared shared("2x4", "fifo", "a 1xnode\n");
  auto spec = rigid_spec(4);
  spec->preemptible = false;
  const JobId job = shared.submit("a", spec);
  shared.decide();
  ASSERT_EQ(shared.use(job).inside.gpus(), 4);
  const Json state = shared.object->save();
  shared.object = shared.make();
  ASSERT_TRUE(shared.object->load(state).ok());
  shared.decide();
  EXPECT_FALSE(shared.use(job).stays);
  EXPECT_EQ(shared.use(job).inside.gpus(), 4);
}

TEST(CelledPolicy, EveryZoneIsAMarket) {
  Shared shared("2x4", "rubato", "a 1xnode\n");
  const JobId a = shared.submit("a", elastic_spec(1, 8), true);
  std::vector<JobId> of_b;
  for (int i = 0; i < 6; ++i) of_b.push_back(shared.submit("b", elastic_spec(1, 8), true));
  shared.decide();
  const auto quotes = shared.object->quotes();
  ASSERT_NE(quotes, nullptr);
  EXPECT_EQ(quotes->of(a)->ahead, 0U);
  EXPECT_GT(quotes->of(of_b.front())->price, 0);
  const auto prices = shared.object->prices();
  ASSERT_EQ(prices.size(), 1U);
  EXPECT_GE(prices[0], quotes->of(of_b.front())->price);
  shared.end(a);
  shared.decide();
  EXPECT_FALSE(shared.object->quotes()->of(a).has_value());
}

TEST(CelledPolicy, GoesOnFromItsSavedState) {
  for (const char* policy : {"fifo", "elasticflow", "afs-l", "rubato", "gandiva"}) {
    SCOPED_TRACE(policy);
    Shared shared("2x4", policy, "a 1xnode\nc 1x2\n");
    for (int i = 0; i < 6; ++i) {
      shared.submit(i % 2 == 0 ? "a" : "b", elastic_spec(1, 4), true);
      shared.decide();
      auto copy = shared.make();
      const Json state = shared.object->save();
      ASSERT_TRUE(copy->load(state).ok());
      EXPECT_EQ(copy->save(), state);
      shared.object = std::move(copy);
    }
  }
  Shared shared("2x4", "fifo", "a 1xnode\n");
  for (const char* bad : {"[]", R"({"inside": [[1]]})", R"({"tenants": {"a": {}}})",
                          R"({"tenants": {"a": {"places": 1, "policy": {}}}})"})
    EXPECT_FALSE(shared.object->load(Json::parse(bad)).ok()) << bad;
}

TEST(CelledPolicy, WithoutQuotasThereIsOnlyThePolicy) {
  const ChosenPolicy chosen = parse_policies("fifo").value().front();
  const auto made =
      with_cells({[&] { return chosen.make({}); }, false, false}, {}, Placement::pack);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ((*made)->cell_use(), nullptr);
  EXPECT_EQ(to_plain_state(to_celled_state((*made)->save())), (*made)->save());
}

}  // namespace
}  // namespace rubato::cells
