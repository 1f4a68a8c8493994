#include "rubato/daemon/health.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "rubato/base/text.h"
#include "rubato/daemon/forecast.h"
#include "rubato/daemon/phrases.h"

namespace rubato::daemon {
namespace {

// A job with this many failures is reported, although it still tries.
constexpr int kOften = 3;
// The most problems of each kind that are listed. The others are counted.
constexpr std::size_t kNamed = 20;

class Health {
 public:
  Health(const DaemonState& state, const std::function<bool(JobId)>& visible)
      : state_(state), visible_(visible) {}

  std::vector<Problem> problems() {
    look_at_nodes();
    if (const auto& last = state_.last_decision(); last && !last->refused.empty()) {
      add("the last decision of the policy could not be carried out, so nothing changes",
          "look at `rubato history`, or choose another policy (rubato policy)");
    }
    look_at_jobs();
    return std::move(problems_);
  }

 private:
  void add(std::string what, std::string remedy) {
    problems_.push_back({std::move(what), std::move(remedy)});
  }
  [[nodiscard]] std::string clock(WallTime time) const {
    return clock_text(time, state_.wall(state_.time()));
  }

  void look_at_nodes() {
    const auto& nodes = state_.now().cluster.nodes();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].state == NodeState::up) continue;
      const NodeId id(static_cast<NodeId::rep>(i));
      const std::string since = fmt::format("since {}", clock(state_.node_since(id)));
      const std::string called = node_called(state_.now().cluster, id);
      const std::string name = called.substr(called.find(' ') + 1);
      const std::string& why = state_.node_why(id);
      switch (nodes[i].state) {
        case NodeState::unknown:
          add(fmt::format("{} is unknown {}{}; its jobs keep their {}, and nothing is started "
                          "there",
                          called, since, why.empty() ? "" : ": " + why,
                          plural(nodes[i].gpus, "GPU")),
              fmt::format("check that its machine and its agent (rubato agent) run, and repair "
                          "what the reason names: the node is then used again; if it will not "
                          "come back: rubato drain --down {}",
                          name));
          break;
        case NodeState::draining:
          add(fmt::format("{} is drained {}; nothing is started there", called, since),
              fmt::format("when it may be used again: rubato resume {}", name));
          break;
        default:
          add(fmt::format("{} is down {}", called, since),
              fmt::format("when it is repaired: rubato resume {}", name));
      }
    }
  }

  void look_at_jobs() {
    std::vector<Problem> late;
    std::vector<Problem> failing;
    for (const JobView& view : state_.now().jobs) {
      const JobRecord* job = state_.job(view.id);
      if (job == nullptr || job->measures_for || !visible_(view.id)) continue;
      const std::string name = fmt::format("job {} ({})", view.id.value(), job->name);
      if (std::string why = lateness_of(*job, view); !why.empty()) {
        late.push_back(
            {fmt::format("{} {}", name, why),
             fmt::format("rubato explain {} says what it waits for; it needs more GPUs or "
                         "a later deadline",
                         view.id.value())});
      }
      const int failures = std::max(job->failures, job->worker_failures);
      if (failures >= kOften) {
        failing.push_back({fmt::format("{} has failed {}", name, times(failures)),
                           fmt::format("look at rubato logs {}", view.id.value())});
      }
    }
    add_some(std::move(late), "will be late");
    add_some(std::move(failing), "fail repeatedly");
  }

  [[nodiscard]] std::string lateness_of(const JobRecord& job, const JobView& view) const {
    if (!job.deadline) return "";
    const WallTime now = state_.wall(state_.time());
    if (*job.deadline < now) return fmt::format("has missed its deadline {}", clock(*job.deadline));
    const auto end = expected_end(job, view, state_.time());
    if (end && state_.wall(*end) > *job.deadline) {
      return fmt::format("will miss its deadline {}: it is expected to end at {}",
                         clock(*job.deadline), clock(state_.wall(*end)));
    }
    if (job.promise && !job.honoured)
      return fmt::format("was promised to be done by {}, which the policy does not honour now",
                         clock(*job.deadline));
    return "";
  }

  void add_some(std::vector<Problem> found, std::string_view what) {
    const std::size_t more = found.size() - std::min(found.size(), kNamed);
    found.resize(found.size() - more);
    for (Problem& problem : found) problems_.push_back(std::move(problem));
    if (more > 0)
      add(fmt::format("{} {}", plural(static_cast<int>(more), "more job"), what), "rubato ls");
  }

  const DaemonState& state_;
  const std::function<bool(JobId)>& visible_;
  std::vector<Problem> problems_;
};

}  // namespace

std::vector<Problem> problems_of(const DaemonState& state,
                                 const std::function<bool(JobId)>& visible) {
  return Health(state, visible).problems();
}

}  // namespace rubato::daemon
