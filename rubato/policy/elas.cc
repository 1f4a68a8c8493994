#include "rubato/policy/elas.h"

namespace rubato::policy {

Decision Elas::decide(const Snapshot& snapshot, State& state) const {
  const Sorted sorted{
      {config.order, /*preempts=*/true, /*head_blocks=*/false, config.cheapest_victims}};
  Decision decision = sorted.decide(snapshot, state);
  const bool some_wait = decision.run.size() < snapshot.jobs.size();
  if (some_wait && config.round > Duration(0)) decision.again_at = snapshot.now + config.round;
  return decision;
}

std::vector<PolicyEntry> elas_rows() {
  PolicyEntry entry;
  entry.name = "elas";
  entry.paper = "Sultana et al. (E-LAS), ICPP'20";
  entry.summary = "least attained service, corrected by progress; preemptive";
  entry.knows = "GPUs asked for, attained service, share of the work done";
  entry.keys = {
      choice_key("form", {"remaining", "product"},
                 "the order by attained service a and progress r: a(1-r)/r or a(1-r)"),
      number_key("round", 0, 0, 1e9,
                 "seconds after which the order is made again while jobs wait; 0 = only at events"),
      victims_key(),
  };
  entry.quick = true;
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    const bool product = values.text("form") == "product";
    const auto order = product ? Sorted::Order::service_by_rest : Sorted::Order::service_left;
    return erase(
        Elas{{order, from_seconds(values.number("round")), wants_cheapest_victims(values)}});
  };
  return {entry};
}

}  // namespace rubato::policy
