#include "rubato/elastic/driver.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>

#include "rubato/base/random.h"
#include "rubato/elastic/checkpoint_directory.h"
#include "rubato/elastic/kernels.h"
#include "rubato/elastic/schema.h"
#include "rubato/member/links.h"

namespace rubato::elastic {

using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kGroupPatience{30};
// A worker that sleeps looks this often whether it may go on, or must leave.
constexpr std::chrono::milliseconds kSleepTick{20};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Slice samples_of(const StepPlan& plan) { return {plan.epoch, plan.cursor, plan.samples}; }

std::int64_t samples_per_epoch(std::int64_t samples, const Options& options) {
  if (!options.drop_last || samples < options.batch) return samples;
  return samples - samples % options.batch;
}

std::optional<std::string> problem_with(const Options& options, std::int64_t samples) {
  if (samples <= 0) return "the data set is empty; there is nothing to train on";
  if (options.batch < 1) return fmt::format("batch is {}; use 1 or more", options.batch);
  if (options.largest_batch > 0 && options.largest_batch < options.batch) {
    return fmt::format("the largest batch is {}, below the batch of {}; choose a smaller batch",
                       options.largest_batch, options.batch);
  }
  if (options.virtual_workers < 1) {
    return fmt::format("virtual workers are {}; use 1 or more", options.virtual_workers);
  }
  if (options.steps <= 0 && options.epochs <= 0) {
    return "the job has no end; give a number of steps or of epochs";
  }
  return std::nullopt;
}

void make_last(StepPlan& plan, bool stopped) {
  plan.finish = true;
  plan.stopped = stopped;
  plan.digest = true;
}

}  // namespace

