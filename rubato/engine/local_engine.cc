#include "rubato/engine/local_engine.h"

#include <utility>

namespace rubato::engine {
namespace {

LocalEngineOptions complete(LocalEngineOptions options) {
  options.seats = options.cluster.nodes().size();
  fill_in(options);
  return options;
}

}  // namespace

LocalEngine::LocalEngine(wire::Poller& poller, LocalEngineOptions options)
    : LocalEngine(complete(std::move(options)), poller) {}

LocalEngine::LocalEngine(LocalEngineOptions options, wire::Poller& poller)
    : table_(std::move(options.cluster), options.lease, options.clock()),
      agents_(poller, std::move(options), table_, [this] { carry_out_orders(); }) {}

Result<void> LocalEngine::open(const std::vector<KnownJob>& jobs) {
  for (const KnownJob& job : jobs) {
    table_.know(job);
    agents_.limit_silence(job.job);
  }
  return agents_.open();
}

void LocalEngine::carry_out(Time /*now*/, std::span<const Command> commands) {
  for (const Command& command : commands) {
    table_.told(command);
    if (const auto* start = std::get_if<Start>(&command)) agents_.limit_silence(start->job);
  }
  carry_out_orders();
}

void LocalEngine::collect(Time /*now*/, std::vector<Fact>& facts) {
  agents_.pass();
  table_.pass(agents_.now());
  carry_out_orders();
  for (Fact& fact : table_.take_facts()) facts.push_back(std::move(fact));
}

void LocalEngine::forget(JobId job) {
  table_.forget(job);
  carry_out_orders();
}

void LocalEngine::mark_down(NodeId node) {
  table_.mark_down(node);
  carry_out_orders();
}

void LocalEngine::mark_up(NodeId node) {
  table_.mark_up(node);
  agents_.see_to(node);
  carry_out_orders();
}

// Those for shares do not occur here.
void LocalEngine::carry_out_orders() {
  for (auto orders = table_.take_orders(); !orders.empty(); orders = table_.take_orders()) {
    for (const EngineTable::Order& order : orders) {
      std::visit(
          [this](const auto& o) {
            if constexpr (requires { agents_.carry_out(o); }) agents_.carry_out(o);
          },
          order);
    }
  }
}

}  // namespace rubato::engine
