#include "rubato/daemon/core.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <fmt/format.h>

#include "rubato/base/check.h"
#include "rubato/daemon/job_model.h"
#include "rubato/daemon/request_handler.h"
#include "rubato/model/fit.h"

namespace rubato::daemon {
namespace {

// The wall clock may drift by so much before deadlines are derived anew.
constexpr Duration kClockSlack = std::chrono::seconds(1);
constexpr Duration kRetry = std::chrono::seconds(1);
// What is told anew: speeds that differ by so much, and progress by so much of the whole.
constexpr double kMaterialRate = 0.05;
constexpr double kMaterialProgress = 0.02;
// Of a new measurement in what is known: programs do not run evenly.
constexpr double kNewShare = 0.5;
// More than a journal can have lost at its end while anybody still ran what it said.
constexpr int kJobsSkipped = 1'000;
constexpr std::int64_t kMostJobsSkipped = 100'000'000;
constexpr int kGenerationsSkipped = 100'000;

// Between a failure and the next start, from the second failure in a row on. The first is often the
// only one, and a job that was promised something should not lose more time by it.
constexpr Duration kFirstPause = std::chrono::seconds(1);
constexpr Duration kLongestPause = std::chrono::minutes(5);

// Counts at which a job is measured before it is promised anything.
constexpr std::size_t kCountsMeasured = 4;
// So much of the loop's time may be lost when the daemon dies.
constexpr Duration kTimeUnsaid = std::chrono::seconds(30);

// A speed that some machine may have. Programs report anything, and what is reckoned from the rest
// would soon be no number any more.
bool plausible(double rate) { return rate >= 1e-12 && rate <= 1e15; }

Duration pause_after(int failures_in_a_row) {
  if (failures_in_a_row < 2) return Duration(0);
  constexpr int kDoublings = 10;  // more than it takes to the longest
  return std::min(kLongestPause, kFirstPause * (1 << std::min(failures_in_a_row - 2, kDoublings)));
}

// What a machine or a program says of itself, as much of it as is stored.
std::string short_why(const std::string& why) {
  constexpr std::size_t kMost = 500;
  if (why.size() <= kMost) return why;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(why[end]) & 0xC0U) == 0x80U) --end;
  return why.substr(0, end) + "...";
}

std::string failed_text(int failures, const std::string& why) {
  const char* before = why.empty() ? "" : failures == 1 ? ": " : "; the last time: ";
  return fmt::format("failed {}{}{}", times(failures), before, why);
}

// `run` ran for the job of which nothing is known.
std::string why_unmeasured(const JobRecord* run) {
  const std::optional<JobEnding> ending = run == nullptr ? std::nullopt
                                          : run->ending  ? run->ending
                                                         : run->leaves_as;
  if (!ending || ending->how == Ending::completed) return "its speed could not be measured in time";
  return fmt::format("its speed could not be measured, because the run that was to do so ended: {}",
                     ending->why);
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

bool same_machines(const Cluster& a, const Cluster& b) {
  if (a.nodes().size() != b.nodes().size() || a.types() != b.types()) return false;
  for (int t = 0; t < a.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    if (a.type_name(type) != b.type_name(type)) return false;
  }
  return std::equal(a.nodes().begin(), a.nodes().end(), b.nodes().begin(),
                    [](const Node& x, const Node& y) {
                      return x.type == y.type && x.gpus == y.gpus && x.reserved == y.reserved;
                    });
}

// Of resizes that were settled between the two: a status has the newest ones, so what it shares
// with the end of the last one is known.
void observe_pauses(const std::vector<double>& before, const std::vector<double>& after,
                    Histogram& histogram) {
  std::size_t known = std::min(before.size(), after.size());
  while (known > 0 && !std::equal(before.end() - static_cast<std::ptrdiff_t>(known), before.end(),
                                  after.begin()))
    --known;
  for (std::size_t i = known; i < after.size(); ++i) histogram.observe(after[i]);
}

// What a program told of its batch, as it is stored: its limits and noise always, its step only
// where it is known on which GPUs that was.
std::optional<Tuning> tuning_in(const JobProgress& progress, const Allocation& gpus, bool steady) {
  if (!progress.tuning) return std::nullopt;
  const JobTuning& told = *progress.tuning;
  Tuning tuning{told.initial, told.largest, told.largest_per_gpu, progress.noise, {}};
  if (!steady || !progress.per_gpu) return tuning;
  const StepMeasurement step{{gpus.nodes(), gpus.gpus()},
                             {*progress.per_gpu, progress.accumulation.value_or(0)},
                             told.step_seconds,
                             told.pass_seconds};
  if (check_measurement(step)) tuning.steps.push_back(step);
  return tuning;
}

struct ChangesSomething {
  bool operator()(const SubmitJob& submit) const { return !submit.dry_run; }
  bool operator()(const CancelJob& /*ask*/) const { return true; }
  bool operator()(const CancelJobs& /*ask*/) const { return true; }
  bool operator()(const HoldJob& /*ask*/) const { return true; }
  bool operator()(const ResizeJob& /*ask*/) const { return true; }
  bool operator()(const SetNode& /*ask*/) const { return true; }
  bool operator()(const SwitchPolicy& /*ask*/) const { return true; }
  bool operator()(const AddUser& /*ask*/) const { return true; }
  bool operator()(const RemoveUser& /*ask*/) const { return true; }
  bool operator()(const AddToken& /*ask*/) const { return true; }
  bool operator()(const RemoveToken& /*ask*/) const { return true; }
  bool operator()(const auto& /*ask*/) const { return false; }
};

}  // namespace

// --- starting ---

Core::Core(Journal journal, CoreOptions options, Engine& engine)
    : journal_(std::move(journal)), options_(std::move(options)), engine_(engine) {}

Result<std::unique_ptr<Core>> Core::recover(Journal::Opened opened, CoreOptions options,
                                            Engine& engine, WallTime wall) {
  std::unique_ptr<Core> core(new Core(std::move(opened.journal), std::move(options), engine));
  core->base_ = std::move(opened.snapshot);
  auto ledger = core->reload();
  if (!ledger) return ledger.error();
  core->ledger_ = std::move(*ledger);
  core->time_ = core->ledger_->time();
  core->snapshot_at_ = core->time_;
  core->rows_since_snapshot_ =
      core->journal_.last().value() - (core->base_ ? core->base_->number.value() : 0);
  if (auto ok = core->begin(wall, !opened.dropped.empty()); !ok) return ok.error();
  if (core->options_.texts) {
    std::set<Digest> needed;
    for (const auto& [text, jobs] : core->ledger_->texts()) needed.insert(text);
    core->options_.texts->remove_all_but(needed);
  }
  return core;
}

