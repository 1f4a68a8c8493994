#include "rubato/daemon/daemon_state.h"

#ifdef __FAST_MATH__
#error "decisions must come out the same, to the bit, when the journal is replayed"
#endif

#include <algorithm>
#include <fmt/format.h>

#include "rubato/base/check.h"
#include "rubato/base/text.h"
#include "rubato/cells/celled_policy.h"
#include "rubato/core/node_states.h"
#include "rubato/loop/admission.h"
#include "rubato/loop/follow.h"
#include "rubato/policy/measuring.h"

namespace rubato::daemon {
namespace {

// Users choose the names of profiles, so their number is limited.
constexpr std::size_t kMostProfiles = 10'000;
// If this much time has passed since the last failure, the backoff begins anew: twice its maximum.
constexpr Duration kSetbacksForgotten = std::chrono::minutes(10);

// Reads a value of a row that has no codec of its own.
template <class T>
Result<T> member(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end()) return Error{fmt::format("has no \"{}\"", name)};
  try {
    return found->template get<T>();
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("\"{}\": {}", name, problem.what())};
  }
}

Result<NodeState> node_state(const std::string& name) {
  for (const auto& [state, its_name] : kNodeStates) {
    if (name == its_name) return state;
  }
  return Error{fmt::format("{} is no state of a node", base::quoted(name))};
}

constexpr std::string_view kWhole = R"({"state":)";
// A state of up to this length is stored completely.
constexpr std::size_t kShortState = 2000;

// Sets the new state of a policy. Returns the body of its row: the whole state, or the difference.
Result<std::string> state_body(DeltaText& state, std::string after) {
  const bool first = state.text().empty();
  const Json changes = state.advance(std::move(after));
  const std::size_t length = kWhole.size() + state.text().size() + 1;
  if (!first && state.text().size() > kShortState) {
    auto delta = canonical_json({{"delta", changes}});
    if (!delta || delta->size() < length / 2) return delta;
  }
  return fmt::format("{}{}}}", kWhole, state.text());
}

JobId job_of(const Command& command) {
  return std::visit([](const auto& c) { return c.job; }, command);
}

Result<std::vector<Command>> commands_in(const Json& body) {
  const auto list = body.find("commands");
  if (list == body.end() || !list->is_array()) return Error{"has no list of commands"};
  std::vector<Command> commands;
  for (const Json& one : *list) {
    if (auto ok = read_record(one, commands.emplace_back()); !ok) return ok.error();
  }
  return commands;
}

// The job that may leave the loop by this event.
std::optional<JobId> may_leave(const Event& event) {
  if (const auto* e = std::get_if<Finished>(&event)) return e->job;
  if (const auto* e = std::get_if<Failed>(&event)) return e->job;
  if (const auto* e = std::get_if<Released>(&event); e != nullptr && e->stopped) return e->job;
  if (const auto* e = std::get_if<Cancelled>(&event)) return e->job;
  return std::nullopt;
}

}  // namespace

Json write_cells(const TenantCells& quota, const Cluster& cluster) {
  return {{"cells", text_of(quota.cells, cluster, true)},
          {"members", quota.members},
          {"tenant", quota.tenant}};
}

JobId job_of(const Event& event) {
  return std::visit(
      [](const auto& e) {
        if constexpr (requires { e.job; }) {
          return e.job;
        } else {
          return JobId();
        }
      },
      event);
}

bool moves(const Command& command, const JobRecord& job) {
  const auto* resize = std::get_if<Resize>(&command);
  if (resize == nullptr) return false;
  const Allocation* before = job.told ? gpus_of(*job.told) : nullptr;
  return before == nullptr || *before != resize->gpus;
}

DaemonState::DaemonState(DaemonStateOptions options)
    : options_(std::move(options)), chronicle_(options_.chronicle) {}

const std::map<std::string, DaemonState::Fold, std::less<>>& DaemonState::folds() {
  static const std::map<std::string, Fold, std::less<>> all = {
      {"began", &DaemonState::fold_began},
      {"settings", &DaemonState::fold_settings},
      {"clock", &DaemonState::fold_clock},
      {"policy", &DaemonState::fold_policy},
      {"policy_state", nullptr},  // not parsed as JSON, because it is long
      {"asked", &DaemonState::fold_asked},
      {"unanswered", &DaemonState::fold_unanswered},
      {"undecided", &DaemonState::fold_undecided},
      {"job", &DaemonState::fold_job},
      {"ended", &DaemonState::fold_ended},
      {"measured", &DaemonState::fold_measured},
      {"verdict", &DaemonState::fold_verdict},
      {"plain", &DaemonState::fold_plain},
      {"quota", &DaemonState::fold_quota},
      {"trial", &DaemonState::fold_trial},
      {"commands", &DaemonState::fold_commands},
      {"user", &DaemonState::fold_user},
      {"user_removed", &DaemonState::fold_user_removed},
      {"cells", &DaemonState::fold_cells},
      {"node", &DaemonState::fold_node},
  };
  return all;
}

const std::map<std::string, int, std::less<>>& DaemonState::row_types() {
  static const auto all = [] {
    auto types = coded_versions();
    for (const auto& [type, fold] : folds()) types.emplace(type, 1);
    return types;
  }();
  return all;
}

Result<void> DaemonState::apply(RowNumber number, const JournalRow& row) {
  const auto said = [&](const Error& error) {
    return Error{fmt::format("row {} ({}): {}", number.value(), row.type, error.message)};
  };
  if (row.time < time_) return said({"its time is before that of the row before it"});
  const auto fold = folds().find(row.type);
  if (!begun() && row.type != "began") return said({"comes before the first row of a journal"});
  time_ = row.time;
  if (fold == folds().end()) {
    if (auto ok = fold_event(number, row); !ok) return said(ok.error());
  } else if (row.type == "policy_state") {
    if (auto ok = fold_policy_state(row.body); !ok) return said(ok.error());
  } else {
    const auto json = parse_json(row.body, "its body");
    if (!json) return said(json.error());
    if (!json->is_object()) return said({"must be an object"});
    if (auto ok = (this->*fold->second)(number, row, *json); !ok) return said(ok.error());
    keep_lines(lines_of(number, row, *json, offset_));
    return {};
  }
  keep_lines(lines_of(number, row, offset_));
  return {};
}

