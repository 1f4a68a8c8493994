// Every policy on machines that change under it: others take and return GPUs, nodes join, leave and
// come back, jobs arrive and end. The real loop, with machines that obey at once.
//
// What must hold: every decision is valid, and no job is ever to have a GPU that others use or that
// its node lacks.
#include <algorithm>
#include <cctype>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/core/testing.h"
#include "rubato/loop/scheduler.h"
#include "rubato/policy/all.h"
#include "rubato/policy/testing.h"

namespace rubato::sim {
namespace {

using testing::Draft;
using testing::make_policy;

class ReshapedCluster {
 public:
  ReshapedCluster(const std::string& policy, std::uint64_t seed)
      : random_(seed),
        one_type_(parse_policies(policy).value().front().entry->one_type),
        name_(policy),
        policy_(make_policy(policy, kSamples)),
        loop_(testing::cluster_of(one_type_ || random_.below(2) == 0 ? "2x4" : "2x4,1x3:b"),
              static_cast<Placement>(random_.below(5))) {}

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      pass(now_ + from_seconds(static_cast<double>(random_.below(4))));
      happen();
      decide();
    }
  }
  int reserved = 0, added = 0, left = 0;

 private:
  inline static const std::vector<double> kSamples = {1, 2, 3, 5, 8, 13, 21};

  void happen() {
    const auto& cluster = loop_.snapshot().cluster;
    const NodeId node = node_id(random_.below(cluster.nodes().size()));
    switch (random_.below(8)) {
      case 0:
      case 1:
      case 2:
        return submit();
      case 3:
      case 4: {
        ++reserved;
        const std::uint64_t some = random_.next() & cluster.node(node).all();
        return post(Reserved{node, random_.below(2) == 0 ? 0 : some, "others"});
      }
      case 5: {
        if (cluster.nodes().size() >= 5 || random_.below(4) != 0) return;
        ++added;
        const NodeId next = node_id(cluster.nodes().size());
        const bool new_type = !one_type_ && random_.below(3) == 0;
        post(NodeAdded{next,
                       {"late" + std::to_string(next.value()),
                        new_type ? "c" : "gpu",
                        1 + static_cast<int>(random_.below(6)),
                        {}}});
        // As the daemon does it.
        const auto state = parse_json(policy_->save().dump(), "its state");
        policy_ = make_policy(name_, kSamples);
        const auto loaded = policy_->load(*state);
        EXPECT_TRUE(loaded.ok()) << loaded.error().message << state->dump();
        return;
      }
      case 6: {
        const NodeState state = cluster.node(node).state;
        if (state != NodeState::up) return post(NodeChanged{node, NodeState::up});
        if (random_.below(3) != 0) return;
        ++left;
        // The jobs on a node that is down have failed.
        post(NodeChanged{node, NodeState::down});
        std::vector<JobId> on_it;
        for (const JobView& job : loop_.snapshot().jobs) {
          if (job.held.mask_on(node) != 0) on_it.push_back(job.id);
        }
        for (const JobId id : on_it)
          post(Failed{id, view(id)->generation, view(id)->progress, true});
        return;
      }
      default:
        return;
    }
  }
  void submit() {
    if (loop_.snapshot().jobs.size() > 12) return;
    Draft draft{.gpus = std::vector<int>{1, 1, 2, 2, 3, 4, 6}[random_.below(7)],
                .work = 5 + static_cast<double>(random_.below(60)),
                .submit_s = seconds(now_ - kStart)};
    if (random_.below(3) == 0)
      draft.deadline_s = draft.submit_s + 20.0 * static_cast<double>(random_.below(16));
    if (random_.below(2) == 0) {
      draft.curve = {{1, 1}, {2, 1.8}, {4, 3}, {8, 4}};
      draft.network = 1;
    }
    auto spec = std::make_shared<JobSpec>(*draft.spec());
    spec->preemptible = random_.below(6) != 0;
    const Submitted submitted{job_id(next_), std::move(spec), draft.speed(), draft.work};
    if (policy_->least_gpus(*submitted.spec, *submitted.speed) > 4) return;
    ++next_;
    post(submitted);
  }
  // Jobs end when their work is done, and the policy is asked when it wants to be.
  void pass(Time until) {
    for (int i = 0; i < 1000; ++i) {
      Time next = until;
      JobId ends;
      for (const JobView& job : loop_.snapshot().jobs) {
        if (job.phase != Phase::running || !(job.progress.rate > 0)) continue;
        const Time end = std::max(
            now_, job.progress.at + from_seconds(job.progress.work_left / job.progress.rate));
        if (end > next) continue;
        next = end;
        ends = job.id;
      }
      const auto again = loop_.state().again_at;
      const bool wakes = again && *again <= next && (ends == JobId() || *again < next);
      if (wakes) next = std::max(now_, *again);
      now_ = next;
      if (wakes) {
        post(Wake{});
      } else if (ends != JobId()) {
        post(Finished{ends, view(ends)->generation});
      } else {
        return;
      }
      decide();
    }
    ADD_FAILURE() << "time does not pass";
  }
  const JobView* view(JobId id) const { return loop_.snapshot().jobs.find(id); }

