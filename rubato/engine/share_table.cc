#include "rubato/engine/share_table.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <fmt/format.h>

#include "rubato/base/check.h"
#include "rubato/base/text.h"
#include "rubato/launch/slots.h"

namespace rubato::engine {
namespace {

using namespace std::chrono_literals;

constexpr Duration kListEvery = 1s;
// An answer that takes longer is lost.
constexpr Duration kAnswerWithin = 60s;
// The manager has so long to start a share.
constexpr Duration kStartWithin = 10s;
// A share that ends has so long to leave the manager's list by itself.
constexpr Duration kLeaveWithin = 5s;
constexpr Duration kCancelAgain = 5s;
// A manager that has just started has not heard of its nodes yet.
constexpr Duration kSilentFor = 10s;
// A master that has not obeyed is told again.
constexpr Duration kTellAgain = 2s;
// A share that ends earlier than this has failed; so many in a row, and its GPUs are reserved.
constexpr Duration kShortLife = 30s;
constexpr int kMostShortLives = 3;
constexpr Duration kFirstBlock = 30s;
constexpr Duration kLongestBlock = 10min;
constexpr Duration kScoutEvery = 30s;
// A worker moves to another share so long before the manager ends its own.
constexpr Duration kMoveBefore = 90s;
constexpr std::size_t kMostEnded = 256;
constexpr char kPartMark = '+';  // in no name of a manager's node

NodeId node_at(std::size_t i) { return NodeId(static_cast<NodeId::rep>(i)); }
std::uint64_t bit(int gpu) { return std::uint64_t{1} << static_cast<unsigned>(gpu); }

template <class F>
void each_gpu(std::uint64_t gpus, const F& f) {
  for (; gpus != 0; gpus &= gpus - 1) f(std::countr_zero(gpus));
}

Allocation allocation(const Cluster& cluster, NodeId node, std::uint64_t gpus) {
  Allocation all(cluster.node(node).type);
  all.add({node, gpus});
  return all;
}

std::optional<std::uint64_t> parse_hex(std::string_view text) {
  if (text.empty() || text.size() > 16 || (text.size() > 1 && text.front() == '0'))
    return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    const auto digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value * 16 + digit;
  }
  return value;
}

bool plain(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
}

}  // namespace

ShareName name_of(const std::string& identity, const NamedShare& share) {
  return fmt::format("{}-{:x}-{:x}-{:x}-{:x}-{}", identity, share.job.value(),
                     share.generation.value(), share.node.value(), share.gpus, share.serial);
}

std::optional<NamedShare> parse_share_name(const std::string& identity, const ShareName& name) {
  const auto parts = split(name, '-');
  if (parts.size() != 6 || parts[0] != identity || !plain(parts[5])) return std::nullopt;
  std::uint64_t numbers[4] = {};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto number = parse_hex(parts[i + 1]);
    if (!number || (i < 3 && *number > UINT32_MAX)) return std::nullopt;
    numbers[i] = *number;
  }
  if (numbers[3] == 0) return std::nullopt;
  return NamedShare{JobId(static_cast<JobId::rep>(numbers[0])),
                    Generation(static_cast<Generation::rep>(numbers[1])),
                    NodeId(static_cast<NodeId::rep>(numbers[2])), numbers[3],
                    std::string(parts[5])};
}

NewNode new_node(const ManagedNode& node) {
  return {node.name, node.type.empty() ? "gpu" : node.type, node.gpus, node.labels};
}

std::string name_of_part(const std::string& node, std::size_t part) {
  return part == 0 ? node : fmt::format("{}{}{}", node, kPartMark, part);
}

std::string node_of_part(const std::string& name) {
  const auto mark = name.rfind(kPartMark);
  if (mark == std::string::npos || mark == 0) return name;
  const auto part = parse_integer(name.substr(mark + 1));
  const std::string node = name.substr(0, mark);
  const bool is_part =
      part && *part > 0 && name_of_part(node, static_cast<std::size_t>(*part)) == name;
  return is_part ? node : name;
}