// --- the loop ---

Result<void> DaemonState::fold_event(RowNumber number, const JournalRow& row) {
  auto event = decode_event({row.type, row.version, row.body}, pool_);
  if (!event) return event.error();
  Reaction reaction;
  auto* decided = std::get_if<Decided>(&*event);
  if (decided == nullptr) {
    if (const auto* submitted = std::get_if<Submitted>(&*event)) {
      if (submitted->job < now().jobs.next_id()) return Error{"its job's number was used before"};
      if (find(submitted->job) == nullptr) return Error{"its job has no row"};
    }
    if (const auto* skipped = std::get_if<Skipped>(&*event)) {
      const auto legal = [](int n) { return n >= 0 && n <= kMostSkipped; };
      if (!legal(skipped->jobs) || !legal(skipped->generations))
        return Error{"skips more numbers than is possible"};
    }
    if (const auto* added = std::get_if<NodeAdded>(&*event)) {
      if (added->node.index() != now().cluster.nodes().size()) return Error{"is not the next node"};
      if (auto ok = now().cluster.can_add(added->added); !ok) return ok;
    }
    if (const auto* reserved = std::get_if<Reserved>(&*event)) {
      const auto& nodes = now().cluster.nodes();
      if (reserved->node.index() >= nodes.size() ||
          (reserved->gpus & ~nodes[reserved->node.index()].all()) != 0)
        return Error{"reserves GPUs that the cluster does not have"};
    }
    const bool node_added = std::holds_alternative<NodeAdded>(*event);
    post(row.time, std::move(*event), reaction);
    next_job_ = std::max(next_job_, now().jobs.next_id());
    if (node_added) return renew_policy();
    return {};
  }
  if (!decided->carried) return Error{"does not say what the result was"};
  Decision decision = decided->decision;
  if (!asked_) static_cast<void>(scheduler_->ask(row.time));
  heard(number);
  post(row.time, std::move(*event), reaction);
  note_decision(number, row.time, std::move(decision), reaction);
  return {};
}

void DaemonState::post(Time now, Event event, Reaction& reaction) {
  note_event(now, event);
  note_cause(event);
  const JobId subject = job_of(event);
  const bool decided = std::holds_alternative<Decided>(event);
  const auto leaver = may_leave(event);
  const auto* finished = std::get_if<Finished>(&event);
  const bool finishes = finished != nullptr;
  const WallTime ended = finishes && finished->at ? *finished->at : wall(now);
  GpuTime attained;
  int restarts = 0;
  GpuLimits limits;
  const JobView* before = leaver ? view(*leaver) : nullptr;
  if (before != nullptr) {
    attained = before->attained(now);
    restarts = before->restarts;
    limits = before->spec->limits;
  }
  scheduler_->on(now, std::move(event), reaction);
  for (auto& command : reaction.commands) issued_.push_back(command);
  if (!decided) note_holds(reaction.commands, subject, ended);
  if (before != nullptr && view(*leaver) == nullptr) {
    JobRecord* job = find(*leaver);
    CHECK(job != nullptr);
    if (finishes && !job->measures_for)
      chronicle_.mark(job->id, job->user, ended, MarkKind::stop, 0, "completed");
    chronicle_.forget_cause(job->id);
    job->attained = attained;
    job->restarts = restarts;
    job->limits = std::move(limits);
    JobEnding ending;
    if (finishes) {
      ending.code = 0;
    } else {
      ending =
          job->leaves_as.value_or(JobEnding{Ending::cancelled, "", std::nullopt, std::nullopt});
    }
    gone(*job, std::move(ending), ended);
  }
  for (const Reject& reject : reaction.rejected) {
    if (JobRecord* job = find(reject.job))
      gone(*job, {Ending::refused, reject.reason, std::nullopt, reject.earliest}, wall(now));
  }
}

void DaemonState::note_event(Time now, const Event& event) {
  if (const auto* running = std::get_if<Running>(&event)) {
    const JobView* seen = view(running->job);
    JobRecord* job = find(running->job);
    if (seen == nullptr || job == nullptr || seen->generation != running->generation) return;
    if (seen->phase != Phase::running) job->running_since = now;
    if (const Mark* mark = chronicle_.newest_mark(running->job);
        mark != nullptr && (mark->kind == MarkKind::restart || mark->kind == MarkKind::recovery))
      chronicle_.paused(running->job, std::max(Duration(0), Duration{wall(now) - mark->at}));
  } else if (const auto* failed = std::get_if<Failed>(&event)) {
    note_failure(now, *failed);
  } else if (const auto* hold = std::get_if<HoldChanged>(&event)) {
    note_hold(*hold);
  } else if (std::holds_alternative<NodeAdded>(event)) {
    add_nodes(1, wall(now));
  } else if (const auto* reserved = std::get_if<Reserved>(&event)) {
    reserved_whys_[reserved->node.index()] = reserved->why;
  }
}

void DaemonState::note_failure(Time now, const Failed& failed) {
  const JobView* seen = view(failed.job);
  JobRecord* job = find(failed.job);
  if (seen == nullptr || job == nullptr || seen->generation != failed.generation) return;
  if (!failed.infrastructure) ++job->failures;
  if (!job->measures_for) {
    const char* what = failed.infrastructure ? "the infrastructure failed" : "its run failed";
    chronicle_.mark(job->id, job->user, wall(now), MarkKind::stop, 0,
                    failed.why.empty() ? what : fmt::format("{}: {}", what, failed.why));
  }
  const bool soon = job->setbacks && now - job->setbacks->last < kSetbacksForgotten;
  job->setbacks = Setbacks{soon ? job->setbacks->in_a_row + 1 : 1, now, failed.infrastructure,
                           failed.why, std::nullopt};
}

void DaemonState::add_nodes(std::size_t nodes, WallTime since) {
  const std::size_t all = wishes_.size() + nodes;
  wishes_.resize(all, NodeState::up);
  reported_.resize(all, NodeState::up);
  whys_.resize(all);
  reserved_whys_.resize(all);
  node_since_.resize(all, since);
}