Result<std::unique_ptr<DaemonState>> Core::reload() const {
  auto ledger = std::make_unique<DaemonState>(options_.ledger);
  if (base_) {
    if (base_->version != DaemonState::kSnapshotVersion)
      return Error{fmt::format("the journal's snapshot has version {}", base_->version)};
    if (auto ok = ledger->load(*base_); !ok) return ok.error();
  }
  const RowNumber last = journal_.last();
  auto read = journal_.read(base_ ? base_->number : RowNumber(),
                            [&](RowNumber number, const JournalRow& row) -> Result<void> {
                              if (number > last) return {};  // of a transaction that failed
                              return ledger->apply(number, row);
                            });
  if (!read) return read.error();
  if (auto ok = ledger->load_policy(); !ok) return ok.error();
  return ledger;
}

Result<void> Core::begin(WallTime wall, bool repaired) {
  const std::string placement(name_of(options_.placement));
  repaired = repaired && ledger_->begun();
  const Json settings = {{"interval", options_.interval.count()},
                         {"lateness", options_.lateness.count()},
                         {"placement", placement}};
  if (!ledger_->begun()) {
    const auto cluster = encode(options_.cluster);
    if (!cluster) return cluster.error();
    Json began = settings;
    began["cluster"] = parse_json(cluster->body, "the cluster").value();
    began["version"] = cluster->version;
    put("began", began);
  } else if (!options_.cluster_of_journal &&
             !same_machines(ledger_->now().cluster, options_.cluster)) {
    return Error{fmt::format(
        "the journal belongs to another cluster ({}): start without naming one, with that one, or "
        "in another state directory",
        machines_text(ledger_->now().cluster))};
  } else if (ledger_->placement() != options_.placement ||
             ledger_->now().interval != options_.interval ||
             ledger_->now().lateness != options_.lateness) {
    put("settings", settings);
  }
  if (wrong_.empty()) options_.cluster = ledger_->now().cluster;
  if (wrong_.empty() && !ledger_->clock_set()) set_clock(wall);  // later, in a turn
  if (wrong_.empty() && (options_.switch_policy || ledger_->policy().entry == nullptr)) {
    const auto chosen = choose(options_.policy);
    if (!chosen) return chosen.error();
    if (ledger_->policy().entry == nullptr) {
      put_policy(*chosen);
    } else if (ledger_->policy().text != chosen->text) {
      switch_policy(*chosen);
    }
  }
  if (wrong_.empty()) {
    const auto skipped = jobs_to_skip(repaired);
    if (!skipped) return skipped.error();
    finish_torn_turn(*skipped);
  }
  if (!wrong_.empty()) return Error{wrong_};
  return store();
}

// How many numbers of jobs are left out, because rows are lost that may have used them; 0 if none
// are. A directory of a job that no row names shows it, too.
Result<std::int64_t> Core::jobs_to_skip(bool repaired) {
  const JobId next = ledger_->next_job();
  const JobId newest = options_.newest_directory.value_or(JobId());
  if (!options_.newest_directory || newest < next) return repaired ? kJobsSkipped : 0;
  const std::int64_t known = ledger_->now().jobs.next_id().value();
  const std::int64_t skipped = std::int64_t{newest.value()} + 1 - known + kJobsSkipped;
  if (skipped > kMostJobsSkipped) {
    return Error{
        fmt::format("{}/{} has a number that no job can have had, because the journal has no job "
                    "from {} on; move that directory away",
                    options_.jobs_directory, newest.value(), next.value())};
  }
  made_up_for_ = fmt::format(
      "There is a directory {}/{}, but the journal has no job from {} on: rows of it are lost. New "
      "jobs are numbered from {} on.",
      options_.jobs_directory, newest.value(), next.value(), known + skipped);
  return skipped;
}

// Masters obey nothing that is older than what they have heard, and that may be lost to us.
void Core::skip(std::int64_t jobs) {
  for (int generations = kGenerationsSkipped; jobs > 0; generations = 0) {
    const int some = static_cast<int>(std::min<std::int64_t>(jobs, kMostSkipped));
    post(Skipped{some, generations});
    jobs -= some;
  }
}

// A repair of the journal may have dropped the last rows of a turn: what must follow from the rows
// that are there is made up for. Elsewhere this finds nothing to do.
void Core::finish_torn_turn(std::int64_t skipped) {
  std::vector<JobId> lost;
  for (const auto& [id, job] : ledger_->jobs()) {
    if (!job.gone() && ledger_->view(id) == nullptr) lost.push_back(id);
  }
  for (const JobId id : lost) RequestHandler(*this, {ledger_->job(id)->user, false}).take_again(id);
  skip(skipped);
  std::vector<JobId> leaving;
  std::vector<JobId> aside;  // to be measured before the policy sees it
  std::vector<std::pair<JobId, Time>> due;
  for (const JobView& view : ledger_->now().jobs) {
    const JobRecord* job = ledger_->job(view.id);
    if (job == nullptr) continue;
    if (job->leaves_as && !view.leaving) leaving.push_back(view.id);
    const bool waits = job->measured_by || job->paused_until();
    if (waits && !job->leaves_as && !view.on_hold) aside.push_back(view.id);
    if (!job->deadline || !view.spec->deadline) continue;
    const Time deadline = ledger_->loop_time(*job->deadline);
    if (deadline != *view.spec->deadline) due.emplace_back(view.id, deadline);
  }
  for (const JobId id : leaving) post(Cancelled{id});
  for (const JobId id : aside) post(Held{id, true, ledger_->job(id)->paused_until()});
  for (const auto& [id, deadline] : due) post(Due{id, deadline});
  for (std::size_t n = 0; n < ledger_->now().cluster.nodes().size(); ++n)
    set_node(NodeId(static_cast<NodeId::rep>(n)));
  put_commands();
}

Result<PolicyInForce> Core::choose(const std::string& text) const {
  auto parsed = parse_policies(text);
  if (!parsed) return parsed.error();
  if (parsed->size() != 1) return Error{"name one policy"};
  const ChosenPolicy& one = parsed->front();
  if (one.entry->one_type && options_.cluster.types() > 1) {
    return Error{fmt::format("{} is defined on a cluster of one GPU type only, and this one has {}",
                             one.entry->name, options_.cluster.types())};
  }
  if (auto made = one.make(options_.ledger.inputs); !made) return made.error();
  PolicyInForce policy{one.canonical, one.entry, Duration(0)};
  // A plan that is promised must not be left for trying out counts.
  if (one.entry->elastic && !policy.admits()) policy.measuring = options_.measuring;
  return policy;
}