ShareTable::ShareTable(Cluster cluster, std::string identity, std::string life)
    : cluster_(std::move(cluster)),
      identity_(std::move(identity)),
      life_(std::move(life)),
      machines_(cluster_.nodes().size()) {
  CHECK(plain(identity_) && identity_.size() <= 12 && plain(life_) && life_.size() <= 6);
  for (std::size_t i = 0; i < machines_.size(); ++i)
    parts_[managed_name(node_at(i))].push_back(node_at(i));
}

// --- what the engine says ------------------------------------------------------------------------

void ShareTable::want(Time now, JobId id, Generation generation, const Allocation& gpus,
                      bool whole_nodes) {
  Job& job = jobs_[id];
  if (job.generation != generation) {
    job.revision = 0;
    job.ended.clear();
    job.limited.reset();
  }
  job.generation = generation;
  job.gpus = gpus;
  job.whole_nodes = whole_nodes;
  job.stopping = false;
  job.master = true;
  job.told = now;
  if (ready_) fit(now, id, job);
}

// Keeps the shares that fit what the job should have, and plans those that are missing.
void ShareTable::fit(Time now, JobId id, Job& job) {
  Allocation missing = job.master ? job.gpus : Allocation();
  for (auto at = shares_.begin(); at != shares_.end();) {
    const auto here = at++;
    Share& share = here->second;
    if (share.job != id) continue;
    const std::uint64_t wished = missing.mask_on(share.node);
    const bool fits = job.whole_nodes ? share.gpus == wished : (share.gpus & ~wished) == 0;
    // A share that was to end cannot be taken back: its master may have told it already.
    if (fits && share.wanted) {
      missing.remove(Slice{share.node, share.gpus});
      continue;
    }
    if (share.stage == Share::Stage::planned) {
      shares_.erase(here);
    } else if (std::exchange(share.wanted, false)) {
      share.since = now;
    }
  }
  if (job.stopping) return;
  for (const Slice& slice : missing.slices()) {
    if (job.whole_nodes) {
      plan(now, id, job, slice.node, slice.mask);
    } else {
      each_gpu(slice.mask, [&](int gpu) { plan(now, id, job, slice.node, bit(gpu)); });
    }
  }
}

void ShareTable::plan(Time now, JobId id, Job& job, NodeId node, std::uint64_t gpus) {
  const ShareName name =
      name_of(identity_, {id, job.generation, node, gpus, fmt::format("{}{:x}", life_, ++serial_)});
  Share& share = shares_[name];
  share.job = id;
  share.node = node;
  share.gpus = gpus;
  share.since = now;
}

void ShareTable::end(Time now, JobId id) {
  Job& job = jobs_[id];
  job.master = false;
  job.gpus = Allocation();
  fit(now, id, job);
  bool any = false;
  for (auto& [name, share] : shares_) {
    if (share.job != id) continue;
    any = true;
    look_at(now, name, share);
  }
  if (!any) jobs_.erase(id);
}

void ShareTable::heard(const JobStatus& status) {
  const auto found = jobs_.find(status.job);
  if (found == jobs_.end()) return;
  Job& job = found->second;
  if (auto in_use = allocation_of(status.in_use, cluster_)) job.in_use = std::move(*in_use);
  job.obeyed = status.generation;
  job.obeyed_revision = status.revision;
  job.of_master.clear();
  for (const ShareView& share : status.shares) job.of_master.insert(share.name);
}

// The master must know the shares that its job has now.
void ShareTable::look_at_master(Time now, JobId id, Job& job) {
  if (!job.master || job.stopping || job.obeyed != job.generation) return;
  // The table before this one may have counted further, and may have named other shares.
  if (job.obeyed_revision > job.revision || std::exchange(job.adopted, false)) {
    job.revision = std::max(job.revision, job.obeyed_revision);
    return tell_master(now, id, job);
  }
  if (job.obeyed_revision >= job.revision || now - job.told < kTellAgain) return;
  job.told = now;
  orders_.emplace_back(TellMaster{id});
}

void ShareTable::tell_master(Time now, JobId id, Job& job) {
  ++job.revision;
  job.told = now;
  orders_.emplace_back(TellMaster{id});
}