void DaemonState::note_hold(const HoldChanged& hold) {
  JobRecord* job = find(hold.job);
  if (job == nullptr) return;
  if (job->trial) unjudged_.insert(job->trial->search);
  if (!hold.on && job->trial) job->trial->waits = false;
  const auto until = hold.on ? hold.until : std::nullopt;
  if (until && !job->setbacks) job->setbacks.emplace();
  if (job->setbacks) job->setbacks->until = until;
  if (until) {
    pausing_.insert(hold.job);
  } else {
    pausing_.erase(hold.job);
  }
}

void DaemonState::note_decision(RowNumber number, Time now, Decision decision,
                                const Reaction& reaction) {
  std::set<JobId> honoured;
  if (last_decision_) {
    for (const Promise& promise : last_decision_->decision.promise) {
      JobRecord* job = find(promise.job);
      if (job == nullptr) continue;
      if (job->honoured && !job->gone()) honoured.insert(job->id);
      job->honoured = false;
    }
  }
  for (const Promise& promise : decision.promise) {
    JobRecord* job = find(promise.job);
    if (job == nullptr || job->gone()) continue;
    const PromiseKind kind = !job->promise                 ? PromiseKind::made
                             : honoured.erase(job->id) > 0 ? PromiseKind::changed
                                                           : PromiseKind::taken_up;
    job->promise = promise;
    job->honoured = true;
    note_promise(*job, wall(now), kind);
  }
  for (const JobId id : honoured) note_promise(*find(id), wall(now), PromiseKind::dropped);
  last_decision_ = LastDecision{number, now, policy_.text, std::move(decision), reaction.refused};
  note_changes(number, now, reaction);
  note_holds(reaction.commands, JobId(), wall(now));
}

Question DaemonState::ask(Time now) {
  CHECK(now >= time_ && policy_loaded_ && !asked_ && !policy_lent_);
  time_ = now;
  static_cast<void>(scheduler_->ask(now));
  loop_lent_ = policy_lent_ = true;
  return {policy_object_, scheduler_, std::nullopt, std::nullopt};
}

void think(Question& question) {
  question.decision = question.policy->decide(question.loop->snapshot());
  if (!*question.decision) return;
  question.policy_state = question.policy->save_text();
  question.prices = question.policy->prices();
  question.quotes = question.policy->quotes();
  question.cell_use = question.policy->cell_use();
}

// The policy was asked at the row asked_, or at this row if there is none.
void DaemonState::heard(RowNumber number) {
  decided_before_ = asked_.value_or(number);
  asked_.reset();
}

Result<std::vector<JournalRow>> DaemonState::answer(Question question, Time now, RowNumber number) {
  CHECK(now >= time_ && question.decision && (asked_ || loop_lent_));
  time_ = now;
  loop_lent_ = policy_lent_ = false;
  stand_in_.reset();
  policy_object_ = std::move(question.policy);
  policy_loaded_ = true;
  heard(number);
  std::vector<JournalRow> rows;
  const auto done = [&](JournalRow row) {
    keep_lines(lines_of(RowNumber(number.value() + rows.size()), row, offset_));
    rows.push_back(std::move(row));
  };
  Result<Decision>& decision = *question.decision;
  if (!decision) {
    auto body = canonical_json(Json{{"why", decision.error().message}});
    if (!body) return body.error();
    done({now, "undecided", 1, std::move(*body)});
    if (renewal_due_) {
      if (auto ok = renew_policy(); !ok) return ok.error();
    }
    return rows;
  }
  Reaction reaction;
  post(now, Decided{*decision}, reaction);
  auto coded = encode(Event(Decided{*decision, Carried{reaction.changes, reaction.refused}}));
  if (!coded) return coded.error();
  note_decision(number, now, std::move(*decision), reaction);
  last_decision_->quotes = std::move(question.quotes);
  last_decision_->cell_use = std::move(question.cell_use);
  prices_ = std::move(question.prices);
  done({now, std::move(coded->type), coded->version, std::move(coded->body)});
  Result<std::string>& state = *question.policy_state;
  if (!state) return state.error();
  if (*state != policy_state_.text()) {
    auto body = state_body(policy_state_, std::move(*state));
    if (!body) return body.error();
    done({now, "policy_state", 1, std::move(*body)});
  }
  if (renewal_due_) {
    if (auto ok = renew_policy(); !ok) return ok.error();
  }
  return rows;
}

// A policy may keep what it has computed for the nodes that it knew. When a node joins, it is made
// again from its state, as after a restart.
Result<void> DaemonState::renew_policy() {
  renewal_due_ = policy_lent_;
  if (policy_lent_ || policy_object_ == nullptr || !policy_loaded_) return {};
  auto same = another_policy();
  if (!same) return same.error();
  policy_object_ = std::move(*same);
  return {};
}

Result<void> DaemonState::fold_asked(RowNumber number, const JournalRow& row,
                                     const Json& /*body*/) {
  if (asked_) return Error{"asks while the policy is deciding"};
  if (loop_lent_) {
    scheduler_ = std::make_shared<Scheduler>(State(scheduler_->state()), placement_);
    loop_lent_ = false;
  } else {
    static_cast<void>(scheduler_->ask(row.time));
  }
  asked_ = number;
  return {};
}

// The daemon ended, or could not store the answer. The policy's state is that before the question.
Result<void> DaemonState::fold_unanswered(RowNumber /*number*/, const JournalRow& /*row*/,
                                          const Json& /*body*/) {
  asked_.reset();
  if (!policy_lent_) return {};
  auto same = another_policy();
  if (!same) return same.error();
  policy_object_ = std::move(*same);
  policy_lent_ = renewal_due_ = false;
  stand_in_.reset();
  return {};
}

Result<void> DaemonState::fold_undecided(RowNumber number, const JournalRow& row,
                                         const Json& /*body*/) {
  if (!asked_) static_cast<void>(scheduler_->ask(row.time));
  heard(number);
  return {};
}