void say_on_stderr(const std::string& text) {
  const std::string line = fmt::format("rubato train: {}\n", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Result<std::unique_ptr<Driver>> Driver::open(Model& model, const Options& options,
                                             std::int64_t samples) {
  if (const auto problem = problem_with(options, samples)) return Error{*problem};
  std::unique_ptr<Driver> driver(new Driver(model, options, samples));
  if (Result<void> done = driver->take_part(); !done) return done.error();
  return driver;
}

Driver::Driver(Model& model, const Options& options, std::int64_t samples)
    : model_(model),
      options_(options),
      order_(samples, options.seed, options.shuffle, samples_per_epoch(samples, options)),
      tuning_(options),
      publishing_([this](const Json& report) { session_->report(report); }) {}

Driver::~Driver() {
  settle();
  writer_.reset();
  if (session_) session_->close();
}

// --- beginnings ---

Result<void> Driver::take_part() {
  const Result<member::Place> place = member::place_from_environment();
  if (!place) return place.error();
  uid_ = place->uid;
  if (options_.checkpoint.empty()) options_.checkpoint = place->checkpoint;
  if (place->spans_hosts()) {
    round_ = CheckpointRound{place->key->job, place->key->start, place->key->round};
  } else if (!claim({place->token, place->start})) {
    return Error{fmt::format("{}: a later start of this job has it", options_.checkpoint)};
  }
  Session::Config config;
  config.place = *place;
  config.identity = {options_.build, model_.schema()};
  config.layout = model_.layout();
  config.group = options_.group;
  config.difference = [ours = config.identity](const member::Identity& theirs) {
    if (ours.build != theirs.build) {
      return fmt::format(
          "this worker is build '{}', the job runs build '{}'; start all workers "
          "from one build",
          theirs.build, ours.build);
    }
    return difference(ours.schema, theirs.schema).value_or("");
  };
  session_ = std::make_unique<Session>(std::move(config));
  if (!options_.checkpoint.empty()) {
    writer_ = std::make_unique<CheckpointWriter>(
        [this](const CheckpointContent& content) { return write_out(content); },
        [this](const Result<std::string>& written) { checkpoint_written(written); });
  }
  if (uid_ > 1 && options_.warm_up) begin_warm_up();
  return {};
}

// In the first pass a library chooses and prepares its kernels, and memory is touched for the first
// time. A joining worker does this before others wait for its part of a step.
void Driver::begin_warm_up() {
  const int leaves = options_.adaptive ? 1 : std::min(2, options_.virtual_workers);
  const std::int64_t each = std::max<std::int64_t>(
      1, options_.batch / (options_.adaptive ? 1 : options_.virtual_workers));
  Leaf leaf;
  leaf.warm_up = true;
  leaf.weight = 1.0 / leaves;
  for (std::int64_t i = 0; i < std::min(each, order_.samples()); ++i) leaf.indices.push_back(i);
  for (const LeafStep& step : summation_order(0, leaves).steps) {
    leaf.summing = step;
    leaf.seed = leaf_seed(0, step.leaf);
    leaf.measure = tuning_.measures_noise(0);
    warm_up_.push_back(leaf);
  }
}

// False: a newer start of the job has replaced this worker's start. A directory that cannot be
// written may still be used to resume.
bool Driver::claim(const CheckpointOwner& owner) {
  if (options_.checkpoint.empty()) return true;
  const auto claimed = claim_checkpoints(options_.checkpoint, owner);
  if (!claimed) {
    say_on_stderr(claimed.error().message + "; training continues");
    return true;
  }
  start_ = claimed->value_or(0);
  return claimed->has_value();
}

Result<std::string> Driver::write_out(const CheckpointContent& content) const {
  if (round_) return write_checkpoint(options_.checkpoint, *round_, uid_, content);
  return write_checkpoint(options_.checkpoint, content);
}

// Across hosts, the founder claims the directory for its round. False: this worker ends.
bool Driver::load(std::optional<Loaded>& newest) {
  if (!round_) {
    auto loaded = load_newest(options_.checkpoint);
    if (!loaded) return end(wire::kRefused, loaded.error().message), false;
    newest = std::move(*loaded);
    return true;
  }
  auto claimed = claim_checkpoints(options_.checkpoint, *round_, uid_);
  if (!claimed) return end(wire::kRefused, claimed.error().message), false;
  if (!*claimed) {
    end(wire::kFailed, fmt::format("{}: a later round of this job has it", options_.checkpoint));
    return false;
  }
  newest = std::move((*claimed)->base);
  return true;
}

void Driver::on(Session::Found& /*found*/) {
  StepPlan first = first_plan();
  member::MembershipGeneration after;
  if (!options_.checkpoint.empty()) {
    std::optional<Loaded> loaded;
    if (!load(loaded)) return;
    if (loaded) {
      for (const SkippedCheckpoint& skipped : loaded->skipped) {
        warn(fmt::format("{}; continuing from {}", skipped.reason, loaded->path));
      }
      if (Result<void> restored = restore(*loaded, first); !restored) {
        return end(wire::kRefused, restored.error().message);
      }
      // Another launcher starts to count its plans again. With the old count, workers would wait
      // until its plan catches up. Its checkpoints are newer because of its start.
      if (!round_ && loaded->age.start == start_) after = {loaded->age.plan, loaded->age.revision};
    }
  }
  held_.assign(static_cast<std::size_t>(model_.chunks()), true);
  last_checkpoint_ = Clock::now();
  session_->found(first, after);
}

StepPlan Driver::first_plan() const {
  StepPlan plan;
  const Slice slice = order_.first(options_.batch);
  plan.samples = slice.samples;
  plan.adaptive = options_.adaptive;
  plan.leaves = options_.adaptive ? 1 : options_.virtual_workers;
  if (options_.adaptive) tuning_.shape_first(plan);
  return plan;
}

Result<void> Driver::restore(const Loaded& loaded, StepPlan& plan) {
  try {
    if (const auto differs = difference(model_.schema(), loaded.about.at("schema"))) {
      return Error{
          fmt::format("{} is of another model: {}; choose another directory or the old "
                      "model",
                      loaded.path, *differs)};
    }
    plan = loaded.about.at("next").get<StepPlan>();
    if (plan.adaptive != options_.adaptive) {
      plan.adaptive = options_.adaptive;
      plan.leaves = options_.adaptive ? 1 : options_.virtual_workers;
    }
    // The end of the job may have changed since.
    plan.finish = plan.stopped = plan.checkpoint = false;
    if (plan.samples == 0) {
      plan.samples = std::min<std::int64_t>(options_.batch, order_.samples() - plan.cursor);
    }
    if (ends_before(plan)) make_last(plan, false);
    plan = member::for_workers(plan, 1);
    tuning_.take(loaded.about.at("tuner"));
    publishing_.take(loaded.about.at("unpublished"));
  } catch (const Json::exception& error) {
    return Error{fmt::format("{}: {}", loaded.path, error.what())};
  }
  for (std::size_t i = 0; i < loaded.sections.size(); ++i) {
    const LoadedSection& section = loaded.sections[i];
    const Result<void> result =
        model_.load_chunk(static_cast<int>(i), section.head.get<std::string>(), section.body);
    if (!result) return Error{fmt::format("{}: {}", loaded.path, result.error().message)};
  }
  say_on_stderr("resumed from " + loaded.path);
  return {};
}

void Driver::on(Session::Adopted& adopted) {
  held_.assign(static_cast<std::size_t>(model_.chunks()), false);
  tuning_.take(adopted.about);
  last_checkpoint_ = Clock::now();
}

// --- what the program does next ---

Driver::Task Driver::next() {
  for (;;) {
    if (auto task = task_at_hand()) return std::move(*task);
    const auto sleep = sleep_left();
    auto event = sleep.count() > 0 ? session_->next(sleep) : std::optional(session_->next());
    if (event) std::visit([this](auto& e) { on(e); }, *event);
  }
}

std::optional<Driver::Task> Driver::next(std::chrono::milliseconds at_most) {
  const Clock::time_point until = Clock::now() + at_most;
  for (;;) {
    if (auto task = task_at_hand()) return task;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    const auto sleep = sleep_left();
    const auto wait = std::max(left, std::chrono::milliseconds(0));
    auto event = session_->next(sleep.count() > 0 ? std::min(sleep, wait) : wait);
    if (event) std::visit([this](auto& e) { on(e); }, *event);
    if (!event && wait.count() == 0) return std::nullopt;
  }
}

// A guest sleeps after each step as its share demands, so that its host can compute. 0: it may go
// on. Whoever is to leave does not sleep.
std::chrono::milliseconds Driver::sleep_left() const {
  constexpr std::chrono::milliseconds kNone{0};
  if (!computing_ || computing_->begun || computing_->range.steps.empty() || leaving())
    return kNone;
  const double share = session_->share();
  if (share >= 1) return kNone;
  if (!(share > 0)) return kSleepTick;
  const double left = busy_seconds_ * (1 / share - 1) - seconds_since(busy_until_);
  if (left <= 0) return kNone;
  const auto whole = std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(left * 1e3)));
  return std::min(whole, kSleepTick);
}

