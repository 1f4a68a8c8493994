#include "rubato/loop/engine_contract.h"

#include <gtest/gtest.h>
#include <vector>

#include "rubato/sim/sim_engine.h"
#include "rubato/sim/testing.h"

namespace rubato::sim {
namespace {

// The event as machines would report it, without the progress.
Fact fact_of(const Event& event) {
  if (const auto* e = std::get_if<Running>(&event)) return RunningFact{e->job, e->generation};
  if (const auto* e = std::get_if<Released>(&event))
    return ReleasedFact{e->job, e->generation, e->gpus, e->stopped};
  if (const auto* e = std::get_if<Failed>(&event))
    return FailedFact{e->job, e->generation, e->infrastructure, e->why};
  if (const auto* e = std::get_if<Finished>(&event)) return *e;
  return std::get<NodeChanged>(event);
}

class SimHarness {
 public:
  Facts carry_out(const std::vector<Command>& commands) {
    now_ += from_seconds(1);
    engine_.carry_out(now_, commands);
    return collect();
  }
  Facts finish(JobId job) {
    while (engine_.rate(job) > 0 && engine_.next_fact()) {
      now_ = *engine_.next_fact();
      Facts facts = collect();
      if (!only<Finished>(facts).empty()) return facts;
    }
    return {};
  }
  Facts break_node(NodeId node) {
    break_unnoticed(node);
    return collect();
  }
  void break_unnoticed(NodeId node) { engine_.change_node(now_, node, NodeState::down); }

 private:
  Facts collect() {
    std::vector<Event> events;
    engine_.collect(now_, events);
    Facts facts;
    for (const Event& event : events) facts.push_back(fact_of(event));
    return facts;
  }

  // The first job ends first, so that finish() of it ends no other job.
  Workload workload_ =
      workload_of({elastic_job(0, 1e4, {{1, 1}, {4, 2}}), elastic_job(0, 1e6, {{1, 1}, {4, 2}}),
                   elastic_job(0, 1e6, {{1, 1}, {4, 2}})});
  Cluster cluster_ = cluster_of("2x4");
  SimEngine engine_{workload_, cluster_, false};
  Time now_ = kStart;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Sim, EngineContract, SimHarness);

}  // namespace
}  // namespace rubato::sim