void Core::put_policy(const PolicyInForce& policy) {
  put("policy", {{"measuring", policy.measuring.count()}, {"policy", policy.text}});
}

// Nothing stops: the jobs go on until the new policy's first decision, which comes at once.
void Core::switch_policy(const PolicyInForce& policy) {
  put_policy(policy);
  std::vector<JobId> jobs;
  for (const JobView& view : ledger_->now().jobs) jobs.push_back(view.id);
  for (const JobId id : jobs) {
    if (wrong_.empty()) estimate(id);
  }
  for (const JobId id : jobs) {
    if (!wrong_.empty()) return;
    RequestHandler(*this, {ledger_->job(id)->user, false}).measure_if_unknown(id);
  }
  post(Wake{});
  decide_now_ = true;
}

// Only what is not as in every new job.
void Core::put_job(const JobRecord& job) {
  static const Json plain = write_record(JobRecord()).value();
  auto whole = write_record(job);
  if (!whole) {
    wrong_ = whole.error().message;
    return;
  }
  Json body = Json::object();
  for (const auto& [name, value] : whole->items()) {
    const bool needed = name == "file" || name == "id" || name == "name" || name == "user";
    if (name == "submitted" || (!needed && plain.contains(name) && plain[name] == value)) continue;
    body[name] = value;
  }
  touched_.insert(job.id);
  if (!job.measures_for) ++metrics_.submitted;
  put("job", body);
}

void Core::put_user(const UserRecord& user) {
  put("user", write_record(user).value());
  users_changed_ = true;
}

// --- a turn ---

Turn Core::turn(Time now, WallTime wall, std::vector<Input> inputs) {
  const double begun = options_.stopwatch ? options_.stopwatch() : 0;
  Turn turn;
  time_ = std::max(now, time_);
  engine_.collect(time_, facts_);
  std::vector<Asked> asked;
  for (Input& input : inputs) {
    if (auto* ask = std::get_if<Asked>(&input)) {
      asked.push_back(std::move(*ask));
    } else if (auto* fact = std::get_if<Fact>(&input)) {
      facts_.push_back(std::move(fact->event));
    } else {
      auto& status = std::get<JobStatus>(input);
      const JobId job = status.job;
      if (const auto last = statuses_.find(job); last != statuses_.end())
        observe_pauses(last->second.pauses, status.pauses, metrics_.resize_pause);
      statuses_[job] = std::move(status);
      unmeasured_.insert(job);
    }
  }
  const std::size_t asked_something = asked.size();
  const bool waits = lost() || (!trouble_.empty() && time_ < retry_at_);
  if (!waits) try_to_work(wall, asked, turn);
  if (!trouble_.empty()) refuse(asked, turn);
  turn.stored = journal_.last();
  turn.trouble = trouble_;
  const bool idle = asked_something + turn.changed.size() == 0;
  if (options_.stopwatch && !idle) metrics_.turn.observe(options_.stopwatch() - begun);
  return turn;
}

void Core::try_to_work(WallTime wall, std::vector<Asked>& asked, Turn& turn) {
  const std::set<JobId> unmeasured = unmeasured_;
  Load load{unmeasured, facts_, std::exchange(asked, {}), {}};
  std::vector<std::function<Answer()>> answers;
  const bool taken_in = take_in(wall, load, answers, turn);
  asked = std::move(load.asked);
  if (!taken_in) return;
  const std::vector<Command> commands = issued_;
  std::vector<Answer> told;
  told.reserve(answers.size());
  for (const auto& answer : answers) told.push_back(answer());
  const bool quiet = asked.empty();
  const RowNumber before = journal_.last();
  if (auto ok = store(); !ok) {
    unmeasured_ = unmeasured;
    return fail(ok.error().message);
  }
  trouble_.clear();
  just_started_ = false;
  facts_ = std::move(load.later);
  list_changes(turn, before);
  for (std::size_t i = 0; i < told.size(); ++i)
    turn.answers.emplace_back(asked[i].id, std::move(told[i]));
  asked.clear();
  if (!commands.empty()) engine_.carry_out(time_, commands);
  snapshot_if_due(quiet);
}

// The rows of all that has come, or of as much of it as can be taken in: what one job or one
// person says must not keep the others from being heard.
bool Core::take_in(WallTime wall, Load& load, std::vector<std::function<Answer()>>& answers,
                   Turn& turn) {
  for (;;) {
    unmeasured_.clear();
    answers.clear();
    work(wall, load, answers);
    if (wrong_.empty()) return true;
    const bool dropped = drop_what_fails(load, turn);
    std::string why = std::exchange(wrong_, {});
    if (!dropped) {
      fail(std::move(why));
      return false;
    }
    take_back();
    if (lost()) return false;
  }
}

// Trying the same again would not help. Whether there was anything to drop.
bool Core::drop_what_fails(Load& load, Turn& turn) const {
  const auto could_not = [&](const Asked& one) {
    turn.answers.emplace_back(
        one.id, refusal(500, fmt::format("the daemon could not take this in: {}", wrong_)));
  };
  if (const auto* fact = std::get_if<const Event*>(&culprit_)) {
    load.facts.erase(load.facts.begin() + (*fact - load.facts.data()));
  } else if (const auto* ask = std::get_if<const Asked*>(&culprit_)) {
    could_not(**ask);
    load.asked.erase(load.asked.begin() + (*ask - load.asked.data()));
  } else if (!load.statuses.empty()) {
    load.statuses.clear();  // jobs tell them again and again
  } else if (!load.asked.empty()) {
    for (const Asked& one : load.asked) could_not(one);
    load.asked.clear();
  } else if (load.facts.size() > 1) {  // one in each turn, to find those that can be taken in
    load.later.assign(load.facts.begin() + 1, load.facts.end());
    load.facts.resize(1);
  } else if (!load.facts.empty()) {
    load.facts.clear();
  } else {
    return false;
  }
  return true;
}

void Core::fail(std::string why) {
  trouble_ = std::move(why);
  retry_at_ = time_ + kRetry;
  take_back();
}

// Nothing of the turn has happened.
void Core::take_back() {
  forget_turn();
  auto ledger = reload();
  ledger_ = ledger ? std::move(*ledger) : nullptr;
  if (ledger || ledger.error().message == trouble_) return;
  trouble_ += fmt::format("{}the journal cannot be read back: {}", trouble_.empty() ? "" : "; and ",
                          ledger.error().message);
}