void ShareTable::mark_down(Time now, NodeId node) {
  machines_[node.index()].down = true;
  std::vector<ShareName> lost;
  for (const auto& [name, share] : shares_) {
    if (share.node == node && share.stage != Share::Stage::planned) lost.push_back(name);
  }
  for (const ShareName& name : lost) gone(now, name, "its node was declared dead");
}

void ShareTable::mark_up(NodeId node) { machines_[node.index()].down = false; }

// --- what the manager says -----------------------------------------------------------------------

void ShareTable::answered(Time now, const ManagerAnswer& answer) {
  std::visit([&](const auto& one) { this->answer(now, one); }, answer);
}

void ShareTable::answer(Time /*now*/, const ManagerTrouble& trouble) { trouble_ = trouble.why; }

// A late answer about a share that was given up changes nothing: a listing shows it.
void ShareTable::answer(Time now, const ShareTaken& taken) {
  const auto found = shares_.find(taken.name);
  if (found == shares_.end() || found->second.stage != Share::Stage::asked) return;
  Share& share = found->second;
  share.stage = Share::Stage::there;
  share.since = now;
  share.after = begun_;
}

void ShareTable::answer(Time now, const ShareUnknown& unknown) {
  answer(now, ShareTaken{unknown.name, ""});
}

void ShareTable::answer(Time now, const ShareRefused& refused) {
  const auto found = shares_.find(refused.name);
  if (found == shares_.end() || found->second.stage != Share::Stage::asked) return;
  if (refused.of_user) {
    found->second.why = refused.why;
    limit(now, found->second);
  } else {
    block(now, found->second.node, found->second.gpus, refused.why);
  }
  gone(now, refused.name, refused.why);
}

void ShareTable::answer(Time now, const Listing& listing) {
  if (listing.number <= listed_) return;
  listed_ = listing.number;
  adopting_ = !std::exchange(ready_, true);
  // What was refused may be taken now.
  if (std::exchange(settings_, listing.settings) != listing.settings) unblock_all();
  for (const ManagedNode& node : listing.nodes) see(now, node);
  std::set<std::string> nodes;
  for (const ManagedNode& node : listing.nodes) nodes.insert(node.name);
  for (const auto& [name, parts] : parts_) {
    if (nodes.contains(name)) continue;
    ManagedNode absent;
    absent.state = NodeState::unknown;
    absent.why = "the cluster manager no longer lists it";
    for (const NodeId part : parts) see_part(now, part, absent, cluster_.node(part).gpus);
  }
  // Of two with one name, the one that lives longer counts.
  std::map<ShareName, const ManagedShare*> seen;
  for (const ManagedShare& share : listing.shares) {
    const ManagedShare*& one = seen[share.name];
    if (one == nullptr || one->state == ManagedShare::State::gone) one = &share;
  }
  for (const auto& [name, share] : seen) see(now, *share);
  std::vector<ShareName> absent;
  for (const auto& [name, share] : shares_) {
    if (share.stage == Share::Stage::there && share.after < listing.number && !seen.contains(name))
      absent.push_back(name);
  }
  for (const ShareName& name : absent) gone(now, name, "the cluster manager no longer has it");
  if (std::exchange(adopting_, false)) {
    for (auto& [id, job] : jobs_) {
      job.adopted = true;
      fit(now, id, job);
    }
  }
  const std::vector<Use> uses = uses_of_nodes();
  for (const ManagedNode& node : listing.nodes) {
    const auto found = parts_.find(node.name);
    if (found != parts_.end()) set_others(found->second, node.others, uses);
  }
}

void ShareTable::see(Time now, const ManagedNode& seen) {
  grow(seen);
  const auto found = parts_.find(seen.name);
  if (found == parts_.end()) return;
  int left = std::max(seen.gpus, 0);
  for (const NodeId part : found->second) {
    const int gpus = std::min(left, cluster_.node(part).gpus);
    see_part(now, part, seen, gpus);
    left -= gpus;
  }
}

