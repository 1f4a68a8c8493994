#include "rubato/engine/slurm_view.h"

#include <algorithm>

namespace rubato::engine {
namespace {

template <class Map>
const typename Map::mapped_type* find_in(const Map& map, const typename Map::key_type& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

}  // namespace

Listing SlurmView::update(std::int64_t number, const std::vector<SlurmNode>& nodes,
                          const std::vector<SlurmJob>& jobs,
                          const std::map<ShareName, std::string>& owners, Time now) {
  now_ = now;
  take_nodes(nodes);
  take_jobs(jobs, owners);
  Listing listing;
  listing.number = number;
  doubles_.clear();
  for (const auto& [name, ids] : by_name_) {
    listing.shares.push_back(share_of(name, ids));
    for (const std::int64_t id : ids) {
      const State state = jobs_.at(id).state;
      if (id != ids.front() && state != State::gone && state != State::lost) doubles_.push_back(id);
    }
  }
  for (const auto& node : nodes) {
    ManagedNode managed;
    managed.name = node.name;
    managed.gpus = std::min(node.gpus, kMaxGpusPerNode);
    managed.type = node.type;
    managed.state = node.state;
    managed.why = node.why;
    managed.others = std::clamp(node.gpus_used - ours_on(node), 0, managed.gpus);
    for (const auto& partition : node.partitions) managed.labels["partition/" + partition] = "";
    for (const auto& feature : node.features) managed.labels["feature/" + feature] = "";
    listing.nodes.push_back(std::move(managed));
  }
  first_ = false;
  return listing;
}

void SlurmView::take_nodes(const std::vector<SlurmNode>& nodes) {
  nodes_.clear();
  hosts_.clear();
  std::map<std::string, Time> since;
  for (const auto& node : nodes) {
    nodes_[node.name] = node;
    hosts_[node.host] = node.name;
    if (!node.answering) continue;
    const Time* const earlier = find_in(answering_since_, node.host);
    since[node.host] = earlier != nullptr ? *earlier : now_;
  }
  answering_since_ = std::move(since);
}

void SlurmView::take_jobs(const std::vector<SlurmJob>& jobs,
                          const std::map<ShareName, std::string>& owners) {
  before_ = std::move(jobs_);
  jobs_.clear();
  for (const auto& job : jobs) {
    const std::string* const owner = find_in(owners, job.name);
    if (owner != nullptr && *owner != job.user) continue;
    Known known{job};
    const Known* const before = find_in(before_, job.id);
    if (before != nullptr) known.given_up = before->given_up;
    if (job.state == "NODE_FAIL" && !known.given_up) known.given_up = now_;
    known.state = state_of(known, before);
    if (known.state == State::lost && !known.given_up) known.given_up = now_;
    jobs_[job.id] = std::move(known);
  }
  for (const auto& [id, before] : before_) {
    const bool lived = before.job.placed && before.state != State::gone;
    if (!lived || jobs_.contains(id)) continue;
    Known known = before;
    if (!known.given_up) known.given_up = now_;
    if (cleaned_up(known)) continue;
    known.state = State::lost;
    known.job.reason = "Slurm no longer lists it";
    jobs_[id] = std::move(known);
  }
  by_name_.clear();
  for (const auto& [id, known] : jobs_) by_name_[known.job.name].push_back(id);
}

ManagedShare::State SlurmView::state_of(const Known& known, const Known* before) const {
  const State state = slurm_share_state(known.job.state);
  if (state != State::gone || !known.job.placed) return state;
  if (before != nullptr && before->state == State::gone) return state;
  const SlurmNode* const where = host(known.job.node);
  if (where == nullptr) return state;  // Slurm has removed the node
  if (!where->answering) return State::lost;
  return !known.given_up || cleaned_up(known) ? State::gone : State::lost;
}

bool SlurmView::cleaned_up(const Known& known) const {
  if (host(known.job.node) == nullptr) return true;
  const Time* const since = find_in(answering_since_, known.job.node);
  return since != nullptr && now_ - std::max(*since, *known.given_up) >= kSlurmCleansUp;
}

ManagedShare SlurmView::share_of(const ShareName& name,
                                 const std::vector<std::int64_t>& ids) const {
  const Known& first = jobs_.at(ids.front());
  ManagedShare share{name, std::to_string(first.job.id), first.job.node, first.state,
                     slurm_words(first.job)};
  share.left = first.job.left;
  share.of_user = first.state == State::waiting && slurm_limit_of_user(first.job.reason);
  if (first.state == State::lost && slurm_share_state(first.job.state) != State::gone)
    share.why = first.job.reason;
  // It is gone when its doubles are.
  const bool doubled = std::any_of(ids.begin(), ids.end(), [&](std::int64_t id) {
    return jobs_.at(id).job.placed && jobs_.at(id).state != State::gone;
  });
  if (share.state == State::gone && doubled) share.state = State::ending;
  return share;
}

int SlurmView::ours_on(const SlurmNode& node) const {
  int gpus = 0;
  for (const auto& [id, known] : jobs_) {
    if (!known.job.placed || known.job.node != node.host || known.state == State::lost) continue;
    if (node.name != node.host && known.job.type != node.type) continue;
    // The list of nodes is older: it still counts a job that has ended in between.
    const Known* const before = find_in(before_, id);
    const bool just_ended = before != nullptr ? before->state != State::gone : !first_;
    if (known.state != State::gone || just_ended) gpus += known.job.gpus;
  }
  return gpus;
}

std::vector<std::int64_t> SlurmView::living(const ShareName& name) const {
  std::vector<std::int64_t> ids;
  const auto* const all = find_in(by_name_, name);
  if (all == nullptr) return ids;
  for (const std::int64_t id : *all) {
    if (jobs_.at(id).state != State::gone) ids.push_back(id);
  }
  return ids;
}

std::optional<std::int64_t> SlurmView::native(const ShareName& name) const {
  const auto* const all = find_in(by_name_, name);
  return all == nullptr ? std::nullopt : std::optional(all->front());
}

const SlurmNode* SlurmView::node(const std::string& name) const { return find_in(nodes_, name); }

const SlurmNode* SlurmView::host(const std::string& name) const {
  const auto* const one = find_in(hosts_, name);
  return one == nullptr ? nullptr : node(*one);
}

}  // namespace rubato::engine
