// The decisions of an engine on a cluster that somebody else manages: an EngineTable with one seat,
// and a ShareTable. Everything that happens is told to one of the two; take_orders() passes on what
// they have to tell each other, and returns what is left for the engine to do.
//
// Pure, like both of them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/engine/engine_table.h"
#include "rubato/engine/share_table.h"

namespace rubato::engine {

class ManagedCluster {
 public:
  // A Launch with the shares of the job.
  struct Launch {
    EngineTable::Launch order;
    std::vector<PlacedShare> shares;
  };
  using Order = std::variant<Launch, EngineTable::Tell, EngineTable::Sweep, EngineTable::Disconnect,
                             ShareTable::Submit, ShareTable::Cancel, ShareTable::List>;

  // `whole_nodes`: whether a job has one share a node (share_table.h).
  ManagedCluster(const Cluster& cluster, Duration lease, Time now, std::string identity,
                 std::string life, std::function<bool(JobId)> whole_nodes);

  // The seat, its agent and the commands.
  [[nodiscard]] EngineTable& engine() { return engine_; }
  [[nodiscard]] const EngineTable& engine() const { return engine_; }
  [[nodiscard]] const ShareTable& shares() const { return shares_; }

  void listing_began(std::int64_t number) { shares_.listing_began(number); }
  void answered(Time now, const ManagerAnswer& answer) { shares_.answered(now, answer); }
  void pass(Time now);

  [[nodiscard]] std::vector<Order> take_orders(Time now);
  // Take the orders first.
  [[nodiscard]] std::vector<Fact> take_facts() { return std::exchange(facts_, {}); }

 private:
  void obey(Time now, const EngineTable::Launch& order);
  void obey(Time now, EngineTable::Tell order);
  void obey(Time now, const EngineTable::Sweep& order);
  void obey(Time now, const EngineTable::Disconnect& order);
  void obey(Time now, const EngineTable::Shares& order);
  void obey(Time now, const EngineTable::Heard& order);
  void obey(Time now, const EngineTable::Mark& order);
  void obey(Time now, const ShareTable::Submit& order);
  void obey(Time now, const ShareTable::Cancel& order);
  void obey(Time now, const ShareTable::List& order);
  void obey(Time now, const ShareTable::TellMaster& order);
  void obey(Time now, const ShareTable::LookAgain& order);
  void obey(Time now, const ShareTable::NodeWord& order);
  void take_in_facts();

  ShareTable shares_;
  EngineTable engine_;
  std::function<bool(JobId)> whole_nodes_;
  bool was_ready_ = false;
  std::vector<Order> orders_;
  std::vector<Fact> facts_;
};

}  // namespace rubato::engine
