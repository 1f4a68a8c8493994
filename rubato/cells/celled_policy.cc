#include "rubato/cells/celled_policy.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <set>
#include <utility>

#include "rubato/base/text.h"
#include "rubato/loop/admission.h"

namespace rubato::cells {
namespace {

// As if no decision was ever taken on it, so that the policy looks at everything.
constexpr Sequence kNeverSeen{static_cast<Sequence::rep>(-2)};

using Masks = std::vector<std::uint64_t>;  // by node

NodeId node_of(std::size_t i) { return NodeId(static_cast<NodeId::rep>(i)); }

Allocation within(const Allocation& gpus, const Masks& masks) {
  Allocation part(gpus.type());
  for (const Slice& slice : gpus.slices()) {
    if (const std::uint64_t mask = slice.mask & masks[slice.node.index()]; mask != 0)
      part.add({slice.node, mask});
  }
  return part;
}

void add_to(Masks& masks, const Allocation& gpus) {
  for (const Slice& slice : gpus.slices()) masks[slice.node.index()] |= slice.mask;
}

// The job as a policy sees it that may give it only the GPUs `part` of its target. If the rest of a
// target cannot be used alone, the job waits.
JobView seen_with(const JobView& job, const Allocation& part, const Masks& allowed, Time now,
                  const std::shared_ptr<const JobSpec>& spec) {
  JobView view = job;
  view.spec = spec;
  if (part == job.target && within(part, allowed) == part && spec == job.spec) return view;
  const Allocation elsewhere = minus(job.target, part);
  Allocation kept = within(part, allowed);
  const bool legal = spec->limits.legal(kept.gpus()) || kept.gpus() == spec->requested;
  const bool usable = kept == part ? legal || spec == job.spec : legal && !job.held.empty();
  if (!usable) kept = Allocation();
  view.attained_before = job.attained(now);
  view.ran_before = job.ran(now);
  view.counted_from = now;
  if (kept.empty()) {
    view.last_ran = job.held.empty() ? job.last_ran : now;
    view.phase = Phase::pending;
    view.release_due = 0;
    view.held = Allocation();
    view.resized.reset();
  } else {
    view.held = within(minus(job.held, elsewhere), allowed);
  }
  view.target = std::move(kept);
  return view;
}

// Pairs that are not whole here are no pairs.
void settle_pairs(JobTable& jobs) {
  for (const JobView& seen : jobs) {
    if (!seen.shares_with) continue;
    const JobView* other = jobs.find(*seen.shares_with);
    const bool pair = other != nullptr && other->shares_with == seen.id && !seen.target.empty() &&
                      other->target == seen.target;
    if (!pair) jobs.find(seen.id)->shares_with.reset();
  }
}

Snapshot empty_part(const Snapshot& snapshot, Cluster cluster) {
  Snapshot part;
  part.now = snapshot.now;
  part.as_of = snapshot.as_of;
  part.cluster = std::move(cluster);
  part.interval = snapshot.interval;
  // On a real clock, borrowers need their time to leave.
  part.lateness = snapshot.lateness > Duration(0) ? snapshot.lateness + kNotice : Duration(0);
  part.jobs_move = snapshot.jobs_move;
  part.changed_since = kNeverSeen;
  return part;
}

// How fast a job is on some GPUs more than the ones it has.
class ExtraSpeed final : public SpeedModel {
 public:
  ExtraSpeed(std::shared_ptr<const SpeedModel> whole, GpuType type, int gpus)
      : whole_(std::move(whole)), type_(type), gpus_(gpus), alone_(whole_->on(type, gpus)) {
    for (const int count : whole_->measured()) {
      if (count > gpus_) measured_.push_back(count - gpus_);
    }
  }
  [[nodiscard]] WorkRate rate(const Shape& shape) const override {
    if (shape.type != type_) return 0;
    return std::max(0.0, whole_->on(type_, gpus_ + shape.gpus) - alone_);
  }
  [[nodiscard]] std::span<const int> measured() const override { return measured_; }

