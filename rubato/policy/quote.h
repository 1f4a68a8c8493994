// What a policy that trades GPUs says of its jobs: why each has what it has.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rubato/core/ids.h"

namespace rubato::policy {

// Of one job. Prices and bids are for one GPU, in job-seconds saved a second.
struct Quote {
  JobId job;
  GpuType type;           // the GPUs it has, or would bid for
  int gpus = 0;           // that it has by the last decision
  double price = 0;       // of a GPU of that type: what one more would save
  double bid = 0;         // for each GPU of its next step; 0: it wants no more
  std::size_t ahead = 0;  // jobs that bid more for GPUs and have not got them either
  bool promised = false;  // its GPUs are those of its plan, or more
  bool turn = false;      // it had waited so long that it got a turn
  bool guessed = false;   // nobody said how long it is: its bid is made from a guess
  std::size_t zone = 0;   // where tenants have cells, each zone is a market of its own
};

// Of all jobs, as of one decision.
class Quotes {
 public:
  Quotes() = default;
  explicit Quotes(std::vector<Quote> quotes) : quotes_(std::move(quotes)) {}  // by job

  [[nodiscard]] const std::vector<Quote>& all() const { return quotes_; }
  // nullopt: the job was not in the market. `ahead` is counted here.
  [[nodiscard]] std::optional<Quote> of(JobId job) const;
  // Those that Quote::ahead counts.
  [[nodiscard]] std::vector<JobId> ahead_of(const Quote& quote) const;

 private:
  std::vector<Quote> quotes_;
};

// In a few sentences, which say nothing of who the others are.
[[nodiscard]] std::vector<std::string> words(const Quote& quote);

}  // namespace rubato::policy