// Only the last of many states matters. It is loaded when all rows are read.
Result<void> DaemonState::fold_policy_state(const std::string& body) {
  if (body.starts_with(kWhole)) {
    policy_state_ = DeltaText(body.substr(kWhole.size(), body.size() - kWhole.size() - 1));
  } else {
    const auto json = parse_json(body, "its body");
    if (!json) return json.error();
    if (!json->is_object() || !json->contains("delta"))
      return Error{"is neither whole nor a delta"};
    if (auto ok = policy_state_.apply((*json)["delta"]); !ok) return ok;
  }
  policy_loaded_ = false;
  return {};
}

Result<void> DaemonState::load_policy() {
  if (policy_loaded_) return {};
  policy_loaded_ = true;
  const auto state = parse_json(policy_state_.text(), "the policy's state");
  if (!state) return state.error();
  if (auto ok = policy_object_->load(*state); !ok) return ok;
  prices_ = policy_object_->prices();
  return {};
}

Result<std::optional<JournalRow>> DaemonState::row_of_commands(Time now) const {
  if (issued_.empty()) return std::optional<JournalRow>();
  Json list = Json::array();
  for (const Command& command : issued_) {
    auto json = write_record(command);
    if (!json) return json.error();
    list.push_back(std::move(*json));
  }
  auto body = canonical_json(Json{{"commands", std::move(list)}});
  if (!body) return body.error();
  return std::optional(JournalRow{now, "commands", 1, std::move(*body)});
}

// The stored commands count, also if today's code would send others. Only replay compares.
Result<void> DaemonState::fold_commands(RowNumber /*number*/, const JournalRow& row,
                                        const Json& body) {
  const auto told = commands_in(body);
  if (!told) return told.error();
  const auto expected = row_of_commands(row.time);
  if (!expected) return expected.error();
  if (!*expected || (*expected)->body != row.body) follow(*told);
  for (const Command& command : *told) {
    JobRecord* job = find(job_of(command));
    if (job == nullptr) continue;
    const bool resizes = moves(command, *job);
    mark_command(row.time, command);
    job->told = command;
    if (const auto* start = std::get_if<Start>(&command)) {
      job->home = start->gpus.slices().front().node;
      if (!job->started) job->started = wall(row.time);
    } else if (resizes) {
      ++job->resizes;
    }
  }
  issued_.clear();
  return {};
}

void DaemonState::follow(const std::vector<Command>& told) {
  std::map<JobId, std::optional<Command>> untold;
  for (const Command& command : issued_) {
    if (const JobRecord* job = find(job_of(command))) untold[job->id] = job->told;
  }
  for (const Command& command : told) untold.erase(job_of(command));
  State state = scheduler_->state();
  loop::follow(state, told, untold);
  scheduler_ = std::make_shared<Scheduler>(std::move(state), placement_);
  for (const JobView& job : now().jobs) note_holds({}, job.id, wall(time_));
}

// --- the daemon's own facts ---

Result<void> DaemonState::fold_began(RowNumber number, const JournalRow& row, const Json& body) {
  if (begun()) return Error{"begins a second time"};
  auto version = member<int>(body, "version");
  if (!version) return version.error();
  if (!body.contains("cluster")) return Error{"has no cluster"};
  auto cluster = decode_cluster_json({"cluster", *version, body["cluster"]});
  if (!cluster) return cluster.error();
  add_nodes(cluster->nodes().size(), WallTime());
  scheduler_ = std::make_shared<Scheduler>(std::move(*cluster), placement_, Duration(0));
  return fold_settings(number, row, body);
}

Result<void> DaemonState::fold_settings(RowNumber /*number*/, const JournalRow& /*row*/,
                                        const Json& body) {
  auto interval = member<std::int64_t>(body, "interval");
  if (!interval) return interval.error();
  if (*interval < 0) return Error{"has an interval below 0"};
  auto lateness = member<std::int64_t>(body, "lateness");
  if (!lateness) return lateness.error();
  if (*lateness < 0) return Error{"has a lateness below 0"};
  auto name = member<std::string>(body, "placement");
  if (!name) return name.error();
  auto placement = parse_placement(*name);
  if (!placement) return placement.error();
  placement_ = *placement;
  State state = scheduler_->state();
  state.snapshot.interval = Duration(*interval);
  state.snapshot.lateness = Duration(*lateness);
  scheduler_ = std::make_shared<Scheduler>(std::move(state), placement_);
  return quotas_.empty() ? Result<void>() : remake_policy();  // it places jobs itself
}

Result<void> DaemonState::fold_clock(RowNumber number, const JournalRow& row, const Json& body) {
  auto offset = member<std::int64_t>(body, "offset");
  if (!offset) return offset.error();
  if (offsets_.empty()) {
    chronicle_.begin(WallTime(row.time.time_since_epoch() + Duration(*offset)));
    for (WallTime& since : node_since_)
      since = WallTime(row.time.time_since_epoch() + Duration(*offset));
  }
  if (offsets_.empty() || offset_ != Duration(*offset)) offsets_[number] = Duration(*offset);
  offset_ = Duration(*offset);
  return {};
}

Duration DaemonState::offset_at(RowNumber number) const {
  const auto after = offsets_.upper_bound(number);
  return after == offsets_.begin() ? offset_ : std::prev(after)->second;
}

Result<void> DaemonState::fold_policy(RowNumber /*number*/, const JournalRow& /*row*/,
                                      const Json& body) {
  auto text = member<std::string>(body, "policy");
  if (!text) return text.error();
  auto measuring = member<std::int64_t>(body, "measuring");
  if (!measuring) return measuring.error();
  policy_state_ = DeltaText();
  policy_loaded_ = true;
  asked_.reset();  // the answer of the last policy is ignored
  policy_lent_ = false;
  stand_in_.reset();
  prices_.clear();
  return make_policy(*text, Duration(*measuring));
}

Result<void> DaemonState::make_policy(const std::string& text, Duration measuring) {
  auto chosen = parse_policies(text);
  if (!chosen) return chosen.error();
  if (chosen->size() != 1) return Error{fmt::format("{} is not one policy", base::quoted(text))};
  const ChosenPolicy& one = chosen->front();
  if (auto fits = one.check(now().cluster); !fits) return fits.error();
  auto made = make(one, measuring);
  if (!made) return made.error();
  policy_object_ = std::move(*made);
  policy_ = {one.canonical, one.entry, one.admits(), measuring};
  return {};
}

