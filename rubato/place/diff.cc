#include "rubato/place/diff.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <map>
#include <span>
#include <type_traits>
#include <utility>

namespace rubato {
namespace {

// The kinds of a Want, as index() numbers them.
constexpr std::size_t kCount = 0, kSpread = 1, kExact = 2, kBeside = 3;
static_assert(std::is_same_v<std::variant_alternative_t<kCount, Want>, Count>);
static_assert(std::is_same_v<std::variant_alternative_t<kSpread, Want>, Spread>);
static_assert(std::is_same_v<std::variant_alternative_t<kExact, Want>, Exact>);
static_assert(std::is_same_v<std::variant_alternative_t<kBeside, Want>, Beside>);

// What a job keeps of its present GPUs, given its wish.
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

// A guest brings nothing along: it goes where its host goes.
Allocation kept(Placement /*placement*/, const Allocation& /*now*/, const Beside& /*want*/) {
  return {};
}

// Adds what is missing; false if it is not free.
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
  return true;  // follow_hosts() does it, once all hosts have their GPUs
}

bool satisfied(const Allocation& now, const Want& want) {
  const auto* count = std::get_if<Count>(&want);
  return count != nullptr && now.gpus() == count->gpus && now.type() == count->type;
}

// How much a job that shares its GPUs has to do with them under its new wish.
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

// Guests get the GPUs that their hosts have in the end.
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

// The GPUs that are the job's to keep or to give.
Allocation Differ::own_part(const JobView& job, const JobTable& jobs) const {
  if (!job.shares_with) return job.target;
  const JobView& other = *jobs.find(*job.shares_with);
  // If the decision names neither, the older one answers for both.
  const bool named = named_.marked(job.id.index()) || named_.marked(other.id.index());
  const bool yields = named ? yields_.marked(job.id.index()) : other.id < job.id;
  return yields ? minus(job.target, other.target) : job.target;
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

  // First all that is given up ...
  for (const JobId id : targeted) {
    const JobView* job = jobs.find(id);
    if (job == nullptr || job->target.empty() || named_.marked(id.index())) continue;
    changes.push_back({id, Change::Kind::stop, Allocation()});
    sharing ? free.give(own_part(*job, jobs)) : free.give(job->target);
  }
  const std::size_t first_wish = changes.size();
  std::vector<const Want*> wants;
  bool guests = false;
  for (const auto& grant : decision.run) {
    const JobView& job = *jobs.find(grant.job);
    const Allocation part = sharing ? own_part(job, jobs) : Allocation();
    const Allocation& now = sharing ? part : job.target;
    guests = guests || grant.want.index() == kBeside;
    if (satisfied(now, grant.want)) continue;
    Allocation rest =
        std::visit([&](const auto& want) { return kept(placement_, now, want); }, grant.want);
    free.give(minus(now, rest));
    changes.push_back({grant.job, Change::Kind::start, std::move(rest)});
    wants.push_back(&grant.want);
  }

  // ... then all that is gained: the narrowest wishes first, so that none takes what another needs.
  for (const std::size_t kind : {kExact, kSpread, kCount}) {
    for (std::size_t i = 0; i < wants.size(); ++i) {
      if (wants[i]->index() != kind) continue;
      Change& change = changes[first_wish + i];
      const bool placed = std::visit(
          [&](const auto& want) { return fill(placement_, free, change.target, want); }, *wants[i]);
      if (!placed) {
        return Error{
            fmt::format("job {}: the GPUs it was granted are not free", change.job.value())};
      }
      change.kind = kind_of(jobs.find(change.job)->target, change.target);
    }
  }
  if (guests) follow_hosts(jobs, std::span(changes).subspan(first_wish), wants);
  std::erase_if(changes, [&](const Change& c) {
    return c.kind == Change::Kind::move && c.target == jobs.find(c.job)->target;
  });
  return changes;
}

}  // namespace rubato