// Without waiting. It says the word of a step when its last leaf is done.
std::optional<Driver::Task> Driver::task_at_hand() {
  if (!end_ && !warm_up_.empty()) {
    Leaf leaf = std::move(warm_up_.front());
    warm_up_.pop_front();
    return leaf;
  }
  if (!end_ && !started_) {
    started_ = true;
    if (Result<void> opened = session_->start(); !opened) {
      say_on_stderr(opened.error().message);
      end_ = End{wire::kRefused, opened.error().message};
    }
  }
  if (end_) {
    settle();
    writer_.reset();
    if (session_) session_->retire();
    return *end_;
  }
  look_broken();
  if (!computing_) return std::nullopt;
  if (session_->interrupted(computing_->work.attempt)) {
    computing_.reset();
    return std::nullopt;
  }
  if (!computing_->begun) {
    if (sleep_left().count() > 0) return std::nullopt;
    computing_->begun = true;
    step_begun_ = Clock::now();
  }
  if (computing_->next < computing_->range.steps.size()) return next_leaf();
  if (reduce_in_group()) say_word();
  return std::nullopt;
}

// --- one step ---

void Driver::on(Session::Work& work) {
  take_place(work);
  if (work.role != Role::working) return;
  busy_until_ = Clock::now();
  if (step_begun_ != Clock::time_point())
    busy_seconds_ = std::chrono::duration<double>(busy_until_ - step_begun_).count();
  step_begun_ = busy_until_;
  if (work.plan.checkpoint && work.leader && !begin_checkpoint(work.record, work.plan)) return;
  Computing computing;
  if (work.plan.digest) {
    auto text = digest();
    if (!text) return fail(text.error().message);
    computing.word.digest = std::move(*text);
  }
  computing.range = summation_order(work.range.first, work.range.last);
  for (int i = 0; i < computing.range.slots; ++i) {
    float* slot = model_.slot(i).data();
    if (i < static_cast<int>(computing.range.subtrees.size())) computing.sums.push_back(slot);
  }
  computing.work = std::move(work);
  computing_ = std::move(computing);
}

