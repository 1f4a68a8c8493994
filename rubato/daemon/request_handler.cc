#include "rubato/daemon/request_handler.h"

#include <algorithm>
#include <fmt/format.h>

#include "rubato/base/glob.h"
#include "rubato/base/text.h"
#include "rubato/daemon/job_model.h"
#include "rubato/loop/admission.h"

namespace rubato::daemon {
Core::RequestHandler::Reply Core::RequestHandler::take(const Ask& ask) {
  if (needs_admin(ask) && !caller_.admin) return say(403, "that is for admins only");
  return std::visit([this](const auto& one) { return (*this)(one); }, ask);
}

Core::RequestHandler::Reply Core::RequestHandler::say(int status, std::string sentence) {
  return [answer = refusal(status, std::move(sentence))] { return answer; };
}

Core::RequestHandler::Reply Core::RequestHandler::no_job(const JobRef& ref) {
  return [answer = no_such_job(ref)] { return answer; };
}

// --- jobs ---

bool Core::RequestHandler::sees(const JobRecord& job) const {
  return caller_.admin || job.user == caller_.user;
}

const JobRecord* Core::RequestHandler::find(const JobRef& ref) const {
  if (const auto* id = std::get_if<JobId>(&ref)) {
    const JobRecord* job = ledger().job(*id);
    return job != nullptr && sees(*job) ? job : nullptr;
  }
  return find_all({ref}).front();
}

std::vector<const JobRecord*> Core::RequestHandler::find_all(
    const std::vector<JobRef>& refs) const {
  std::map<std::string, const JobRecord*, std::less<>> newest;
  for (const JobRef& ref : refs) {
    if (const auto* name = std::get_if<std::string>(&ref)) newest.emplace(*name, nullptr);
  }
  const auto own = [&](const JobRecord* job) {
    return job != nullptr && job->user == caller_.user;
  };
  for (const auto& [number, record] : ledger().jobs()) {
    if (newest.empty()) break;
    if (record.measures_for || !sees(record)) continue;
    const auto wanted = newest.find(record.name);
    // One's own before anyone else's.
    if (wanted != newest.end() && (own(&record) || !own(wanted->second))) wanted->second = &record;
  }
  std::vector<const JobRecord*> found;
  found.reserve(refs.size());
  for (const JobRef& ref : refs) {
    const auto* name = std::get_if<std::string>(&ref);
    found.push_back(name != nullptr ? newest.find(*name)->second : find(ref));
  }
  return found;
}

const JobRecord* Core::RequestHandler::find_alive(const JobRef& ref, Reply& refusal) const {
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

Core::RequestHandler::Reply Core::RequestHandler::job_reply(JobId id, int status) const {
  return [&core = core_, id, status]() -> Answer {
    const JobRecord* job = core.ledger_->job(id);
    if (job == nullptr) return no_such_job(id);
    return {status, show_job(core.shown(), *job)};
  };
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const ShowJob& ask) {
  const JobRecord* job = find(ask.job);
  if (job == nullptr) return no_job(ask.job);
  return [*this, id = job->id]() -> Answer {
    const JobRecord* found = ledger().job(id);
    if (found == nullptr) return no_such_job(id);
    Json body = show_job(core_.shown(), *found);
    // Here alone a long command is shown whole, as long as the job has not ended.
    if (found->text_bytes && !found->gone()) {
      if (const auto file = core_.whole_file(*found)) {
        body["command"] = file->command;
        body["command_cut"] = false;
      }
    }
    return {200, std::move(body)};
  };
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const ListJobs& ask) {
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

Core::RequestHandler::Reply Core::RequestHandler::operator()(const CancelJob& ask) {
  Reply refusal;
  const JobRecord* job = find_alive(ask.job, refusal);
  if (job == nullptr) return refusal;
  const JobId id = job->id;
  if (!job->leaves_as)
    core_.end_job(id, {Ending::cancelled, fmt::format("cancelled by {}", caller_.user),
                       std::nullopt, std::nullopt});
  return job_reply(id, 200);
}

bool Core::RequestHandler::chosen(const CancelJobs& ask, const JobRecord& job) const {
  if (ask.user && *ask.user != job.user) return false;
  if (!ask.name.empty() && !matches_glob(ask.name, job.name)) return false;
  return ask.states.empty() || std::find(ask.states.begin(), ask.states.end(),
                                         state_of(ledger(), job)) != ask.states.end();
}

// Those that wait before those that hold GPUs. How many were not leaving already.
std::size_t Core::RequestHandler::cancel_all(std::vector<JobId> jobs) {
  std::stable_partition(jobs.begin(), jobs.end(), [this](JobId id) {
    const JobView* view = ledger().view(id);
    return view == nullptr || view->held.empty();
  });
  std::size_t cancelled = 0;
  for (const JobId id : jobs) {
    if (!core_.wrong_.empty()) break;
    const JobRecord* job = ledger().job(id);  // one may have ended another, which measured for it
    if (job == nullptr || job->gone() || job->leaves_as) continue;
    core_.end_job(id, {Ending::cancelled, fmt::format("cancelled by {}", caller_.user),
                       std::nullopt, std::nullopt});
    ++cancelled;
  }
  return cancelled;
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const CancelJobs& ask) {
  if (ask.user && *ask.user != caller_.user && !caller_.admin)
    return say(403, fmt::format("only an admin may cancel jobs of {}", base::quoted(*ask.user)));
  // One entry for each job that was named, or that is cancelled. Names are taken now: of many jobs
  // that end at once some are forgotten at once.
  Json entries = Json::array();
  std::vector<JobId> alive;
  std::size_t over = 0;
  const auto look_at = [&](const JobRecord& job, bool named) {
    Json entry = {{"id", job.id.value()}, {"name", job.name}};
    if (!job.gone()) {
      alive.push_back(job.id);
    } else {
      ++over;
      entry["state"] = to_text(state_of(ledger(), job));
      entry["status"] = 409;
      entry["error"] =
          fmt::format("job {} has ended: {}", job.id.value(), to_text(job.ending->how));
    }
    if (named || !job.gone()) entries.push_back(std::move(entry));
  };
  if (ask.jobs.empty()) {
    for (const auto& [id, job] : ledger().jobs()) {
      if (!job.measures_for && sees(job) && chosen(ask, job)) look_at(job, false);
    }
  }
  const auto named = find_all(ask.jobs);
  for (std::size_t i = 0; i < named.size(); ++i) {
    if (named[i] == nullptr) {
      const Answer missing = no_such_job(ask.jobs[i]);
      entries.push_back({{"status", missing.status}, {"error", missing.body["error"]}});
    } else if (chosen(ask, *named[i])) {
      look_at(*named[i], true);
    }
  }
  std::sort(alive.begin(), alive.end());
  alive.erase(std::unique(alive.begin(), alive.end()), alive.end());
  const std::size_t found = alive.size();
  const std::size_t cancelled = cancel_all(std::move(alive));
  Json body = {{"cancelled", cancelled}, {"leaving", found - cancelled}, {"over", over}};
  return [*this, body = std::move(body), entries = std::move(entries)]() mutable -> Answer {
    for (Json& entry : entries) {
      if (entry.contains("error")) continue;
      const JobRecord* job = ledger().job(JobId(entry["id"].get<JobId::rep>()));
      entry["state"] = to_text(job != nullptr ? state_of(ledger(), *job) : JobState::cancelled);
    }
    body["jobs"] = std::move(entries);
    return {200, std::move(body)};
  };
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const HoldJob& ask) {
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
  // One that is paused after a failure becomes its owner's to release, or starts again at once.
  if (job->paused_until()) {
    core_.post(Held{id, ask.on});
    return job_reply(id, 200);
  }
  if (ledger().view(id)->on_hold == ask.on) return job_reply(id, 200);
  if (!ask.on && job->file.elastic && must_be_measured(*job)) {
    set_aside(id);
  } else {
    core_.post(Held{id, ask.on});
  }
  return job_reply(id, 200);
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const ResizeJob& ask) {
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
  if (job->plain)
    return say(409, fmt::format("job {} cannot be resized: {}; {}", id.value(), kRunsAsOneProcess,
                                kToUseMoreGpus));
  core_.post(Limited{id, limits});
  core_.estimate(id);
  return job_reply(id, 200);
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const ExplainJob& ask) {
  const JobRecord* job = find(ask.job);
  if (job == nullptr) return no_job(ask.job);
  return [*this, id = job->id]() -> Answer {
    const JobRecord* found = ledger().job(id);
    if (found == nullptr) return no_such_job(id);
    return {200, explain(core_.shown(), *found, caller_.admin)};
  };
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const FindLog& ask) {
  const JobRecord* job = find(ask.job);
  if (job == nullptr) return no_job(ask.job);
  if (const auto& check = core_.options_.check_directory) {
    if (auto own = check(job->id); !own) {
      return [answer = refusal(409, own.error().message)] { return answer; };
    }
  }
  Json body = {{"id", job->id.value()},
               {"directory", fmt::format("{}/{}", core_.options_.jobs_directory, job->id.value())},
               {"ended", job->gone()}};
  return [answer = Answer{200, std::move(body)}] { return answer; };
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const History& ask) {
  std::optional<JobId> only;
  if (ask.job) {
    const JobRecord* job = find(*ask.job);
    if (job == nullptr) return no_job(*ask.job);
    only = job->id;
  }
  return [*this, ask, only]() -> Answer { return core_.history(caller_, ask, only); };
}

// --- submissions ---

Core::RequestHandler::Reply Core::RequestHandler::operator()(const SubmitJob& ask) {
  const auto text = text_of(ask.file);
  if (!text) return say(400, text.error().message);
  const Digest digest = digest_of_text(*text);
  if (!ask.key.empty()) {
    if (const auto known = ledger().by_key(caller_.user, ask.key)) {
      const auto& first = ledger().job(*known)->digest;
      if (!first || *first == digest) return submit_reply(*known, 200);
      return say(422,
                 fmt::format("the key {} was used before for another job, number {}; use a new "
                             "key for each job",
                             base::quoted(ask.key), known->value()));
    }
  }
  if (core_.options_.may_run) {
    if (auto may = core_.options_.may_run(caller_); !may) return say(403, may.error().message);
  }
  auto job = record_of(ask);
  if (!job) return say(400, job.error().message);
  if (ask.dry_run) return try_out(std::move(*job));
  if (core_.options_.may_grow) {
    if (auto may = core_.options_.may_grow(); !may) return say(503, may.error().message);
  }
  if (ledger().alive() >= core_.options_.most_jobs) {
    return say(429, fmt::format("there are {} jobs already, which is as many as the daemon takes; "
                                "try again when some have ended",
                                ledger().alive()));
  }
  const bool large = core_.options_.texts && text->size() > kLargestTextInMemory;
  if (auto refused = beyond_share(large ? text->size() : 0)) return say(429, std::move(*refused));
  job->digest = digest;
  if (large) {
    job->text_bytes = static_cast<std::int64_t>(text->size());
    job->file = shortened(std::move(job->file));
  }
  const JobId id = job->id;
  if (const auto ending = refuse_at_once(*job)) {
    core_.put_job(*job);
    core_.end_job(id, *ending);
  } else if (const auto kept = large ? core_.options_.texts->keep(digest, *text) : Result<void>();
             !kept) {
    return say(503, fmt::format("the job's file cannot be stored: {}", kept.error().message));
  } else if (must_be_measured(*job)) {
    enter_measuring(std::move(*job));
  } else {
    enter(*job);
  }
  return submit_reply(id, 201);
}

// Nobody but an admin may have all that the daemon takes. Why not, if the caller has enough.
std::optional<std::string> Core::RequestHandler::beyond_share(std::size_t bytes) const {
  if (caller_.admin) return std::nullopt;
  const auto [jobs, held] = ledger().held_by(caller_.user);
  const CoreOptions& options = core_.options_;
  if (jobs >= options.most_jobs_of_user) {
    return fmt::format(
        "you have {} jobs that wait or run, which is as many as one user may have; try again when "
        "some have ended",
        jobs);
  }
  if (held + static_cast<std::int64_t>(bytes) <= options.most_text_of_user) return std::nullopt;
  return fmt::format(
      "the descriptions of your jobs that wait or run take up {} of the {} bytes that one user may "
      "have; try again when some have ended, or put long lists into a file that the job reads",
      held, options.most_text_of_user);
}

Result<JobRecord> Core::RequestHandler::record_of(const SubmitJob& ask) const {
  JobRecord job;
  job.id = ledger().next_job();
  job.user = caller_.user;
  job.key = ask.key;
  job.file = ask.file;
  job.name = name_of(ask.file);
  job.nonce = ask.nonce;
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

std::optional<JobEnding> Core::RequestHandler::refuse_at_once(const JobRecord& job) const {
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

Submitted Core::RequestHandler::submitted(const JobRecord& job) const {
  auto spec = spec_of(job, ledger(), core_.options_.restart_cost);
  auto speed = estimate_of(job, spec->limits, ledger().policy());
  return {job.id, std::move(spec), std::move(speed), job.work};
}

// Before a policy that promises is asked about it.
bool Core::RequestHandler::must_be_measured(const JobRecord& job) const {
  if (!job.deadline || !ledger().policy().admits()) return false;
  const JobView* view = ledger().view(job.id);
  if (view != nullptr && view->has_run()) return false;  // it shows its speed itself
  return !speed_known(job, limits_now(job, ledger()));
}

void Core::RequestHandler::enter(const JobRecord& job) {
  core_.put_job(job);
  core_.post(submitted(job));
}

void Core::RequestHandler::take_again(JobId id) {
  const JobRecord& job = *ledger().job(id);
  if (const auto ending = refuse_at_once(job)) return core_.end_job(id, *ending);
  core_.post(submitted(job));
}

void Core::RequestHandler::measure_if_unknown(JobId id) {
  const JobRecord* job = ledger().job(id);
  if (job == nullptr || job->gone() || job->leaves_as || job->measured_by) return;
  // One on hold is looked at when it is released; a program that tells nothing cannot be measured.
  if (ledger().view(id)->on_hold || !job->file.elastic) return;
  if (must_be_measured(*job)) set_aside(id);
}

void Core::RequestHandler::enter_measuring(JobRecord job) {
  job.measured_by = job.id.next();
  job.verdict_by = core_.time_ + core_.options_.verdict_within;
  enter(job);
  set_aside(job.id);
}

// Another job runs in its place until its speed is known at a few counts. From the row of that one
// on it waits (DaemonState::fold_job).
void Core::RequestHandler::set_aside(JobId id) {
  if (!core_.wrong_.empty()) return;
  const JobRecord& job = *ledger().job(id);
  JobRecord run;
  run.id = ledger().next_job();
  run.user = job.user;
  run.digest = job.digest;
  run.text_bytes = job.text_bytes;
  run.file = job.file;
  run.file.gpus = limits_now(job, ledger());
  run.file.deadline.reset();
  run.file.deadline_after.reset();
  run.name = job.name;
  run.nonce = nonce_of_run(job, run.id);
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

Core::RequestHandler::Reply Core::RequestHandler::submit_reply(JobId id, int status) const {
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
Core::RequestHandler::Reply Core::RequestHandler::try_out(JobRecord job) const {
  return [*this, job = std::move(job)]() mutable -> Answer {
    job.id = ledger().next_job();  // others may have come in the same turn
    Json body = show_job(core_.shown(), job);
    body["id"] = nullptr;
    body["verdict"] = to_json(ledger(), trial(job));
    body["dry_run"] = true;
    return {200, std::move(body)};
  };
}

Verdict Core::RequestHandler::trial(const JobRecord& job) const {
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
void Core::RequestHandler::foresee(const Snapshot& snapshot, const JobRecord& job,
                                   Verdict& verdict) const {
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

Core::RequestHandler::Reply Core::RequestHandler::operator()(const ShowNodes& /*ask*/) {
  return [*this]() -> Answer {
    return {200, show_nodes(ledger(), [this](JobId id) {
              const JobRecord* job = ledger().job(id);
              return job != nullptr && sees(*job);
            })};
  };
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const SetNode& ask) {
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

Core::RequestHandler::Reply Core::RequestHandler::operator()(const ShowPolicy& /*ask*/) {
  return [*this]() -> Answer {
    return {200, show_policy(ledger(), [this](JobId id) {
              const JobRecord* job = ledger().job(id);
              return job != nullptr && sees(*job);
            })};
  };
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const SwitchPolicy& ask) {
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

Core::RequestHandler::Reply Core::RequestHandler::operator()(const ShowMetrics& /*ask*/) {
  return [*this]() -> Answer { return {200, {{"text", core_.metrics_for(caller_)}}}; };
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const ShowHealth& /*ask*/) {
  return [*this]() -> Answer {
    std::vector<Problem> problems;
    if (!core_.trouble_.empty()) {
      problems.push_back({fmt::format("nothing can be stored: {}", core_.trouble_),
                          "make room on the disk of the state directory, or mend what the reason "
                          "names; the daemon goes on by itself"});
    }
    if (core_.options_.problems) {
      for (Problem& one : core_.options_.problems()) problems.push_back(std::move(one));
    }
    for (Problem& one : problems_of(ledger(), [this](JobId id) { return sees(*ledger().job(id)); }))
      problems.push_back(std::move(one));
    Json list = Json::array();
    for (const Problem& one : problems)
      list.push_back({{"what", one.what}, {"remedy", one.remedy}});
    if (core_.trouble_.empty())
      return {200, {{"status", problems.empty() ? "ok" : "problems"}, {"problems", list}}};
    return {503,
            {{"status", "nothing can be stored"}, {"error", core_.trouble_}, {"problems", list}}};
  };
}

// --- users ---

Core::RequestHandler::Reply Core::RequestHandler::operator()(const AddUser& ask) {
  if (ledger().users().contains(ask.name))
    return say(409, fmt::format("there is a user {} already", base::quoted(ask.name)));
  if (!(ask.most_weight > 0)) return say(400, "the largest weight of a job must be above 0");
  const UserRecord user{ask.name, ask.admin, ask.most_weight, {hex(ask.token)}};
  core_.put_user(user);
  Json body = show_user(user);
  if (core_.options_.may_run) {
    if (auto may = core_.options_.may_run({ask.name, ask.admin}); !may)
      body["warning"] = "they can look, but not submit: " + may.error().message;
  }
  return [answer = Answer{201, std::move(body)}] { return answer; };
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const RemoveUser& ask) {
  if (!ledger().users().contains(ask.name))
    return say(404, fmt::format("there is no user {}", base::quoted(ask.name)));
  core_.put("user_removed", {{"name", ask.name}});
  core_.users_changed_ = true;
  return [answer = Answer{200, {{"removed", ask.name}}}] { return answer; };
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const ListUsers& /*ask*/) {
  return [*this]() -> Answer {
    Json list = Json::array();
    for (const auto& [name, user] : ledger().users()) list.push_back(show_user(user));
    return {200, {{"users", std::move(list)}}};
  };
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const AddToken& ask) {
  const auto found = ledger().users().find(ask.user);
  if (found == ledger().users().end())
    return say(404, fmt::format("there is no user {}", base::quoted(ask.user)));
  UserRecord user = found->second;
  user.tokens.insert(hex(ask.token));
  core_.put_user(user);
  return [answer = Answer{201, show_user(user)}] { return answer; };
}

Core::RequestHandler::Reply Core::RequestHandler::operator()(const RemoveToken& ask) {
  const auto found = ledger().users().find(ask.user);
  if (found == ledger().users().end())
    return say(404, fmt::format("there is no user {}", base::quoted(ask.user)));
  UserRecord user = found->second;
  const auto removed = std::erase_if(user.tokens, [&](const std::string& token) {
    return ask.token.size() >= kTokenNameDigits && token.starts_with(ask.token);
  });
  if (removed == 0) return say(404, fmt::format("{} has no such token", ask.user));
  core_.put_user(user);
  return [answer = Answer{200, show_user(user)}] { return answer; };
}

}  // namespace rubato::daemon
