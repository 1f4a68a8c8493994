#include "rubato/daemon/desk.h"

#include <algorithm>
#include <fmt/format.h>

#include "rubato/base/text.h"
#include "rubato/daemon/intake.h"
#include "rubato/loop/admission.h"

namespace rubato {
namespace {

std::string hex_of(const Digest& digest) {
  return hex({reinterpret_cast<const char*>(digest.data()), digest.size()});  // NOLINT
}

}  // namespace

Core::Desk::Reply Core::Desk::take(const Ask& ask) {
  if (needs_admin(ask) && !caller_.admin) return say(403, "that is for admins only");
  return std::visit([this](const auto& one) { return (*this)(one); }, ask);
}

Core::Desk::Reply Core::Desk::say(int status, std::string sentence) {
  return [answer = refusal(status, std::move(sentence))] { return answer; };
}

Core::Desk::Reply Core::Desk::no_job(const JobRef& ref) {
  return [answer = no_such_job(ref)] { return answer; };
}

// --- jobs ---

bool Core::Desk::sees(const JobRecord& job) const {
  return caller_.admin || job.user == caller_.user;
}

const JobRecord* Core::Desk::find(const JobRef& ref) const {
  if (const auto* id = std::get_if<JobId>(&ref)) {
    const JobRecord* job = ledger().job(*id);
    return job != nullptr && sees(*job) ? job : nullptr;
  }
  const auto& name = std::get<std::string>(ref);
  const JobRecord* anyones = nullptr;
  const JobRecord* own = nullptr;
  for (const auto& [number, record] : ledger().jobs()) {  // the newest of each
    if (record.name != name || record.measures_for || !sees(record)) continue;
    anyones = &record;
    if (record.user == caller_.user) own = &record;
  }
  return own != nullptr ? own : anyones;
}

const JobRecord* Core::Desk::find_alive(const JobRef& ref, Reply& refusal) const {
  const JobRecord* job = find(ref);
  if (job == nullptr) {
    refusal = no_job(ref);
    return nullptr;
  }
  if (!job->gone()) return job;
  refusal =
      say(409, fmt::format("job {} has ended: {}", job->id.value(), to_text(job->ending->how)));
  return nullptr;
}

Core::Desk::Reply Core::Desk::job_reply(JobId id, int status) const {
  return [&core = core_, id, status]() -> Answer {
    const JobRecord* job = core.ledger_->job(id);
    if (job == nullptr) return no_such_job(id);
    return {status, show_job(core.shown(), *job)};
  };
}

Core::Desk::Reply Core::Desk::operator()(const ShowJob& ask) {
  const JobRecord* job = find(ask.job);
  return job == nullptr ? no_job(ask.job) : job_reply(job->id, 200);
}

Core::Desk::Reply Core::Desk::operator()(const ListJobs& ask) {
  return [*this, ask]() -> Answer {
    Json list = Json::array();
    Json next = nullptr;
    const Shown shown = core_.shown();
    const auto& jobs = ledger().jobs();
    JobId last;
    for (auto at = ask.after ? jobs.upper_bound(*ask.after) : jobs.begin(); at != jobs.end();
         ++at) {
      const JobRecord& job = at->second;
      if (job.measures_for || !sees(job) || (ask.user && *ask.user != job.user)) continue;
      const auto& states = ask.states;
      if (!states.empty() &&
          std::find(states.begin(), states.end(), state_of(ledger(), job)) == states.end())
        continue;
      if (list.size() >= static_cast<std::size_t>(std::max(ask.limit, 1))) {
        next = last.value();
        break;
      }
      last = job.id;
      list.push_back(show_job(shown, job));
    }
    return {200, {{"jobs", std::move(list)}, {"next", next}}};
  };
}

Core::Desk::Reply Core::Desk::operator()(const CancelJob& ask) {
  Reply refusal;
  const JobRecord* job = find_alive(ask.job, refusal);
  if (job == nullptr) return refusal;
  const JobId id = job->id;
  if (!job->leaves_as)
    core_.end_job(id, {Ending::cancelled, fmt::format("cancelled by {}", caller_.user),
                       std::nullopt, std::nullopt});
  return job_reply(id, 200);
}

Core::Desk::Reply Core::Desk::operator()(const HoldJob& ask) {
  Reply refusal;
  const JobRecord* job = find_alive(ask.job, refusal);
  if (job == nullptr) return refusal;
  const JobId id = job->id;
  if (job->measured_by) {
    return say(409, fmt::format("job {} waits for its speed to be measured; cancel it, or wait for "
                                "the verdict",
                                id.value()));
  }
  if (job->leaves_as) return say(409, fmt::format("job {} is leaving", id.value()));
  if (ledger().view(id)->on_hold == ask.on) return job_reply(id, 200);
  if (!ask.on && job->file.elastic && must_be_measured(*job)) {
    set_aside(id);
  } else {
    core_.post(Held{id, ask.on});
  }
  return job_reply(id, 200);
}

Core::Desk::Reply Core::Desk::operator()(const ResizeJob& ask) {
  Reply refusal;
  const JobRecord* job = find_alive(ask.job, refusal);
  if (job == nullptr) return refusal;
  const JobId id = job->id;
  const Cluster& cluster = ledger().now().cluster;
  const GpuLimits limits = limits_on(cluster, ask.limits);
  if (limits.smallest() < 1 || limits.smallest() > limits.max)
    return say(400, "the least number of GPUs must be from 1 to the largest");
  if (limits.smallest() > cluster.largest_type()) {
    return say(409, fmt::format("the cluster has {} GPUs{}, fewer than the {} it would need",
                                cluster.largest_type(), cluster.types() > 1 ? " of one type" : "",
                                limits.smallest()));
  }
  if (job->measured_by || job->leaves_as)
    return say(409, fmt::format("job {} cannot be resized now", id.value()));
  core_.post(Limited{id, limits});
  core_.estimate(id);
  return job_reply(id, 200);
}

Core::Desk::Reply Core::Desk::operator()(const ExplainJob& ask) {
  const JobRecord* job = find(ask.job);
  if (job == nullptr) return no_job(ask.job);
  return [*this, id = job->id]() -> Answer {
    const JobRecord* found = ledger().job(id);
    if (found == nullptr) return no_such_job(id);
    return {200, explain(core_.shown(), *found, caller_.admin)};
  };
}

Core::Desk::Reply Core::Desk::operator()(const FindLog& ask) {
  const JobRecord* job = find(ask.job);
  if (job == nullptr) return no_job(ask.job);
  Json body = {{"id", job->id.value()},
               {"directory", fmt::format("{}/{}", core_.options_.jobs_directory, job->id.value())},
               {"ended", job->gone()}};
  return [answer = Answer{200, std::move(body)}] { return answer; };
}

Core::Desk::Reply Core::Desk::operator()(const History& ask) {
  std::optional<JobId> only;
  if (ask.job) {
    const JobRecord* job = find(*ask.job);
    if (job == nullptr) return no_job(*ask.job);
    only = job->id;
  }
  return [*this, ask, only]() -> Answer { return core_.history(caller_, ask, only); };
}

// --- submissions ---

Core::Desk::Reply Core::Desk::operator()(const SubmitJob& ask) {
  if (!ask.key.empty()) {
    if (const auto known = ledger().by_key(caller_.user, ask.key)) return submit_reply(*known, 200);
  }
  if (core_.options_.may_run) {
    if (auto may = core_.options_.may_run(caller_); !may) return say(403, may.error().message);
  }
  auto job = record_of(ask);
  if (!job) return say(400, job.error().message);
  if (ask.dry_run) return try_out(std::move(*job));
  if (ledger().alive() >= core_.options_.most_jobs) {
    return say(429, fmt::format("there are {} jobs already, which is as many as the daemon takes; "
                                "try again when some have ended",
                                ledger().alive()));
  }
  const JobId id = job->id;
  if (const auto ending = refuse_at_once(*job)) {
    core_.put_job(*job);
    core_.end_job(id, *ending);
  } else if (must_be_measured(*job)) {
    enter_measuring(std::move(*job));
  } else {
    enter(*job);
  }
  return submit_reply(id, 201);
}

Result<JobRecord> Core::Desk::record_of(const SubmitJob& ask) const {
  JobRecord job;
  job.id = ledger().next_job();
  job.user = caller_.user;
  job.key = ask.key;
  job.file = ask.file;
  job.name = name_of(ask.file);
  const auto user = ledger().users().find(caller_.user);
  const bool recorded = user != ledger().users().end();
  const double most = recorded ? user->second.most_weight : core_.options_.most_weight;
  // Whom the socket alone makes an admin has no record, and no bound.
  if (job.file.weight > most && (recorded || !caller_.admin)) {
    return Error{fmt::format("a weight of {} is more than the {} that {} may give a job",
                             shortest(job.file.weight), shortest(most), caller_.user)};
  }
  const WallTime now = ledger().wall(core_.time_);
  if (job.file.deadline) job.deadline = job.file.deadline;
  if (job.file.deadline_after) job.deadline = now + *job.file.deadline_after;
  job.submitted = now;
  job.work = work_of(job.file);
  job.scale = job.file.work ? 1 : 0;
  if (const Rates* known = ledger().profile(job.profile())) job.rates = *known;
  if (auto& tuning = job.rates.tuning) {  // of its like; its own limits are its file's
    if (job.file.batch.min > 0) tuning->initial = job.file.batch.min;
    if (job.file.batch.max > 0) tuning->largest = job.file.batch.max;
    tuning->largest = std::max(tuning->largest, tuning->initial);
  }
  return job;
}

std::optional<JobEnding> Core::Desk::refuse_at_once(const JobRecord& job) const {
  const auto because = [](std::string why) {
    return JobEnding{Ending::refused, std::move(why), std::nullopt, std::nullopt};
  };
  if (job.deadline && !job.file.work) {
    return because(
        "a deadline without work: nobody can say whether it will be in time; add "
        "`work` (epochs, steps or samples)");
  }
  if (job.deadline && *job.deadline <= job.submitted) return because("its deadline has passed");
  if (must_be_measured(job) && !job.file.elastic) {
    return because(
        "its program tells nothing of its speed (elastic: false), so nothing can be promised; "
        "submit it without a deadline, or name a profile that was measured at a count it may have");
  }
  if (const auto never =
          never_fits(submitted(job), ledger().policy_object(), ledger().now().cluster))
    return because(never->reason);
  return std::nullopt;
}

Submitted Core::Desk::submitted(const JobRecord& job) const {
  auto spec = spec_of(job, ledger(), core_.options_.restart_cost);
  auto speed = estimate_of(job, spec->limits, ledger().policy());
  return {job.id, std::move(spec), std::move(speed), job.work};
}

// Before a policy that promises is asked about it.
bool Core::Desk::must_be_measured(const JobRecord& job) const {
  if (!job.deadline || !ledger().policy().admits()) return false;
  const JobView* view = ledger().view(job.id);
  if (view != nullptr && view->has_run()) return false;  // it shows its speed itself
  return !speed_known(job, limits_now(job, ledger()));
}

void Core::Desk::enter(const JobRecord& job) {
  core_.put_job(job);
  core_.post(submitted(job));
}

void Core::Desk::take_again(JobId id) {
  const JobRecord& job = *ledger().job(id);
  if (const auto ending = refuse_at_once(job)) return core_.end_job(id, *ending);
  core_.post(submitted(job));
}

void Core::Desk::measure_if_unknown(JobId id) {
  const JobRecord* job = ledger().job(id);
  if (job == nullptr || job->gone() || job->leaves_as || job->measured_by) return;
  // One on hold is looked at when it is released; a program that tells nothing cannot be measured.
  if (ledger().view(id)->on_hold || !job->file.elastic) return;
  if (must_be_measured(*job)) set_aside(id);
}

void Core::Desk::enter_measuring(JobRecord job) {
  job.measured_by = job.id.next();
  job.verdict_by = core_.time_ + core_.options_.verdict_within;
  enter(job);
  set_aside(job.id);
}

// Another job runs in its place until its speed is known at a few counts. From the row of that one
// on it waits (Ledger::fold_job).
void Core::Desk::set_aside(JobId id) {
  if (!core_.wrong_.empty()) return;
  const JobRecord& job = *ledger().job(id);
  JobRecord run;
  run.id = ledger().next_job();
  run.user = job.user;
  run.file = job.file;
  run.file.gpus = limits_now(job, ledger());
  run.file.deadline.reset();
  run.file.deadline_after.reset();
  run.name = job.name;
  run.work = job.work;
  run.measures_for = id;
  run.verdict_by = core_.time_ + core_.options_.verdict_within;
  core_.put_job(run);
  if (!ledger().view(id)->on_hold) core_.post(Held{id, true});
  Submitted event = submitted(run);
  JobSpec spec = *event.spec;
  const int first = spec.limits.smallest();
  spec.limits = {first, first, {}};
  event.speed = estimate_of(run, spec.limits, ledger().policy());
  event.spec = std::make_shared<const JobSpec>(std::move(spec));
  core_.post(event);
}

Core::Desk::Reply Core::Desk::submit_reply(JobId id, int status) const {
  return [&core = core_, id, status]() -> Answer {
    const JobRecord* job = core.ledger_->job(id);
    if (job == nullptr) return no_such_job(id);
    const Shown shown = core.shown();
    const Verdict verdict = verdict_on(shown, *job);
    Json body = show_job(shown, *job);
    body["verdict"] = to_json(*core.ledger_, verdict);
    const bool refused = status == 201 && verdict.admitted == false;
    return {refused ? 409 : status, std::move(body)};
  };
}

// What would happen, on copies of everything that would change.
Core::Desk::Reply Core::Desk::try_out(JobRecord job) const {
  return [*this, job = std::move(job)]() mutable -> Answer {
    job.id = ledger().next_job();  // others may have come in the same turn
    Json body = show_job(core_.shown(), job);
    body["id"] = nullptr;
    body["verdict"] = to_json(ledger(), trial(job));
    body["dry_run"] = true;
    return {200, std::move(body)};
  };
}

Verdict Core::Desk::trial(const JobRecord& job) const {
  if (const auto ending = refuse_at_once(job)) return refused(ledger(), ending->why, std::nullopt);
  Verdict verdict;
  if (must_be_measured(job)) {
    verdict.by = core_.time_ + core_.options_.verdict_within;
    verdict.text = "would be measured first; the verdict would come by " +
                   clock_text(ledger().wall(*verdict.by), ledger().wall(core_.time_));
    return verdict;
  }
  auto policy = ledger().another_policy();
  if (!policy) {
    verdict.text = policy.error().message;
    return verdict;
  }
  Scheduler loop(State(ledger().loop().state()), ledger().placement());
  Reaction reaction;
  loop.on(core_.time_, submitted(job), reaction);
  auto decision = (*policy)->decide(loop.ask(core_.time_));
  if (!decision) {
    verdict.text = decision.error().message;
    return verdict;
  }
  for (const Promise& promise : decision->promise) {
    if (promise.job == job.id) return promised(ledger(), job, promise);
  }
  for (const Reject& reject : decision->reject) {
    if (reject.job == job.id) return refused(ledger(), reject.reason, reject.earliest);
  }
  if (job.deadline && ledger().policy().admits()) verdict.admitted = true;
  loop.on(core_.time_, Decided{std::move(*decision), std::nullopt}, reaction);
  foresee(loop.snapshot(), job, verdict);
  return verdict;
}

// When it would start, once the decision on it was carried out.
void Core::Desk::foresee(const Snapshot& snapshot, const JobRecord& job, Verdict& verdict) const {
  const std::string would = verdict.admitted ? "would be admitted and " : "would ";
  const int gpus = snapshot.jobs.find(job.id)->target.gpus();
  if (gpus > 0) {
    verdict.start = core_.time_;
    verdict.text = fmt::format("{}start now on {} GPU{}", would, gpus, gpus == 1 ? "" : "s");
    return;
  }
  const Outlook outlook = forecast(ledger(), snapshot, job).at(job.id);
  verdict.position = outlook.position;
  verdict.start = outlook.start;
  verdict.text = fmt::format(
      "{}wait, position {}, estimated start {}", would, outlook.position,
      outlook.start ? clock_text(ledger().wall(*outlook.start), ledger().wall(core_.time_))
                    : std::string("unknown"));
}

// --- the cluster ---

Core::Desk::Reply Core::Desk::operator()(const ShowNodes& /*ask*/) {
  return [*this]() -> Answer {
    return {200, show_nodes(ledger(), [this](JobId id) {
              const JobRecord* job = ledger().job(id);
              return job != nullptr && sees(*job);
            })};
  };
}

Core::Desk::Reply Core::Desk::operator()(const SetNode& ask) {
  if (ask.node.index() >= ledger().now().cluster.nodes().size())
    return say(404, fmt::format("there is no node {}", ask.node.value()));
  if (ask.state == NodeState::unknown) return say(400, "a node can be wanted up, draining or down");
  const NodeState before = ledger().wish(ask.node);
  if (before != ask.state) {
    core_.put("node", {{"node", ask.node.value()}, {"wish", std::string(to_text(ask.state))}});
    core_.set_node(ask.node);
  }
  // Also when it is said again: the engine may not have heard it the first time.
  core_.marks_.push_back({ask.node, ask.state == NodeState::down});
  return [*this, node = ask.node]() -> Answer {
    const Json nodes = show_nodes(ledger(), [](JobId) { return true; });
    return {200, nodes["nodes"][node.index()]};
  };
}

Core::Desk::Reply Core::Desk::operator()(const ShowPolicy& /*ask*/) {
  return [*this]() -> Answer {
    return {200, show_policy(ledger(), [this](JobId id) {
              const JobRecord* job = ledger().job(id);
              return job != nullptr && sees(*job);
            })};
  };
}

Core::Desk::Reply Core::Desk::operator()(const SwitchPolicy& ask) {
  const auto chosen = core_.choose(ask.policy);
  if (!chosen) return say(400, chosen.error().message);
  std::vector<JobId> promised_before;
  for (const JobView& view : ledger().now().jobs) {
    const JobRecord* job = ledger().job(view.id);
    if (job == nullptr) continue;
    if (job->promise || ledger().policy_object().keeps_deadline(view.id))
      promised_before.push_back(view.id);
  }
  core_.switch_policy(*chosen);
  return [*this, promised_before]() -> Answer {
    Json lost = Json::array();
    for (const JobId id : promised_before) {
      const JobRecord* job = ledger().job(id);
      if (job == nullptr || job->gone() || job->honoured) continue;
      if (ledger().policy_object().keeps_deadline(id)) continue;
      lost.push_back({{"job", id.value()}, {"name", job->name}, {"promised", iso(job->deadline)}});
    }
    Json body = show_policy(ledger(), [](JobId) { return true; });
    body["not_honoured"] = std::move(lost);
    return {200, std::move(body)};
  };
}

Core::Desk::Reply Core::Desk::operator()(const ShowMetrics& /*ask*/) {
  return [*this]() -> Answer { return {200, {{"text", core_.metrics_for(caller_)}}}; };
}

Core::Desk::Reply Core::Desk::operator()(const ShowHealth& /*ask*/) {
  return [&core = core_]() -> Answer {
    if (core.trouble_.empty()) return {200, {{"status", "ok"}}};
    return {503, {{"status", "nothing can be stored"}, {"error", core.trouble_}}};
  };
}

// --- users ---

Core::Desk::Reply Core::Desk::operator()(const AddUser& ask) {
  if (ledger().users().contains(ask.name))
    return say(409, fmt::format("there is a user {} already", rubato::quoted(ask.name)));
  if (!(ask.most_weight > 0)) return say(400, "the largest weight of a job must be above 0");
  const UserRecord user{ask.name, ask.admin, ask.most_weight, {hex_of(ask.token)}};
  core_.put_user(user);
  return [answer = Answer{201, show_user(user)}] { return answer; };
}

Core::Desk::Reply Core::Desk::operator()(const RemoveUser& ask) {
  if (!ledger().users().contains(ask.name))
    return say(404, fmt::format("there is no user {}", rubato::quoted(ask.name)));
  core_.put("user_removed", {{"name", ask.name}});
  core_.users_changed_ = true;
  return [answer = Answer{200, {{"removed", ask.name}}}] { return answer; };
}

Core::Desk::Reply Core::Desk::operator()(const ListUsers& /*ask*/) {
  return [*this]() -> Answer {
    Json list = Json::array();
    for (const auto& [name, user] : ledger().users()) list.push_back(show_user(user));
    return {200, {{"users", std::move(list)}}};
  };
}

Core::Desk::Reply Core::Desk::operator()(const AddToken& ask) {
  const auto found = ledger().users().find(ask.user);
  if (found == ledger().users().end())
    return say(404, fmt::format("there is no user {}", rubato::quoted(ask.user)));
  UserRecord user = found->second;
  user.tokens.insert(hex_of(ask.token));
  core_.put_user(user);
  return [answer = Answer{201, show_user(user)}] { return answer; };
}

Core::Desk::Reply Core::Desk::operator()(const RemoveToken& ask) {
  const auto found = ledger().users().find(ask.user);
  if (found == ledger().users().end())
    return say(404, fmt::format("there is no user {}", rubato::quoted(ask.user)));
  UserRecord user = found->second;
  const auto removed = std::erase_if(user.tokens, [&](const std::string& token) {
    return ask.token.size() >= kTokenNameDigits && token.starts_with(ask.token);
  });
  if (removed == 0) return say(404, fmt::format("{} has no such token", ask.user));
  core_.put_user(user);
  return [answer = Answer{200, show_user(user)}] { return answer; };
}

}  // namespace rubato