std::uint64_t Driver::leaf_seed(std::int64_t step, int leaf) const {
  return Random(options_.seed)
      .split(static_cast<std::uint64_t>(step))
      .split(static_cast<std::uint64_t>(leaf))
      .next();
}

Driver::Leaf Driver::next_leaf() {
  Computing& computing = *computing_;
  const Session::Work& work = computing.work;
  Leaf leaf;
  leaf.plan = work.plan;
  leaf.summing = computing.range.steps[computing.next++];
  const Positions positions = leaf_positions(samples_of(work.plan), work.leaves, leaf.summing.leaf);
  for (std::int64_t p = positions.first; p < positions.last; ++p) {
    leaf.indices.push_back(order_.index(work.plan.epoch, p));
    computing.word.mark += sample_mark(work.plan.epoch, leaf.indices.back());
  }
  leaf.weight = static_cast<double>(positions.size()) / static_cast<double>(work.plan.samples);
  leaf.seed = leaf_seed(work.plan.step, leaf.summing.leaf);
  leaf.measure = tuning_.measures_noise(work.plan.step);
  if (leaf.summing.leaf + 1 == work.range.last) {
    leaf.ready = [this, attempt = work.attempt, sums = computing.sums](int bucket) {
      session_->bucket_ready(attempt, bucket, sums);
    };
  }
  computing.weight = leaf.weight;
  return leaf;
}

void Driver::leaf_done(double gradient_sqr_norm) {
  if (!computing_) return;
  const double weight = computing_->weight;
  computing_->word.leaf_sqr_norm += gradient_sqr_norm / (weight * weight);
}

bool Driver::leaf_stale() const {
  return !computing_ || session_->interrupted(computing_->work.attempt);
}

Positions Driver::positions_of(const Ahead& leaf) const {
  return leaf_positions(leaf.slice, existing_leaves(leaf.slice, leaves_), leaf.leaf);
}

Driver::Ahead Driver::leaf_after(const Ahead& leaf) const {
  const auto range_in = [this](const Slice& slice) {
    const int leaves = existing_leaves(slice, leaves_);
    return split_leaves(leaves, world_size_)[static_cast<std::size_t>(rank_)];
  };
  if (leaf.leaf + 1 < range_in(leaf.slice).last) return {leaf.step, leaf.slice, leaf.leaf + 1};
  const std::int64_t batch = options_.adaptive ? leaf.slice.samples : options_.batch;
  Ahead next{leaf.step + 1, order_.next(leaf.slice, batch), 0};
  // A short step may have no leaf for this worker, but the step after it has one. If not, nothing
  // can be foreseen.
  if (range_in(next.slice).empty()) {
    next = {next.step + 1, order_.next(next.slice, batch), 0};
  }
  const Range range = range_in(next.slice);
  next.leaf = range.empty() ? 0 : range.first;
  return next;
}

// False: there is no sum, so this worker has nothing to say about the step.
bool Driver::reduce_in_group() {
  const Session::Work& work = computing_->work;
  if (!options_.group || work.plan.finish) return true;
  const std::span<float> sum = model_.slot(0);
  if (computing_->sums.empty()) std::fill(sum.begin(), sum.end(), 0.0F);
  for (std::size_t i = 1; i < computing_->sums.size(); ++i)
    add(sum, {computing_->sums[i], sum.size()});
  const auto& generation = work.record.generation;
  const auto done = model_.reduce(
      {rank_, world_size_,
       fmt::format("{}.{}.{}", generation.plan, generation.revision, work.record.recovery)},
      sum);
  if (done && *done) {
    session_->reduced(work.attempt, sum);
    return true;
  }
  computing_.reset();
  if (done) {
    group_failed_ = Clock::now();
  } else {
    fail(done.error().message);
  }
  return false;
}

// A group fails because a member has died. Whoever has lost it hears of that at once.
void Driver::look_broken() {
  if (!group_failed_ || Clock::now() - *group_failed_ < kGroupPatience) return;
  group_failed_.reset();
  fail("the group of the workers has failed, although none of them has died");
}

void Driver::say_word() {
  const Session::Work& work = computing_->work;
  member::Word word = std::move(computing_->word);
  word.compute_seconds = seconds_since(step_begun_);
  word.leaves = work.range.size();
  word.published = publishing_.published();
  session_->say(work.attempt, std::move(word),
                [this, plan = work.plan, size = world_size_](int workers) {
                  return next_plan(plan, size, workers);
                });
  computing_.reset();
}

