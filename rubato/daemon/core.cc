#include "rubato/daemon/core.h"

#include <algorithm>
#include <fmt/format.h>

#include "rubato/base/check.h"
#include "rubato/daemon/clock.h"
#include "rubato/daemon/core_metrics.h"
#include "rubato/daemon/facts.h"
#include "rubato/daemon/job_model.h"
#include "rubato/daemon/measuring.h"
#include "rubato/daemon/profiling.h"
#include "rubato/daemon/recovery.h"
#include "rubato/daemon/request_handler.h"
#include "rubato/daemon/searches.h"
#include "rubato/loop/decision_times.h"

namespace rubato::daemon {
namespace {

// The time between two attempts to write the journal.
constexpr Duration kRetry = std::chrono::seconds(1);
// At most this much of the loop's time is lost if the daemon dies.
constexpr Duration kTimeUnsaid = std::chrono::seconds(30);

double seconds_now(const CoreOptions& options) {
  return options.stopwatch ? options.stopwatch() : 0;
}

}  // namespace

// --- starting ---

Core::Core(Journal::Opened opened, const CoreOptions& options, Engine& engine)
    : parts_{options,
             StateStore(std::move(opened.journal), std::move(opened.snapshot),
                        {options.state, options.snapshot_rows, options.snapshot_every,
                         options.keep_journal}),
             nullptr,
             Reports(),
             Metrics(),
             "",
             kStart},
      engine_(engine) {}

Result<std::unique_ptr<Core>> Core::recover(Journal::Opened opened, const CoreOptions& options,
                                            Engine& engine, WallTime wall) {
  const bool repaired = !opened.dropped.empty();
  std::unique_ptr<Core> core(new Core(std::move(opened), options, engine));
  CoreParts& parts = core->parts_;
  auto state = parts.store.load();
  if (!state) return state.error();
  parts.state = std::move(*state);
  parts.time = parts.state->time();
  Transaction tx = core->new_transaction();
  try {
    auto begun = begin_or_continue(tx, parts.options, wall, repaired);
    if (!begun) return begun.error();
    core->made_up_for_ = std::move(*begun);
  } catch (const CannotFold& problem) {
    return Error{problem.what()};
  }
  if (auto stored = core->commit(tx); !stored) return stored.error();
  if (parts.options.texts) {
    std::set<Digest> needed;
    for (const auto& [text, jobs] : parts.state->texts()) needed.insert(text);
    parts.options.texts->remove_all_but(needed);
  }
  return core;
}

// --- a turn ---

Turn Core::turn(Time now, WallTime wall, std::vector<Input> inputs) {
  const double begun = seconds_now(parts_.options);
  Turn turn;
  parts_.time = std::max(now, parts_.time);
  engine_.collect(parts_.time, facts_);
  std::vector<Asked> asked;
  sort_inputs(std::move(inputs), asked);
  const std::size_t asked_something = asked.size();
  const bool waits = lost() || (!trouble().empty() && parts_.time < retry_at_);
  if (!waits) try_to_work(wall, asked, turn);
  if (!trouble().empty()) refuse(asked, turn);
  turn.stored = parts_.store.last();
  turn.trouble = trouble();
  const bool idle = asked_something + turn.changed.size() == 0;
  if (parts_.options.stopwatch && !idle)
    parts_.metrics.turn.observe(seconds_now(parts_.options) - begun);
  return turn;
}

void Core::sort_inputs(std::vector<Input> inputs, std::vector<Asked>& asked) {
  for (Input& input : inputs) {
    if (auto* ask = std::get_if<Asked>(&input)) {
      asked.push_back(std::move(*ask));
    } else if (auto* fact = std::get_if<Fact>(&input)) {
      facts_.push_back(std::move(*fact));
    } else {
      auto& status = std::get<JobStatus>(input);
      if (const JobStatus* last = parts_.reports.of(status.job))
        observe_pauses(last->pauses, status.pauses, parts_.metrics.resize_pause);
      parts_.reports.take(std::move(status));
    }
  }
}

void Core::try_to_work(WallTime wall, std::vector<Asked>& asked, Turn& turn) {
  const std::set<JobId> unread = parts_.reports.unread();
  Load load{unread, facts_, std::exchange(asked, {}), {}};
  Replies replies;
  const auto tx = take_in(wall, load, replies, turn);
  asked = std::move(load.asked);
  if (!tx) return;
  auto answers = answers_so_far(replies);
  const bool quiet = answers.empty();
  const RowNumber before = parts_.store.last();
  if (auto ok = commit(*tx); !ok) {
    parts_.reports.set_unread(unread);
    return fail(ok.error().message);
  }
  parts_.trouble.clear();
  just_started_ = false;
  facts_ = std::move(load.later);
  list_changes(*tx, before, turn);
  for (std::size_t i = 0; i < replies.size(); ++i)
    waiting_.push_back({asked[i].id, std::move(replies[i])});
  asked.clear();
  give_answers(std::move(answers), turn);
  if (!tx->commands().empty()) engine_.carry_out(parts_.time, tx->commands());
  parts_.store.snapshot_if_due(*parts_.state, parts_.time, quiet);
}

// The changes by all inputs, or by those that can be folded: a bad input from one job or one user
// must not block the others. nullopt if not even the rest can be folded.
std::optional<Transaction> Core::take_in(WallTime wall, Load& load, Replies& replies, Turn& turn) {
  for (;;) {
    parts_.reports.set_unread({});
    replies.clear();
    parts_.outlooks.reset();
    Transaction tx = new_transaction();
    Suspect suspect;
    try {
      work(tx, wall, load, replies, suspect);
      return tx;
    } catch (const CannotFold& problem) {
      if (!drop_what_fails(load, suspect, problem.what(), turn)) {
        fail(problem.what());
        return std::nullopt;
      }
    }
    take_back();
    if (lost()) return std::nullopt;
  }
}

bool Core::drop_what_fails(Load& load, const Suspect& suspect, const std::string& why, Turn& turn) {
  const auto could_not = [&](const Asked& one) {
    turn.answers.emplace_back(
        one.id, refusal(500, fmt::format("the daemon could not process this: {}", why)));
  };
  if (const auto* fact = std::get_if<const Fact*>(&suspect)) {
    load.facts.erase(load.facts.begin() + (*fact - load.facts.data()));
  } else if (const auto* ask = std::get_if<const Asked*>(&suspect)) {
    could_not(**ask);
    load.asked.erase(load.asked.begin() + (*ask - load.asked.data()));
  } else if (!load.statuses.empty()) {
    load.statuses.clear();  // jobs send them again
  } else if (!load.asked.empty()) {
    for (const Asked& one : load.asked) could_not(one);
    load.asked.clear();
  } else if (load.facts.size() > 1) {  // one in each turn, to find those that can be stored
    load.later.assign(load.facts.begin() + 1, load.facts.end());
    load.facts.resize(1);
  } else if (!load.facts.empty()) {
    load.facts.clear();
  } else {
    return false;
  }
  return true;
}

void Core::work(Transaction& tx, WallTime wall, const Load& load, Replies& replies,
                Suspect& suspect) {
  const DaemonState& state = *parts_.state;
  set_clock(tx, wall, just_started_);
  if (state.alive() > 0) keep_time(tx, kTimeUnsaid);
  std::set<JobId> finished_a_stage;
  for (const JobId job : load.statuses) {
    const JobStatus* status = parts_.reports.of(job);
    if (status == nullptr) continue;
    look_if_plain(tx, *status);
    if (parts_.options.judge_trials && note_stages(tx, *status)) finished_a_stage.insert(job);
    measure(tx, parts_.reports, *status, parts_.options);
  }
  for (const Fact& fact : load.facts) {
    suspect = &fact;
    take_fact(tx, parts_.reports, fact);
  }
  replies.reserve(load.asked.size());
  for (const Asked& one : load.asked) {
    suspect = &one;
    replies.push_back(RequestHandler(parts_, tx, one.request.caller).take(one.request.ask));
  }
  suspect = std::monostate();
  end_quotas(tx);
  end_pauses(tx);
  profile(tx);
  const auto judge = [&] {
    if (parts_.options.judge_trials)
      judge_searches(tx, parts_.state->take_unjudged(), finished_a_stage);
  };
  judge();
  decide_if_due(tx);
  judge();  // nobody waits for a trial that was refused
  tx.put_commands();
}

Time Core::may_decide_from(Time t) const {
  const DaemonState& state = *parts_.state;
  const auto last =
      state.last_decision() ? std::optional(state.loop().state().asked_at) : std::nullopt;
  return decision_allowed_from(t, state.now().interval, last);
}

// Takes in the policy's decision if there is one, and asks again if that is due.
void Core::decide_if_due(Transaction& tx) {
  const DaemonState& state = *parts_.state;
  // Another policy is in force, or the turn that asked was rolled back.
  if (pending_ && state.asked() != pending_->asked) pending_.reset();
  if (state.asked() && !pending_) tx.drop_question();
  if (pending_) {
    if (!pending_->task->done()) return;
    answer(tx, *std::exchange(pending_, std::nullopt));
  }
  const auto& again = state.loop().state().again_at;
  if (again && *again <= parts_.time && may_decide()) tx.post(Wake{});
  if (state.loop().decision_due() && (may_decide() || tx.must_decide())) ask(tx);
}

void Core::ask(Transaction& tx) {
  Pending pending{std::make_shared<Question>(tx.ask()), std::make_shared<double>(0), nullptr, {}};
  const bool quick = parts_.state->policy().entry->quick;
  pending.task = parts_.options.background->start(
      quick ? Background::Length::quick : Background::Length::unknown,
      [question = pending.question, took = pending.took, stopwatch = parts_.options.stopwatch] {
        const double begun = stopwatch ? stopwatch() : 0;
        think(*question);
        *took = stopwatch ? stopwatch() - begun : 0;
      });
  if (pending.task->done()) return answer(tx, std::move(pending));
  tx.decide_later();
  pending.asked = tx.last_row();
  pending_ = std::move(pending);
}

void Core::answer(Transaction& tx, Pending pending) {
  tx.answer(std::move(*pending.question));
  if (parts_.options.stopwatch) {
    parts_.metrics.decision.observe(*pending.took);
    if (const auto& last = parts_.state->last_decision())
      parts_.took.add(last->number, *pending.took);
  }
  ++parts_.metrics.decisions;
}

Result<void> Core::commit(const Transaction& tx) {
  if (tx.rows().empty()) return {};
  const double begun = seconds_now(parts_.options);
  if (auto stored = parts_.store.append(tx.rows()); !stored) {
    ++parts_.metrics.journal_failures;
    return stored;
  }
  if (parts_.options.stopwatch)
    parts_.metrics.journal_append.observe(seconds_now(parts_.options) - begun);
  parts_.metrics.journal_rows += tx.rows().size();
  parts_.metrics.submitted += tx.submitted();
  parts_.metrics.resizes += tx.resizes();
  return {};
}

void Core::list_changes(const Transaction& tx, RowNumber before, Turn& turn) {
  DaemonState& state = *parts_.state;
  const auto& lines = state.lines();
  auto first = lines.end();
  while (first != lines.begin() && std::prev(first)->number > before) --first;
  turn.lines.assign(first, lines.end());
  turn.changed.assign(tx.touched().begin(), tx.touched().end());
  for (const JobId id : turn.changed) {
    const JobRecord* job = state.job(id);
    if (job != nullptr && !job->gone()) continue;
    turn.gone.push_back(id);
    parts_.reports.forget(id);
    if (job != nullptr) count_end(parts_.metrics, *job);
  }
  count_starts(parts_.metrics, tx.commands(), state, parts_.time);
  turn.forgotten = state.take_forgotten();
  for (const Digest& text : state.take_unused_texts()) {
    if (parts_.options.texts) parts_.options.texts->remove(text);
  }
  turn.marks = tx.marks();
  turn.users_changed = tx.users_changed();
}

// The answers that are ready: of waiting requests, in their order, and of these.
std::vector<std::optional<Answer>> Core::answers_so_far(const Replies& replies) const {
  std::vector<std::optional<Answer>> answers;
  for (const Waiting& one : waiting_) answers.push_back(one.reply());
  for (const Reply& reply : replies) answers.push_back(reply());
  return answers;
}

// Sends the answers, in order. A request without an answer continues to wait.
void Core::give_answers(std::vector<std::optional<Answer>> answers, Turn& turn) {
  std::vector<Waiting> still;
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    if (answers[i]) {
      turn.answers.emplace_back(waiting_[i].id, std::move(*answers[i]));
    } else {
      still.push_back(std::move(waiting_[i]));
    }
  }
  waiting_ = std::move(still);
}