// A node that is new joins, and so do GPUs that a node has got.
void ShareTable::grow(const ManagedNode& seen) {
  const auto found = parts_.find(seen.name);
  NewNode added = new_node(seen);
  if (found != parts_.end()) {
    for (const NodeId part : found->second) added.gpus -= cluster_.node(part).gpus;
    added.name = name_of_part(seen.name, found->second.size());
  }
  if (!cluster_.can_add(added)) return;
  const NodeId id = cluster_.add(added);
  machines_.emplace_back();
  parts_[seen.name].push_back(id);
  facts_.emplace_back(NodeAdded{id, added});
}

// So many of its GPUs are there.
void ShareTable::see_part(Time now, NodeId id, const ManagedNode& seen, int gpus) {
  Machine& machine = machines_[id.index()];
  // What the manager calls down may only be silent, so its processes may live.
  const NodeState state = seen.state == NodeState::down ? NodeState::unknown : seen.state;
  if (seen.state != NodeState::unknown)
    machine.silent_since.reset();
  else if (!machine.silent_since)
    machine.silent_since = now;
  const bool just_silent = machine.state == NodeState::up && machine.silent_since &&
                           now - *machine.silent_since < kSilentFor;
  if (!just_silent && (machine.state != state || machine.why != seen.why)) {
    if (state == NodeState::up) machine.blocks.clear();
    machine.state = state;
    machine.why = seen.why;
    orders_.emplace_back(NodeWord{id, state, seen.why});
  }
  machine.missing = 0;
  for (int gpu = gpus; gpu < cluster_.node(id).gpus; ++gpu) machine.missing |= bit(gpu);
  machine.missing_why = fmt::format("{} has only {} now", seen.name, plural(seen.gpus, "GPU"));
  report_reserved(id);
}

std::string ShareTable::managed_name(NodeId node) const {
  return node_of_part(cluster_.name(node));
}

// The same GPUs as before, as far as possible; then GPUs that none of our jobs has; then those
// where a share of ours is gone.
std::array<std::uint64_t, 4> ShareTable::for_others(NodeId node, const Use& ours) const {
  const Machine& machine = machines_[node.index()];
  const std::uint64_t all = cluster_.node(node).all() & ~machine.missing;
  const std::uint64_t unheld = all & ~(ours.planned | ours.there);
  const std::uint64_t lost = all & ours.planned & ~ours.there;
  return {machine.others & unheld, unheld, machine.others & lost, lost};
}

void ShareTable::set_others(const std::vector<NodeId>& parts, int others,
                            const std::vector<Use>& uses) {
  std::map<NodeId, std::uint64_t> chosen;
  int before = 0, left = others;
  const std::vector<NodeId> last_first(parts.rbegin(), parts.rend());
  for (std::size_t choice = 0; choice < 4; ++choice) {
    for (const NodeId part : last_first) {
      std::uint64_t from = for_others(part, uses[part.index()])[choice] & ~chosen[part];
      for (; from != 0 && left > 0; --left) {
        const std::uint64_t highest = std::bit_floor(from);
        chosen[part] |= highest;
        from &= ~highest;
      }
    }
  }
  for (const NodeId part : parts) before += std::popcount(machines_[part.index()].others);
  for (const NodeId part : parts) {
    Machine& machine = machines_[part.index()];
    // GPUs have become free: what could not be started there may be tried again.
    if (others < before) machine.blocks.clear();
    machine.others = chosen[part];
    report_reserved(part);
  }
}

std::vector<ShareTable::Use> ShareTable::uses_of_nodes() const {
  std::vector<Use> uses(machines_.size());
  for (const auto& [name, share] : shares_) {
    Use& here = uses[share.node.index()];
    (share.stage == Share::Stage::planned ? here.planned : here.there) |= share.gpus;
  }
  return uses;
}