void Core::refuse(const std::vector<Asked>& asked, Turn& turn) {
  for (const Asked& one : asked) {
    if (std::visit(ChangesSomething(), one.request.ask) || lost()) {
      turn.answers.emplace_back(
          one.id,
          refusal(503,
                  fmt::format("nothing can be stored now, so nothing new is taken in; what runs "
                              "goes on; the reason: {}",
                              trouble_)));
      continue;
    }
    turn.answers.emplace_back(one.id,
                              RequestHandler(*this, one.request.caller).take(one.request.ask)());
  }
}

void Core::work(WallTime wall, const Load& load, std::vector<std::function<Answer()>>& answers) {
  forget_turn();
  set_clock(wall);
  if (ledger_->alive() > 0) keep_time(kTimeUnsaid);
  for (const JobId job : load.statuses) {
    const auto status = statuses_.find(job);
    if (status == statuses_.end()) continue;
    look_if_plain(status->second);
    measure(status->second);
  }
  if (!wrong_.empty()) return;
  for (const Event& fact : load.facts) {
    culprit_ = &fact;
    take_fact(fact);
    if (!wrong_.empty()) return;
  }
  answers.reserve(load.asked.size());
  for (const Asked& one : load.asked) {
    culprit_ = &one;
    answers.push_back(RequestHandler(*this, one.request.caller).take(one.request.ask));
    if (!wrong_.empty()) return;
  }
  culprit_ = std::monostate();
  end_pauses();
  profile();
  const auto& again = ledger_->loop().state().again_at;
  if (again && *again <= time_ && may_decide()) post(Wake{});
  if (ledger_->loop().decision_due() && (may_decide() || decide_now_)) decide();
  put_commands();
}

void Core::put_commands() {
  if (!wrong_.empty()) return;
  auto commands = ledger_->row_of_commands(time_);
  if (!commands) {
    wrong_ = commands.error().message;
    return;
  }
  if (!*commands) return;
  issued_ = ledger_->issued();
  for (const Command& command : issued_) {
    const JobId id = std::visit([](const auto& c) { return c.job; }, command);
    touched_.insert(id);
    const JobRecord* job = ledger_->job(id);
    metrics_.resizes += job != nullptr && moves(command, *job) ? 1 : 0;
  }
  put((*commands)->type, (*commands)->version, std::move((*commands)->body));
}

void Core::forget_turn() {
  rows_.clear();
  issued_.clear();
  marks_.clear();
  touched_.clear();
  outlooks_.reset();
  users_changed_ = false;
  decide_now_ = false;
  culprit_ = std::monostate();
}

RowNumber Core::next_row() const { return RowNumber(journal_.last().value() + rows_.size() + 1); }

void Core::put(std::string type, int version, std::string body) {
  if (!wrong_.empty()) return;
  JournalRow row{time_, std::move(type), version, std::move(body)};
  if (auto ok = ledger_->apply(next_row(), row); !ok) {
    wrong_ = ok.error().message;
    return;
  }
  rows_.push_back(std::move(row));
}

void Core::put(const char* type, const Json& body) {
  auto text = canonical_json(body);
  if (!text) {
    if (wrong_.empty()) wrong_ = text.error().message;
    return;
  }
  put(type, 1, std::move(*text));
}

void Core::post(const Event& event) {
  auto coded = encode(event);
  if (!coded) {
    if (wrong_.empty()) wrong_ = coded.error().message;
    return;
  }
  touched_.insert(job_of(event));
  put(std::move(coded->type), coded->version, std::move(coded->body));
}

// Decisions keep to the intervals: one in each at most.
bool Core::may_decide() const {
  const Duration interval = ledger_->now().interval;
  if (interval == Duration(0) || !ledger_->last_decision()) return true;
  return (time_ - kStart) / interval > (ledger_->loop().state().asked_at - kStart) / interval;
}

void Core::decide() {
  if (!wrong_.empty()) return;
  const double begun = options_.stopwatch ? options_.stopwatch() : 0;
  auto rows = ledger_->decide(time_, next_row());
  if (options_.stopwatch) metrics_.decision.observe(options_.stopwatch() - begun);
  ++metrics_.decisions;
  if (!rows) {
    wrong_ = rows.error().message;
    return;
  }
  for (JournalRow& row : *rows) rows_.push_back(std::move(row));
  if (const auto& last = ledger_->last_decision(); last && last->at == time_) {
    for (const Reject& reject : last->decision.reject) touched_.insert(reject.job);
    for (const Promise& promise : last->decision.promise) touched_.insert(promise.job);
  }
}

Result<void> Core::store() {
  if (rows_.empty()) return {};
  const double begun = options_.stopwatch ? options_.stopwatch() : 0;
  auto stored = journal_.append(rows_);
  if (!stored) {
    ++metrics_.journal_failures;
    return stored.error();
  }
  if (options_.stopwatch) metrics_.journal_append.observe(options_.stopwatch() - begun);
  metrics_.journal_rows += rows_.size();
  rows_since_snapshot_ += rows_.size();
  rows_.clear();
  return {};
}

void Core::list_changes(Turn& turn, RowNumber before) {
  const auto& lines = ledger_->lines();
  auto first = lines.end();
  while (first != lines.begin() && std::prev(first)->number > before) --first;
  turn.lines.assign(first, lines.end());
  touched_.erase(JobId());
  turn.changed.assign(touched_.begin(), touched_.end());
  for (const JobId id : turn.changed) {
    const JobRecord* job = ledger_->job(id);
    if (job != nullptr && !job->gone()) continue;
    turn.gone.push_back(id);
    statuses_.erase(id);
    unmeasured_.erase(id);
    if (job != nullptr) count_end(*job);
  }
  for (const Command& command : issued_) {
    const auto* start = std::get_if<Start>(&command);
    const JobRecord* job = start != nullptr ? ledger_->job(start->job) : nullptr;
    if (job == nullptr || !job->started) continue;
    if (*job->started == ledger_->wall(time_)) {
      metrics_.waiting.observe(seconds(Duration{*job->started - job->submitted}));
    } else {
      ++metrics_.restarts;
    }
  }
  turn.forgotten = ledger_->take_forgotten();
  for (const Digest& text : ledger_->take_unused_texts()) {
    if (options_.texts) options_.texts->remove(text);
  }
  turn.marks = marks_;
  turn.users_changed = users_changed_;
}

Shown Core::shown() {
  if (!outlooks_) outlooks_ = forecast(*ledger_);
  return {*ledger_, *outlooks_, [this](JobId id) { return status(id); }};
}