 private:
  std::shared_ptr<const SpeedModel> whole_;
  GpuType type_;
  int gpus_;
  WorkRate alone_;
  std::vector<int> measured_;
};

// Whether the speed was measured on about so many GPUs. If not, the job may be there to be
// measured.
bool knows(const SpeedModel& speed, int gpus) {
  const auto counts = speed.measured();
  return std::any_of(counts.begin(), counts.end(), [&](int count) {
    return count * count <= 2 * gpus * gpus && gpus * gpus <= 2 * count * count;
  });
}

// The counts above `gpus`, less `gpus`; nullopt if there are none.
std::optional<GpuLimits> limits_above(const GpuLimits& limits, int gpus) {
  const auto next = limits.above(gpus);
  if (!next) return std::nullopt;
  GpuLimits rest{*next - gpus, limits.max - gpus, {}};
  for (const int count : limits.allowed) {
    if (count > gpus) rest.allowed.push_back(count - gpus);
  }
  return rest;
}

bool cannot_leave(const JobView& job, const Snapshot& snapshot) {
  if (job.target.empty()) return false;
  const JobView* other = job.shares_with ? snapshot.jobs.find(*job.shares_with) : nullptr;
  const auto stays = [&](const JobView& one) {
    return one.stays() || out_of_reach(one, snapshot.cluster);
  };
  return stays(job) || (other != nullptr && stays(*other));
}

Json to_json(const Allocation& gpus) {
  Json slices = Json::array();
  for (const Slice& slice : gpus.slices())
    slices.push_back(Json::array({slice.node.value(), slice.mask}));
  return Json::array({gpus.type().value(), std::move(slices)});
}

Allocation allocation_of(const Json& json) {
  Allocation gpus(GpuType(json.at(0).get<GpuType::rep>()));
  for (const Json& slice : json.at(1))
    gpus.add({NodeId(slice.at(0).get<NodeId::rep>()), slice.at(1).get<std::uint64_t>()});
  return gpus;
}

}  // namespace

// One decision while it is made.
struct CelledPolicy::Working {
  const Snapshot& snapshot;
  Decision decision;
  std::vector<Snapshot> parts;  // by zone
  Masks taken;                  // GPUs that zones use, and those of jobs that cannot leave
  Masks kept;                   // only the latter
  std::set<JobId> promised;
  std::set<JobId> stuck;
  std::set<JobId> rejected;
  std::map<JobId, Grant> grants;  // of the zones; without those who are stuck
  Placed inside, outside;
  CellUse use;