void ShareTable::see(Time now, const ManagedShare& seen) {
  auto found = shares_.find(seen.name);
  if (found == shares_.end()) {
    const auto named = parse_share_name(identity_, seen.name);
    if (!named || seen.state == ManagedShare::State::gone) return;
    if (named->node.index() >= machines_.size()) return;
    return adopt(now, seen, *named);
  }
  Share& share = found->second;
  if (seen.state == ManagedShare::State::gone) return gone(now, seen.name, seen.why);
  const bool news = share.stage != Share::Stage::there || share.state != seen.state;
  share.stage = Share::Stage::there;
  share.after = begun_;
  share.seen_at = now;
  share.why = seen.why;
  share.of_user = seen.of_user;
  if (share.wanted && seen.left && *seen.left < kMoveBefore) renew(now, share);
  if (!news) return;
  share.state = seen.state;
  if (share.wanted) share.since = now;
  if (seen.state != ManagedShare::State::running || share.running_at) return;
  share.running_at = now;
  Machine& machine = machines_[share.node.index()];
  each_gpu(share.gpus, [&](int gpu) {
    const auto tried = machine.tried.find(gpu);
    if (tried != machine.tried.end()) unblock(std::exchange(tried->second, ""));
  });
}

// The limit is the share's, not the GPU's: another share takes its place on the same GPUs, when it
// has gone. Limits that are too short for this are left alone for a while.
void ShareTable::renew(Time now, Share& share) {
  const auto owner = jobs_.find(share.job);
  if (owner == jobs_.end() || !owner->second.master || owner->second.stopping) return;
  if (!share.running_at || now - *share.running_at < kShortLife) return;
  share.wanted = false;
  share.since = now;
  fit(now, share.job, owner->second);
  tell_master(now, share.job, owner->second);
}

// A share that this table has not asked for, or has given up. In the first listing it may be one
// that a job still wants.
void ShareTable::adopt(Time now, const ManagedShare& seen, const NamedShare& named) {
  const auto job = jobs_.find(named.job);
  const std::uint64_t taken = held(named.job).mask_on(named.node);
  const std::uint64_t wished =
      job == jobs_.end() ? 0 : job->second.gpus.mask_on(named.node) & ~taken;
  const bool fits = job != jobs_.end() && job->second.master &&
                    (job->second.whole_nodes ? named.gpus == wished : (named.gpus & ~wished) == 0);
  Share& share = shares_[seen.name];
  share.job = named.job;
  share.node = named.node;
  share.gpus = named.gpus & cluster_.node(named.node).all();
  share.wanted = adopting_ && fits && seen.state != ManagedShare::State::ending;
  share.stage = Share::Stage::there;
  share.state = seen.state;
  share.why = seen.why;
  share.since = now;
  share.after = begun_;
  if (seen.state == ManagedShare::State::running) share.running_at = now;
}

// --- what follows --------------------------------------------------------------------------------

void ShareTable::gone(Time now, const ShareName& name, const std::string& why) {
  const auto found = shares_.find(name);
  const Share share = found->second;
  shares_.erase(found);
  orders_.emplace_back(LookAgain{share.job});
  // Its node answers again.
  if (share.state == ManagedShare::State::lost) {
    each_gpu(share.gpus, [&](int gpu) { machines_[share.node.index()].blocks.erase(gpu); });
    report_reserved(share.node);
  }
  const auto owner = jobs_.find(share.job);
  if (owner == jobs_.end()) return;
  Job& job = owner->second;
  if (!job.master) {
    const bool last = std::none_of(shares_.begin(), shares_.end(), [&](const auto& other) {
      return other.second.job == share.job;
    });
    if (last) jobs_.erase(owner);
    return;
  }
  if (job.ended.size() < kMostEnded) job.ended.push_back(name);
  if (share.wanted) {
    Machine& machine = machines_[share.node.index()];
    const bool short_life = !share.running_at || now - *share.running_at < kShortLife;
    each_gpu(share.gpus, [&](int gpu) {
      int& failures = machine.failures[gpu];
      failures = short_life ? failures + 1 : 1;
      if (failures >= kMostShortLives) block(now, share.node, bit(gpu), why, false);
    });
    fit(now, share.job, job);
  }
  if (share.wanted || job.of_master.contains(name)) tell_master(now, share.job, job);
}