Result<std::unique_ptr<Policy>> DaemonState::make(const ChosenPolicy& chosen,
                                                  Duration measuring) const {
  const auto one = [&]() -> MadePolicy {
    auto made = chosen.make(options_.inputs);
    if (!made || measuring == Duration(0)) return made;
    return measure_first(std::move(*made), measuring);
  };
  return with_cells({one, chosen.entry->elastic, chosen.admits()}, quotas_, placement_);
}

// The same policy in the same state, after the cells or the placement have changed.
Result<void> DaemonState::remake_policy() {
  if (policy_object_ == nullptr) return {};
  const bool loaded = policy_loaded_;
  if (auto ok = make_policy(policy_.text, policy_.measuring); !ok) return ok;
  policy_loaded_ = policy_state_.text().empty();
  return loaded ? load_policy() : Result<void>();
}

Result<std::unique_ptr<Policy>> DaemonState::another_policy() const {
  auto chosen = parse_policies(policy_.text);
  if (!chosen) return chosen.error();
  auto made = make(chosen->front(), policy_.measuring);
  if (!made) return made.error();
  if (policy_state_.text().empty()) return made;
  const auto state = parse_json(policy_state_.text(), "the policy's state");
  if (!state) return state.error();
  if (auto ok = (*made)->load(*state); !ok) return ok.error();
  return made;
}

std::optional<Reject> DaemonState::never_fits(const Submitted& submitted) const {
  return loop::never_fits(submitted, *policy_object_, now().cluster);
}

bool DaemonState::keeps_deadline(JobId id) const {
  if (!policy_lent_) return policy_object_->keeps_deadline(id);
  if (!stand_in_) {
    auto made = another_policy();
    if (!made) return false;
    stand_in_ = std::move(*made);
  }
  return stand_in_->keeps_deadline(id);
}

Result<void> DaemonState::fold_job(RowNumber /*number*/, const JournalRow& row, const Json& body) {
  JobRecord job;
  // The row has only values that differ from those of a new job.
  static const Json plain = write_record(JobRecord()).value();
  if (!body.contains("file")) return Error{"has no file"};
  Json whole = plain;
  for (const auto& [name, value] : body.items()) whole[name] = value;
  if (auto ok = read_record(whole, job); !ok) return ok;
  if (job.id < next_job_) return Error{"its number was used before"};
  job.submitted = wall(row.time);
  next_job_ = job.id.next();
  if (JobRecord* waiting = job.measures_for ? find(*job.measures_for) : nullptr;
      waiting != nullptr && !waiting->gone() && job.verdict_by) {
    waiting->measured_by = job.id;
    waiting->verdict_by = job.verdict_by;
    to_be_measured_.insert(waiting->id);
  }
  enter(std::move(job));
  return {};
}

void DaemonState::enter(JobRecord job) {
  const JobId id = job.id;
  if (!job.key.empty()) by_key_[{job.user, job.key}] = id;
  if (job.measured_by) to_be_measured_.insert(id);
  if (job.paused_until()) pausing_.insert(id);
  if (job.has_quota()) with_quota_.insert(id);
  if (job.trial && job.file.search) {
    trials_[job.trial->search].push_back(id);
    newest_trials_[{job.user, job.file.search->name}] = id;
    unjudged_.insert(job.trial->search);
  }
  if (!job.gone()) count(job, 1);
  jobs_.emplace(id, std::move(job));
}

// Counts a job that has not ended: 1 if it comes, -1 if it goes.
void DaemonState::count(const JobRecord& job, int by) {
  UserUsage& usage = usage_[job.user];
  usage.jobs += static_cast<std::size_t>(by);
  usage.bytes += by * job.text_bytes.value_or(0);
  if (usage.jobs == 0) usage_.erase(job.user);
  if (!job.text_bytes || !job.digest) return;
  int& needed_by = texts_[*job.digest];
  needed_by += by;
  if (needed_by > 0) return;
  texts_.erase(*job.digest);
  unused_texts_.insert(*job.digest);
}

DaemonState::UserUsage DaemonState::usage_of(const std::string& user) const {
  const auto found = usage_.find(user);
  return found == usage_.end() ? UserUsage() : found->second;
}

std::set<Digest> DaemonState::take_unused_texts() {
  std::erase_if(unused_texts_, [this](const Digest& text) { return texts_.contains(text); });
  return std::exchange(unused_texts_, {});
}

Result<void> DaemonState::fold_ended(RowNumber /*number*/, const JournalRow& row,
                                     const Json& body) {
  auto id = member<JobId::rep>(body, "job");
  if (!id) return id.error();
  JobRecord* job = find(JobId(*id));
  if (job == nullptr || job->gone()) return Error{"its job is not there"};
  JobEnding ending;
  if (!body.contains("ending")) return Error{"has no ending"};
  if (auto ok = read_record(body["ending"], ending); !ok) return ok;
  if (view(job->id) == nullptr) {
    gone(*job, std::move(ending), wall(row.time));
  } else {
    job->leaves_as = std::move(ending);
  }
  return {};
}

std::optional<JobId> DaemonState::newest_trial(const std::string& user,
                                               const std::string& search) const {
  const auto found = newest_trials_.find({user, search});
  return found == newest_trials_.end() ? std::nullopt : std::optional(found->second);
}

const std::vector<JobId>& DaemonState::trials(JobId search) const {
  static const std::vector<JobId> none;
  const auto found = trials_.find(search);
  return found == trials_.end() ? none : found->second;
}

