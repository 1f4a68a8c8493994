#include "rubato/c/rubato.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/json_reader.h"
#include "rubato/elastic/accumulator.h"
#include "rubato/elastic/driver.h"
#include "rubato/elastic/kernels.h"

namespace rubato::c {

using namespace model;  // NOLINT(google-build-using-namespace): as in base/namespaces.h
using elastic::Accumulator;
using elastic::Driver;
using elastic::StateChunk;

namespace {

constexpr std::size_t kMostFloats = std::size_t{1} << 40U;

// What rubato_open() is told.
struct Settings {
  elastic::Options options;
  std::int64_t samples = 0;
  std::vector<std::size_t> parameters;
  std::size_t tail = 1;
  int chunks = 0;
  Json schema;
};

std::optional<LearningRateRule> rule_named(const std::string& name) {
  if (name == "adascale") return LearningRateRule::adascale;
  if (name == "adascale_adam") return LearningRateRule::adascale_adam;
  if (name == "linear") return LearningRateRule::linear;
  if (name == "sqrt") return LearningRateRule::sqrt;
  return std::nullopt;
}

template <class T>
void take(const Json& json, const char* name, T& value) {
  if (const auto found = json.find(name); found != json.end()) found->get_to(value);
}

void take_options(const Json& json, elastic::Options& options) {
  take(json, "seed", options.seed);
  take(json, "steps", options.steps);
  take(json, "epochs", options.epochs);
  take(json, "batch", options.batch);
  take(json, "shuffle", options.shuffle);
  take(json, "drop_last", options.drop_last);
  take(json, "virtual_workers", options.virtual_workers);
  take(json, "adaptive", options.adaptive);
  take(json, "largest_batch", options.largest_batch);
  take(json, "largest_per_worker", options.largest_per_worker);
  take(json, "measure_noise", options.measure_noise);
  take(json, "checkpoint", options.checkpoint);
  take(json, "checkpoint_steps", options.checkpoint_steps);
  take(json, "checkpoint_seconds", options.checkpoint_seconds);
  take(json, "digest_steps", options.digest_steps);
  take(json, "bucket_bytes", options.bucket_bytes);
  take(json, "group", options.group);
  take(json, "may_overflow", options.may_overflow);
  take(json, "warm_up", options.warm_up);
  take(json, "build", options.build);
}

Result<Settings> read_settings(const char* text) {
  auto json = parse_json(text, "the options of the job");
  if (!json) return json.error();
  Settings settings;
  settings.options.warm_up = false;  // only for programs that know it
  try {
    take_options(*json, settings.options);
    std::string rule;
    take(*json, "learning_rate_rule", rule);
    if (!rule.empty()) {
      const auto known = rule_named(rule);
      if (!known)
        return Error{"learning_rate_rule must be adascale, adascale_adam, linear or sqrt"};
      settings.options.learning_rate_rule = *known;
    }
    json->at("samples").get_to(settings.samples);
    json->at("parameters").get_to(settings.parameters);
    json->at("tail").get_to(settings.tail);
    json->at("chunks").get_to(settings.chunks);
    settings.schema = json->at("schema");
  } catch (const Json::exception& error) {
    return Error{fmt::format("the options of the job: {}", error.what())};
  }
  for (const std::size_t count : settings.parameters) {
    if (count > kMostFloats) return Error{"a parameter has too many floats"};
  }
  if (settings.tail < 1 || settings.tail > kMostFloats) {
    return Error{"the tail must have at least the loss"};
  }
  if (settings.chunks < 1) return Error{"the state must have at least one chunk"};
  if (settings.options.bucket_bytes < sizeof(float)) return Error{"bucket_bytes must be 4 or more"};
  auto options = elastic::options_from_environment(settings.options);
  if (!options) return options.error();
  settings.options = *options;
  return settings;
}

}  // namespace

// The model of a program in another language, as the driver sees it.
class ForeignModel : public elastic::Model {
 public:
  ForeignModel(const rubato_model& functions, Settings settings)
      : functions_(functions),
        schema_(std::move(settings.schema)),
        chunks_(settings.chunks),
        accumulator_(elastic::make_layout(settings.parameters, settings.tail,
                                          settings.options.bucket_bytes / sizeof(float))) {}

  [[nodiscard]] Accumulator& accumulator() { return accumulator_; }
  [[nodiscard]] std::string& problem() { return problem_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }
  void report(const Json& fields) { report_.update(fields); }

  [[nodiscard]] const elastic::Layout& layout() const override { return accumulator_.layout(); }
  [[nodiscard]] Json schema() const override { return schema_; }
  [[nodiscard]] std::span<float> slot(int index) override { return accumulator_.slot(index); }
  [[nodiscard]] int chunks() const override { return chunks_; }