// The longer it has gone wrong, the longer.
void ShareTable::block(Time now, NodeId node, std::uint64_t gpus, const std::string& why,
                       bool scouts) {
  Machine& machine = machines_[node.index()];
  each_gpu(gpus, [&](int gpu) {
    const int before = std::min(machine.failures[gpu], 8);
    const Duration time = std::min(kFirstBlock * (1 << before), Duration(kLongestBlock));
    machine.blocks[gpu] = {now + time,
                           why.empty() ? "the cluster manager starts no share there" : why,
                           now + (scouts ? kFirstBlock : Duration(kLongestBlock))};
  });
  report_reserved(node);
}

bool ShareTable::is_limited(Time now, const Job& job) {
  return job.limited && now - *job.limited < kScoutEvery;
}

// No GPU is to blame, so all are left to others. The job keeps the shares that run.
void ShareTable::limit(Time now, const Share& share) {
  const auto owner = jobs_.find(share.job);
  if (owner == jobs_.end() || !owner->second.master || is_limited(now, owner->second)) return;
  owner->second.limited = now;
  Allocation running;
  for (const auto& [name, other] : shares_) {
    const bool runs =
        other.stage == Share::Stage::there && other.state == ManagedShare::State::running;
    if (other.job != share.job || !other.wanted || !runs) continue;
    const Allocation one = allocation(cluster_, other.node, other.gpus);
    if (running.empty()) running = Allocation(one.type());
    running.add(minus(one, running));
  }
  facts_.emplace_back(QuotaFact{share.job, owner->second.generation, running, share.why});
}

void ShareTable::unblock(const std::string& why) {
  if (why.empty()) return;
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    Machine& machine = machines_[i];
    const auto same = [&](const auto& entry) {
      if (entry.second.why != why) return false;
      machine.failures.erase(entry.first);
      return true;
    };
    if (std::erase_if(machine.blocks, same) > 0) report_reserved(node_at(i));
  }
}

void ShareTable::unblock_all() {
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    if (machines_[i].blocks.empty()) continue;
    machines_[i].blocks.clear();
    machines_[i].failures.clear();
    report_reserved(node_at(i));
  }
}

// The GPU that has been blocked for the longest part of its time.
void ShareTable::send_scout(Time now) {
  if (now < scout_at_) return;
  scout_at_ = now + kScoutEvery;
  Block* first = nullptr;
  for (Machine& machine : machines_) {
    if (machine.state != NodeState::up || machine.down) continue;
    for (auto& [gpu, block] : machine.blocks) {
      if (block.scout_after <= now && (first == nullptr || block.until < first->until))
        first = &block;
    }
  }
  if (first != nullptr) first->until = now;
}

void ShareTable::report_reserved(NodeId node) {
  Machine& machine = machines_[node.index()];
  std::uint64_t gpus = machine.others | machine.missing;
  std::set<std::string> whys;
  if (machine.others != 0) whys.insert("jobs of the cluster manager that are not Rubato's");
  if (machine.missing != 0) whys.insert(machine.missing_why);
  for (const auto& [gpu, block] : machine.blocks) {
    gpus |= bit(gpu);
    whys.insert(block.why);
  }
  whys.erase("");
  const std::string why = fmt::format("{}", fmt::join(whys, "; "));
  if (cluster_.node(node).reserved == gpus && machine.reserved_why == why) return;
  cluster_.set_reserved(node, gpus);
  machine.reserved_why = why;
  facts_.emplace_back(Reserved{node, gpus, why});
}

void ShareTable::submit_planned(Time now) {
  std::vector<Use> uses = uses_of_nodes();
  for (auto& [name, share] : shares_) {
    if (share.stage != Share::Stage::planned) continue;
    const Machine& machine = machines_[share.node.index()];
    Use& use = uses[share.node.index()];
    if (machine.down || (use.there & share.gpus) != 0) continue;
    const auto owner = jobs_.find(share.job);
    if (owner != jobs_.end() && is_limited(now, owner->second)) continue;
    if ((cluster_.node(share.node).reserved & share.gpus) != 0) continue;
    if (machine.state != NodeState::up) {
      if (now - share.since > kStartWithin)
        block(now, share.node, share.gpus,
              machine.why.empty() ? "the node cannot be used" : machine.why);
      continue;
    }
    share.stage = Share::Stage::asked;
    share.since = now;
    use.there |= share.gpus;
    orders_.emplace_back(Submit{name, share.job, share.node, std::popcount(share.gpus)});
  }
}

