// Takes any bytes as a graph, as devices, and as weights of a network. The result must be an error,
// or something that is read back as it was written; a graph is also scheduled.
#include <cstddef>
#include <cstdint>

#include "rubato/base/check.h"
#include "rubato/graph/rules.h"
#include "rubato/policy/learned.h"
#include "rubato/sim/learn_ppo.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  namespace graph = rubato::graph;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)graph::parse_devices(text);
  if (const auto network = parse_network(text, "input"); network)
    CHECK(*parse_network(to_text(*network), "again") == *network);
  if (const auto state = PpoState::parse(text, "input"); state)
    CHECK(PpoState::parse(state->to_text(), "again")->to_text() == state->to_text());
  const auto read = graph::parse_graph(text, "input");
  if (!read) return 0;
  CHECK(*graph::parse_graph(graph::to_text(*read), "again") == *read);
  if (read->operators.size() > 50) return 0;
  graph::Machine machine;
  machine.devices = graph::parse_devices("gpu=2:1e9,cpu=1").value();
  const auto problem = graph::Problem::make(*read, machine);
  if (!problem) return 0;
  for (const auto& placement : {graph::single_device(*problem), graph::min_cut(*problem),
                                graph::heft(*problem).placement}) {
    if (problem->feasible(placement)) CHECK(problem->schedule(placement).seconds >= 0);
  }
  return 0;
}