  [[nodiscard]] Result<StateChunk> chunk(int index) override {
    StateChunk chunk;
    auto* told = reinterpret_cast<rubato_chunk*>(&chunk);
    if (functions_.chunk(functions_.self, index, told) != 0) return Error{problem_};
    return chunk;
  }
  void release() override { functions_.release(functions_.self); }

  [[nodiscard]] Result<void> load_chunk(int index, std::string_view head,
                                        std::span<const std::byte> body) override {
    if (index < 0 || index >= chunks_) {
      return Error{fmt::format("chunk {} does not exist: this model has {}", index, chunks_)};
    }
    const std::string text(head);
    if (functions_.load_chunk(functions_.self, index, text.c_str(), body.data(), body.size()) !=
        0) {
      return Error{problem_};
    }
    return {};
  }

  [[nodiscard]] Result<void> apply(const Step& step) override {
    const std::vector<std::uint8_t> held(step.held.begin(), step.held.end());
    rubato_step told{};
    told.step = step.plan.step;
    told.epoch = step.plan.epoch;
    told.samples = step.plan.samples;
    told.learning_rate_factor = step.plan.learning_rate_factor;
    told.workers = step.workers;
    told.ends_epoch = step.ends_epoch ? 1 : 0;
    told.result = step.result.data();
    told.floats = step.result.size();
    told.held = held.empty() ? nullptr : held.data();
    report_ = Json::object();
    if (functions_.apply(functions_.self, &told) != 0) return Error{problem_};
    return {};
  }
  [[nodiscard]] Result<bool> reduce(const Group& group, std::span<float> sums) override {
    const rubato_group told{group.rank, group.size, group.name.c_str()};
    const int done = functions_.reduce(functions_.self, &told, sums.data(), sums.size());
    if (done < 0) return Error{problem_};
    return done == 0;
  }
  void interrupted() override {
    if (functions_.interrupted != nullptr) functions_.interrupted(functions_.self);
  }
  void describe(std::span<const float> /*result*/, Json& report) override {
    report.update(report_);
  }
  void members_changed(const elastic::World& world) override {
    functions_.members(functions_.self, world.rank, world.size);
  }

 private:
  rubato_model functions_;
  Json schema_;
  int chunks_;
  Accumulator accumulator_;
  std::string problem_;
  Json report_ = Json::object();
};

// What a rubato_job* points to.
struct Job {
  Job(const rubato_model& functions, const Settings& settings) : model(functions, settings) {}

  ForeignModel model;
  std::unique_ptr<Driver> driver;
  Driver::Leaf leaf;
  Driver::End end;
  std::string pinned;
};

namespace {

Job& at(rubato_job* job) { return *reinterpret_cast<Job*>(job); }
const Job& at(const rubato_job* job) { return *reinterpret_cast<const Job*>(job); }
StateChunk& at(rubato_chunk* chunk) { return *reinterpret_cast<elastic::StateChunk*>(chunk); }

int refuse(rubato_job* job, std::string why) {
  at(job).model.problem() = std::move(why);
  return -1;
}

rubato_place place_of(const Driver::Leaf& leaf) {
  return {leaf.plan.step,    leaf.plan.epoch,   leaf.plan.cursor,
          leaf.plan.samples, leaf.summing.leaf, static_cast<std::int32_t>(leaf.indices.size())};
}

}  // namespace
}  // namespace rubato::c

// NOLINTNEXTLINE(google-build-using-namespace): C functions have no namespace
using namespace rubato::c;
using rubato::base::parse_json;
namespace elastic = rubato::elastic;

rubato_job* rubato_open(const char* options, const rubato_model* model, const char** problem) {
  thread_local std::string why;
  const auto settings = read_settings(options);
  if (!settings) {
    why = settings.error().message;
  } else if (settings->options.group && model->reduce == nullptr) {
    why = "with the option group, the model must have the function reduce";
  } else {
    auto job = std::make_unique<Job>(*model, *settings);
    auto driver = Driver::open(job->model, settings->options, settings->samples);
    if (driver) {
      job->driver = std::move(*driver);
      return reinterpret_cast<rubato_job*>(job.release());
    }
    why = driver.error().message;
  }
  if (problem != nullptr) *problem = why.c_str();
  return nullptr;
}

void rubato_close(rubato_job* job) { delete &at(job); }

int rubato_next(rubato_job* job, int milliseconds, rubato_task* task) {
  auto next = at(job).driver->next(std::chrono::milliseconds(milliseconds));
  if (!next) return 0;
  *task = {};
  if (auto* end = std::get_if<Driver::End>(&*next)) {
    at(job).end = std::move(*end);
    task->kind = RUBATO_END;
    task->code = at(job).end.code;
    task->why = at(job).end.why.c_str();
    return 1;
  }
  at(job).leaf = std::move(std::get<Driver::Leaf>(*next));
  const Driver::Leaf& leaf = at(job).leaf;
  at(job).model.accumulator().begin(leaf.summing, leaf.measure, leaf.ready);
  task->kind = leaf.warm_up ? RUBATO_WARM_UP : RUBATO_LEAF;
  task->last = leaf.ready ? 1 : 0;
  task->place = place_of(leaf);
  task->weight = leaf.weight;
  task->seed = leaf.seed;
  task->indices = leaf.indices.data();
  return 1;
}