void Driver::fail(const std::string& why) {
  computing_.reset();
  if (!started_) {
    end_ = End{wire::kJobFailed, why};
  } else {
    session_->fail(why);
  }
}

bool Driver::leaving() const {
  return session_ && (session_->leaving() || session_->stop_requested());
}

void Driver::on(Session::Interrupted& /*interrupted*/) {
  group_failed_.reset();
  model_.interrupted();
  tuning_.members_changed();
}

void Driver::on(Session::Completed& completed) {
  settle();
  if (completed.plan.finish) return finished(completed);
  if (completed.role == Role::leaving) return;
  if (!completed.finite && !options_.may_overflow) return not_finite(completed);
  for (const ReceivedChunk& chunk : completed.chunks) {
    const Result<void> loaded = model_.load_chunk(chunk.index, chunk.head, chunk.body);
    if (!loaded) return end(wire::kJobFailed, loaded.error().message);
    held_[static_cast<std::size_t>(chunk.index)] = true;
  }
  const bool complete = std::find(held_.begin(), held_.end(), false) == held_.end();
  if (!apply(completed.plan, completed.result, complete ? std::vector<bool>{} : held_)) return;
  if (completed.role == Role::working) learn(completed);
  if (!check_epoch(completed)) return;
  publishing_.completed(completed, uid_);
  publishing_.applied(
      summary(completed.plan, completed.result, static_cast<int>(completed.words.size())));
  std::vector<StateChunk> chunks;
  if (completed.feeding) {
    auto state = state_chunks();
    if (!state) return fail(state.error().message);
    chunks = std::move(*state);
  }
  session_->applied(completed.plan.step, std::move(chunks), complete,
                    completed.feeding ? tuning_.to_json() : Json());
}

void Driver::on(Session::CatchUp& catch_up) {
  settle();
  if (!apply(catch_up.plan, catch_up.result, {})) return;
  publishing_.applied(summary(catch_up.plan, catch_up.result, world_size_));
  session_->caught_up(catch_up.plan.step);
}

void Driver::on(Session::End& end) {
  if (!end.why.empty()) say_on_stderr(end.why);
  if (end.code == wire::kJobFailed) session_->notice("failed", {{"text", end.why}});
  end_ = End{end.code, end.why};
}

// False: the model has failed, and the job ends.
bool Driver::apply(const StepPlan& plan, std::span<const float> result,
                   const std::vector<bool>& held) {
  const auto applied = model_.apply({plan, result, held, world_size_, ends_epoch(plan)});
  if (!applied) fail(fmt::format("step {}: {}", plan.step, applied.error().message));
  return static_cast<bool>(applied);
}

std::size_t Driver::tail_offset() const {
  const Layout& layout = model_.layout();
  return layout.buckets[static_cast<std::size_t>(layout.tail())].offset;
}

double Driver::loss_of(std::span<const float> result) const { return result[tail_offset()]; }

// --- what comes next ---

bool Driver::ends_before(const StepPlan& plan) const {
  return (options_.steps > 0 && plan.step > options_.steps) ||
         (options_.epochs > 0 && plan.epoch >= options_.epochs);
}

// The state after the plan's step, for the next step. Only for leaders, on the network's thread
// while this one waits.
StepPlan Driver::next_plan(const StepPlan& plan, int workers, int next_workers) {
  StepPlan next = plan;
  ++next.step;
  next.checkpoint = false;
  next.digest = options_.digest_steps > 0 && next.step % options_.digest_steps == 0;
  const bool stop = session_->stop_requested();
  if (!plan.finish) {
    std::int64_t batch = options_.batch;
    if (options_.adaptive) {
      batch = tuning_.choose(plan, next, workers, next_workers,
                             [this](const Json& why) { session_->notice("tuned", why); });
    }
    const Slice slice = order_.next(samples_of(plan), batch);
    next.epoch = slice.epoch;
    next.cursor = slice.cursor;
    next.samples = slice.samples;
    if (slice.epoch != plan.epoch) next.used_mark = 0;
  }
  if (stop || finish_requested_ || ends_before(next) || plan.finish) {
    make_last(next, stop || plan.stopped);
  } else {
    next.checkpoint = checkpoint_due(next.step);
  }
  return next;
}