void DaemonState::gone(JobRecord& job, JobEnding ending, WallTime at) {
  count(job, -1);
  if (job.trial) {
    job.trial->waits = false;
    unjudged_.insert(job.trial->search);
  }
  job.ending = std::move(ending);
  job.ended = at;
  job.leaves_as.reset();
  job.told.reset();
  job.home.reset();
  job.measured_by.reset();
  job.verdict_by.reset();
  to_be_measured_.erase(job.id);
  if (job.setbacks) job.setbacks->until.reset();
  pausing_.erase(job.id);
  if (job.quota) job.quota->until.reset();
  with_quota_.erase(job.id);
  note_end_of_promise(job);
  pasts_.over(job.id);
  (job.started ? ran_ : never_ran_).add(job);
  while (ran_.count + never_ran_.count > options_.ended_kept) forget_one();
}

void DaemonState::GoneJobs::add(const JobRecord& job) {
  by_user[job.user].push_back(job.id);
  ++count;
}

JobId DaemonState::GoneJobs::take_one() {
  const auto most = std::max_element(
      by_user.begin(), by_user.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const JobId oldest = most->second.front();
  most->second.pop_front();
  if (most->second.empty()) by_user.erase(most);
  --count;
  return oldest;
}

void DaemonState::forget_one() {
  const bool waited = never_ran_.count > options_.ended_kept / 4 || ran_.count == 0;
  const auto oldest = jobs_.find((waited ? never_ran_ : ran_).take_one());
  const JobRecord& job = oldest->second;
  if (!job.measures_for && job.attained > GpuTime()) used_by_forgotten_[job.user] += job.attained;
  by_key_.erase({job.user, job.key});
  if (job.trial) forget_trial(job);
  if (job.started) forgotten_.push_back(job.id);
  pasts_.forget(job.id);
  jobs_.erase(oldest);
}

void DaemonState::forget_trial(const JobRecord& job) {
  const auto search = trials_.find(job.trial->search);
  if (search == trials_.end()) return;
  std::erase(search->second, job.id);
  if (search->second.empty()) trials_.erase(search);
  const auto newest = newest_trials_.find({job.user, job.file.search->name});
  if (newest != newest_trials_.end() && newest->second == job.id) newest_trials_.erase(newest);
}

Result<void> DaemonState::fold_measured(RowNumber /*number*/, const JournalRow& row,
                                        const Json& body) {
  auto id = member<JobId::rep>(body, "job");
  if (!id) return id.error();
  JobRecord* job = find(JobId(*id));
  if (job == nullptr) return {};  // it ended meanwhile
  if (!body.contains("progress")) return Error{"has no progress"};
  auto progress = parse_job_progress(body["progress"]);
  if (!progress) return progress.error();
  job->progress = *progress;
  job->measured_at = row.time;
  if (body.contains("scale")) {
    auto scale = member<double>(body, "scale");
    if (!scale) return scale.error();
    job->scale = *scale;
  }
  if (body.contains("failures")) {
    auto failures = member<int>(body, "failures");
    if (!failures) return failures.error();
    if (*failures > job->worker_failures && !job->measures_for && !job->gone()) {
      chronicle_.mark(job->id, job->user, wall(row.time), MarkKind::recovery,
                      chronicle_.held(job->id), "a worker failed, and the others went on");
    }
    job->worker_failures = std::max(job->worker_failures, *failures);
  }
  Rates rates;
  if (body.contains("rates")) {
    if (auto ok = read_record(body["rates"], rates); !ok) return ok;
  }
  if (!job->measures_for && !job->gone())
    pasts_.report(job->id, wall(row.time), job->progress, !rates.by_gpus.empty());
  if (!body.contains("rates")) return {};
  job->rates.learn(rates);
  if (rates.pause > 0) note_pause(*job, rates.pause);
  if (job->measures_for) {
    if (JobRecord* waiting = find(*job->measures_for)) waiting->rates.learn(rates);
  }
  // Jobs whose work is a guess measure in units of that guess.
  const std::string profile = job->profile();
  if (profile.empty() || !job->file.work) return {};
  if (profiles_.size() < kMostProfiles || profiles_.contains(profile))
    profiles_[profile].learn(rates);
  return {};
}

Result<void> DaemonState::fold_verdict(RowNumber /*number*/, const JournalRow& /*row*/,
                                       const Json& body) {
  auto id = member<JobId::rep>(body, "job");
  if (!id) return id.error();
  if (JobRecord* job = find(JobId(*id))) {
    job->measured_by.reset();
    job->verdict_by.reset();
    to_be_measured_.erase(job->id);
  }
  return {};
}

Result<void> DaemonState::fold_plain(RowNumber /*number*/, const JournalRow& /*row*/,
                                     const Json& body) {
  auto id = member<JobId::rep>(body, "job");
  if (!id) return id.error();
  JobRecord* job = find(JobId(*id));
  if (job == nullptr) return Error{"its job is not there"};
  job->plain.reset();
  if (!body.contains("limits")) return {};
  return read_record(body["limits"], job->plain.emplace());
}

Result<void> DaemonState::fold_quota(RowNumber /*number*/, const JournalRow& /*row*/,
                                     const Json& body) {
  auto id = member<JobId::rep>(body, "job");
  if (!id) return id.error();
  JobRecord* job = find(JobId(*id));
  if (job == nullptr) return Error{"its job is not there"};
  if (!body.contains("quota")) return Error{"does not say the quota"};
  if (auto ok = read_record(body["quota"], job->quota.emplace()); !ok) return ok;
  if (job->has_quota()) {
    with_quota_.insert(job->id);
  } else {
    with_quota_.erase(job->id);
  }
  return {};
}

Result<void> DaemonState::fold_trial(RowNumber /*number*/, const JournalRow& /*row*/,
                                     const Json& body) {
  auto id = member<JobId::rep>(body, "job");
  if (!id) return id.error();
  JobRecord* job = find(JobId(*id));
  if (job == nullptr || !job->trial) return Error{"its job is no trial"};
  unjudged_.insert(job->trial->search);
  if (body.contains("waits")) {
    auto waits = member<bool>(body, "waits");
    if (!waits) return waits.error();
    job->trial->waits = *waits;
    return {};
  }
  if (body.contains("stopped")) {
    auto stopped = member<bool>(body, "stopped");
    if (!stopped) return stopped.error();
    job->trial->stopped = *stopped;
    return {};
  }
  auto stage = member<std::size_t>(body, "stage");
  if (!stage) return stage.error();
  if (*stage != job->trial->stages.size() + 1) return Error{"is not about the next stage"};
  StageMetric metric;
  if (body.contains("metric")) {
    auto number = member<double>(body, "metric");
    if (!number) return number.error();
    metric = *number;
  }
  job->trial->stages.push_back(metric);
  return {};
}

Result<void> DaemonState::fold_user(RowNumber /*number*/, const JournalRow& /*row*/,
                                    const Json& body) {
  UserRecord user;
  if (auto ok = read_record(body, user); !ok) return ok;
  const std::string name = user.name;
  users_[name] = std::move(user);
  return {};
}

Result<void> DaemonState::fold_user_removed(RowNumber /*number*/, const JournalRow& /*row*/,
                                            const Json& body) {
  auto name = member<std::string>(body, "name");
  if (!name) return name.error();
  users_.erase(*name);
  return {};
}

// The cells of one tenant; none: it has no cells any more.
Result<void> DaemonState::read_cells(const Json& json) {
  auto tenant = member<std::string>(json, "tenant");
  if (!tenant) return tenant.error();
  auto cells = member<std::string>(json, "cells");
  if (!cells) return cells.error();
  auto members = member<std::vector<std::string>>(json, "members");
  if (!members) return members.error();
  if (cells->empty()) {
    quotas_.remove(*tenant);
    return {};
  }
  auto parsed = parse_cells(*cells, now().cluster);
  if (!parsed) return parsed.error();
  return quotas_.set({*tenant, std::move(*parsed), std::move(*members)}, now().cluster);
}

// The answer of the policy that did not know these cells is ignored.
Result<void> DaemonState::fold_cells(RowNumber /*number*/, const JournalRow& /*row*/,
                                     const Json& body) {
  const bool had_some = !quotas_.empty();
  if (auto ok = read_cells(body); !ok) return ok;
  asked_.reset();
  policy_lent_ = renewal_due_ = false;
  stand_in_.reset();
  if (had_some == quotas_.empty() && !policy_state_.text().empty()) {
    auto state = parse_json(policy_state_.text(), "the policy's state");
    if (!state) return state.error();
    auto text =
        canonical_json(had_some ? to_plain_state(*state) : to_celled_state(std::move(*state)));
    if (!text) return text.error();
    policy_state_ = DeltaText(std::move(*text));
  }
  return remake_policy();
}

Result<void> DaemonState::fold_node(RowNumber /*number*/, const JournalRow& row, const Json& body) {
  auto id = member<NodeId::rep>(body, "node");
  if (!id) return id.error();
  const NodeId node(*id);
  if (node.index() >= wishes_.size()) return Error{"the cluster has no such node"};
  for (const auto& [name, states] : {std::pair("wish", &wishes_), {"reported", &reported_}}) {
    if (!body.contains(name)) continue;
    auto text = member<std::string>(body, name);
    if (!text) return text.error();
    auto state = node_state(*text);
    if (!state) return state.error();
    (*states)[node.index()] = *state;
  }
  if (body.contains("reported")) {
    auto why = body.contains("why") ? member<std::string>(body, "why") : std::string();
    if (!why) return why.error();
    whys_[node.index()] = std::move(*why);
  }
  node_since_[node.index()] = wall(row.time);
  return {};
}

// --- a snapshot ---

Result<std::string> DaemonState::snapshot() const {
  CHECK(begun() && issued_.empty());
  auto state = encode(loop().state());
  if (!state) return state.error();
  Json json = {{"interval", now().interval.count()},
               {"measuring", policy_.measuring.count()},
               {"next_job", next_job_.value()},
               {"offset", offset_.count()},
               {"placement", std::string(name_of(placement_))},
               {"policy", policy_.text},
               {"policy_state", policy_state_.text()},
               {"state", {{"body", state->body}, {"version", state->version}}},
               {"time", time_.time_since_epoch().count()}};
  Json jobs = Json::array();
  for (const auto& [id, job] : jobs_) {
    auto written = write_record(job);
    if (!written) return written.error();
    jobs.push_back(std::move(*written));
  }
  json["jobs"] = std::move(jobs);
  Json gone = Json::array();
  for (const GoneJobs* jobs : {&ran_, &never_ran_}) {
    for (const auto& [user, ended] : jobs->by_user) {
      for (const JobId id : ended) gone.push_back(id.value());
    }
  }
  json["gone"] = std::move(gone);
  Json used = Json::array();
  for (const auto& [user, time] : used_by_forgotten_)
    used.push_back(Json::array({user, time.gpu_micros()}));
  json["used_by_forgotten"] = std::move(used);
  Json users = Json::array();
  for (const auto& [name, user] : users_) users.push_back(write_record(user).value());
  json["users"] = std::move(users);
  if (!quotas_.empty()) {
    Json cells = Json::array();
    for (const TenantCells& quota : quotas_.all())
      cells.push_back(write_cells(quota, now().cluster));
    json["cells"] = std::move(cells);
  }
  Json profiles = Json::array();
  for (const auto& [name, rates] : profiles_)
    profiles.push_back(Json::array({name, write_record(rates).value()}));
  json["profiles"] = std::move(profiles);
  Json offsets = Json::array();
  for (const auto& [number, offset] : offsets_)
    offsets.push_back(Json::array({number.value(), offset.count()}));
  json["offsets"] = std::move(offsets);
  Json nodes = Json::array();
  for (std::size_t i = 0; i < wishes_.size(); ++i) {
    nodes.push_back(Json::array({to_text(wishes_[i]), to_text(reported_[i]),
                                 node_since_[i].time_since_epoch().count(), whys_[i]}));
    if (!reserved_whys_[i].empty()) nodes.back().push_back(reserved_whys_[i]);
  }
  json["nodes"] = std::move(nodes);
  json["chronicle"] = chronicle_.save();
  json["pasts"] = pasts_.save();
  if (asked_) json["asked"] = asked_->value();
  if (last_decision_) {
    auto decided = encode(Event(Decided{last_decision_->decision, std::nullopt}));
    if (!decided) return decided.error();
    json["last_decision"] = {{"at", last_decision_->at.time_since_epoch().count()},
                             {"body", decided->body},
                             {"number", last_decision_->number.value()},
                             {"policy", last_decision_->policy},
                             {"refused", last_decision_->refused},
                             {"version", decided->version}};
  }
  return canonical_json(json);
}

Result<void> DaemonState::load(const JournalSnapshot& snapshot) {
  CHECK(!begun());
  first_line_row_ = snapshot.number.next();
  const auto json = parse_json(snapshot.body, "the snapshot");
  if (!json) return json.error();
  // snapshot() wrote it and its checksum is right, so one sentence for all errors is enough.
  try {
    const Json& j = *json;
    auto state = decode_state({"state", j.at("state").at("version").get<int>(),
                               j.at("state").at("body").get<std::string>()},
                              pool_);
    if (!state) return state.error();
    auto placement = parse_placement(j.at("placement").get<std::string>());
    if (!placement) return placement.error();
    placement_ = *placement;
    scheduler_ = std::make_shared<Scheduler>(std::move(*state), placement_);
    time_ = Time(Duration(j.at("time").get<std::int64_t>()));
    offset_ = Duration(j.at("offset").get<std::int64_t>());
    if (j.contains("cells")) {
      for (const Json& one : j.at("cells")) {
        if (auto ok = read_cells(one); !ok) return ok;
      }
    }
    if (auto ok = make_policy(j.at("policy").get<std::string>(),
                              Duration(j.at("measuring").get<std::int64_t>()));
        !ok) {
      return ok;
    }
    policy_state_ = DeltaText(j.at("policy_state").get<std::string>());
    policy_loaded_ = policy_state_.text().empty();
    if (j.contains("asked")) asked_ = RowNumber(j.at("asked").get<std::uint64_t>());
    next_job_ = JobId(j.at("next_job").get<JobId::rep>());
    for (const Json& one : j.at("jobs")) {
      JobRecord job;
      if (auto ok = read_record(one, job); !ok) return ok;
      enter(std::move(job));
    }
    for (const Json& one : j.at("gone")) {
      const JobId id(one.get<JobId::rep>());
      const JobRecord* job = find(id);
      if (job == nullptr) return Error{"an ended job has no record"};
      (job->started ? ran_ : never_ran_).add(*job);
    }
    if (j.contains("used_by_forgotten")) {  // older ones have none
      for (const Json& one : j.at("used_by_forgotten"))
        used_by_forgotten_[one.at(0).get<std::string>()] =
            GpuTime::micros(one.at(1).get<std::int64_t>());
    }
    for (const Json& one : j.at("users")) {
      UserRecord user;
      if (auto ok = read_record(one, user); !ok) return ok;
      const std::string name = user.name;
      users_[name] = std::move(user);
    }
    for (const Json& one : j.at("profiles")) {
      if (auto ok = read_record(one.at(1), profiles_[one.at(0).get<std::string>()]); !ok) return ok;
    }
    for (const Json& one : j.at("offsets")) {
      offsets_[RowNumber(one.at(0).get<std::uint64_t>())] = Duration(one.at(1).get<std::int64_t>());
    }
    for (const Json& one : j.at("nodes")) {
      auto wish = node_state(one.at(0).get<std::string>());
      auto reported = node_state(one.at(1).get<std::string>());
      if (!wish || !reported) return Error{"a node is in no state"};
      wishes_.push_back(*wish);
      reported_.push_back(*reported);
      node_since_.emplace_back(Duration(one.at(2).get<std::int64_t>()));
      whys_.push_back(one.size() > 3 ? one.at(3).get<std::string>() : "");  // older ones have none
      reserved_whys_.push_back(one.size() > 4 ? one.at(4).get<std::string>() : "");
    }
    if (wishes_.size() != now().cluster.nodes().size())
      return Error{"does not have as many nodes as its cluster"};
    if (j.contains("chronicle")) {
      if (auto ok = chronicle_.load(j.at("chronicle")); !ok) return ok;
    } else {  // older ones have none: it begins here
      chronicle_.begin(wall(time_), true);
      for (const JobView& job : now().jobs) note_holds({}, job.id, wall(job.counted_from));
    }
    if (j.contains("pasts")) {  // older ones have none
      if (auto ok = pasts_.load(j.at("pasts")); !ok) return ok;
    }
    if (j.contains("last_decision")) {
      const Json& last = j.at("last_decision");
      auto event = decode_event(
          {"decided", last.at("version").get<int>(), last.at("body").get<std::string>()}, pool_);
      if (!event) return event.error();
      last_decision_ = LastDecision{
          RowNumber(last.at("number").get<std::uint64_t>()),
          Time(Duration(last.at("at").get<std::int64_t>())), last.at("policy").get<std::string>(),
          std::move(std::get<Decided>(*event).decision), last.at("refused").get<std::string>()};
    }
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("the snapshot: {}", problem.what())};
  }
  return {};
}

