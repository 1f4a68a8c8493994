// When a job changes its batch size by itself: the modes `accordion` and `gns` of Shockwave's
// traces (Zheng et al., NSDI'23), as its published simulator has them for the networks of these
// traces.
//
//   accordion  Accordion (Agarwal et al., MLSys'21) trains with the first batch in critical epochs
//              and with the largest otherwise. The critical epochs are fixed by network, and the
//              first 30% of a job are always critical.
//   gns        gradient noise scale (McCandlish et al., 2018): the batch doubles at fixed epochs by
//              network, first batch and GPUs, up to the largest batch of the network.
//
// A job keeps its number of epochs, so it trains on as many samples as without changes, in fewer
// and longer steps. The length of an epoch is the size of the network's data set.
//
// Sure (published code): all numbers. Deviates: there the last epoch of most gns schedules has the
// first batch again, because of how a loop ends; here it has not.
//
// Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::sim {

enum class BatchChanges : std::uint8_t { none, accordion, gns };

// From this epoch on (from 0), the job has this batch.
struct BatchFrom {
  int epoch = 0;
  int batch = 0;
  friend bool operator==(const BatchFrom&, const BatchFrom&) = default;
};

struct BatchSchedule {
  int steps = 0;                // with the first batch, of one epoch
  std::vector<BatchFrom> from;  // ascending; the first is the first batch at epoch 0
};

// `steps` is the whole work, in steps with the first batch. Without changes, or for a network that
// is not known, `from` has one entry.
[[nodiscard]] BatchSchedule batch_schedule(BatchChanges changes, std::string_view model, int batch,
                                           int gpus, double steps);

}  // namespace rubato::sim