void Core::fail(std::string why) {
  parts_.trouble = std::move(why);
  retry_at_ = parts_.time + kRetry;
  take_back();
}

// Rolls the turn back.
void Core::take_back() {
  parts_.outlooks.reset();
  auto state = parts_.store.load();
  parts_.state = state ? std::move(*state) : nullptr;
  if (state || state.error().message == trouble()) return;
  parts_.trouble += fmt::format("{}the journal cannot be read back: {}",
                                trouble().empty() ? "" : "; and ", state.error().message);
}

// Requests that are stored continue to wait, unless the state is lost.
void Core::refuse(const std::vector<Asked>& asked, Turn& turn) {
  const auto no = [&](std::uint64_t id) {
    turn.answers.emplace_back(
        id, refusal(503, fmt::format("nothing can be stored now, so no change is accepted; running "
                                     "jobs continue; the reason: {}",
                                     trouble())));
  };
  if (lost()) {
    for (const Waiting& one : std::exchange(waiting_, {})) no(one.id);
  }
  for (const Asked& one : asked) {
    if (lost() || changes_something(one.request.ask)) {
      no(one.id);
      continue;
    }
    Transaction nothing = new_transaction();
    waiting_.push_back(
        {one.id, RequestHandler(parts_, nothing, one.request.caller).take(one.request.ask)});
  }
  if (!lost()) give_answers(answers_so_far({}), turn);
}

