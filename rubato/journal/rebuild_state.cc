#include "rubato/journal/rebuild_state.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fmt/format.h>
#include <utility>
#include <vector>

namespace rubato::journal {
namespace {

class Rebuilding {
 public:
  explicit Rebuilding(State& state)
      : state_(state),
        targeted_(state.waiting_on.size()),
        used_(state.waiting_on.size()),
        shared_(state.waiting_on.size()) {}

  std::string run() {
    for (const JobView& job : state_.snapshot.jobs) {
      const char* wrong = check(job);
      if (wrong != nullptr) return fmt::format("job {} {}", job.id.value(), wrong);
    }
    return "";
  }

 private:
  const char* check(const JobView& job) {
    if (!exists(job.target) || !exists(job.held)) return "has GPUs that the cluster does not have";
    const JobView* partner = nullptr;
    if (job.shares_with) {
      partner = std::as_const(state_.snapshot.jobs).find(*job.shares_with);
      if (partner == nullptr || partner == &job || partner->shares_with != job.id)
        return "shares GPUs with a job that does not share them";
    }
    if (!take_target(job, partner)) return "is to have GPUs that another is to have";
    if (!take_held(job)) return "has GPUs that two others have";
    if (job.stays_away() && !job.target.empty()) return "is to have GPUs, but its owner wants none";
    if (job.leaving && job.held.empty()) return "is leaving, and nothing keeps it";
    state_.snapshot.away += job.stays_away() ? 1 : 0;
    return nullptr;
  }

  [[nodiscard]] bool exists(const Allocation& gpus) const {
    const auto& nodes = state_.snapshot.cluster.nodes();
    return std::all_of(gpus.slices().begin(), gpus.slices().end(), [&](const Slice& slice) {
      if (slice.node.index() >= nodes.size()) return false;
      const Node& node = nodes[slice.node.index()];
      return node.type == gpus.type() && static_cast<int>(std::bit_width(slice.mask)) <= node.gpus;
    });
  }

  // GPUs that two jobs share are removed from the free ones only once, for the first of the two.
  bool take_target(const JobView& job, const JobView* partner) {
    const bool second = partner != nullptr && partner->id < job.id;
    const Allocation own = second ? minus(job.target, partner->target) : job.target;
    for (const auto& slice : own.slices()) {
      if ((targeted_[slice.node.index()] & slice.mask) != 0) return false;
      targeted_[slice.node.index()] |= slice.mask;
      state_.free.take(slice);
    }
    return true;
  }

  bool take_held(const JobView& job) {
    for (const auto& slice : job.held.slices()) {
      if ((shared_[slice.node.index()] & slice.mask) != 0) return false;
      shared_[slice.node.index()] |= used_[slice.node.index()] & slice.mask;
      used_[slice.node.index()] |= slice.mask;
    }
    state_.busy.take(job.held);
    return true;
  }

  State& state_;
  std::vector<std::uint64_t> targeted_, used_, shared_;  // by node
};

}  // namespace

std::string rebuild_state(State& state) { return Rebuilding(state).run(); }

}  // namespace rubato::journal
