#include "rubato/daemon/request_handler.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <type_traits>

#include "rubato/base/glob.h"
#include "rubato/base/text.h"
#include "rubato/daemon/facts.h"
#include "rubato/daemon/job_entry.h"
#include "rubato/daemon/job_model.h"
#include "rubato/daemon/measuring.h"
#include "rubato/daemon/phrases.h"
#include "rubato/daemon/policy_switch.h"
#include "rubato/daemon/policy_trial.h"
#include "rubato/daemon/searches.h"
#include "rubato/daemon/trial.h"

namespace rubato::daemon {

bool changes_something(const Ask& ask) {
  return std::visit(
      [](const auto& one) {
        using One = std::decay_t<decltype(one)>;
        if constexpr (requires { one.dry_run; }) return !one.dry_run;
        return !std::is_invocable_v<const Reader&, const One&>;
      },
      ask);
}

// --- jobs ---

template <>
Reply RequestHandler::handle(const CancelJob& ask) {
  Reply refusal;
  const JobRecord* job = reader_.find_alive(ask.job, refusal);
  if (job == nullptr) return refusal;
  const JobId id = job->id;
  if (!job->leaves_as)
    tx_.end_job(id, {Ending::cancelled, fmt::format("cancelled by {}", reader_.caller().user),
                     std::nullopt, std::nullopt});
  return reader_.job_reply(id, 200);
}

bool RequestHandler::chosen(const CancelJobs& ask, const JobRecord& job) const {
  if (ask.user && *ask.user != job.user) return false;
  if (!ask.name.empty() && !matches_glob(ask.name, job.name)) return false;
  return ask.states.empty() || std::find(ask.states.begin(), ask.states.end(),
                                         state_of(state(), job)) != ask.states.end();
}

std::size_t RequestHandler::cancel_all(std::vector<JobId> jobs) {
  std::stable_partition(jobs.begin(), jobs.end(), [this](JobId id) {
    const JobView* view = state().view(id);
    return view == nullptr || view->held.empty();
  });
  std::size_t cancelled = 0;
  for (const JobId id : jobs) {
    const JobRecord* job = state().job(id);  // it may have ended with the job that it measured
    if (job == nullptr || job->gone() || job->leaves_as) continue;
    tx_.end_job(id, {Ending::cancelled, fmt::format("cancelled by {}", reader_.caller().user),
                     std::nullopt, std::nullopt});
    ++cancelled;
  }
  return cancelled;
}

template <>
Reply RequestHandler::handle(const CancelJobs& ask) {
  if (ask.user && *ask.user != reader_.caller().user && !reader_.caller().admin)
    return say(403, fmt::format("only an admin may cancel jobs of {}", base::quoted(*ask.user)));
  // One entry for each job that was named, or that is cancelled. Names are copied now, because some
  // of many jobs that end at once may be forgotten at once.
  Json entries = Json::array();
  std::vector<JobId> alive;
  std::size_t over = 0;
  const auto look_at = [&](const JobRecord& job, bool named) {
    Json entry = {{"id", job.id.value()}, {"name", job.name}};
    if (!job.gone()) {
      alive.push_back(job.id);
    } else {
      ++over;
      entry["state"] = to_text(state_of(state(), job));
      entry["status"] = 409;
      entry["error"] =
          fmt::format("job {} has ended: {}", job.id.value(), to_text(job.ending->how));
    }
    if (named || !job.gone()) entries.push_back(std::move(entry));
  };
  if (ask.jobs.empty()) {
    for (const auto& [id, job] : state().jobs()) {
      if (!job.measures_for && reader_.sees(job) && chosen(ask, job)) look_at(job, false);
    }
  }
  const auto named = reader_.find_all(ask.jobs);
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
  return
      [reader = reader_, body = std::move(body), entries = std::move(entries)]() mutable -> Answer {
        for (Json& entry : entries) {
          if (entry.contains("error")) continue;
          const JobRecord* job = reader.state().job(JobId(entry["id"].get<JobId::rep>()));
          entry["state"] =
              to_text(job != nullptr ? state_of(reader.state(), *job) : JobState::cancelled);
        }
        body["jobs"] = std::move(entries);
        return {200, std::move(body)};
      };
}

template <>
Reply RequestHandler::handle(const HoldJob& ask) {
  Reply refusal;
  const JobRecord* job = reader_.find_alive(ask.job, refusal);
  if (job == nullptr) return refusal;
  const JobId id = job->id;
  if (job->measured_by) {
    return say(409, fmt::format("job {} waits for its speed to be measured; cancel it, or wait for "
                                "the verdict",
                                id.value()));
  }
  if (job->leaves_as) return say(409, fmt::format("job {} is leaving", id.value()));
  // A job in its backoff after a failure: a hold keeps it until its owner releases it, and a
  // release starts it at once.
  if (job->paused_until()) {
    tx_.post(HoldChanged{id, ask.on});
    return reader_.job_reply(id, 200);
  }
  // The hold of a search becomes one of the owner's.
  if (ask.on && job->trial && job->trial->waits)
    tx_.put("trial", {{"job", id.value()}, {"waits", false}});
  if (state().view(id)->on_hold == ask.on) return reader_.job_reply(id, 200);
  if (!ask.on && job->file.elastic && must_be_measured(*job, state())) {
    set_aside(tx_, id, options());
  } else {
    tx_.post(HoldChanged{id, ask.on});
  }
  return reader_.job_reply(id, 200);
}

template <>
Reply RequestHandler::handle(const ResizeJob& ask) {
  Reply refusal;
  const JobRecord* job = reader_.find_alive(ask.job, refusal);
  if (job == nullptr) return refusal;
  const JobId id = job->id;
  const Cluster& cluster = state().now().cluster;
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
  forget_quota(tx_, id);
  tx_.post(Limited{id, limits});
  estimate(tx_, id);
  return reader_.job_reply(id, 200);
}

// --- submissions ---

template <>
Reply RequestHandler::handle(const SubmitJob& ask) {
  const auto text = text_of(ask.file);
  if (!text) return say(400, text.error().message);
  const Digest digest = digest_of_text(*text);
  if (!ask.key.empty()) {
    if (const auto known = state().by_key(reader_.caller().user, ask.key)) {
      const auto& first = state().job(*known)->digest;
      if (!first || *first == digest) return after_decision(submit_answer(*known, 200));
      return say(422,
                 fmt::format("the key {} was used before for another job, number {}; use a new "
                             "key for each job",
                             base::quoted(ask.key), known->value()));
    }
  }
  if (options().may_run) {
    if (auto may = options().may_run(reader_.caller()); !may) return say(403, may.error().message);
  }
  auto job = record_of(ask);
  if (!job) return say(400, job.error().message);
  if (ask.dry_run) return try_out(std::move(*job));
  if (options().may_grow) {
    if (auto may = options().may_grow(); !may) return say(503, may.error().message);
  }
  if (state().alive() >= options().most_jobs) {
    return say(429, fmt::format("there are {} jobs already, which is as many as the daemon takes; "
                                "try again when some have ended",
                                state().alive()));
  }
  const bool large = options().texts && text->size() > kLargestTextInMemory;
  if (auto refused = beyond_share(large ? text->size() : 0)) return say(429, std::move(*refused));
  job->digest = digest;
  if (large) {
    job->text_bytes = static_cast<std::int64_t>(text->size());
    job->file = shortened(std::move(job->file));
  }
  const JobId id = job->id;
  if (const auto ending = refuse_at_once(*job, state(), options())) {
    tx_.put_job(*job);
    tx_.end_job(id, *ending);
    return submit_answer(id, 201);
  }
  if (large) {
    if (const auto kept = options().texts->keep(digest, *text); !kept)
      return say(503, fmt::format("the job's file cannot be stored: {}", kept.error().message));
  }
  enter(tx_, std::move(*job), options());
  return after_decision(submit_answer(id, 201));
}

std::optional<std::string> RequestHandler::beyond_share(std::size_t bytes) const {
  if (reader_.caller().admin) return std::nullopt;
  const auto [jobs, held] = state().usage_of(reader_.caller().user);
  if (jobs >= options().most_jobs_of_user) {
    return fmt::format(
        "you have {} jobs that wait or run, which is as many as one user may have; try again when "
        "some have ended",
        jobs);
  }
  if (held + static_cast<std::int64_t>(bytes) <= options().most_text_of_user) return std::nullopt;
  return fmt::format(
      "the descriptions of your jobs that wait or run take up {} of the {} bytes that one user may "
      "have; try again when some have ended, or put long lists into a file that the job reads",
      held, options().most_text_of_user);
}

Result<JobRecord> RequestHandler::record_of(const SubmitJob& ask) const {
  JobRecord job;
  job.id = state().next_job();
  job.user = reader_.caller().user;
  job.key = ask.key;
  job.file = ask.file;
  job.name = name_of(ask.file);
  job.nonce = ask.nonce;
  const auto user = state().users().find(reader_.caller().user);
  const bool recorded = user != state().users().end();
  const double most = recorded ? user->second.most_weight : options().most_weight;
  // An admin without a record is one because of the socket. For such an admin there is no limit.
  if (job.file.weight > most && (recorded || !reader_.caller().admin)) {
    return Error{fmt::format("a weight of {} is more than the {} that {} may give a job",
                             shortest(job.file.weight), shortest(most), reader_.caller().user)};
  }
  const WallTime now = state().wall(tx_.now());
  if (job.file.deadline) job.deadline = job.file.deadline;
  if (job.file.deadline_after) job.deadline = now + *job.file.deadline_after;
  if (job.file.search) {
    auto trial = trial_of(state(), job);
    if (!trial) return trial.error();
    job.trial = std::move(*trial);
  }
  job.submitted = now;
  job.work = work_of(job.file);
  job.scale = job.file.work ? 1 : 0;
  if (const Rates* known = state().profile(job.profile())) job.rates = *known;
  if (auto& tuning =
          job.rates
              .tuning) {  // measured on jobs of its profile; the limits are those of its own file
    if (job.file.batch.min > 0) tuning->initial = job.file.batch.min;
    if (job.file.batch.max > 0) tuning->largest = job.file.batch.max;
    tuning->largest = std::max(tuning->largest, tuning->initial);
  }
  return job;
}

Reply RequestHandler::after_decision(std::function<Answer()> answer) const {
  return [&core = reader_.core(), row = tx_.last_row(),
          answer = std::move(answer)]() -> std::optional<Answer> {
    if (core.state->asked() && core.state->decided_before() <= row) return std::nullopt;
    return answer();
  };
}

std::function<Answer()> RequestHandler::submit_answer(JobId id, int status) const {
  return [&core = reader_.core(), id, status]() -> Answer {
    const JobRecord* job = core.state->job(id);
    if (job == nullptr) return no_such_job(id);
    const ViewContext view = core.view();
    const Verdict verdict = verdict_on(view, *job);
    Json body = show_job(view, *job);
    body["verdict"] = to_json(*core.state, verdict);
    const bool refused = status == 201 && verdict.admitted == false;
    return {refused ? 409 : status, std::move(body)};
  };
}

Reply RequestHandler::try_out(JobRecord job) const {
  return
      [trial = std::make_shared<Trial>(reader_.core(), std::move(job))] { return trial->answer(); };
}

// --- the cluster ---

template <>
Reply RequestHandler::handle(const SetNode& ask) {
  const Cluster& cluster = state().now().cluster;
  const auto* number = std::get_if<NodeId>(&ask.node);
  const std::string text =
      number != nullptr ? std::to_string(number->value()) : std::get<std::string>(ask.node);
  const auto found = number != nullptr && number->index() < cluster.nodes().size()
                         ? std::optional(*number)
                         : cluster.find(text);
  if (!found) return say(404, fmt::format("there is no node {}", text));
  const NodeId node = *found;
  if (ask.state == NodeState::unknown)
    return say(400, "the wanted state of a node must be up, draining or down");
  if (state().wish(node) != ask.state) {
    Json row = row_of_node(state(), node);
    row["wish"] = std::string(to_text(ask.state));
    tx_.put("node", row);
    set_node(tx_, node);
  }
  // Also if nothing changes: the engine may not have got it the first time.
  tx_.mark({node, ask.state == NodeState::down});
  return [reader = reader_, node]() -> Answer {
    const Json nodes = show_nodes(
        reader.state(), [](JobId) { return true; }, [](const std::string&) { return true; });
    return {200, nodes["nodes"][node.index()]};
  };
}

template <>
Reply RequestHandler::handle(const SwitchPolicy& ask) {
  const auto chosen = choose_policy(ask.policy, options());
  if (!chosen) return say(400, chosen.error().message);
  if (ask.dry_run) {
    return [trial = std::make_shared<PolicyTrial>(reader_.core(), *chosen)] {
      return trial->answer();
    };
  }
  const std::vector<JobId> promised_before = promised_jobs(state());
  switch_policy(tx_, *chosen, options());
  return after_decision([reader = reader_, promised_before]() -> Answer {
    const DaemonState& now = reader.state();
    Json body = show_policy(now, [](JobId) { return true; });
    body["not_honoured"] = show_lost(now, promised_before, [&](const JobRecord& job) {
      return job.honoured || now.keeps_deadline(job.id);
    });
    return {200, std::move(body)};
  });
}

// --- users ---

template <>
Reply RequestHandler::handle(const AddUser& ask) {
  if (state().users().contains(ask.name))
    return say(409, fmt::format("there is a user {} already", base::quoted(ask.name)));
  if (!(ask.most_weight > 0)) return say(400, "the largest weight of a job must be above 0");
  const UserRecord user{ask.name, ask.admin, ask.most_weight, {hex(ask.token)}, {}, ask.guaranteed};
  tx_.put_user(user);
  Json body = show_user(user);
  if (options().may_run) {
    if (auto may = options().may_run({ask.name, ask.admin}); !may)
      body["warning"] = "they can look, but not submit: " + may.error().message;
  }
  return [answer = Answer{201, std::move(body)}] { return answer; };
}

template <>
Reply RequestHandler::handle(const RemoveUser& ask) {
  if (!state().users().contains(ask.name))
    return say(404, fmt::format("there is no user {}", base::quoted(ask.name)));
  tx_.remove_user(ask.name);
  return [answer = Answer{200, {{"removed", ask.name}}}] { return answer; };
}

template <>
Reply RequestHandler::handle(const AddToken& ask) {
  const auto found = state().users().find(ask.user);
  if (found == state().users().end())
    return say(404, fmt::format("there is no user {}", base::quoted(ask.user)));
  UserRecord user = found->second;
  user.tokens.insert(hex(ask.token));
  tx_.put_user(user);
  return [answer = Answer{201, show_user(user)}] { return answer; };
}

template <>
Reply RequestHandler::handle(const RemoveToken& ask) {
  const auto found = state().users().find(ask.user);
  if (found == state().users().end())
    return say(404, fmt::format("there is no user {}", base::quoted(ask.user)));
  UserRecord user = found->second;
  const auto is_named = [&](const std::string& token) {
    return ask.token.size() >= kTokenNameDigits && token.starts_with(ask.token);
  };
  const auto removed =
      std::erase_if(user.tokens, is_named) +
      std::erase_if(user.pages, [&](const PageToken& page) { return is_named(page.token); });
  if (removed == 0) return say(404, fmt::format("{} has no such token", ask.user));
  tx_.put_user(user);
  return [answer = Answer{200, show_user(user)}] { return answer; };
}

// --- cells ---

template <>
Reply RequestHandler::handle(const SetCells& ask) {
  const Cluster& cluster = state().now().cluster;
  auto cells = parse_cells(ask.cells, cluster);
  if (!cells) return say(400, cells.error().message);
  TenantCells quota{ask.tenant, std::move(*cells), ask.members};
  if (auto ok = check_names(quota); !ok) return say(400, ok.error().message);
  Quotas quotas = state().quotas();
  if (auto ok = quotas.set(std::move(quota), cluster); !ok) return say(409, ok.error().message);
  if (!(quotas == state().quotas())) tx_.put_cells(*quotas.find(ask.tenant));
  return after_decision([reader = reader_, tenant = ask.tenant]() -> Answer {
    return {200, show_cells(reader.state(), tenant)};
  });
}

template <>
Reply RequestHandler::handle(const RemoveCells& ask) {
  if (state().quotas().find(ask.tenant) == nullptr)
    return say(404, fmt::format("there is no tenant {} with cells", base::quoted(ask.tenant)));
  tx_.put_cells({ask.tenant, {}, {}});
  return [answer = Answer{200, {{"removed", ask.tenant}}}] { return answer; };
}

// --- the page ---

// How long a browser may use its token, and how many a user may have.
constexpr Duration kPageHolds = std::chrono::hours(12);
constexpr std::size_t kMostPages = 32;

template <>
Reply RequestHandler::handle(const OpenPage& ask) {
  const Caller& caller = reader_.caller();
  const auto found = state().users().find(caller.user);
  // A caller on the unix socket needs no record until now.
  UserRecord user = found != state().users().end()
                        ? found->second
                        : UserRecord{caller.user, caller.admin, options().most_weight, {}};
  const WallTime now = state().wall(tx_.now());
  std::erase_if(user.pages, [&](const PageToken& page) { return page.until <= now; });
  if (user.pages.size() >= kMostPages) user.pages.erase(user.pages.begin());
  user.pages.push_back({hex(ask.token), now + kPageHolds});
  tx_.put_user(user);
  const Json body = {{"user", user.name},
                     {"role", user.admin ? "admin" : "user"},
                     {"until", iso(user.pages.back().until)}};
  return [answer = Answer{201, body}] { return answer; };
}

template <>
Reply RequestHandler::handle(const ClosePage& ask) {
  const auto found = state().users().find(reader_.caller().user);
  if (found == state().users().end()) return say(409, "this is no token of a page");
  UserRecord user = found->second;
  const auto removed = std::erase_if(
      user.pages, [&](const PageToken& page) { return page.token == hex(ask.token); });
  if (removed == 0) return say(409, "this is no token of a page");
  tx_.put_user(user);
  return [answer = Answer{200, {{"closed", true}}}] { return answer; };
}

// --- all of them ---

Reply RequestHandler::take(const Ask& ask) {
  if (needs_admin(ask) && !reader_.caller().admin) return say(403, "that is for admins only");
  return std::visit(
      [this](const auto& one) -> Reply {
        if constexpr (std::is_invocable_v<const Reader&, decltype(one)>) {
          return reader_(one);
        } else {
          return handle(one);
        }
      },
      ask);
}

}  // namespace rubato::daemon
