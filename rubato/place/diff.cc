#include "rubato/place/diff.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rubato::place {
namespace {

// The kinds of a Want, by index().
constexpr std::size_t kCount = 0, kSpread = 1, kExact = 2, kBeside = 3;
static_assert(std::is_same_v<std::variant_alternative_t<kCount, Want>, Count>);
static_assert(std::is_same_v<std::variant_alternative_t<kSpread, Want>, Spread>);
static_assert(std::is_same_v<std::variant_alternative_t<kExact, Want>, Exact>);
static_assert(std::is_same_v<std::variant_alternative_t<kBeside, Want>, Beside>);

// The part of its present GPUs that a job keeps under its wish.
Allocation kept(Placement placement, const Allocation& now, const Count& want) {
  if (now.empty() || now.type() != want.type) return Allocation(want.type);
  if (now.gpus() <= want.gpus) return now;
  return minus(now, choose_to_drop(placement, now, now.gpus() - want.gpus));
}
Allocation kept(Placement /*placement*/, const Allocation& now, const Exact& want) {
  return common(want.gpus, now);
}
Allocation kept(Placement placement, const Allocation& now, const Spread& want) {
  Allocation rest(now.type());
  for (const auto& slice : now.slices()) {
    const auto wished = std::find_if(want.gpus.begin(), want.gpus.end(),
                                     [&](const auto& entry) { return entry.first == slice.node; });
    if (wished == want.gpus.end()) continue;
    Allocation here(now.type());
    here.add(slice);
    const int extra = slice.gpus() - wished->second;
    rest.add(extra > 0 ? minus(here, choose_to_drop(placement, here, extra)) : here);
  }
  return rest;
}

// A guest keeps nothing: it gets the GPUs of its host.
Allocation kept(Placement /*placement*/, const Allocation& /*now*/, const Beside& /*want*/) {
  return {};
}

// Adds the missing GPUs; false if they are not free.
bool fill(Placement placement, FreeGpus& free, Allocation& gpus, const Count& want) {
  const int more = want.gpus - gpus.gpus();
  if (free.free_of(want.type) < more) return false;
  grow(placement, free, gpus, more);
  return true;
}
bool fill(Placement /*placement*/, FreeGpus& free, Allocation& gpus, const Exact& want) {
  const Allocation missing = minus(want.gpus, gpus);
  for (const auto& slice : missing.slices()) {
    if (!free.is_free(slice)) return false;
    free.take(slice);
  }
  gpus = want.gpus;
  return true;
}
bool fill(Placement /*placement*/, FreeGpus& free, Allocation& gpus, const Spread& want) {
  Allocation all(free.type_of(want.gpus.begin()->first));
  all.add(gpus);
  for (const auto& [node, wished] : want.gpus) {
    const int more = wished - std::popcount(gpus.mask_on(node));
    if (more == 0) continue;
    if (free.free_on(node) < more) return false;
    all.add(free.take(node, more));
  }
  gpus = std::move(all);
  return true;
}

bool fill(Placement /*placement*/, FreeGpus& /*free*/, Allocation& /*gpus*/,
          const Beside& /*want*/) {
  return true;  // follow_hosts() does this when all hosts have their GPUs
}

// GPUs on nodes that leave (drained or down). A job that may not be preempted keeps even these.
Allocation to_leave(const Allocation& now, const JobView& job, const FreeGpus& free) {
  Allocation gpus(now.type());
  if (job.stays()) return gpus;
  for (const Slice& slice : now.slices()) {
    if (!free.is_up(slice.node)) gpus.add(slice);
  }
  return gpus;
}

bool satisfied(const Allocation& now, const Count& want) {
  return now.gpus() == want.gpus && now.type() == want.type;
}

bool satisfied(const Allocation& now, const Want& want) {
  const auto* count = std::get_if<Count>(&want);
  return count != nullptr && satisfied(now, *count);
}

// How strongly a job's new wish refers to the GPUs that it shares.
int claim(const Allocation& now, const Want* want) {
  if (want == nullptr) return 0;
  if (std::holds_alternative<Beside>(*want)) return 1;
  const auto* exact = std::get_if<Exact>(want);
  if (exact != nullptr && exact->gpus == now) return 4;
  return satisfied(now, *want) ? 3 : 2;
}

Change::Kind kind_of(const Allocation& before, const Allocation& after) {
  if (before.empty()) return Change::Kind::start;
  return before.gpus() == after.gpus() ? Change::Kind::move : Change::Kind::resize;
}

// Guests get the final GPUs of their hosts.
void follow_hosts(const JobTable& jobs, std::span<Change> changes,
                  const std::vector<const Want*>& wants) {
  std::map<JobId, const Allocation*> moved;
  for (const auto& change : changes) moved.emplace(change.job, &change.target);
  for (std::size_t i = 0; i < wants.size(); ++i) {
    const auto* beside = std::get_if<Beside>(wants[i]);
    if (beside == nullptr) continue;
    const auto host = moved.find(beside->host);
    changes[i].target = host != moved.end() ? *host->second : jobs.find(beside->host)->target;
    changes[i].kind = kind_of(jobs.find(changes[i].job)->target, changes[i].target);
  }
}

// Jobs whose promise would not survive a move.
std::vector<JobId> not_movable(const Decision& decision) {
  std::vector<JobId> jobs;
  for (const auto& promise : decision.promise) {
    if (!promise.movable) jobs.push_back(promise.job);
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

}  // namespace

void Differ::choose_owners(const Decision& decision, const JobTable& jobs) {
  yields_.new_round();
  std::map<JobId, const Want*> sharing;
  for (const auto& grant : decision.run) {
    if (jobs.find(grant.job)->shares_with) sharing.emplace(grant.job, &grant.want);
  }
  const auto claim_of = [&](const JobView& job) {
    const auto want = sharing.find(job.id);
    return claim(job.target, want == sharing.end() ? nullptr : want->second);
  };
  for (const auto& [id, want] : sharing) {
    const JobView& job = *jobs.find(id);
    const JobView& other = *jobs.find(*job.shares_with);
    const bool yields = std::pair(claim_of(other), id) > std::pair(claim_of(job), other.id);
    yields_.mark(yields ? id.index() : other.id.index());
  }
}

// The GPUs that the job can keep or give up.
Allocation Differ::own_part(const JobView& job, const JobTable& jobs) const {
  if (!job.shares_with) return job.target;
  const JobView& other = *jobs.find(*job.shares_with);
  // If the decision names neither job, the GPUs belong to the older one.
  const bool named = named_.marked(job.id.index()) || named_.marked(other.id.index());
  const bool yields = named ? yields_.marked(job.id.index()) : other.id < job.id;
  return yields ? minus(job.target, other.target) : job.target;
}

Differ::Differ(Placement placement, const Cluster& cluster, QuietRule rule, double skew_limit)
    : placement_(placement), skew_limit_(skew_limit), quiet_(cluster, rule) {
  if (!in_blocks(placement)) return;
  for (int t = 0; t < cluster.types(); ++t)
    lines_.emplace_back(cluster, GpuType(static_cast<std::uint8_t>(t)));
}

Placement Differ::placement_of(const JobView& job) const {
  if (placement_ != Placement::skew) return placement_;
  const auto& skew = job.spec->skew;
  return skew && *skew <= skew_limit_ ? Placement::gaps : Placement::pack;
}

// Jobs to be consolidated choose before those that take what is left over.
std::vector<std::size_t> Differ::in_order(const JobTable& jobs,
                                          const std::vector<const Want*>& wants,
                                          std::span<const Change> changes, std::size_t kind) const {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < wants.size(); ++i) {
    if (wants[i] != nullptr && wants[i]->index() == kind) places.push_back(i);
  }
  if (placement_ == Placement::skew) {
    std::stable_partition(places.begin(), places.end(), [&](std::size_t i) {
      return placement_of(*jobs.find(changes[i].job)) == Placement::pack;
    });
  }
  return places;
}

Count Differ::rounded(const Count& want, const JobView& job) const {
  if (placement_ != Placement::netpack || job.speed == nullptr || job.speed->measured().empty())
    return want;
  const int node = lines_[want.type.index()].node_size();
  int gpus = want.gpus >= node ? want.gpus / node * node : want.gpus;
  while (gpus < node && node % gpus != 0) --gpus;
  return job.spec->limits.legal(gpus) ? Count{want.type, gpus} : want;
}

std::optional<JobId> Differ::place_in_blocks(const Decision& decision, const JobTable& jobs,
                                             std::vector<Wish> wishes, FreeGpus& free,
                                             std::vector<Change>& changes) const {
  // The largest first, because they are the hardest to place.
  std::sort(wishes.begin(), wishes.end(), [&](const Wish& a, const Wish& b) {
    return std::tuple(a.want.type, -a.want.gpus, changes[a.change].job) <
           std::tuple(b.want.type, -b.want.gpus, changes[b.change].job);
  });
  std::map<JobId, std::size_t> changed;
  for (std::size_t i = 0; i < changes.size(); ++i) changed[changes[i].job] = i;
  const auto promised_to_stay = not_movable(decision);
  const auto reach =
      placement_ == Placement::buddy ? BuddyBlocks::Reach::line : BuddyBlocks::Reach::node;
  for (std::size_t first = 0; first < wishes.size();) {
    const GpuType type = wishes[first].want.type;
    const GpuLine& line = lines_[type.index()];
    BuddyBlocks blocks(line, reach);
    for (const auto& place : line.places()) {
      if (place.gpu != 0) continue;
      blocks.offer(place.node, free.offered(place.node));
    }
    for (const auto& grant : decision.run) {
      const auto change = changed.find(grant.job);
      const JobView& job = *jobs.find(grant.job);
      const Allocation& has = change == changed.end() ? job.target : changes[change->second].target;
      if (has.empty() || has.type() != type) continue;
      // A guest gets the GPUs of its host.
      if (std::holds_alternative<Beside>(grant.want)) continue;
      const bool all_up = std::all_of(has.slices().begin(), has.slices().end(),
                                      [&](const Slice& s) { return free.is_up(s.node); });
      const bool must_stay =
          change != changed.end() || !job.spec->preemptible ||
          std::binary_search(promised_to_stay.begin(), promised_to_stay.end(), grant.job);
      blocks.put({grant.job, all_up && !must_stay}, has);
    }
    int room = free.free_of(type);
    std::size_t end = first;
    for (; end < wishes.size() && wishes[end].want.type == type; ++end) {
      const JobId id = changes[wishes[end].change].job;
      if ((room -= wishes[end].want.gpus) < 0) return id;
      const Allocation& had = jobs.find(id)->target;
      blocks.place({id, true, 0}, wishes[end].want.gpus,
                   had.type() == type ? had : Allocation(type));
    }
    for (const JobId id : blocks.moved()) {
      if (changed.contains(id)) continue;
      changes.push_back({id, Change::Kind::move, blocks.of(id)});
      free.give(jobs.find(id)->target);
    }
    for (; first < end; ++first) {
      Change& change = changes[wishes[first].change];
      change.target = blocks.of(change.job);
      for (const auto& slice : change.target.slices()) free.take(slice);
    }
    for (const JobId id : blocks.moved()) {
      if (changed.contains(id)) continue;
      const Allocation now = blocks.of(id);
      for (const auto& slice : now.slices()) free.take(slice);
    }
  }
  return std::nullopt;
}

void Differ::settle_tenants(const JobTable& jobs, const std::vector<JobId>& targeted,
                            const std::vector<Change>& changes) {
  quiet_.clear();
  std::set<JobId> changed;
  for (const Change& change : changes) {
    changed.insert(change.job);
    quiet_.put(change.job, jobs.find(change.job)->spec->model, change.target);
  }
  for (const JobId id : targeted) {
    const JobView* job = jobs.find(id);
    if (job != nullptr && !changed.contains(id)) quiet_.put(id, job->spec->model, job->target);
  }
}

void Differ::fill_quietly(const JobView& job, const Count& want, FreeGpus& free,
                          Allocation& gpus) const {
  const int more = want.gpus - gpus.gpus();
  if (more == 0) return;
  // A job that must not wait, or that has given up GPUs that it is to have again, gets some
  // anywhere.
  const bool must =
      loud_.marked(job.id.index()) || gpus.gpus() < std::min(want.gpus, job.target.gpus());
  must ? grow(placement_, free, gpus, more)
       : quiet_.grow(job.id, job.spec->model, free, gpus, more);
}

Result<std::vector<Change>> Differ::diff(const Decision& decision, const JobTable& jobs,
                                         const std::vector<JobId>& targeted, FreeGpus& free) {
  std::vector<Change> changes;
  named_.new_round();
  for (const auto& grant : decision.run) named_.mark(grant.job.index());
  const bool sharing = std::any_of(targeted.begin(), targeted.end(), [&](JobId id) {
    const JobView* job = jobs.find(id);
    return job != nullptr && job->shares_with.has_value();
  });
  if (sharing) choose_owners(decision, jobs);

  // First release everything that is given up ...
  for (const JobId id : targeted) {
    const JobView* job = jobs.find(id);
    if (job == nullptr || job->target.empty() || named_.marked(id.index())) continue;
    changes.push_back({id, Change::Kind::stop, Allocation()});
    sharing ? free.give(own_part(*job, jobs)) : free.give(job->target);
  }
  const std::size_t first_wish = changes.size();
  std::vector<const Want*> wants;
  std::vector<Wish> wishes;  // to place in blocks
  bool guests = false;
  for (const auto& grant : decision.run) {
    const JobView& job = *jobs.find(grant.job);
    const auto* count = std::get_if<Count>(&grant.want);
    std::optional<Allocation> part;
    if (sharing) part = own_part(job, jobs);
    bool leaves = false;
    if (count != nullptr) {
      const Allocation gone = to_leave(part ? *part : job.target, job, free);
      leaves = !gone.empty();
      if (leaves) part = minus(part ? *part : job.target, gone);
      free.give(gone);
    }
    const Allocation& now = part ? *part : job.target;
    guests = guests || grant.want.index() == kBeside;
    if (count != nullptr && in_blocks(placement_)) {
      const Count want = rounded(*count, job);
      if (!leaves && satisfied(now, want)) continue;
      free.give(now);
      wishes.push_back({changes.size(), want});
      changes.push_back({grant.job, Change::Kind::start, Allocation(want.type)});
      wants.push_back(nullptr);
      continue;
    }
    if (!leaves && satisfied(now, grant.want)) continue;
    Allocation rest = std::visit(
        [&](const auto& want) { return kept(placement_of(job), now, want); }, grant.want);
    free.give(minus(now, rest));
    changes.push_back({grant.job, Change::Kind::start, std::move(rest)});
    wants.push_back(&grant.want);
  }

  // ... then take what is gained. The most specific wishes come first, so that no job takes GPUs
  // that another one needs.
  const bool quietly = placement_ == Placement::quiet;
  if (quietly) {
    loud_.new_round();
    for (const auto& promise : decision.promise) loud_.mark(promise.job.index());
    for (const auto& grant : decision.run) {
      if (const auto* beside = std::get_if<Beside>(&grant.want)) loud_.mark(beside->host.index());
    }
  }
  for (const std::size_t kind : {kExact, kSpread, kCount}) {
    if (quietly && kind == kCount) settle_tenants(jobs, targeted, changes);
    for (const std::size_t i :
         in_order(jobs, wants, std::span(changes).subspan(first_wish), kind)) {
      Change& change = changes[first_wish + i];
      const JobView& job = *jobs.find(change.job);
      const auto* count = std::get_if<Count>(wants[i]);
      if (quietly && count != nullptr &&
          free.free_of(count->type) >= count->gpus - change.target.gpus()) {
        quiet_.take(job.id, change.target);
        fill_quietly(job, *count, free, change.target);
        quiet_.put(job.id, job.spec->model, change.target);
        change.kind = kind_of(job.target, change.target);
        continue;
      }
      const bool placed = std::visit(
          [&](const auto& want) { return fill(placement_of(job), free, change.target, want); },
          *wants[i]);
      if (!placed) {
        return Error{
            fmt::format("job {}: the GPUs it was granted are not free", change.job.value())};
      }
      change.kind = kind_of(job.target, change.target);
    }
  }
  if (!wishes.empty()) {
    if (const auto job = place_in_blocks(decision, jobs, wishes, free, changes)) {
      return Error{fmt::format("job {}: the GPUs it was granted are not free", job->value())};
    }
    for (const Wish& wish : wishes) {
      Change& change = changes[wish.change];
      change.kind = kind_of(jobs.find(change.job)->target, change.target);
    }
  }
  if (guests) follow_hosts(jobs, std::span(changes).subspan(first_wish), wants);
  std::erase_if(changes, [&](const Change& c) {
    return c.kind != Change::Kind::stop && c.target == jobs.find(c.job)->target;
  });
  return changes;
}

}  // namespace rubato::place