  void ask_again(std::optional<Time> at) {
    if (at) decision.again_at = std::min(*at, decision.again_at.value_or(*at));
  }
  [[nodiscard]] CellUse::Job& entry(JobId id) {
    return *std::lower_bound(use.jobs.begin(), use.jobs.end(), id,
                             [](const CellUse::Job& a, JobId b) { return a.job < b; });
  }
};

MadePolicy with_cells(const PolicyMaker& maker, const Quotas& quotas, Placement placement,
                      QuietRule rule, double skew_limit) {
  auto borrowers = maker.make();
  if (!borrowers || quotas.empty()) return borrowers;
  std::vector<CelledPolicy::Zone> zones;
  for (std::size_t i = 0; i <= quotas.all().size(); ++i) {
    auto made = maker.make();
    if (!made) return made;
    zones.push_back(
        {i < quotas.all().size() ? quotas.all()[i].tenant : "", std::move(*made), {}, {}, false});
  }
  return std::unique_ptr<Policy>(std::make_unique<CelledPolicy>(
      quotas, std::move(zones), std::move(*borrowers), maker, placement, rule, skew_limit));
}

CelledPolicy::CelledPolicy(Quotas quotas, std::vector<Zone> zones,
                           std::unique_ptr<Policy> borrowers, const PolicyMaker& maker,
                           Placement placement, QuietRule rule, double skew_limit)
    : quotas_(std::move(quotas)),
      zones_(std::move(zones)),
      borrowers_(std::move(borrowers)),
      elastic_(maker.elastic),
      admits_(maker.admits),
      placement_(placement),
      rule_(rule),
      skew_limit_(skew_limit) {}

std::size_t CelledPolicy::zone_of(const JobView& job) const {
  return quotas_.tenant_of(job.spec->user).value_or(zones_.size() - 1);
}

// The part of its target that the job has in its own zone.
Allocation CelledPolicy::inside_now(const JobView& job) const {
  if (first_) return within(job.target, zones_[zone_of(job)].gpus);
  const auto found = inside_.find(job.id);
  if (found == inside_.end()) return Allocation(job.target.type());
  return common(job.target, found->second);
}

// Whether all GPUs of its target are those of its zone, and the zone gave them to it.
bool CelledPolicy::at_home(const JobView& job) const {
  const Allocation inside = inside_now(job);
  return inside == job.target && within(inside, zones_[zone_of(job)].gpus) == inside;
}

// Gives every GPU to a zone, by the places of the cells.
void CelledPolicy::divide(const Cluster& cluster) {
  Zone& commons = zones_.back();
  commons.gpus.clear();
  for (const Node& node : cluster.nodes()) commons.gpus.push_back(node.all());
  for (std::size_t t = 0; t + 1 < zones_.size(); ++t) {
    zones_[t].gpus.assign(nodes_, 0);
    for (const CellPlace& place : zones_[t].places) {
      if (place.gpus == 0 || place.node.index() >= nodes_) continue;
      zones_[t].gpus[place.node.index()] |= place.gpus;
      commons.gpus[place.node.index()] &= ~place.gpus;
    }
  }
}

// Places the cells. They avoid the GPUs of jobs that cannot leave, apart from those of the tenant
// that have them already.
void CelledPolicy::settle_zones(const Snapshot& snapshot) {
  const Cluster& cluster = snapshot.cluster;
  if (!differ_ || nodes_ != cluster.nodes().size()) {
    differ_.emplace(placement_, cluster, rule_, skew_limit_);
    nodes_ = cluster.nodes().size();
  }
  divide(cluster);
  Masks kept(nodes_, 0);
  for (const JobView& job : snapshot.jobs) {
    const bool in_its_cells = zone_of(job) + 1 < zones_.size() && at_home(job);
    if (cannot_leave(job, snapshot) && !in_its_cells) add_to(kept, job.target);
  }
  Places before;
  for (std::size_t t = 0; t + 1 < zones_.size(); ++t) before.push_back(zones_[t].places);
  Places places = find_places(quotas_, cluster, before, kept);
  for (std::size_t t = 0; t + 1 < zones_.size(); ++t) zones_[t].places = std::move(places[t]);
  divide(cluster);
}

Result<Decision> CelledPolicy::decide(const Snapshot& snapshot) {
  settle_zones(snapshot);
  Working work{.snapshot = snapshot,
               .decision = {},
               .parts = {},
               .taken = Masks(nodes_, 0),
               .kept = Masks(nodes_, 0),
               .promised = {},
               .stuck = {},
               .rejected = {},
               .grants = {},
               .inside = {},
               .outside = {},
               .use = {}};
  for (const Zone& zone : zones_)
    work.parts.push_back(empty_part(snapshot, snapshot.cluster.part(zone.gpus)));
  for (const JobView& job : snapshot.jobs) {
    if (!job.stays_away()) ask_about(job, work);
  }
  work.taken = work.kept;
  for (std::size_t zone = 0; zone < zones_.size(); ++zone) {
    if (auto ok = decide_in(zone, work); !ok) return ok.error();
  }
  if (auto ok = decide_about_borrowers(work); !ok) return ok.error();
  conclude(work);
  work.decision.as_of = snapshot.as_of;
  return std::move(work.decision);
}

// Enters the job where it belongs.
void CelledPolicy::ask_about(const JobView& job, Working& work) const {
  const std::size_t z = zone_of(job);
  const Zone& zone = zones_[z];
  Snapshot& part = work.parts[z];
  CellUse::Job& entry = work.use.jobs.emplace_back();
  entry.job = job.id;
  if (z + 1 < zones_.size()) entry.tenant = z;
  entry.room = part.cluster.installed();
  const auto& deadline = job.spec->deadline;
  const bool waits_for_promise = admits_ && deadline && *deadline > work.snapshot.now;
  entry.bar = !job.spec->preemptible       ? CellUse::Bar::unpreemptible
              : waits_for_promise          ? CellUse::Bar::promised
              : job.spec->notice > kNotice ? CellUse::Bar::slow_to_stop
                                           : CellUse::Bar::none;
  if (cannot_leave(job, work.snapshot) && !at_home(job)) {
    entry.stays = true;
    entry.inside = job.target;
    work.stuck.insert(job.id);
    add_to(work.kept, job.target);
    const JobView* other = job.shares_with ? work.snapshot.jobs.find(*job.shares_with) : nullptr;
    const bool guest = other != nullptr && work.stuck.contains(other->id);
    work.decision.run.push_back(
        {job.id, guest ? Want(Beside{other->id}) : Want(Exact{job.target}), job.batch});
    return;
  }
  const Submitted as_new{job.id, job.spec, job.speed, job.work};
  if (never_fits(as_new, *zone.policy, part.cluster)) {
    entry.too_large = true;
    // What was taken in before the cells were set, and can have no promise in them, runs without.
    if (job.accepted() && entry.bar == CellUse::Bar::promised) entry.bar = CellUse::Bar::none;
    if (job.accepted() || entry.bar == CellUse::Bar::none) return;
    work.rejected.insert(job.id);
    work.decision.reject.push_back(
        {job.id,
         fmt::format(
             "needs {} that nobody may take back, and {} {}",
             plural(zone.policy->least_gpus(*job.spec, *job.speed), "GPU"),
             entry.tenant ? "the cells of its tenant have" : "outside of all cells there are",
             entry.room),
         std::nullopt});
    return;
  }
  part.jobs.insert(seen_with(job, inside_now(job), zone.gpus, work.snapshot.now, job.spec));
}

Result<void> CelledPolicy::decide_in(std::size_t zone, Working& work) {
  Snapshot& part = work.parts[zone];
  // Once its last job has left, the policy is asked once more, so that it forgets that job.
  if (part.jobs.empty() && !zones_[zone].busy) return {};
  zones_[zone].busy = !part.jobs.empty();
  for (std::size_t i = 0; i < nodes_; ++i) {
    if (const std::uint64_t gpus = work.kept[i] & zones_[zone].gpus[i]; gpus != 0)
      part.cluster.reserve(node_of(i), gpus);
  }
  settle_pairs(part.jobs);
  auto decision = zones_[zone].policy->decide(part);
  if (!decision) return decision.error();
  auto placed = place(*decision, part);
  if (!placed) return placed.error();
  for (const auto& [id, gpus] : placed->gpus) add_to(work.taken, gpus);
  for (Grant& grant : placed->grants) work.grants.emplace(grant.job, grant);
  work.inside.gpus.merge(placed->gpus);
  for (Promise& promise : decision->promise) {
    work.promised.insert(promise.job);
    work.decision.promise.push_back(std::move(promise));
  }
  for (Reject& reject : decision->reject) {
    work.rejected.insert(reject.job);
    work.decision.reject.push_back(std::move(reject));
  }
  if (zones_[zone].busy) work.ask_again(decision->again_at);
  return {};
}

Result<void> CelledPolicy::decide_about_borrowers(Working& work) {
  Snapshot rest = empty_part(work.snapshot, work.snapshot.cluster);
  for (std::size_t i = 0; i < nodes_; ++i) {
    if (work.taken[i] != 0) rest.cluster.reserve(node_of(i), work.taken[i]);
  }
  if (rest.cluster.usable() == 0) return {};
  std::set<JobId> extended;
  for (const JobView& job : work.snapshot.jobs) {
    if (job.stays_away() || work.stuck.contains(job.id) || work.rejected.contains(job.id)) continue;
    if (add_borrower(job, work, rest)) extended.insert(job.id);
  }
  std::erase_if(extensions_, [&](const auto& entry) { return !extended.contains(entry.first); });
  if (rest.jobs.empty()) return {};
  settle_pairs(rest.jobs);
  auto decision = borrowers_->decide(rest);
  if (!decision) return decision.error();
  // They have promises of nobody, and nobody may refuse them. The further GPUs of a job are not to
  // be shared.
  decision->promise.clear();
  decision->reject.clear();
  std::erase_if(decision->run, [&](const Grant& grant) {
    const auto* beside = std::get_if<Beside>(&grant.want);
    return beside != nullptr && (extended.contains(grant.job) || extended.contains(beside->host));
  });
  auto placed = place(*decision, rest);
  if (!placed) return placed.error();
  // A policy may have planned on another type, before the job got GPUs in its zone.
  std::erase_if(placed->gpus, [&](const auto& entry) {
    return extended.contains(entry.first) &&
           entry.second.type() != work.inside.gpus.at(entry.first).type();
  });
  work.outside = std::move(*placed);
  work.ask_again(decision->again_at);
  return {};
}

// Enters a job that may borrow. Answers whether it is about the further GPUs of a job.
bool CelledPolicy::add_borrower(const JobView& job, Working& work, Snapshot& rest) {
  if (work.entry(job.id).bar != CellUse::Bar::none) return false;
  if (work.promised.contains(job.id) || zones_[zone_of(job)].policy->keeps_deadline(job.id)) {
    work.entry(job.id).bar = CellUse::Bar::promised;
    return false;
  }
  Masks allowed(nodes_);
  const Extension* extension = nullptr;
  const auto grant = work.grants.find(job.id);
  if (grant != work.grants.end()) {
    const auto inside = work.inside.gpus.find(job.id);
    if (inside != work.inside.gpus.end())
      extension = extension_of(job, grant->second, inside->second);
    if (extension == nullptr) return false;
  }
  std::shared_ptr<const JobSpec> spec = extension != nullptr ? extension->spec : job.spec;
  for (const Slice& slice : job.target.slices())
    allowed[slice.node.index()] = ~work.taken[slice.node.index()];
  JobView view =
      seen_with(job, minus(job.target, inside_now(job)), allowed, work.snapshot.now, spec);
  if (extension != nullptr) view.speed = extension->speed;
  view.taken_in = true;
  const int least = borrowers_->least_gpus(*view.spec, *view.speed);
  bool fits = false;
  for (int t = 0; t < rest.cluster.types() && !fits; ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    fits = least <= rest.cluster.usable(type) && view.speed->on(type, least) > 0;
  }
  if (fits) rest.jobs.insert(std::move(view));
  return extension != nullptr;
}

const CelledPolicy::Extension* CelledPolicy::extension_of(const JobView& job, const Grant& grant,
                                                          const Allocation& inside) {
  if (!elastic_ || grant.batch || !knows(*job.speed, inside.gpus())) return nullptr;
  const auto limits = limits_above(job.spec->limits, inside.gpus());
  if (!limits) return nullptr;
  auto [at, fresh] = extensions_.try_emplace(job.id);
  Extension& known = at->second;
  if (!fresh && known.of_spec == job.spec && known.of_speed == job.speed &&
      known.inside == inside) {
    return &known;
  }
  JobSpec spec = *job.spec;
  spec.limits = *limits;
  spec.requested = limits->smallest();
  known = {job.spec, job.speed, inside, std::make_shared<const JobSpec>(std::move(spec)),
           std::make_shared<const ExtraSpeed>(job.speed, inside.type(), inside.gpus())};
  return &known;
}

// Carries out a decision on a part of the cluster: who has which GPUs then.
Result<CelledPolicy::Placed> CelledPolicy::place(const Decision& decision, const Snapshot& part) {
  if (auto ok = validate(decision, part); !ok) return ok.error();
  std::vector<JobId> targeted;
  for (const JobView& job : part.jobs) {
    if (!job.target.empty()) targeted.push_back(job.id);
  }
  FreeGpus free = free_beside(part.jobs, part.cluster);
  auto changes = differ_->diff(decision, part.jobs, targeted, free);
  if (!changes) return changes.error();
  Placed placed{decision.run, {}};
  for (const Grant& grant : decision.run)
    placed.gpus[grant.job] = part.jobs.find(grant.job)->target;
  for (const Change& change : *changes) {
    if (const auto found = placed.gpus.find(change.job); found != placed.gpus.end())
      found->second = change.target;
  }
  std::erase_if(placed.gpus, [](const auto& entry) { return entry.second.empty(); });
  std::erase_if(placed.grants,
                [&](const Grant& grant) { return !placed.gpus.contains(grant.job); });
  return placed;
}

// Puts together what the zones and the borrowers have.
void CelledPolicy::conclude(Working& work) {
  for (auto& [id, grant] : work.grants) {
    const auto inside = work.inside.gpus.find(id);
    if (inside == work.inside.gpus.end()) continue;
    Allocation gpus = inside->second;
    if (const auto more = work.outside.gpus.find(id); more != work.outside.gpus.end())
      gpus.add(more->second);
    if (!std::holds_alternative<Beside>(grant.want)) grant.want = Exact{std::move(gpus)};
    work.decision.run.push_back(grant);
  }
  for (Grant& grant : work.outside.grants) {
    if (work.grants.contains(grant.job)) continue;
    if (!std::holds_alternative<Beside>(grant.want))
      grant.want = Exact{work.outside.gpus.at(grant.job)};
    work.decision.run.push_back(std::move(grant));
  }
  for (auto& [id, gpus] : work.inside.gpus) work.entry(id).inside = gpus;
  for (auto& [id, gpus] : work.outside.gpus) work.entry(id).borrowed = gpus;
  for (std::size_t t = 0; t + 1 < zones_.size(); ++t) {
    CellUse::Tenant& tenant = work.use.tenants.emplace_back();
    tenant.name = zones_[t].tenant;
    tenant.quota = quotas_.all()[t].gpus();
    for (std::size_t i = 0; i < nodes_; ++i) {
      if (zones_[t].gpus[i] != 0) tenant.gpus.push_back({node_of(i), zones_[t].gpus[i]});
    }
  }
  inside_ = std::move(work.inside.gpus);
  first_ = false;
  use_ = std::make_shared<const CellUse>(std::move(work.use));
}

std::vector<double> CelledPolicy::prices() const {
  std::vector<double> highest;
  for (const Zone& zone : zones_) {
    const std::vector<double> prices = zone.policy->prices();
    highest.resize(std::max(highest.size(), prices.size()));
    for (std::size_t t = 0; t < prices.size(); ++t) highest[t] = std::max(highest[t], prices[t]);
  }
  return highest;
}

std::shared_ptr<const Quotes> CelledPolicy::quotes() const {
  bool trades = false;
  std::vector<Quote> all;
  for (std::size_t z = 0; z < zones_.size(); ++z) {
    const auto quotes = zones_[z].policy->quotes();
    if (quotes == nullptr) continue;
    trades = true;
    for (Quote quote : quotes->all()) {
      quote.zone = z;
      all.push_back(quote);
    }
  }
  if (!trades) return nullptr;
  std::sort(all.begin(), all.end(), [](const Quote& a, const Quote& b) { return a.job < b.job; });
  return std::make_shared<const Quotes>(std::move(all));
}

bool CelledPolicy::keeps_deadline(JobId job) const {
  return std::any_of(zones_.begin(), zones_.end(),
                     [&](const Zone& zone) { return zone.policy->keeps_deadline(job); });
}

Json to_celled_state(Json plain) { return Json{{"commons", std::move(plain)}}; }

Json to_plain_state(const Json& celled) {
  return celled.is_object() && celled.contains("commons") ? celled["commons"] : Json();
}

Json CelledPolicy::save() const {
  Json tenants = Json::object();
  for (std::size_t t = 0; t + 1 < zones_.size(); ++t) {
    tenants[zones_[t].tenant] = Json{{"busy", zones_[t].busy},
                                     {"places", to_json(zones_[t].places)},
                                     {"policy", zones_[t].policy->save()}};
  }
  Json inside = Json::array();
  for (const auto& [job, gpus] : inside_)
    inside.push_back(Json::array({job.value(), to_json(gpus)}));
  return {{"tenants", std::move(tenants)},
          {"commons", zones_.back().policy->save()},
          {"commons_busy", zones_.back().busy},
          {"borrowers", borrowers_->save()},
          {"inside", std::move(inside)}};
}

Result<void> CelledPolicy::load(const Json& state) {
  if (!state.is_object()) return Error{"the state of cells is not an object"};
  try {
    if (state.contains("commons")) {
      if (auto ok = zones_.back().policy->load(state["commons"]); !ok) return ok;
      zones_.back().busy = state.value("commons_busy", true);
    }
    if (state.contains("borrowers")) {
      if (auto ok = borrowers_->load(state["borrowers"]); !ok) return ok;
    }
    for (std::size_t t = 0; t + 1 < zones_.size(); ++t) {
      if (!state.contains("tenants") || !state["tenants"].contains(zones_[t].tenant)) continue;
      const Json& tenant = state["tenants"][zones_[t].tenant];
      auto places = places_of(tenant.at("places"));
      if (!places) return places.error();
      zones_[t].places = std::move(*places);
      zones_[t].busy = tenant.at("busy").get<bool>();
      if (auto ok = zones_[t].policy->load(tenant.at("policy")); !ok) return ok;
    }
    inside_.clear();
    first_ = !state.contains("inside");
    if (first_) return {};
    for (const Json& entry : state["inside"])
      inside_.emplace(JobId(entry.at(0).get<JobId::rep>()), allocation_of(entry.at(1)));
  } catch (const Json::exception& error) {
    return Error{fmt::format("the state of cells: {}", error.what())};
  }
  return {};
}

}  // namespace rubato::cells