Time Core::again_at() const {
  if (!trouble().empty()) return retry_at_;
  Time at = kNever;
  const DaemonState& state = *parts_.state;
  const State& loop = state.loop().state();
  if (state.asked() && !pending_) return parts_.time;
  // A policy that is deciding reports when it is done.
  if (loop.decision_due && !pending_) at = std::min(at, may_decide_from(parts_.time));
  if (loop.again_at && !pending_) at = std::min(at, may_decide_from(*loop.again_at));
  for (const JobId id : state.to_be_measured()) {
    if (const JobRecord* job = state.job(id); job->verdict_by) at = std::min(at, *job->verdict_by);
  }
  for (const JobId id : state.pausing())
    at = std::min(at, state.job(id)->paused_until().value_or(kNever));
  for (const JobId id : state.with_quota())
    at = std::min(at, state.job(id)->quota->until.value_or(kNever));
  return at;
}

Result<void> Core::save() { return parts_.store.save(*parts_.state, parts_.time); }

Result<void> Core::close() {
  Transaction tx = new_transaction();
  try {
    keep_time(tx, Duration(1));
  } catch (const CannotFold& problem) {
    return Error{problem.what()};
  }
  if (auto ok = commit(tx); !ok) return ok;
  return save();
}

// --- looking ---