Result<std::optional<RowNumber>> Core::each_line(
    RowNumber after, const std::function<bool(const HistoryLine&)>& take) const {
  std::optional<RowNumber> left_at;
  if (after.next() >= ledger_->first_line_row()) {
    const auto& lines = ledger_->lines();
    auto line = std::upper_bound(lines.begin(), lines.end(), after,
                                 [](RowNumber n, const HistoryLine& l) { return n < l.number; });
    while (line != lines.end() && take(*line)) ++line;
    return left_at;
  }
  const auto first = journal_.first();
  if (!first) return first.error();
  after = std::max(after, RowNumber(first->value() - 1));
  bool enough = false;
  auto read = journal_.read(after, [&](RowNumber number, const JournalRow& row) -> Result<void> {
    for (const HistoryLine& line : lines_of(number, row, ledger_->offset_at(number))) {
      enough = !take(line);
      if (enough) return Error{"enough"};
    }
    if (number.value() - after.value() < options_.history_rows) return {};
    if (number < journal_.last()) left_at = number;
    enough = true;
    return Error{"enough"};
  });
  if (!read && !enough) return read.error();
  return left_at;
}

Answer Core::history(const Caller& caller, const History& ask, std::optional<JobId> only) const {
  const auto visible = [&](const HistoryLine& line) {
    if (only && line.job != only) return false;
    if (caller.admin) return true;
    const JobRecord* job = line.job ? ledger_->job(*line.job) : nullptr;
    if (line.job) return job != nullptr && job->user == caller.user;
    return line.type != "user" && line.type != "undecided";  // which may name others and their jobs
  };
  const auto most = static_cast<std::size_t>(std::max(ask.limit, 1));
  std::deque<Json> events;
  RowNumber last;
  bool more = false;
  Result<std::optional<RowNumber>> read = std::optional<RowNumber>();
  if (ask.after) {
    // The lines of a row stay together, so that who goes on after it misses none.
    read = each_line(RowNumber(*ask.after), [&](const HistoryLine& line) {
      if (!visible(line)) return true;
      more = events.size() >= most && line.number != last;
      if (more) return false;
      last = line.number;
      events.push_back(show_line(line));
      return true;
    });
    if (read && *read) {  // whoever goes on does so where it was left
      more = true;
      last = **read;
    }
  } else {
    // Few rows are lines that somebody is shown; so it looks further and further back.
    const std::uint64_t newest = journal_.last().value();
    for (std::uint64_t back = 16 * most; read; back *= 8) {
      back = std::min(back, options_.history_rows);
      const std::uint64_t from = newest - std::min(back, newest);
      events.clear();
      read = each_line(RowNumber(from), [&](const HistoryLine& line) {
        if (visible(line)) events.push_back(show_line(line));
        if (events.size() > most) events.pop_front();
        return true;
      });
      if (events.size() == most || from == 0 || back == options_.history_rows) break;
    }
  }
  const auto first = journal_.first();
  if (!read || !first) return refusal(500, (read ? first.error() : read.error()).message);
  return {200,
          {{"events", events},
           {"first", first->value()},
           {"next", more ? Json(last.value()) : Json(nullptr)}}};
}

void Core::count_end(const JobRecord& job) {
  switch (job.ending->how) {
    case Ending::completed:
      ++metrics_.completed;
      break;
    case Ending::failed:
      ++metrics_.failed;
      break;
    case Ending::cancelled:
      ++metrics_.cancelled;
      break;
    case Ending::refused:
      ++metrics_.refused;
      break;
  }
  if (!job.deadline || job.ending->how != Ending::completed) return;
  ++(*job.ended <= *job.deadline ? metrics_.deadlines_met : metrics_.deadlines_missed);
}

std::string Core::metrics_for(const Caller& caller) {
  Metrics metrics = metrics_;
  const Snapshot& now = ledger_->now();
  for (const auto& [id, job] : ledger_->jobs()) {
    if (job.measures_for) continue;
    ++metrics.jobs[state_of(*ledger_, job)];
    Metrics::Share& share = metrics.shares[job.user];
    const JobView* view = job.gone() ? nullptr : ledger_->view(id);
    share.gpu_seconds += (view != nullptr ? view->attained(time_) : job.attained).gpu_seconds();
    if (view == nullptr) continue;
    share.gpus += static_cast<std::uint64_t>(view->held.gpus());
    metrics.gpus_in_use += static_cast<std::uint64_t>(view->held.gpus());
    const JobStatus* reported = status(id);
    if (reported != nullptr && view->phase == Phase::running) {
      metrics.samples_per_second += reported->progress.rate;
      metrics.goodput += reported->progress.rate * efficiency_of(job, reported->progress);
    }
    const auto end = expected_end(job, *view, time_);
    if (!job.deadline || !end) continue;
    const double slack = seconds(Duration(*job.deadline - ledger_->wall(*end)));
    metrics.least_slack_seconds = std::min(metrics.least_slack_seconds.value_or(slack), slack);
    ++(slack >= 0 ? metrics.deadlines_ahead : metrics.deadlines_behind);
  }
  for (const auto& [name, used] : ledger_->used_by_forgotten())
    metrics.shares[name].gpu_seconds += used.gpu_seconds();
  for (auto& [name, share] : metrics.shares) {
    const auto user = ledger_->users().find(name);
    share.weight = user != ledger_->users().end() ? user->second.most_weight : options_.most_weight;
  }
  for (const Node& node : now.cluster.nodes()) ++metrics.nodes[node.state];
  metrics.gpus_installed = static_cast<std::uint64_t>(now.cluster.installed());
  metrics.gpus_usable = static_cast<std::uint64_t>(now.cluster.usable());
  return metrics_text(metrics, caller);
}

Time Core::again_at() const {
  if (!trouble_.empty()) return retry_at_;
  Time at = kNever;
  const State& state = ledger_->loop().state();
  const Duration interval = ledger_->now().interval;
  const auto when_allowed = [&](Time t) {
    if (interval == Duration(0) || may_decide()) return t;
    const Time next = kStart + ((state.asked_at - kStart) / interval + 1) * interval;
    return std::max(t, next);
  };
  if (state.decision_due) at = std::min(at, when_allowed(time_));
  if (state.again_at) at = std::min(at, when_allowed(*state.again_at));
  for (const JobId id : ledger_->to_be_measured()) {
    if (const JobRecord* job = ledger_->job(id); job->verdict_by)
      at = std::min(at, *job->verdict_by);
  }
  for (const JobId id : ledger_->pausing())
    at = std::min(at, ledger_->job(id)->paused_until().value_or(kNever));
  return at;
}

// --- snapshots ---

