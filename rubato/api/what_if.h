// Requests about what-ifs (docs/what-if.md). The core does not answer them: they change nothing and
// run in processes of their own. An answer is JSON text, because a result may be large.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rubato/api/request.h"

namespace rubato::api {

struct StartWhatIf {
  Moment since = std::chrono::hours(24);
  std::optional<Moment> until;
  std::vector<std::string> policies;
};
struct ShowWhatIf {
  std::uint64_t id = 0;
};
struct StopWhatIf {
  std::uint64_t id = 0;
};
using WhatIfAsk = std::variant<StartWhatIf, ShowWhatIf, StopWhatIf>;

struct TextAnswer {
  int status = 200;
  std::string json;
};

// `ask` may be called from any thread; each callback is called exactly once, on any thread.
class WhatIfs {
 public:
  virtual ~WhatIfs() = default;
  virtual void ask(WhatIfAsk ask, std::function<void(TextAnswer)> callback) = 0;
};

}  // namespace rubato::api
