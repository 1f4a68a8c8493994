// What a LaunchState wants the launcher to do. The launcher carries out the orders in sequence.
#pragma once

#include <string>
#include <variant>

#include "rubato/launch/slots.h"
#include "rubato/wire/launch.h"

namespace rubato::launch {

using wire::Uid;

struct StartWorker {
  Uid uid = 0;
  bool low_priority = false;  // because others train already
  Slot slot;                  // of a managed run
  // For a RestartRun: its rank in this round.
  int rank = 0;
  int world = 0;
  int round = 0;
};
struct SignalWorker {
  Uid uid = 0;
  int signal = 0;
};
struct SendToWorker {
  Uid uid = 0;
  wire::FromLauncher message;
};
struct Tell {  // people
  std::string text;
};
using Order = std::variant<StartWorker, SignalWorker, SendToWorker, Tell>;
// For tests and logs: "start 1", "signal 2 9", "plan 3 (1 2) to 1".
[[nodiscard]] std::string to_text(const Order& order);

}  // namespace rubato::launch