int rubato_gradient(rubato_job* job, int parameter, const float* gradient, size_t floats) {
  Accumulator& accumulator = at(job).model.accumulator();
  const auto& parameters = accumulator.layout().parameters;
  if (!accumulator.running()) return refuse(job, "no leaf is being computed");
  if (parameter < 0 || static_cast<std::size_t>(parameter) >= parameters.size()) {
    return refuse(job, fmt::format("there is no parameter {}", parameter));
  }
  if (floats != parameters[static_cast<std::size_t>(parameter)].count) {
    return refuse(job,
                  fmt::format("the gradient of parameter {} has {} floats", parameter, floats));
  }
  if (accumulator.arrived(parameter)) {
    return refuse(job, fmt::format("parameter {} has two gradients in one leaf", parameter));
  }
  accumulator.add(parameter, {gradient, floats}, static_cast<float>(at(job).leaf.weight));
  return 0;
}

int rubato_leaf_done(rubato_job* job, const float* tail, size_t floats) {
  Accumulator& accumulator = at(job).model.accumulator();
  if (!accumulator.running()) return refuse(job, "no leaf is being computed");
  if (floats != accumulator.layout().buckets.back().count) {
    return refuse(job, fmt::format("the tail has {} floats", floats));
  }
  const elastic::Measured measured = accumulator.finish({tail, floats});
  if (!at(job).leaf.warm_up) at(job).driver->leaf_done(measured.sqr_norm);
  return 0;
}

int rubato_leaf_stale(const rubato_job* job) { return at(job).driver->leaf_stale() ? 1 : 0; }

void rubato_leaf_after(const rubato_job* job, rubato_place* place, int64_t* indices) {
  const Driver::Ahead after = at(job).driver->leaf_after(
      {place->step, {place->epoch, place->cursor, place->samples}, place->leaf});
  const auto positions = at(job).driver->positions_of(after);
  *place = {after.step,          after.slice.epoch, after.slice.cursor,
            after.slice.samples, after.leaf,        static_cast<std::int32_t>(positions.size())};
  if (indices == nullptr) return;
  for (std::int64_t p = positions.first; p < positions.last; ++p) {
    *indices++ = at(job).driver->order().index(after.slice.epoch, p);
  }
}

void rubato_fail(rubato_job* job, const char* why) { at(job).driver->fail(why); }
void rubato_commit(rubato_job* job) { at(job).driver->commit(); }
void rubato_finish(rubato_job* job) { at(job).driver->finish_early(); }
int rubato_leaving(const rubato_job* job) { return at(job).driver->leaving() ? 1 : 0; }
void rubato_notice(rubato_job* job, const char* kind, const char* text) {
  at(job).driver->notice(kind, {{"text", text}});
}

void rubato_pin(rubato_job* job, const char* key, const char* text) {
  at(job).driver->pin(key, text);
}
const char* rubato_pinned(rubato_job* job, const char* key) {
  auto text = at(job).driver->pinned(key);
  if (!text) return nullptr;
  at(job).pinned = std::move(*text);
  return at(job).pinned.c_str();
}

void rubato_chunk_head(rubato_chunk* chunk, const char* text) { at(chunk).head = text; }
void rubato_chunk_piece(rubato_chunk* chunk, const void* memory, size_t bytes) {
  if (bytes > 0) at(chunk).body.emplace_back(static_cast<const std::byte*>(memory), bytes);
}

int rubato_report(rubato_job* job, const char* fields) {
  const auto json = parse_json(fields, "the fields of a report");
  if (!json) return refuse(job, json.error().message);
  if (!json->is_object()) return refuse(job, "the fields of a report must be a JSON object");
  at(job).model.report(*json);
  return 0;
}

void rubato_set_problem(rubato_job* job, const char* why) { at(job).model.problem() = why; }
const char* rubato_problem(const rubato_job* job) { return at(job).model.problem().c_str(); }

size_t rubato_offset(const rubato_job* job, int parameter) {
  const auto& layout = at(job).model.layout();
  const auto place = static_cast<std::size_t>(parameter);
  return place < layout.parameters.size() ? layout.parameters[place].offset
                                          : layout.buckets.back().offset;
}

double rubato_squared_norm(const float* values, size_t floats) {
  return elastic::measure({values, floats}).sqr_norm;
}

int64_t rubato_worker(const rubato_job* job) { return at(job).driver->uid(); }