void Core::snapshot_if_due(bool quiet) {
  const bool rows_due = rows_since_snapshot_ >= options_.snapshot_rows;
  const bool time_due = rows_since_snapshot_ > 0 && time_ - snapshot_at_ >= options_.snapshot_every;
  if (!rows_due && !time_due) return;
  // It takes a while: rather when nobody waits for an answer.
  if (!quiet && rows_since_snapshot_ < 2 * options_.snapshot_rows) return;
  snapshot_at_ = time_;
  static_cast<void>(save());  // a failure costs time at the next start and nothing else
}

Result<void> Core::close() {
  forget_turn();
  keep_time(Duration(1));
  if (auto ok = store(); !ok) return ok;
  return save();
}

Result<void> Core::save() {
  if (rows_since_snapshot_ == 0) return {};
  auto body = ledger_->snapshot();
  if (!body) return body.error();
  JournalSnapshot snapshot{journal_.last(), DaemonState::kSnapshotVersion, std::move(*body)};
  if (auto ok = journal_.write_snapshot(snapshot); !ok) return ok;
  base_ = std::move(snapshot);
  rows_since_snapshot_ = 0;
  if (auto ok = journal_.compact(); !ok) return ok;
  prune();
  return {};
}

// What cannot be removed now is removed the next time.
void Core::prune() {
  if (options_.keep_journal == Duration(0)) return;
  const WallTime oldest = ledger_->wall(time_) - options_.keep_journal;
  static_cast<void>(journal_.prune([&](RowNumber number, Time at) {
    return WallTime(at.time_since_epoch() + ledger_->offset_at(number)) < oldest;
  }));
}

// --- the clock ---

void Core::set_clock(WallTime wall) {
  const Duration offset = wall.time_since_epoch() - time_.time_since_epoch();
  const bool first = !ledger_->clock_set();
  const Duration moved = offset - ledger_->offset();
  if (!first && std::chrono::abs(moved) <= kClockSlack) return;
  std::vector<JobId> dated;
  for (const JobView& view : ledger_->now().jobs) {
    if (view.spec->deadline) dated.push_back(view.id);
  }
  Json body = {{"offset", offset.count()}};
  if (!first) {
    body["deadlines"] = dated.size();
    body["moved"] = moved.count();
    // The loop's time stood still meanwhile.
    if (just_started_ && moved > Duration(0)) body["down"] = true;
  }
  put("clock", body);
  for (const JobId id : dated) {
    const JobRecord* job = ledger_->job(id);
    if (job != nullptr && job->deadline) post(Due{id, ledger_->loop_time(*job->deadline)});
  }
}

// Where nothing happens no row says how far time has come; a restart would take it back.
void Core::keep_time(Duration unsaid) {
  if (time_ - ledger_->time() < unsaid) return;
  put("clock", {{"deadlines", 0}, {"moved", 0}, {"offset", ledger_->offset().count()}});
}

// --- facts ---

void Core::take_fact(Event fact) {
  if (const auto* changed = std::get_if<NodeChanged>(&fact)) return take_node(*changed);
  const JobId id = job_of(fact);
  const JobView* view = ledger_->view(id);
  if (view == nullptr) return;
  if (const auto* finished = std::get_if<Finished>(&fact)) return take_end(*finished);
  const auto current = [&](const auto& e) { return e.generation == view->generation; };
  if (auto* running = std::get_if<Running>(&fact)) {
    if (!current(*running)) return;
    if (!options_.engine_knows_work) {
      if (view->phase == Phase::running) return;  // nothing new
      running->progress = progress_of(id, rate_held(*ledger_->job(id), *view));
    }
  } else if (auto* released = std::get_if<Released>(&fact)) {
    if (!current(*released) || view->held.empty()) return;
    if (!options_.engine_knows_work) {
      const bool trains = !released->stopped && view->phase == Phase::running;
      released->progress = progress_of(id, trains ? view->progress.rate : 0);
    }
  } else if (auto* failed = std::get_if<Failed>(&fact)) {
    if (!current(*failed) || view->held.empty()) return;  // said before
    if (!options_.engine_knows_work) failed->progress = progress_of(id, 0);
    failed->why = short_why(failed->why);
    return take_failure(*failed);
  }
  post(fact);
}

// A job may have ended while no daemon was there to see it. What the machine's clock said counts,
// unless that cannot be.
void Core::take_end(Finished finished) {
  const JobRecord* job = ledger_->job(finished.job);
  const WallTime now = ledger_->wall(time_);
  const WallTime began = job != nullptr && job->started ? *job->started : WallTime();
  if (finished.at && (*finished.at > now || *finished.at < began)) finished.at.reset();
  post(finished);
}

Progress Core::progress_of(JobId id, WorkRate rate) const {
  const JobRecord* job = ledger_->job(id);
  const JobView* view = ledger_->view(id);
  const auto status = statuses_.find(id);
  const JobProgress& progress = status != statuses_.end() ? status->second.progress : job->progress;
  const double done = done_by(*job, progress);
  const bool known = done > 0 && std::isfinite(done);
  const Work left = known ? job->work - done : view->progress.left(time_);
  // It is done when it says so: until then there is always a little left.
  const Work least = std::max(rate, (job->file.work ? 1e-6 : 0.1) * job->work);
  return {std::max(left, least), time_, rate};
}

void Core::take_failure(const Failed& failed) {
  post(failed);
  const JobRecord* job = ledger_->job(failed.job);
  if (job == nullptr || job->gone() || job->leaves_as) return;
  const auto status = statuses_.find(failed.job);
  const JobEnd* end = status != statuses_.end() && status->second.ended &&
                              status->second.ended->how == JobEnd::How::failed
                          ? &*status->second.ended
                          : nullptr;
  // Its launcher has tried as often as its owner wished.
  const bool by_itself = end != nullptr && status->second.failures > job->file.max_failures;
  const bool in_vain = by_itself || job->failures > job->file.max_failures;
  if (failed.infrastructure || !in_vain) return pause_restart(failed.job);
  JobEnding ending{Ending::failed, failed.why, std::nullopt, std::nullopt};
  if (!by_itself) ending.why = failed_text(job->failures, failed.why);
  if (ending.why.empty()) ending.why = "its program failed";
  if (end != nullptr) ending.code = end->code;
  end_job(failed.job, ending);
}

// The policy does not see it until then; so others may have its GPUs, and no clock is needed there.
void Core::pause_restart(JobId id) {
  const JobView* view = ledger_->view(id);
  if (!wrong_.empty() || view == nullptr || view->on_hold) return;
  const Duration pause = pause_after(ledger_->job(id)->setbacks->in_a_row);
  if (pause > Duration(0)) post(Held{id, true, time_ + pause});
}

void Core::end_pauses() {
  const std::set<JobId> pausing = ledger_->pausing();
  for (const JobId id : pausing) {
    if (wrong_.empty() && *ledger_->job(id)->paused_until() <= time_) post(Held{id, false});
  }
}