bool Driver::checkpoint_due(std::int64_t next_step) const {
  if (options_.checkpoint.empty()) return false;
  const bool by_step =
      options_.checkpoint_steps > 0 && (next_step - 1) % options_.checkpoint_steps == 0;
  const bool by_time = options_.checkpoint_seconds > 0 &&
                       seconds_since(last_checkpoint_) >= options_.checkpoint_seconds;
  return by_step || by_time || commit_requested_;
}

// --- what the words say ---

void Driver::learn(const Session::Completed& completed) {
  const double step_seconds = seconds_since(step_begun_);
  watch_stragglers(completed);
  const member::Word& own = completed.words.at(uid_);
  tuning_.learn(completed, completed.result.first(tail_offset()), world_size_,
                {step_seconds, own.compute_seconds, own.leaves});
}

// Every worker watches, so that a new leader knows as much as the last one. Only the leader
// reports.
void Driver::watch_stragglers(const Session::Completed& completed) {
  std::vector<LeafTime> times;
  for (const auto& [uid, word] : completed.words) {
    times.push_back({uid, word.leaves > 0 ? word.compute_seconds / word.leaves : 0});
  }
  const bool leads = completed.record.leader() == uid_;
  for (const Straggler& straggler : straggling_.add(completed.plan.step, times)) {
    if (!leads) continue;
    session_->notice("straggler",
                     {{"worker", straggler.uid}, {"ratio", straggler.seconds / straggler.median}});
  }
}

// --- reports ---

void Driver::take_place(const Session::Work& work) {
  const std::vector<member::Uid> working = work.record.working();
  world_size_ = static_cast<int>(working.size());
  leaves_ = std::max(1, work.plan.leaves);
  const auto place = std::find(working.begin(), working.end(), uid_);
  if (place == working.end() || working == last_working_) return;
  last_working_ = working;
  rank_ = static_cast<int>(place - working.begin());
  tuning_.members_changed();
  model_.members_changed(
      {rank_, world_size_, work.record.generation.plan, work.record.generation.revision});
}

Json Driver::summary(const StepPlan& plan, std::span<const float> result, int workers) {
  Json summary = {
      {"step", plan.step},
      {"epoch", plan.epoch},
      {"cursor", plan.cursor},
      {"samples", plan.samples},
      {"loss", loss_of(result)},
      {"workers", workers},
      {"leaves", plan.leaves},
      {"factor", plan.learning_rate_factor},
      {"epoch_samples", order_.samples()},
      {"ends_epoch", ends_epoch(plan)},
      {"applied_at", std::chrono::duration<double>(Clock::now().time_since_epoch()).count()}};
  if (const double skew = largest_share(model_.layout()); skew > 0) summary["skew"] = skew;
  tuning_.describe(plan, workers, summary);
  model_.describe(result, summary);
  return summary;
}

bool Driver::ends_epoch(const StepPlan& plan) const {
  return plan.cursor + plan.samples >= order_.samples();
}

// The words say which samples were really used. At the end of an epoch this must be each sample
// exactly once.
bool Driver::check_epoch(const Session::Completed& completed) {
  const StepPlan& plan = completed.plan;
  if (!ends_epoch(plan)) return true;
  std::uint64_t used = plan.used_mark;
  for (const auto& [uid, word] : completed.words) used += word.mark;
  if (used == order_.epoch_mark(plan.epoch)) return true;
  fail(fmt::format("epoch {} did not use every sample exactly once; this is a fault of Rubato",
                   plan.epoch));
  return false;
}

void Driver::warn(const std::string& text) {
  say_on_stderr(text);
  session_->notice("warning", {{"text", text}});
}

void Driver::end(int code, const std::string& why) {
  say_on_stderr(why);
  session_->notice(code == wire::kRefused ? "refused" : "failed", {{"text", why}});
  end_ = End{code, why};
}

void Driver::not_finite(const Session::Completed& completed) {
  const Layout& layout = model_.layout();
  const Json schema = model_.schema();
  std::string which = "the loss";
  std::size_t trained = 0;
  for (const Json& parameter : schema.at("parameters")) {
    if (!parameter.at("trained").get<bool>()) continue;
    const Piece& piece = layout.parameters[trained++];
    const auto part = completed.result.subspan(piece.offset, piece.count);
    if (std::all_of(part.begin(), part.end(), [](float x) { return std::isfinite(x); })) continue;
    which = fmt::format("the gradient of {}", parameter.at("name").get<std::string>());
    break;
  }
  const bool leads = completed.record.leader() == uid_;
  if (leads && writer_ != nullptr) {
    if (!begin_checkpoint(completed.record, completed.plan)) return;
    settle();
    writer_->finish();
  }
  end(wire::kJobFailed,
      fmt::format("step {}: {} is not a finite number; nothing of this step was applied{}; lower "
                  "the learning rate or look at the data of the step",
                  completed.plan.step, which,
                  writer_ != nullptr ? ", the state before it is in the checkpoint" : ""));
}

