// The placement quiet: a job starts or grows only where nobody loses much speed to a neighbour.
//
// It starts on the fewest nodes that its number of GPUs needs, or not at all. It grows on its own
// nodes, and on more only if it needs more. Three choices of nodes are tried: the tightest fit, the
// tightest fit on nodes where no other job uses the network, and the emptiest nodes. The first one
// counts where the job itself keeps enough of its speed and no neighbour would lose too much more
// than now. If there is none, the job waits, or keeps the GPUs that it has. A job that would be
// alone never waits. Jobs with a promise and jobs that host another one on their GPUs never wait,
// either; Differ sees to that. Wishes for certain nodes or GPUs are fulfilled as they are.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "rubato/model/contention.h"
#include "rubato/place/free_gpus.h"

namespace rubato::place {

inline constexpr double kQuietLoss = 0.1;

struct QuietRule {
  double loss = kQuietLoss;  // the largest share of its speed that anybody may lose
  // What jobs lose to each other; nullptr: nobody knows, and two jobs that both use the network of
  // a node are assumed to lose half.
  const ContentionModel* contention = nullptr;
};

class Quiet {
 public:
  Quiet(const Cluster& cluster, QuietRule rule);

  // Who has which GPUs. The model's name and the GPUs must stay valid until the next clear().
  void clear();
  void put(JobId job, std::string_view model, const Allocation& gpus);
  void take(JobId job, const Allocation& gpus);

  // Adds `more` GPUs to `gpus`, or changes nothing. So many must be free.
  void grow(JobId job, std::string_view model, FreeGpus& free, Allocation& gpus, int more) const;

 private:
  struct Placed {
    JobId job;
    Tenant tenant;
  };
  enum class Choice { tightest, undisturbed, emptiest };

  [[nodiscard]] std::optional<Allocation> choose(Choice choice, JobId job, const FreeGpus& free,
                                                 const Allocation& gpus, int more) const;
  [[nodiscard]] bool harmless(JobId job, std::string_view model, const Allocation& gpus) const;
  [[nodiscard]] double kept(const Placed& placed, const Placed* instead) const;
  [[nodiscard]] std::vector<const Placed*> beside(JobId job, const Allocation& gpus) const;
  [[nodiscard]] int least_nodes(const Allocation& gpus, int more) const;

  FixedLoss unknown_;
  QuietRule rule_;
  std::vector<int> node_size_;           // by type
  std::vector<std::vector<Placed>> on_;  // by node
  std::vector<NodeId> used_;             // nodes with somebody
};

}  // namespace rubato::place