  // Machines obey at once.
  void post(Event event) {
    Reaction reaction;
    loop_.on(now_, std::move(event), reaction);
    EXPECT_EQ(reaction.refused, "");
    for (const Command& command : reaction.commands) {
      if (const auto* stop = std::get_if<Stop>(&command)) {
        const JobView* job = view(stop->job);
        post(Released{stop->job, stop->generation, job->held, progress(*job, 0), true});
      } else if (const auto* resize = std::get_if<Resize>(&command)) {
        const JobView* job = view(resize->job);
        if (job == nullptr || job->generation != resize->generation) continue;
        const Allocation released = minus(job->held, resize->gpus);
        if (!released.empty())
          post(Released{resize->job, resize->generation, released, progress(*job, 0), false});
        trains(resize->job, resize->generation);
      } else {
        const auto& start = std::get<Start>(command);
        trains(start.job, start.generation);
      }
    }
    check();
  }
  void trains(JobId id, Generation generation) {
    const JobView* job = view(id);
    if (job != nullptr && job->generation == generation && !job->held.empty())
      post(Running{id, generation,
                   progress(*job, job->speed->on(job->held.type(), job->held.gpus()))});
  }
  Progress progress(const JobView& job, double rate) const {
    return {job.progress.left(now_), now_, rate};
  }
  void decide() {
    for (int again = 0; loop_.decision_due(); ++again) {
      ASSERT_LT(again, 50) << "it never comes to an end";
      auto decision = policy_->decide(loop_.ask(now_));
      ASSERT_TRUE(decision.ok()) << decision.error().message;
      post(Decided{std::move(*decision)});
    }
  }
  void check() {
    for (const JobView& job : loop_.snapshot().jobs) {
      for (const Slice& slice : job.target.slices()) {
        const Node& node = loop_.snapshot().cluster.node(slice.node);
        EXPECT_EQ(slice.mask & node.reserved, 0U) << "job " << job.id.value();
        EXPECT_EQ(slice.mask & ~node.all(), 0U) << "job " << job.id.value();
      }
    }
  }

  Random random_;
  bool one_type_;
  std::string name_;
  std::unique_ptr<Policy> policy_;
  Scheduler loop_;
  Time now_ = kStart;
  std::size_t next_ = 1;
};

class OnChangingMachines : public ::testing::TestWithParam<std::string> {};

TEST_P(OnChangingMachines, NoReservedGpuIsGivenOut) {
  int reserved = 0, added = 0, left = 0;
  for (std::uint64_t seed = 0; seed < tries(12) && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ReshapedCluster cluster(GetParam(), seed);
    cluster.run(150);
    reserved += cluster.reserved;
    added += cluster.added;
    left += cluster.left;
  }
  EXPECT_GT(reserved, 100);
  EXPECT_GT(added, 5);
  EXPECT_GT(left, 5);
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const auto& entry : all_policies()) {
    names.push_back(entry.name == "pollux" ? "pollux:population=16,generations=8" : entry.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Policies, OnChangingMachines, ::testing::ValuesIn(all_names()),
                         [](const auto& info) {
                           std::string name;
                           for (const char c : info.param)
                             name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace rubato::sim