void Driver::finished(const Session::Completed& completed) {
  const bool leads = completed.record.leader() == uid_;
  if (completed.role != Role::working) {
    end_ = End{wire::kLeft, ""};  // the other workers have everything that must be kept
    return;
  }
  if (leads) {
    publishing_.publish_all();
    if (writer_ != nullptr) {
      if (!begin_checkpoint(completed.record, completed.plan)) return;
      settle();
      writer_->finish();
    }
    const auto text = digest();
    if (!text) return fail(text.error().message);
    settle();
    session_->notice(completed.plan.stopped ? "stopped" : "finished",
                     {{"step", completed.plan.step - 1}, {"digest", *text}});
  }
  end_ = End{completed.plan.stopped ? wire::kLeft : wire::kFinished, ""};
}

// --- the state ---

Result<std::vector<StateChunk>> Driver::state_chunks() {
  std::vector<StateChunk> chunks;
  for (int i = 0; i < model_.chunks(); ++i) {
    auto chunk = model_.chunk(i);
    if (!chunk) return chunk.error();
    chunks.push_back(std::move(*chunk));
  }
  return chunks;
}

// Equal replicas have equal digests.
Result<std::string> Driver::digest() {
  std::uint64_t value = 0;
  for (int i = 0; i < model_.chunks(); ++i) {
    const auto chunk = model_.chunk(i);
    if (!chunk) return chunk.error();
    value = hash(std::as_bytes(std::span(chunk->head)), value);
    for (const std::span<const std::byte> bytes : chunk->body) value = hash(bytes, value);
  }
  return fmt::format("{:016x}", value);
}

// Copies the state while the step is computed, and writes the copy while training continues.
bool Driver::begin_checkpoint(const Record& record, const StepPlan& next) {
  settle();
  if (writer_ == nullptr) return true;
  commit_requested_ = false;
  last_checkpoint_ = Clock::now();
  CheckpointContent content;
  content.about = {{"start", start_},
                   {"plan", record.generation.plan},
                   {"revision", record.generation.revision},
                   {"recovery", record.recovery},
                   {"step", next.step - 1},
                   {"next", next},
                   {"schema", model_.schema()},
                   {"tuner", tuning_.to_json()},
                   {"unpublished", publishing_.to_json()}};
  const auto chunks = state_chunks();
  if (!chunks) {
    fail(chunks.error().message);
    return false;
  }
  std::size_t bytes = 0;
  for (const auto& chunk : *chunks) {
    for (const auto& piece : chunk.body) bytes += piece.size();
  }
  std::shared_ptr<std::byte[]> memory(new std::byte[std::max<std::size_t>(bytes, 1)]);
  std::byte* at = memory.get();
  std::vector<std::pair<std::byte*, std::span<const std::byte>>> copies;
  for (std::size_t i = 0; i < chunks->size(); ++i) {
    Section section{fmt::format("{}", i), (*chunks)[i].head, {}};
    for (const auto& piece : (*chunks)[i].body) {
      copies.emplace_back(at, piece);
      section.body.emplace_back(at, piece.size());
      at += piece.size();
    }
    content.sections.push_back(std::move(section));
  }
  copying_ = std::async(std::launch::async, [this, copies = std::move(copies),
                                             content = std::move(content), memory]() mutable {
    for (const auto& [to, from] : copies) std::copy(from.begin(), from.end(), to);
    writer_->begin(std::move(content), memory);
  });
  return true;
}

void Driver::checkpoint_written(const Result<std::string>& written) {
  if (written) {
    session_->notice("checkpoint", {{"path", *written}});
  } else {
    warn(fmt::format("no checkpoint: {}; training continues", written.error().message));
  }
}

// Nobody reads the state any more, so it may change.
void Driver::settle() {
  if (copying_.valid()) copying_.get();
  model_.release();
}

}  // namespace rubato::elastic
