#include "rubato/daemon/publisher.h"

#include <cstdint>
#include <iterator>
#include <utility>

#include "rubato/daemon/timeline.h"
#include "rubato/daemon/views.h"

namespace rubato::daemon {

void Publisher::publish(Core& core, const std::set<JobId>& changed) {
  publish_jobs(core, changed);
  publish_nodes(core.state());
  publish_policy(core.state());
  publish_decisions(core);
}

void Publisher::publish_jobs(Core& core, const std::set<JobId>& changed) {
  for (const JobId id : changed) {
    const JobRecord* job = core.state().job(id);
    // Measuring runs are not listed.
    if (job == nullptr || job->measures_for) continue;
    feed_.publish({job->user, "job", id.value(), core.show(id)});
  }
}

void Publisher::publish_nodes(const DaemonState& state) {
  std::vector<Shown> states;
  for (const Node& node : state.now().cluster.nodes())
    states.emplace_back(node.state, node.reserved);
  if (states == nodes_) return;
  if (nodes_.empty()) nodes_.resize(states.size());
  const Json shown =
      show_nodes(
          state, [](JobId) { return false; }, [](const std::string&) { return false; })
          .at("nodes");
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (i < nodes_.size() && states[i] == nodes_[i]) continue;
    feed_.publish({"", "node", static_cast<std::uint32_t>(i), shown.at(i)});
  }
  nodes_ = std::move(states);
}

// Decisions from before the start of the daemon are not published.
void Publisher::publish_decisions(const Core& core) {
  const Chronicle& chronicle = core.state().chronicle();
  const auto& all = chronicle.decisions();
  const RowNumber newest = all.empty() ? RowNumber() : all.back().number;
  const RowNumber before = std::exchange(decided_, newest).value_or(newest);
  auto note = all.end();
  while (note != all.begin() && std::prev(note)->number > before) --note;
  for (; note != all.end(); ++note) {
    const auto seen_by = [&](const Caller& caller) {
      return show_decision(caller, *note, core.state(), core.took());
    };
    News news{"",
              "decision",
              static_cast<std::uint32_t>(note->number.value()),
              seen_by({"", false}),
              seen_by({"", true}),
              {}};
    for (const DecidedChange& change : note->changes) {
      const std::string& user = chronicle.user(change.user);
      if (!news.for_users.contains(user)) news.for_users[user] = seen_by({user, false});
    }
    feed_.publish(std::move(news));
  }
}

void Publisher::publish_policy(const DaemonState& state) {
  const std::string& policy = state.policy().text;
  if (policy == policy_) return;
  policy_ = policy;
  feed_.publish({"", "policy", 0, Json{{"policy", policy}}});
}

}  // namespace rubato::daemon