void Core::end_job(JobId id, const JobEnding& ending) {
  const JobRecord* job = ledger_->job(id);
  const auto run = job->measured_by;
  auto json = write_record(ending);
  touched_.insert(id);
  put("ended", {{"ending", json.value()}, {"job", id.value()}});
  if (ledger_->view(id) != nullptr) post(Cancelled{id});
  if (!run) return;
  if (const JobRecord* other = ledger_->job(*run);
      other != nullptr && !other->gone() && !other->leaves_as)
    end_job(*run,
            {Ending::cancelled, "nobody waits for its measurements", std::nullopt, std::nullopt});
}

void Core::take_node(const NodeChanged& fact) {
  if (fact.node.index() >= ledger_->now().cluster.nodes().size()) return;
  const std::string why = short_why(fact.why);
  if (ledger_->reported(fact.node) == fact.state && ledger_->node_why(fact.node) == why) return;
  Json row = {{"node", fact.node.value()}, {"reported", std::string(to_text(fact.state))}};
  if (!why.empty()) row["why"] = why;
  put("node", row);
  set_node(fact.node);
}

// The operator's word counts while the node is there at all.
void Core::set_node(NodeId node) {
  const NodeState wish = ledger_->wish(node);
  const NodeState reported = ledger_->reported(node);
  const NodeState state = wish == NodeState::down     ? wish
                          : reported != NodeState::up ? reported
                                                      : wish;
  if (wrong_.empty() && ledger_->now().cluster.node(node).state != state)
    post(NodeChanged{node, state});
}

// --- programs that know nothing of us ---

// One that does not speak to its launcher has one process: it keeps the GPU of that process alone.
// If it speaks after all, it may have again what it had. (What its agent says for a master that has
// not been heard yet is neither silent nor running.)
void Core::look_if_plain(const JobStatus& status) {
  const JobRecord* job = ledger_->job(status.job);
  const JobView* view = ledger_->view(status.job);
  if (job == nullptr || view == nullptr || job->leaves_as || job->measures_for) return;
  const GpuLimits limits = view->spec->limits;
  if (status.silent && !job->plain && limits.max > 1) {
    touched_.insert(status.job);
    put("plain", {{"job", status.job.value()}, {"limits", write_record(limits).value()}});
    if (status.ended) return;
    Limited limited{status.job, {1, 1, {}}};
    const auto in_use = allocation_of(status.in_use, ledger_->now().cluster);
    if (in_use && common(view->target, *in_use).gpus() == 1)
      limited.keeps = common(view->target, *in_use);
    post(limited);
    estimate(status.job);
  } else if (job->plain && status.running && !status.silent) {
    const GpuLimits before = *job->plain;
    put("plain", {{"job", status.job.value()}});
    post(Limited{status.job, before});
    estimate(status.job);
  }
}

// --- measuring ---

void Core::measure(const JobStatus& status) {
  const JobRecord* job = ledger_->job(status.job);
  const JobView* view = ledger_->view(status.job);
  if (job == nullptr || view == nullptr) {
    statuses_.erase(status.job);
    return;
  }
  if (options_.engine_knows_work) return;
  if (job->measured_at && time_ - *job->measured_at < options_.measure_every && !status.ended) {
    unmeasured_.insert(status.job);
    return;
  }
  JobProgress progress = status.progress;
  progress.tuning.reset();  // it is in the rates, if it counts
  Json body = {{"job", status.job.value()}, {"progress", to_json(progress)}};
  const int gpus = view->held.gpus();
  const bool steady = status.running && status.generation == view->generation &&
                      view->phase == Phase::running && status.progress.workers == gpus &&
                      time_ - job->running_since >= options_.settle;
  JobRecord scaled = *job;  // a guess of the work takes its scale from the first measurement
  if (steady && scaled.scale == 0) {
    scaled.scale = 1;
    const double raw = rate_by(scaled, status.progress);
    const double scale = rate_held(*job, *view) / raw;
    scaled.scale = plausible(raw) && plausible(scale) ? scale : 0;
    if (scaled.scale > 0) body["scale"] = scaled.scale;
  }
  Rates rates;
  const WorkRate rate = steady ? rate_by(scaled, status.progress) : 0;
  if (plausible(rate)) {
    const auto known = job->rates.by_gpus.find(gpus);
    rates.by_gpus[gpus] = known == job->rates.by_gpus.end()
                              ? rate
                              : known->second + kNewShare * (rate - known->second);
  }
  if (!status.pauses.empty() && status.pauses.back() > 0) rates.pause = status.pauses.back();
  if (job->file.batch.mode == BatchMode::adaptive)
    rates.tuning = tuning_in(status.progress, view->held, steady);
  if (status.failures > 0) body["failures"] = status.failures;
  if (!rates.by_gpus.empty() || rates.pause > 0 || rates.tuning)
    body["rates"] = write_record(rates).value();
  touched_.insert(status.job);
  put("measured", body);
  if (wrong_.empty() && rates.tuning) tell_goodput(status.job);
  if (!wrong_.empty() || rates.by_gpus.empty()) return;
  tell_speed(status.job, gpus, rates.by_gpus.begin()->second);
}

// A fit is only told where it says something else than the last.
void Core::tell_goodput(JobId id) {
  const JobView* view = ledger_->view(id);
  if (!ledger_->policy().tunes_batches()) return;
  const auto now = estimate_of(*ledger_->job(id), view->spec->limits, ledger_->policy());
  if (tells_more(*view->speed, *now, view->spec->limits)) tell_estimate(id, now);
}

void Core::tell_estimate(JobId id, std::shared_ptr<const SpeedModel> speed) {
  const Event told = Estimated{id, std::move(speed)};
  if (encode(told)) post(told);  // else it was fitted to nonsense
}

// Told only what matters: every word makes the policy think again.
void Core::tell_speed(JobId id, int gpus, WorkRate rate) {
  const JobView* view = ledger_->view(id);
  if (!is_goodput(*view->speed)) {
    const auto told = view->speed->measured();
    const WorkRate before = view->speed->on(view->held.type(), gpus);
    const bool known = std::find(told.begin(), told.end(), gpus) != told.end();
    if (!known || std::abs(rate - before) > kMaterialRate * before) estimate(id);
  }
  if (!wrong_.empty()) return;
  view = ledger_->view(id);
  const Progress progress = progress_of(id, rate);
  const bool ahead =
      std::abs(view->progress.left(time_) - progress.work_left) > kMaterialProgress * view->work;
  if (ahead || std::abs(rate - view->progress.rate) > kMaterialRate * view->progress.rate)
    post(Running{id, view->generation, progress});
}