// --- looking ---

JobRecord* DaemonState::find(JobId id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

const JobRecord* DaemonState::job(JobId id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

std::optional<JobId> DaemonState::by_key(const std::string& user, const std::string& key) const {
  const auto found = by_key_.find({user, key});
  return found == by_key_.end() ? std::nullopt : std::optional(found->second);
}

const Rates* DaemonState::profile(const std::string& name) const {
  const auto found = profiles_.find(name);
  return found == profiles_.end() ? nullptr : &found->second;
}

NodeState DaemonState::wish(NodeId node) const { return wishes_[node.index()]; }
NodeState DaemonState::reported(NodeId node) const { return reported_[node.index()]; }
const std::string& DaemonState::node_why(NodeId node) const { return whys_[node.index()]; }
WallTime DaemonState::node_since(NodeId node) const { return node_since_[node.index()]; }
const std::string& DaemonState::reserved_why(NodeId node) const {
  return reserved_whys_[node.index()];
}

void DaemonState::keep_lines(std::vector<HistoryLine> lines) {
  for (HistoryLine& line : lines) lines_.push_back(std::move(line));
  while (lines_.size() > options_.lines_kept) {
    first_line_row_ = lines_.front().number.next();
    lines_.pop_front();
  }
}

}  // namespace rubato::daemon
