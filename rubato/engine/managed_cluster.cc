#include "rubato/engine/managed_cluster.h"

namespace rubato::engine {

ManagedCluster::ManagedCluster(const Cluster& cluster, Duration lease, Time now,
                               std::string identity, std::string life,
                               std::function<bool(JobId)> whole_nodes)
    : shares_(cluster, std::move(identity), std::move(life)),
      engine_(cluster, lease, now, &shares_),
      whole_nodes_(std::move(whole_nodes)) {}

void ManagedCluster::pass(Time now) {
  engine_.pass(now);
  shares_.pass(now);
}

std::vector<ManagedCluster::Order> ManagedCluster::take_orders(Time now) {
  const auto obey_all = [&](const auto& orders) {
    for (const auto& order : orders) std::visit([&](const auto& one) { obey(now, one); }, order);
    return !orders.empty();
  };
  bool more = true;
  while (more) {
    // What the listing says about nodes comes first, because orders name them.
    take_in_facts();
    const bool from_shares = obey_all(shares_.take_orders());
    if (shares_.ready() && !std::exchange(was_ready_, true)) engine_.shares_ready();
    const bool from_engine = obey_all(engine_.take_orders());
    more = from_shares || from_engine;
  }
  return std::exchange(orders_, {});
}

void ManagedCluster::take_in_facts() {
  for (Fact& fact : shares_.take_facts()) {
    if (const auto* added = std::get_if<NodeAdded>(&fact)) engine_.add_node(added->added);
    facts_.push_back(std::move(fact));
  }
  for (Fact& fact : engine_.take_facts()) facts_.push_back(std::move(fact));
}

// --- what the EngineTable orders -----------------------------------------------------------------

void ManagedCluster::obey(Time /*now*/, const EngineTable::Launch& order) {
  orders_.emplace_back(Launch{order, shares_.placed(order.job)});
}

void ManagedCluster::obey(Time /*now*/, EngineTable::Tell order) {
  if (auto* place = std::get_if<PlaceJob>(&order.message))
    shares_.complete(place->place, place->job);
  orders_.emplace_back(std::move(order));
}

void ManagedCluster::obey(Time /*now*/, const EngineTable::Sweep& order) {
  orders_.emplace_back(order);
}

void ManagedCluster::obey(Time /*now*/, const EngineTable::Disconnect& order) {
  orders_.emplace_back(order);
}

void ManagedCluster::obey(Time now, const EngineTable::Shares& order) {
  switch (order.wish) {
    case EngineTable::Shares::Wish::want:
      return shares_.want(now, order.job, order.generation, order.gpus, whole_nodes_(order.job));
    case EngineTable::Shares::Wish::stop:
      return shares_.stop(order.job);
    case EngineTable::Shares::Wish::end:
      return shares_.end(now, order.job);
  }
}

void ManagedCluster::obey(Time /*now*/, const EngineTable::Heard& order) {
  shares_.heard(order.status);
}

void ManagedCluster::obey(Time now, const EngineTable::Mark& order) {
  order.down ? shares_.mark_down(now, order.node) : shares_.mark_up(order.node);
}

// --- what the ShareTable orders ------------------------------------------------------------------

void ManagedCluster::obey(Time /*now*/, const ShareTable::Submit& order) {
  orders_.emplace_back(order);
}

void ManagedCluster::obey(Time /*now*/, const ShareTable::Cancel& order) {
  orders_.emplace_back(order);
}

void ManagedCluster::obey(Time /*now*/, const ShareTable::List& order) {
  orders_.emplace_back(order);
}

void ManagedCluster::obey(Time /*now*/, const ShareTable::TellMaster& order) {
  engine_.send_again(order.job);
}

void ManagedCluster::obey(Time /*now*/, const ShareTable::LookAgain& order) {
  engine_.look_again(order.job);
}

void ManagedCluster::obey(Time /*now*/, const ShareTable::NodeWord& order) {
  engine_.set_machine(order.node, order.state, order.why);
}

}  // namespace rubato::engine