void Core::estimate(JobId id) {
  const JobRecord* job = ledger_->job(id);
  const JobView* view = ledger_->view(id);
  if (job == nullptr || view == nullptr) return;
  tell_estimate(id, estimate_of(*job, view->spec->limits, ledger_->policy()));
}

// Jobs that wait for a promise: those that run for them are taken from count to count, and when
// that is done, or took too long, the policy is asked.
void Core::profile() {
  const std::set<JobId> waiting = ledger_->to_be_measured();
  for (const JobId id : waiting) {
    if (!wrong_.empty()) return;
    const JobRecord* job = ledger_->job(id);
    const JobRecord* run = ledger_->job(*job->measured_by);
    const bool runs = run != nullptr && !run->gone() && !run->leaves_as;
    const bool late = job->verdict_by && time_ >= *job->verdict_by;
    if (runs && !late && ledger_->policy().admits()) {
      const auto next = next_count(*run);
      if (!next) continue;
      if (*next > 0) {
        post(Limited{run->id, {*next, *next, {}}});
        estimate(run->id);
        continue;
      }
    }
    give_verdict(*job, runs ? std::optional(run->id) : std::nullopt);
  }
}

// The count to measure next; 0 if it was measured at all, nullopt while it is being measured.
std::optional<int> Core::next_count(const JobRecord& run) const {
  const JobView* view = ledger_->view(run.id);
  const int now = view->spec->limits.min;
  if (!run.rates.by_gpus.contains(now)) return std::nullopt;
  const GpuLimits limits = limits_on(ledger_->now().cluster, run.file.gpus);
  if (run.rates.by_gpus.size() >= kCountsMeasured) return 0;
  int next = now;
  while (next < 2 * now) {
    const auto above = limits.above(next);
    if (!above || *above > ledger_->now().cluster.usable()) return 0;
    next = *above;
  }
  return next;
}

// The run may have been so short that it was over before anything could be measured.
void Core::learn_from_end(const JobRecord& job) {
  const JobRecord* run = ledger_->job(*job.measured_by);
  if (speed_known(job, limits_now(job, *ledger_))) return;
  if (run == nullptr || !run->gone() || !run->started) return;
  if (run->ending->how != Ending::completed) return;
  const double took = std::max(1.0, seconds(Duration{*run->ended - *run->started}));
  Rates rates;
  rates.by_gpus[limits_on(ledger_->now().cluster, run->file.gpus).smallest()] = run->work / took;
  put("measured", {{"job", job.id.value()},
                   {"progress", to_json(JobProgress())},
                   {"rates", write_record(rates).value()}});
}

void Core::give_verdict(const JobRecord& job, std::optional<JobId> run) {
  const JobId id = job.id;
  learn_from_end(job);
  Json verdict = {{"job", id.value()}};
  const bool measured = speed_known(job, limits_now(job, *ledger_));
  const std::string why = measured ? "" : why_unmeasured(ledger_->job(*job.measured_by));
  if (!measured) verdict["why"] = why;
  touched_.insert(id);
  put("verdict", verdict);
  if (run)
    end_job(*run,
            {Ending::cancelled, "has measured what it was to measure", std::nullopt, std::nullopt});
  // Who was taken in before, by a policy that promises nothing, is judged by a guess then.
  if (!measured && ledger_->policy().admits() && !ledger_->view(id)->accepted()) {
    return end_job(id, {Ending::refused,
                        fmt::format("{}, so nothing can be promised; submit it again when that can "
                                    "be done, or without a deadline",
                                    why),
                        std::nullopt, std::nullopt});
  }
  estimate(id);
  post(Held{id, false});
}

// --- looking ---

std::vector<KnownJob> Core::told() const {
  std::vector<KnownJob> jobs;
  for (const JobView& view : ledger_->now().jobs) {
    const JobRecord* job = ledger_->job(view.id);
    if (job == nullptr || !job->told || !job->home || view.held.empty()) continue;
    jobs.push_back({view.id, *job->home, *job->told, view.held});
  }
  return jobs;
}

std::vector<NodeMark> Core::operators_words() const {
  std::vector<NodeMark> marks;
  for (std::size_t n = 0; n < ledger_->now().cluster.nodes().size(); ++n) {
    const NodeId node(static_cast<NodeId::rep>(n));
    const bool down = ledger_->wish(node) == NodeState::down;
    if (down || ledger_->reported(node) == NodeState::down) marks.push_back({node, down});
  }
  return marks;
}

std::optional<Caller> Core::who(const Digest& token) const {
  const std::string name = hex(token);
  for (const auto& [user, record] : ledger_->users()) {
    if (record.tokens.contains(name)) return Caller{user, record.admin};
  }
  return std::nullopt;
}

JobLaunch Core::launch_of(JobId id) const {
  const JobRecord* job = ledger_->job(id);
  const JobView* view = ledger_->view(id);
  CHECK(job != nullptr && view != nullptr);
  JobLaunch launch;
  launch.job = id;
  launch.name = job->name;
  if (auto file = whole_file(*job)) {
    launch.command = std::move(file->command);
    launch.env = std::move(file->env);
    launch.secrets = std::move(file->secrets);
  } else {
    // Half a command must never run. The file that should have it is no program, so the job fails
    // and its reason names what is missing.
    launch.command = {options_.texts ? options_.texts->path_of(*job->digest) : hex(*job->digest)};
  }
  launch.env.merge(batch_environment(job->file));
  launch.directory = job->file.directory;
  launch.user = job->user;
  launch.least = view->spec->limits.smallest();
  launch.most = view->spec->limits.max;
  launch.max_failures = job->file.max_failures;
  launch.stop_after = job->file.stop_after;
  launch.log_limit = options_.log_limit;
  launch.hello = options_.hello;
  launch.silent = job->plain.has_value();
  launch.live = job->file.elastic;
  if (job->file.notice > Duration(0)) launch.grace = job->file.notice;
  return launch;
}

Result<JobFile> Core::whole_file(const JobRecord& job) const {
  if (!job.text_bytes || !job.digest) return job.file;
  if (!options_.texts) return Error{"large job files are not kept here"};
  return options_.texts->load(*job.digest);
}

Json Core::show(JobId id) {
  const JobRecord* job = ledger_->job(id);
  return job != nullptr ? show_job(shown(), *job) : Json(nullptr);
}

const JobStatus* Core::status(JobId id) const {
  const auto found = statuses_.find(id);
  return found == statuses_.end() ? nullptr : &found->second;
}

}  // namespace rubato::daemon