// One share that may be there.
void ShareTable::look_at(Time now, const ShareName& name, Share& share) {
  using State = ManagedShare::State;
  if (share.stage == Share::Stage::planned) return;
  Machine& machine = machines_[share.node.index()];
  if (share.stage == Share::Stage::asked && now - share.since > kAnswerWithin)
    answer(now, ShareUnknown{name, ""});
  if (share.running_at && now - *share.running_at > kShortLife) {
    each_gpu(share.gpus, [&](int gpu) { machine.failures.erase(gpu); });
  }
  bool cancel = false;
  if (share.wanted) {
    const bool stuck = share.state == State::waiting || share.state == State::lost;
    // What was true in the last listing: nothing is concluded from a manager that is slow.
    if (stuck && share.seen_at && *share.seen_at - share.since > kStartWithin && !share.cancelled) {
      cancel = share.state == State::waiting;
      if (share.of_user) {
        limit(now, share);
      } else {
        // One that is lost comes here again and again, until it is gone.
        if (cancel) each_gpu(share.gpus, [&](int gpu) { ++machine.failures[gpu]; });
        block(now, share.node, share.gpus, share.why);
      }
    }
    cancel = cancel || share.cancelled;
  } else {
    const auto owner = jobs_.find(share.job);
    const Job* job = owner == jobs_.end() || !owner->second.master ? nullptr : &owner->second;
    const bool left = job != nullptr && job->obeyed >= job->generation &&
                      (job->in_use.mask_on(share.node) & share.gpus) == 0 &&
                      !job->of_master.contains(name);
    cancel = share.state == State::waiting ||
             ((job == nullptr || left) && now - share.since > kLeaveWithin);
  }
  if (!cancel || (share.cancelled && now - *share.cancelled < kCancelAgain)) return;
  share.cancelled = now;
  orders_.emplace_back(Cancel{name});
}

void ShareTable::pass(Time now) {
  if (now >= list_at_) {
    list_at_ = now + kListEvery;
    orders_.emplace_back(List{});
  }
  if (!ready_) return;
  send_scout(now);
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    const auto over = [&](const auto& entry) {
      if (entry.second.until > now) return false;
      machines_[i].tried[entry.first] = entry.second.why;
      return true;
    };
    if (std::erase_if(machines_[i].blocks, over) > 0) report_reserved(node_at(i));
  }
  for (auto& [name, share] : shares_) look_at(now, name, share);
  submit_planned(now);
  for (auto& [id, job] : jobs_) look_at_master(now, id, job);
}

// --- questions -----------------------------------------------------------------------------------

Allocation ShareTable::held(JobId job) const {
  Allocation gpus;
  for (const auto& [name, share] : shares_) {
    if (share.job != job || share.stage == Share::Stage::planned) continue;
    if (machines_[share.node.index()].down) continue;
    const Allocation one = allocation(cluster_, share.node, share.gpus);
    if (gpus.empty()) gpus = Allocation(one.type());
    gpus.add(minus(one, gpus));
  }
  return gpus;
}

std::vector<PlacedShare> ShareTable::placed(JobId job) const {
  std::vector<PlacedShare> placed;
  for (const auto& [name, share] : shares_) {
    if (share.job != job || !share.wanted) continue;
    placed.push_back(
        {name, managed_name(share.node), slots_of(allocation(cluster_, share.node, share.gpus))});
  }
  return placed;
}

void ShareTable::complete(Place& place, JobId id) const {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  place.revision = found->second.revision;
  place.shares = placed(id);
  place.ended_shares = found->second.ended;
}

std::size_t ShareTable::shares() const {
  return static_cast<std::size_t>(
      std::count_if(shares_.begin(), shares_.end(),
                    [](const auto& entry) { return entry.second.stage != Share::Stage::planned; }));
}

}  // namespace rubato::engine
