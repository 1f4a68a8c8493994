#include "rubato/place/diff.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <type_traits>
#include <utility>

namespace rubato {
namespace {

// The kinds of a Want, as index() numbers them.
constexpr std::size_t kCount = 0, kSpread = 1, kExact = 2;
static_assert(std::is_same_v<std::variant_alternative_t<kCount, Want>, Count>);
static_assert(std::is_same_v<std::variant_alternative_t<kSpread, Want>, Spread>);
static_assert(std::is_same_v<std::variant_alternative_t<kExact, Want>, Exact>);

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

bool satisfied(const Allocation& now, const Want& want) {
  const auto* count = std::get_if<Count>(&want);
  return count != nullptr && now.gpus() == count->gpus && now.type() == count->type;
}

Change::Kind kind_of(const Allocation& before, const Allocation& after) {
  if (before.empty()) return Change::Kind::start;
  return before.gpus() == after.gpus() ? Change::Kind::move : Change::Kind::resize;
}

}  // namespace

Result<std::vector<Change>> Differ::diff(const Decision& decision, const JobTable& jobs,
                                         const std::vector<JobId>& targeted, FreeGpus& free) {
  std::vector<Change> changes;
  named_.new_round();
  for (const auto& grant : decision.run) named_.mark(grant.job.index());

  // First all that is given up ...
  for (const JobId id : targeted) {
    const JobView* job = jobs.find(id);
    if (job == nullptr || job->target.empty() || named_.marked(id.index())) continue;
    changes.push_back({id, Change::Kind::stop, Allocation()});
    free.give(job->target);
  }
  const auto first_wish = static_cast<std::ptrdiff_t>(changes.size());
  std::vector<const Want*> wants;
  for (const auto& grant : decision.run) {
    const Allocation& now = jobs.find(grant.job)->target;
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
      Change& change = changes[static_cast<std::size_t>(first_wish) + i];
      const bool placed = std::visit(
          [&](const auto& want) { return fill(placement_, free, change.target, want); }, *wants[i]);
      if (!placed) {
        return Error{
            fmt::format("job {}: the GPUs it was granted are not free", change.job.value())};
      }
      change.kind = kind_of(jobs.find(change.job)->target, change.target);
    }
  }
  std::erase_if(changes, [&](const Change& c) {
    return c.kind == Change::Kind::move && c.target == jobs.find(c.job)->target;
  });
  return changes;
}

}  // namespace rubato
