#include "rubato/train/trainer.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fmt/format.h>
#include <future>
#include <optional>

#include "rubato/base/random.h"
#include "rubato/elastic/checkpoint_writer.h"
#include "rubato/elastic/samples.h"
#include "rubato/elastic/schema.h"
#include "rubato/elastic/session.h"
#include "rubato/elastic/straggler.h"
#include "rubato/member/links.h"
#include "rubato/train/publishing.h"
#include "rubato/train/replica.h"
#include "rubato/train/tuning.h"

namespace rubato::train {

using elastic::Role;
using elastic::Session;
using elastic::StepPlan;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::uint64_t leaf_seed(std::uint64_t seed, std::int64_t step, int leaf) {
  return Random(seed)
      .split(static_cast<std::uint64_t>(step))
      .split(static_cast<std::uint64_t>(leaf))
      .next();
}

elastic::Slice slice_of(const StepPlan& plan) { return {plan.epoch, plan.cursor, plan.samples}; }

// Never throws. If nobody reads the output any more, training must continue.
void print(const std::string& text) {
  const std::string line = fmt::format("rubato train: {}\n", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::optional<std::string> problem_with(const Options& options, std::size_t samples) {
  if (samples == 0) return "the data set is empty; there is nothing to train on";
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

}  // namespace

class Trainer {
 public:
  Trainer(State& state, const Dataset& data, const std::function<torch::Tensor(const Batch&)>& loss,
          const Options& options)
      : state_(state),
        data_(data),
        loss_(loss),
        options_(options),
        order_(static_cast<std::int64_t>(data.size()), options.seed),
        tuning_(options),
        publishing_([this](const Json& report) { session_->report(report); }) {}

  int run() {
    const Result<Device> device = Device::parse(options_.device);
    if (!device) return refuse(device.error().message);
    auto replica = Replica::create(state_.model_, state_.optimizer_, *device,
                                   options_.bucket_bytes / sizeof(float));
    if (!replica) return refuse(replica.error().message);
    replica_ = std::move(*replica);
    const Result<member::Place> place = member::place_from_environment();
    if (!place) return refuse(place.error().message);
    uid_ = place->uid;
    if (options_.checkpoint.empty()) options_.checkpoint = place->checkpoint;
    if (!claim_checkpoints({place->token, place->start})) {
      return refuse(fmt::format("{}: a later start of this job has it", options_.checkpoint));
    }

    // If the launcher is gone, its workers must continue.
    std::signal(SIGPIPE, SIG_IGN);
    Session::Config config;
    config.place = *place;
    config.identity = {options_.build, replica_->schema()};
    config.layout = replica_->layout();
    config.difference = [ours = config.identity](const member::Identity& theirs) {
      if (ours.build != theirs.build) {
        return fmt::format(
            "this worker is build '{}', the job runs build '{}'; start all workers "
            "from one build",
            theirs.build, ours.build);
      }
      return elastic::difference(ours.schema, theirs.schema).value_or("");
    };
    session_ = std::make_unique<Session>(std::move(config));
    if (!options_.checkpoint.empty()) {
      writer_ = std::make_unique<elastic::CheckpointWriter>(
          options_.checkpoint, elastic::kCheckpointsKept,
          [this](const Result<std::string>& written) { checkpoint_written(written); });
    }
    if (uid_ > 1) warm_up();
    if (Result<void> started = session_->start(); !started) return refuse(started.error().message);
    while (!exit_code_) {
      Session::Event event = session_->next();
      std::visit([this](auto& e) { on(e); }, event);
    }
    settle();
    writer_.reset();
    session_->close();
    return *exit_code_;
  }

 private:
  static int refuse(const std::string& why) {
    print(why);
    return wire::kRefused;
  }

  // --- beginnings ---

  // In the first pass torch chooses and prepares its kernels, and memory is touched for the first
  // time. A joining worker does this before others wait for its part of a step. Errors are ignored
  // here, because the step itself finds and reports them.
  void warm_up() {
    const int leaves = options_.adaptive ? 1 : std::min(2, options_.virtual_workers);
    const std::int64_t each = std::max<std::int64_t>(
        1, options_.batch / (options_.adaptive ? 1 : options_.virtual_workers));
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < std::min(each, order_.samples()); ++i) indices.push_back(i);
    for (const elastic::LeafStep& step : elastic::summation_order(0, leaves).steps) {
      (void)compute_leaf(step, 1.0 / leaves, 0, indices, nullptr);
    }
  }

  void on(Session::Found&) {
    StepPlan first = first_plan();
    member::MembershipGeneration after;
    if (!options_.checkpoint.empty()) {
      auto loaded = elastic::load_newest(options_.checkpoint);
      if (!loaded) return end(wire::kRefused, loaded.error().message);
      if (loaded->has_value()) {
        for (const elastic::SkippedCheckpoint& skipped : (*loaded)->skipped) {
          warn(fmt::format("{}; continuing from {}", skipped.reason, (*loaded)->path));
        }
        if (Result<void> restored = restore(**loaded, first); !restored) {
          return end(wire::kRefused, restored.error().message);
        }
        // Another launcher starts to count its plans again. With the old count, workers would wait
        // until its plan catches up. Its checkpoints are newer because of its start.
        if ((*loaded)->age.start == start_) after = {(*loaded)->age.plan, (*loaded)->age.revision};
      }
    }
    held_.assign(static_cast<std::size_t>(replica_->chunks()), true);
    last_checkpoint_ = Clock::now();
    session_->found(first, after);
  }

  // False: a newer start of the job has replaced this worker's start. A directory that cannot be
  // written may still be used to resume.
  bool claim_checkpoints(const elastic::CheckpointOwner& owner) {
    if (options_.checkpoint.empty()) return true;
    const auto claimed = elastic::claim_checkpoints(options_.checkpoint, owner);
    if (!claimed) {
      print(claimed.error().message + "; training continues");
      return true;
    }
    start_ = claimed->value_or(0);
    return claimed->has_value();
  }

  StepPlan first_plan() {
    StepPlan plan;
    const elastic::Slice slice = order_.first(options_.batch);
    plan.samples = slice.samples;
    plan.adaptive = options_.adaptive;
    plan.leaves = options_.adaptive ? 1 : options_.virtual_workers;
    if (options_.adaptive) tuning_.shape_first(plan);
    return plan;
  }

  Result<void> restore(const elastic::Loaded& loaded, StepPlan& plan) {
    try {
      if (const auto difference =
              elastic::difference(replica_->schema(), loaded.about.at("schema"))) {
        return Error{
            fmt::format("{} is of another model: {}; choose another directory or the old "
                        "model",
                        loaded.path, *difference)};
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
      if (ends_before(plan)) finish(plan, false);
      plan = member::for_workers(plan, 1);
      tuning_.take(loaded.about.at("tuner"));
      publishing_.take(loaded.about.at("unpublished"));
    } catch (const Json::exception& error) {
      return Error{fmt::format("{}: {}", loaded.path, error.what())};
    }
    for (std::size_t i = 0; i < loaded.sections.size(); ++i) {
      const elastic::LoadedSection& section = loaded.sections[i];
      const Result<void> result =
          replica_->load_chunk(static_cast<int>(i), section.head.get<std::string>(), section.body);
      if (!result) return Error{fmt::format("{}: {}", loaded.path, result.error().message)};
    }
    print("resumed from " + loaded.path);
    return {};
  }

  void on(Session::Adopted& adopted) {
    held_.assign(static_cast<std::size_t>(replica_->chunks()), false);
    tuning_.take(adopted.about);
    last_checkpoint_ = Clock::now();
  }

  // --- one step ---

  void on(Session::Work& work) {
    tell_reset(work);
    if (work.role != Role::working) return;
    step_begun_ = Clock::now();
    if (work.plan.checkpoint && work.leader) begin_checkpoint(work.record, work.plan);
    member::Word word;
    if (work.plan.digest) word.digest = fmt::format("{:016x}", replica_->digest());
    if (!compute(work, word)) return;
    word.compute_seconds = seconds_since(step_begun_);
    word.leaves = work.range.size();
    word.published = publishing_.published();
    session_->say(work.attempt, std::move(word),
                  [this, plan = work.plan, size = world_size_](int workers) {
                    return next_plan(plan, size, workers);
                  });
  }

  bool compute(const Session::Work& work, member::Word& word) {
    const elastic::SummationOrder range =
        elastic::summation_order(work.range.first, work.range.last);
    std::vector<float*> sums;
    for (int i = 0; i < range.slots; ++i) {
      float* slot = replica_->slot(i).data();
      if (i < static_cast<int>(range.subtrees.size())) sums.push_back(slot);
    }
    for (const elastic::LeafStep& step : range.steps) {
      if (session_->interrupted(work.attempt)) return false;
      const auto positions = elastic::leaf_positions(slice_of(work.plan), work.leaves, step.leaf);
      std::vector<std::int64_t> indices;
      for (std::int64_t p = positions.first; p < positions.last; ++p) {
        indices.push_back(order_.index(work.plan.epoch, p));
        word.mark += elastic::sample_mark(work.plan.epoch, indices.back());
      }
      const double weight =
          static_cast<double>(positions.size()) / static_cast<double>(work.plan.samples);
      const bool last = step.leaf + 1 == work.range.last;
      const auto ready = [&](int bucket) { session_->bucket_ready(work.attempt, bucket, sums); };
      Result<LeafResult> leaf = compute_leaf(step, weight, work.plan.step, indices,
                                             last ? std::function<void(int)>(ready) : nullptr);
      if (!leaf) {
        session_->fail(fmt::format("step {}: {}", work.plan.step, leaf.error().message));
        return false;
      }
      word.leaf_sqr_norm += leaf->gradient_sqr_norm / (weight * weight);
    }
    return true;
  }

  Result<LeafResult> compute_leaf(const elastic::LeafStep& step, double weight, std::int64_t number,
                                  const std::vector<std::int64_t>& indices,
                                  const std::function<void(int)>& ready) {
    try {
      const auto loss = [&] {
        Batch batch = data_.batch(indices);
        if (!replica_->device().is_cpu()) {
          batch = {batch.data.to(replica_->device().torch),
                   batch.target.to(replica_->device().torch)};
        }
        return loss_(batch);
      };
      return replica_->leaf(step, weight, leaf_seed(options_.seed, number, step.leaf), loss,
                            tuning_.measures_noise(number), ready);
    } catch (const std::exception& error) {
      return Error{error.what()};
    }
  }

  void on(Session::Interrupted&) { tuning_.members_changed(); }

  void on(Session::Completed& completed) {
    settle();
    if (completed.plan.finish) return finished(completed);
    if (completed.role == Role::leaving) return;
    if (!completed.finite) return not_finite(completed);
    for (const elastic::ReceivedChunk& chunk : completed.chunks) {
      const Result<void> loaded = replica_->load_chunk(chunk.index, chunk.head, chunk.body);
      if (!loaded) return end(wire::kJobFailed, loaded.error().message);
      held_[static_cast<std::size_t>(chunk.index)] = true;
    }
    const bool complete = std::find(held_.begin(), held_.end(), false) == held_.end();
    apply(completed.plan, completed.result, complete ? std::vector<bool>{} : held_);
    if (completed.role == Role::working) learn(completed);
    if (!check_epoch(completed)) return;
    publishing_.completed(completed, uid_);
    publishing_.applied(
        summary(completed.plan, completed.result, static_cast<int>(completed.words.size())));
    std::vector<elastic::StateChunk> chunks;
    if (completed.feeding) chunks = state_chunks();
    session_->applied(completed.plan.step, std::move(chunks), complete,
                      completed.feeding ? tuning_.to_json() : Json());
  }

  void on(Session::CatchUp& catch_up) {
    settle();
    apply(catch_up.plan, catch_up.result, {});
    publishing_.applied(summary(catch_up.plan, catch_up.result, world_size_));
    session_->caught_up(catch_up.plan.step);
  }

  void on(Session::End& end) {
    if (!end.why.empty()) print(end.why);
    if (end.code == wire::kJobFailed) session_->notice("failed", {{"text", end.why}});
    exit_code_ = end.code;
  }

  void apply(const StepPlan& plan, std::span<const float> result, const std::vector<bool>& held) {
    if (state_.learning_rate_) {
      const double rate = state_.learning_rate_(plan.step);
      for (auto& group : state_.optimizer_.param_groups()) group.options().set_lr(rate);
    }
    replica_->apply(result, plan.learning_rate_factor, held);
    if (!held.empty()) return;
    const StepResult step{plan.step, plan.epoch, plan.samples, loss_of(result), world_size_};
    for (const auto& callback : state_.on_step_) callback(step);
  }

  [[nodiscard]] double loss_of(std::span<const float> result) const {
    const elastic::Layout& layout = replica_->layout();
    return result[layout.buckets[static_cast<std::size_t>(layout.tail())].offset];
  }

  // --- what comes next ---

  [[nodiscard]] bool ends_before(const StepPlan& plan) const {
    return (options_.steps > 0 && plan.step > options_.steps) ||
           (options_.epochs > 0 && plan.epoch >= options_.epochs);
  }

  // The state after the plan's step, for the next step. Only for leaders, on the network's thread
  // while this one waits.
  StepPlan next_plan(const StepPlan& plan, int workers, int next_workers) {
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
      const elastic::Slice slice = order_.next(slice_of(plan), batch);
      next.epoch = slice.epoch;
      next.cursor = slice.cursor;
      next.samples = slice.samples;
      if (slice.epoch != plan.epoch) next.used_mark = 0;
    }
    if (stop || ends_before(next) || plan.finish) {
      finish(next, stop || plan.stopped);
    } else {
      next.checkpoint = checkpoint_due(next.step);
    }
    return next;
  }

  static void finish(StepPlan& plan, bool stopped) {
    plan.finish = true;
    plan.stopped = stopped;
    plan.digest = true;
  }

  bool checkpoint_due(std::int64_t next_step) {
    if (options_.checkpoint.empty()) return false;
    const bool by_step =
        options_.checkpoint_steps > 0 && (next_step - 1) % options_.checkpoint_steps == 0;
    const bool by_time = options_.checkpoint_seconds > 0 &&
                         seconds_since(last_checkpoint_) >= options_.checkpoint_seconds;
    return by_step || by_time || state_.commit_requested_;
  }

  // --- what the words say ---

  void learn(const Session::Completed& completed) {
    const double step_seconds = seconds_since(step_begun_);
    watch_stragglers(completed);
    const elastic::Layout& layout = replica_->layout();
    const std::size_t gradients = layout.buckets[static_cast<std::size_t>(layout.tail())].offset;
    const member::Word& own = completed.words.at(uid_);
    tuning_.learn(completed, completed.result.first(gradients), world_size_,
                  {step_seconds, own.compute_seconds, own.leaves});
  }

  // Every worker watches, so that a new leader knows as much as the last one. Only the leader
  // reports.
  void watch_stragglers(const Session::Completed& completed) {
    std::vector<elastic::LeafTime> times;
    for (const auto& [uid, word] : completed.words) {
      times.push_back({uid, word.leaves > 0 ? word.compute_seconds / word.leaves : 0});
    }
    const bool leads = completed.record.leader() == uid_;
    for (const elastic::Straggler& straggler : straggling_.add(completed.plan.step, times)) {
      if (!leads) continue;
      session_->notice("straggler", {{"worker", straggler.uid},
                                     {"ratio", straggler.seconds / straggler.median}});
    }
  }

  // --- reports ---

  void tell_reset(const Session::Work& work) {
    const std::vector<member::Uid> working = work.record.working();
    world_size_ = static_cast<int>(working.size());
    const auto place = std::find(working.begin(), working.end(), uid_);
    if (place == working.end() || working == last_working_) return;
    last_working_ = working;
    tuning_.members_changed();
    const World world{static_cast<int>(place - working.begin()), world_size_,
                      work.record.generation.plan, work.record.generation.revision};
    for (const auto& callback : state_.on_reset_) callback(world);
  }

  [[nodiscard]] Json summary(const StepPlan& plan, std::span<const float> result,
                             int workers) const {
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
    tuning_.describe(plan, workers, summary);
    return summary;
  }

  [[nodiscard]] bool ends_epoch(const StepPlan& plan) const {
    return plan.cursor + plan.samples >= order_.samples();
  }

  // The words say which samples were really used. At the end of an epoch this must be each sample
  // exactly once.
  bool check_epoch(const Session::Completed& completed) {
    const StepPlan& plan = completed.plan;
    if (!ends_epoch(plan)) return true;
    std::uint64_t used = plan.used_mark;
    for (const auto& [uid, word] : completed.words) used += word.mark;
    if (used == order_.epoch_mark(plan.epoch)) return true;
    session_->fail(fmt::format(
        "epoch {} did not use every sample exactly once; this is a fault of Rubato", plan.epoch));
    return false;
  }

  void warn(const std::string& text) {
    print(text);
    session_->notice("warning", {{"text", text}});
  }

  void end(int code, const std::string& why) {
    print(why);
    session_->notice(code == wire::kRefused ? "refused" : "failed", {{"text", why}});
    exit_code_ = code;
  }

  void not_finite(const Session::Completed& completed) {
    const elastic::Layout& layout = replica_->layout();
    const auto names = replica_->schema().at("parameters");
    std::string which = "the loss";
    std::size_t trained = 0;
    for (const Json& parameter : names) {
      if (!parameter.at("trained").get<bool>()) continue;
      const elastic::Piece& piece = layout.parameters[trained++];
      const auto part = completed.result.subspan(piece.offset, piece.count);
      if (std::all_of(part.begin(), part.end(), [](float x) { return std::isfinite(x); })) continue;
      which = fmt::format("the gradient of {}", parameter.at("name").get<std::string>());
      break;
    }
    const bool leads = completed.record.leader() == uid_;
    if (leads && writer_ != nullptr) {
      begin_checkpoint(completed.record, completed.plan);
      settle();
      writer_->finish();
    }
    end(wire::kJobFailed,
        fmt::format("step {}: {} is not a finite number; nothing of this step was applied{}; lower "
                    "the learning rate or look at the data of the step",
                    completed.plan.step, which,
                    writer_ != nullptr ? ", the state before it is in the checkpoint" : ""));
  }

  void finished(const Session::Completed& completed) {
    const bool leads = completed.record.leader() == uid_;
    if (completed.role != Role::working) {
      exit_code_ = wire::kLeft;  // the other workers have everything that must be kept
      return;
    }
    if (leads) {
      publishing_.publish_all();
      if (writer_ != nullptr) {
        begin_checkpoint(completed.record, completed.plan);
        settle();
        writer_->finish();
      }
      session_->notice(completed.plan.stopped ? "stopped" : "finished",
                       {{"step", completed.plan.step - 1},
                        {"digest", fmt::format("{:016x}", replica_->digest())}});
    }
    exit_code_ = completed.plan.stopped ? wire::kLeft : wire::kFinished;
  }

  // --- checkpoints ---

  std::vector<elastic::StateChunk> state_chunks() {
    std::vector<elastic::StateChunk> chunks;
    for (int i = 0; i < replica_->chunks(); ++i) {
      Chunk chunk = replica_->chunk(i);
      chunks.push_back({std::move(chunk.head), std::move(chunk.body)});
      kept_tensors_.insert(kept_tensors_.end(), chunk.tensors.begin(), chunk.tensors.end());
    }
    return chunks;
  }

  // Copies the state while the step is computed, and writes the copy while training continues.
  void begin_checkpoint(const elastic::Record& record, const StepPlan& next) {
    settle();
    if (writer_ == nullptr) return;
    state_.commit_requested_ = false;
    last_checkpoint_ = Clock::now();
    elastic::CheckpointContent content;
    content.about = {{"start", start_},
                     {"plan", record.generation.plan},
                     {"revision", record.generation.revision},
                     {"step", next.step - 1},
                     {"next", next},
                     {"schema", replica_->schema()},
                     {"tuner", tuning_.to_json()},
                     {"unpublished", publishing_.to_json()}};
    const std::vector<elastic::StateChunk> chunks = state_chunks();
    std::size_t bytes = 0;
    for (const auto& chunk : chunks) {
      for (const auto& piece : chunk.body) bytes += piece.size();
    }
    std::shared_ptr<std::byte[]> memory(new std::byte[std::max<std::size_t>(bytes, 1)]);
    std::byte* at = memory.get();
    std::vector<std::pair<std::byte*, std::span<const std::byte>>> copies;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      elastic::Section section{fmt::format("{}", i), chunks[i].head, {}};
      for (const auto& piece : chunks[i].body) {
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
  }

  void checkpoint_written(const Result<std::string>& written) {
    if (written) {
      session_->notice("checkpoint", {{"path", *written}});
    } else {
      warn(fmt::format("no checkpoint: {}; training continues", written.error().message));
    }
  }

  // Nobody reads the state any more, so it may change.
  void settle() {
    if (copying_.valid()) copying_.get();
    kept_tensors_.clear();
  }

  State& state_;
  const Dataset& data_;
  const std::function<torch::Tensor(const Batch&)>& loss_;
  Options options_;
  elastic::SampleOrder order_;
  Tuning tuning_;
  Publishing publishing_;
  elastic::StragglerWatch straggling_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<elastic::CheckpointWriter> writer_;
  std::future<void> copying_;
  std::vector<torch::Tensor> kept_tensors_;  // tensors that chunks on their way point into
  std::vector<bool> held_;                   // chunks of the state that this worker has
  std::vector<member::Uid> last_working_;
  member::Uid uid_ = 1;
  std::int64_t start_ = 0;  // of those that used the checkpoints' directory
  int world_size_ = 1;
  Clock::time_point step_begun_;
  Clock::time_point last_checkpoint_;
  std::optional<int> exit_code_;
};

int run(State& state, const Dataset& data, const std::function<torch::Tensor(const Batch&)>& loss,
        const Options& options) {
  if (const auto problem = problem_with(options, data.size())) {
    print(*problem);
    return wire::kRefused;
  }
  return Trainer(state, data, loss, options).run();
}

}  // namespace rubato::train