std::vector<KnownJob> Core::told() const {
  const DaemonState& state = *parts_.state;
  std::vector<KnownJob> jobs;
  for (const JobView& view : state.now().jobs) {
    const JobRecord* job = state.job(view.id);
    if (job == nullptr || !job->told || !job->home || view.held.empty()) continue;
    jobs.push_back({view.id, *job->home, *job->told, view.held});
  }
  return jobs;
}

std::vector<NodeMark> Core::operators_words() const {
  const DaemonState& state = *parts_.state;
  std::vector<NodeMark> marks;
  for (std::size_t n = 0; n < state.now().cluster.nodes().size(); ++n) {
    const NodeId node(static_cast<NodeId::rep>(n));
    const bool down = state.wish(node) == NodeState::down;
    if (down || state.reported(node) == NodeState::down) marks.push_back({node, down});
  }
  return marks;
}

std::optional<Caller> Core::who(const Digest& token) const {
  const std::string name = hex(token);
  for (const auto& [user, record] : parts_.state->users()) {
    if (record.tokens.contains(name)) return Caller{user, record.admin};
    for (const PageToken& page : record.pages) {
      if (page.token == name && page.until > parts_.state->wall(parts_.state->time()))
        return Caller{user, record.admin};
    }
  }
  return std::nullopt;
}

JobLaunch Core::launch_of(JobId id) const {
  const JobRecord* job = parts_.state->job(id);
  const JobView* view = parts_.state->view(id);
  const CoreOptions& options = parts_.options;
  CHECK(job != nullptr && view != nullptr);
  JobLaunch launch;
  launch.job = id;
  launch.name = job->name;
  if (auto file = parts_.whole_file(*job)) {
    launch.command = std::move(file->command);
    launch.env = std::move(file->env);
    launch.secrets = std::move(file->secrets);
  } else {
    // A part of a command must never run. The path of the lost file is no program, so the job
    // fails, and the reason names the file.
    launch.command = {options.texts ? options.texts->path_of(*job->digest) : hex(*job->digest)};
  }
  launch.env.merge(batch_environment(job->file));
  launch.directory = job->file.directory;
  launch.user = job->user;
  launch.least = view->spec->limits.smallest();
  launch.most = view->spec->limits.max;
  launch.max_failures = job->file.max_failures;
  launch.stop_after = job->file.stop_after;
  launch.log_limit = options.log_limit;
  launch.hello = options.hello;
  launch.silent = job->plain.has_value();
  launch.live = job->file.elastic;
  launch.opportunistic = view->spec->opportunistic;
  if (job->file.notice > Duration(0)) launch.grace = job->file.notice;
  return launch;
}

Json Core::show(JobId id) const {
  const JobRecord* job = parts_.state->job(id);
  return job != nullptr ? show_job(parts_.view(), *job) : Json(nullptr);
}

}  // namespace rubato::daemon
