#include "rubato/journal/codec.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/json_record.h"
#include "rubato/base/text.h"
#include "rubato/core/node_states.h"
#include "rubato/journal/rebuild_state.h"
#include "rubato/model/curve.h"
#include "rubato/model/goodput_estimate.h"
#include "rubato/model/measured_speed.h"

namespace rubato::journal {
namespace {

constexpr JsonLimits kLimits{.bytes = std::size_t{256} << 20U, .depth = 32};
constexpr std::size_t kMostTypes = 200;
constexpr std::size_t kMostTableRows = 100'000;
// The table of jobs takes 4 bytes for every job number that was ever used.
constexpr JobId::rep kMostJobs = 50'000'000;

// --- enumerations ---

constexpr std::array<NameOf<Phase>, 5> kPhases = {{{Phase::pending, "pending"},
                                                   {Phase::starting, "starting"},
                                                   {Phase::running, "running"},
                                                   {Phase::resizing, "resizing"},
                                                   {Phase::stopping, "stopping"}}};
constexpr std::array<NameOf<Change::Kind>, 4> kKinds = {{{Change::Kind::start, "start"},
                                                         {Change::Kind::stop, "stop"},
                                                         {Change::Kind::resize, "resize"},
                                                         {Change::Kind::move, "move"}}};

const auto& names_of(const auto& /*format*/, Phase /*any*/) { return kPhases; }
const auto& names_of(const auto& /*format*/, NodeState /*any*/) { return kNodeStates; }
const auto& names_of(const auto& /*format*/, Change::Kind /*any*/) { return kKinds; }

// --- writing and reading ---

// Speeds and tables that several jobs of a state share are written once, by number.
template <class T>
class Listed {
 public:
  std::size_t number_of(const T* object) {
    const auto [at, fresh] = numbers_.try_emplace(object, objects_.size());
    if (fresh) objects_.push_back(object);
    return at->second;
  }
  [[nodiscard]] const std::vector<const T*>& objects() const { return objects_; }

 private:
  std::map<const T*, std::size_t> numbers_;
  std::vector<const T*> objects_;
};

struct Lists {
  Listed<SpeedModel> speeds;
  Listed<ThroughputTable> tables;
};

// Of a state: the lists of its speeds and tables.
struct Writing : RecordFormat {
  Lists* lists = nullptr;
};
using Writer = RecordWriter<Writing>;
using FieldsOut = RecordFieldsOut<Writing>;

using Speeds = std::vector<std::shared_ptr<const SpeedModel>>;
using Tables = std::vector<std::shared_ptr<const ThroughputTable>>;

struct Reading : RecordFormat {
  explicit Reading(SpeedPool& shared) : pool(shared) {}

  // Whether this much memory may be used. If not, the value is refused: a few bytes of text must
  // not ask for much memory.
  bool has_room(const JsonValue& json, std::size_t bytes) {
    if (bytes > room) json.refuse("asks for too much memory");
    if (!json.ok()) return false;
    room -= bytes;
    return true;
  }

  SpeedPool& pool;
  std::size_t room = std::size_t{1} << 30U;
  // Of a state: speeds and tables in its lists stay apart even if they are equal. Its jobs refer to
  // them by number.
  bool listing = false;
  const Speeds* speeds = nullptr;
  const Tables* tables = nullptr;
};
using Reader = RecordReader<Reading>;
using FieldsIn = RecordFieldsIn<Reading>;

// --- the fields of each type ---
//
// One description for both directions (base/json_record.h).

void describe(auto& f, Is<Batch> auto& value) {
  auto& [per_gpu, accumulation] = value;
  f("accumulation", accumulation);
  f("per_gpu", per_gpu);
}

void describe(auto& f, Is<BatchLimits> auto& value) {
  auto& [initial, largest, per_gpu_min, per_gpu_max, accumulate] = value;
  f("accumulate", accumulate);
  f("initial", initial);
  f("largest", largest);
  f("per_gpu_max", per_gpu_max);
  f("per_gpu_min", per_gpu_min);
}

void describe(auto& f, Is<GpuLimits> auto& value) {
  auto& [min, max, allowed] = value;
  f("allowed", allowed);
  f("max", max);
  f("min", min);
}

void describe(auto& f, Is<Utility> auto& value) {
  auto& [worth, decay, target] = value;
  f("decay", decay);
  f("target", target);
  f("value", worth);
}

void describe(auto& f, Is<JobSpec> auto& value) {
  auto& [name, user, model, requested, limits, preemptible, weight, batch, adaptive_batch, deadline,
         restart_cost, cooldown, notice, goes_first, work_guessed, utility, opportunistic, quota,
         tries_pairs, skew] = value;
  f("adaptive_batch", adaptive_batch);
  f("batch", batch);
  f("cooldown", cooldown);
  f("deadline", deadline);
  f("goes_first", goes_first);
  f("limits", limits);
  f("model", model);
  f("name", name);
  f.unless_plain("opportunistic", opportunistic);
  f("preemptible", preemptible);
  f.unless_plain("quota", quota);
  f("requested", requested);
  f("restart_cost", restart_cost);
  f("skew", skew);
  f.unless_plain("tries_pairs", tries_pairs);
  f("user", user);
  f("utility", utility);
  f("weight", weight);
  f.unless_plain("notice", notice);
  f.unless_plain("work_guessed", work_guessed);
}

void describe(auto& f, Is<Progress> auto& value) {
  auto& [work_left, at, rate] = value;
  f("at", at);
  f("rate", rate);
  f("work_left", work_left);
}

void describe(auto& f, Is<ShownLosses> auto& value) {
  auto& [points, epoch, threshold] = value;
  f("epoch", epoch);
  f("points", points);
  f("threshold", threshold);
}

void describe(auto& f, Is<StepTime> auto& value) {
  auto& [grad_fixed, grad_per_sample, node_sync, node_sync_per_gpu, network_sync,
         network_sync_per_gpu, overlap] = value;
  f("grad_fixed", grad_fixed);
  f("grad_per_sample", grad_per_sample);
  f("network_sync", network_sync);
  f("network_sync_per_gpu", network_sync_per_gpu);
  f("node_sync", node_sync);
  f("node_sync_per_gpu", node_sync_per_gpu);
  f("overlap", overlap);
}

void describe(auto& f, Is<GradientNoise> auto& value) {
  auto& [sqr, var] = value;
  f("sqr", sqr);
  f("var", var);
}

void describe(auto& f, Is<GoodputEstimate::Seen> auto& value) {
  auto& [time, noise, most_gpus] = value;
  f("most_gpus", most_gpus);
  f("noise", noise);
  f("time", time);
}

void describe(auto& f, Is<GoodputEstimate::OnType> auto& value) {
  auto& [one_gpu, time, most_gpus] = value;
  f("most_gpus", most_gpus);
  f("one_gpu", one_gpu);
  f("time", time);
}

void describe(auto& f, Is<Count> auto& value) {
  auto& [type, gpus] = value;
  f("gpus", gpus);
  f("type", type);
}

void describe(auto& f, Is<Spread> auto& value) {
  auto& [gpus] = value;
  f("gpus", gpus);
}

void describe(auto& f, Is<Exact> auto& value) {
  auto& [gpus] = value;
  f("gpus", gpus);
}

void describe(auto& f, Is<Beside> auto& value) {
  auto& [host] = value;
  f("host", host);
}

void describe(auto& f, Is<Grant> auto& value) {
  auto& [job, want, batch] = value;
  f("batch", batch);
  f("job", job);
  f("want", want);
}

void describe(auto& f, Is<Reject> auto& value) {
  auto& [job, reason, earliest] = value;
  f("earliest", earliest);
  f("job", job);
  f("reason", reason);
}

void describe(auto& f, Is<Advice> auto& value) {
  auto& [utility, nodes] = value;
  f("nodes", nodes);
  f("utility", utility);
}

void describe(auto& f, Is<Promise> auto& value) {
  auto& [job, finish, plan, movable] = value;
  f("finish", finish);
  f("job", job);
  f("movable", movable);
  f("plan", plan);
}

void describe(auto& f, Is<Decision> auto& value) {
  auto& [run, reject, promise, again_at, as_of, advice] = value;
  f("advice", advice);
  f("again_at", again_at);
  f("as_of", as_of);
  f("promise", promise);
  f("reject", reject);
  f("run", run);
}

void describe(auto& f, Is<Submitted> auto& value) {
  auto& [job, spec, speed, work] = value;
  f("job", job);
  f.required("spec", spec);
  f("speed", speed);
  f("work", work);
}

void describe(auto& f, Is<Running> auto& value) {
  auto& [job, generation, progress] = value;
  f("generation", generation);
  f("job", job);
  f("progress", progress);
}

void describe(auto& f, Is<Released> auto& value) {
  auto& [job, generation, gpus, progress, stopped] = value;
  f("generation", generation);
  f("gpus", gpus);
  f("job", job);
  f("progress", progress);
  f("stopped", stopped);
}

void describe(auto& f, Is<Finished> auto& value) {
  auto& [job, generation, at] = value;
  f("at", at);
  f("generation", generation);
  f("job", job);
}

void describe(auto& f, Is<Failed> auto& value) {
  auto& [job, generation, progress, infrastructure, why] = value;
  f("generation", generation);
  f.unless_plain("infrastructure", infrastructure);
  f("job", job);
  f("progress", progress);
  f.unless_plain("why", why);
}

void describe(auto& f, Is<NodeChanged> auto& value) {
  auto& [node, state, why] = value;
  f("node", node);
  f("state", state);
  f.unless_plain("why", why);
}

void describe(auto& f, Is<NodeAdded> auto& value) {
  auto& [node, added] = value;
  auto& [name, type, gpus, labels] = added;
  f("gpus", gpus);
  f.unless_plain("labels", labels);
  f("name", name);
  f("node", node);
  f("type", type);
}

void describe(auto& f, Is<Reserved> auto& value) {
  auto& [node, gpus, why] = value;
  f("gpus", gpus);
  f("node", node);
  f.unless_plain("why", why);
}

void describe(auto& f, Is<Estimated> auto& value) {
  auto& [job, speed, losses, skew] = value;
  f("job", job);
  f("losses", losses);
  f("skew", skew);
  f("speed", speed);
}

void describe(auto& /*f*/, Is<Wake> auto& /*value*/) {}

void describe(auto& f, Is<Cancelled> auto& value) {
  auto& [job] = value;
  f("job", job);
}

void describe(auto& f, Is<HoldChanged> auto& value) {
  auto& [job, on, until] = value;
  f("job", job);
  f("on", on);
  f("until", until);
}

void describe(auto& f, Is<Limited> auto& value) {
  auto& [job, limits, keeps] = value;
  f("job", job);
  f("keeps", keeps);
  f("limits", limits);
}

void describe(auto& f, Is<Due> auto& value) {
  auto& [job, deadline] = value;
  f("deadline", deadline);
  f("job", job);
}

void describe(auto& f, Is<Skipped> auto& value) {
  auto& [jobs, generations] = value;
  f("generations", generations);
  f("jobs", jobs);
}

void describe(auto& f, Is<Change> auto& value) {
  auto& [job, kind, target] = value;
  f("job", job);
  f("kind", kind);
  f("target", target);
}

void describe(auto& f, Is<Carried> auto& value) {
  auto& [changes, refused] = value;
  f("changes", changes);
  f("refused", refused);
}

void describe(auto& f, Is<Decided> auto& value) {
  auto& [decision, carried] = value;
  f("carried", carried);
  f("decision", decision);
}

void describe(auto& f, Is<Start> auto& value) {
  auto& [job, generation, gpus, batch] = value;
  f("batch", batch);
  f("generation", generation);
  f("gpus", gpus);
  f("job", job);
}

void describe(auto& f, Is<Resize> auto& value) {
  auto& [job, generation, gpus, batch] = value;
  f("batch", batch);
  f("generation", generation);
  f("gpus", gpus);
  f("job", job);
}

void describe(auto& f, Is<Stop> auto& value) {
  auto& [job, generation] = value;
  f("generation", generation);
  f("job", job);
}

void describe(auto& f, Is<JobView> auto& value) {
  auto& [id, phase, generation, release_due, progress, target, held, shares_with, counted_from,
         attained_before, ran_before, last_ran, spec, speed, losses, work, submitted, first_start,
         restarts, batch, batch_told, on_hold, leaving, taken_in, resized] = value;
  f("attained_before", attained_before);
  f("batch", batch);
  f("batch_told", batch_told);
  f("counted_from", counted_from);
  f("first_start", first_start);
  f("generation", generation);
  f("held", held);
  f("id", id);
  f("last_ran", last_ran);
  f("leaving", leaving);
  f("losses", losses);
  f("on_hold", on_hold);
  f("phase", phase);
  f("progress", progress);
  f("ran_before", ran_before);
  f("release_due", release_due);
  f("resized", resized);
  f("restarts", restarts);
  f("shares_with", shares_with);
  f.required("spec", spec);
  f("speed", speed);
  f("submitted", submitted);
  f("taken_in", taken_in);
  f("target", target);
  f("work", work);
}

// A field "kind" says which kind of Want it is.
constexpr std::string_view kind_of(const Count& /*want*/) { return "count"; }
constexpr std::string_view kind_of(const Spread& /*want*/) { return "spread"; }
constexpr std::string_view kind_of(const Exact& /*want*/) { return "exact"; }
constexpr std::string_view kind_of(const Beside& /*want*/) { return "beside"; }

void describe_row(auto& f, Is<LossPoint> auto& value) {
  auto& [done, loss] = value;
  f(done, loss);
}

void describe_row(auto& f, Is<GpuStep> auto& value) {
  auto& [from, gpus] = value;
  f(from, gpus);
}

void describe_row(auto& f, Is<std::pair<NodeId, int>> auto& value) { f(value.first, value.second); }

// --- values that are neither an object of fields nor a row ---

Json write_speed(Writer& writer, const SpeedModel& speed);
Json write_cluster(Writer& writer, const Cluster& cluster);
void read_speed(Reader& reader, const JsonValue& json, std::shared_ptr<const SpeedModel>& speed);
void read_table(Reader& reader, const JsonValue& json,
                std::shared_ptr<const ThroughputTable>& table);
void read_cluster(Reader& reader, const JsonValue& json, Cluster& cluster);

Json write_json(Writer& writer, const Is<Want> auto& value) {
  Json json = std::visit([&](const auto& want) { return writer.write(want); }, value);
  json["kind"] = std::string(std::visit([](const auto& want) { return kind_of(want); }, value));
  return json;
}

Json write_json(Writer& /*writer*/, const Is<Allocation> auto& value) {
  Json slices = Json::array();
  for (const auto& [node, mask] : value.slices())
    slices.push_back(Json::array({node.value(), mask}));
  return {{"slices", std::move(slices)}, {"type", value.type().value()}};
}

Json write_json(Writer& writer, const Is<std::shared_ptr<const SpeedModel>> auto& value) {
  if (Lists* lists = writer.format().lists) return lists->speeds.number_of(value.get());
  return write_speed(writer, *value);
}

Json write_json(Writer& writer, const std::derived_from<SpeedModel> auto& value) {
  return write_speed(writer, value);
}

Json write_json(Writer& /*writer*/, const Is<NodeLabels> auto& value) { return value; }

Json write_json(Writer& writer, const Is<Cluster> auto& value) {
  return write_cluster(writer, value);
}

void read_json(Reader& reader, const JsonValue& json, Is<Want> auto& want) {
  FieldsIn fields(json, reader);
  std::string kind;
  fields("kind", kind);
  const auto read_as = [&](auto of_kind) {
    if (kind != kind_of(of_kind)) return false;
    describe(fields, of_kind);
    want = std::move(of_kind);
    return true;
  };
  if (!read_as(Count()) && !read_as(Spread()) && !read_as(Exact()) && !read_as(Beside()))
    json.refuse(fmt::format("{} is no kind of want", base::quoted(kind)));
}

void read_json(Reader& reader, const JsonValue& json, Is<Allocation> auto& gpus) {
  FieldsIn fields(json, reader);
  GpuType type;
  fields("type", type);
  Allocation read(type);
  fields.list("slices", [&](const JsonValue& slice) {
    if (!slice.is_row(2)) return;
    const Slice one{slice.at(0).id<NodeId>(), slice.at(1).natural()};
    if (one.mask == 0) slice.refuse("names no GPU");
    if (!read.empty() && read.slices().back().node >= one.node)
      slice.refuse("is not on a later node than the one before");
    if (slice.ok()) read.add(one);
  });
  gpus = std::move(read);
}

void read_json(Reader& reader, const JsonValue& json,
               Is<std::shared_ptr<const SpeedModel>> auto& speed) {
  read_speed(reader, json, speed);
}

void read_json(Reader& reader, const JsonValue& json,
               Is<std::shared_ptr<const ThroughputTable>> auto& table) {
  read_table(reader, json, table);
}

void read_json(Reader& /*reader*/, const JsonValue& json, Is<NodeLabels> auto& labels) {
  labels = json.text_map();
}

void read_json(Reader& reader, const JsonValue& json, Is<Cluster> auto& cluster) {
  read_cluster(reader, json, cluster);
}

// --- speeds ---

Json write_table(const ThroughputTable& table);

Json write_speed(Writer& writer, const SpeedModel& speed) {
  if (const auto* constant = dynamic_cast<const ConstantSpeed*>(&speed))
    return {{"kind", "constant"}, {"rate", constant->rate({})}};
  if (const auto* curve = dynamic_cast<const CurveSpeed*>(&speed)) {
    Json points = Json::array();
    for (const auto& [gpus, rate] : curve->points()) points.push_back(Json::array({gpus, rate}));
    return {{"kind", "curve"}, {"network", curve->network()}, {"points", std::move(points)}};
  }
  if (const auto* power = dynamic_cast<const PowerSpeed*>(&speed))
    return {{"kind", "power"}, {"most", power->most()}, {"one", power->one()}, {"q", power->q()}};
  if (const auto* measured = dynamic_cast<const MeasuredSpeed*>(&speed)) {
    Json rates = Json::array();
    for (const auto& [gpus, rate] : measured->rates()) rates.push_back(Json::array({gpus, rate}));
    return {{"kind", "measured"}, {"most", measured->most()}, {"rates", std::move(rates)}};
  }
  if (const auto* goodput = dynamic_cast<const GoodputEstimate*>(&speed)) {
    FieldsOut fields(writer);
    fields("kind", std::string("goodput"));
    fields("limits", goodput->limits());
    fields("owners_batch", goodput->owners_batch());
    fields("seen", goodput->seen());
    if (!goodput->types().empty()) fields("types", goodput->types());
    return fields.take();
  }
  if (const auto* typed = dynamic_cast<const TypedSpeed*>(&speed)) {
    const ThroughputTable& table = *typed->table();
    Lists* lists = writer.format().lists;
    return {
        {"kind", "typed"},
        {"row", typed->row()},
        {"table", lists != nullptr ? Json(lists->tables.number_of(&table)) : write_table(table)}};
  }
  writer.refuse("a speed of a kind that only the simulator knows cannot be stored");
  return nullptr;
}

Json write_table(const ThroughputTable& table) {
  Json alone = Json::array();
  for (const auto& [row, other, type, gpus, rate] : table.all_alone())
    alone.push_back(Json::array({row, type.value(), gpus, rate}));
  Json beside = Json::array();
  for (const auto& [row, other, type, gpus, rate] : table.all_beside())
    beside.push_back(Json::array({row, other, type.value(), gpus, rate}));
  return {{"alone", std::move(alone)},
          {"beside", std::move(beside)},
          {"rows", table.rows()},
          {"types", table.types()}};
}

// Pairs of a GPU count and a rate, ascending.
std::vector<CurvePoint> read_points(FieldsIn& fields, const char* name) {
  std::vector<CurvePoint> points;
  fields.list(name, [&](const JsonValue& point) {
    if (!point.is_row(2)) return;
    points.push_back({point.at(0).whole<int>(), point.at(1).number()});
    const int before = points.size() < 2 ? 0 : points[points.size() - 2].gpus;
    if (points.back().gpus <= before) point.refuse("is not at more GPUs than the one before");
  });
  return points;
}

std::shared_ptr<const SpeedModel> make_curve(const JsonValue& json, FieldsIn& fields,
                                             Reading& reading) {
  const auto points = read_points(fields, "points");
  double network = 0;
  fields("network", network);
  const bool usable = !points.empty() && points.back().gpus <= 4096 &&
                      std::all_of(points.begin(), points.end(),
                                  [](const CurvePoint& point) { return point.rate > 0; });
  if (!json.must_be(usable, "a curve of rates above 0 at up to 4096 GPUs")) return nullptr;
  if (!reading.has_room(json, sizeof(WorkRate) * static_cast<std::size_t>(points.back().gpus)))
    return nullptr;
  return std::make_shared<CurveSpeed>(points, network);
}

std::shared_ptr<const SpeedModel> make_power(const JsonValue& json, FieldsIn& fields) {
  double q = 0;
  int most = 0;
  WorkRate one = 0;
  fields("most", most);
  fields("one", one);
  fields("q", q);
  const bool usable = q > 0 && q <= 1 && most >= 1 && one > 0;
  if (!json.must_be(usable, "a power above 0 and up to 1, of a rate above 0")) return nullptr;
  return std::make_shared<PowerSpeed>(q, most, one);
}

std::shared_ptr<const SpeedModel> make_measured(const JsonValue& json, FieldsIn& fields) {
  int most = 0;
  fields("most", most);
  std::map<int, WorkRate> rates;
  for (const auto& [gpus, rate] : read_points(fields, "rates")) rates[gpus] = rate;
  if (!json.must_be(!rates.empty(), "a list of at least one rate")) return nullptr;
  return std::make_shared<MeasuredSpeed>(rates, most);
}

std::shared_ptr<const SpeedModel> make_goodput(const JsonValue& json, FieldsIn& fields) {
  BatchLimits limits;
  std::optional<int> owners_batch;
  std::optional<GoodputEstimate::Seen> seen;
  fields("limits", limits);
  fields("owners_batch", owners_batch);
  fields("seen", seen);
  std::vector<GoodputEstimate::OnType> types;
  fields.unless_plain("types", types);
  const bool usable = limits.initial >= 1 && limits.largest >= 1 && limits.per_gpu_min >= 1 &&
                      limits.per_gpu_max >= limits.per_gpu_min;
  if (!json.must_be(usable, "an estimate with limits of the batch from 1 on, in order"))
    return nullptr;
  const bool sound =
      std::all_of(types.begin(), types.end(), [](const auto& type) { return type.one_gpu > 0; });
  if (!json.must_be(sound, "an estimate with speeds above 0 by type")) return nullptr;
  return std::make_shared<GoodputEstimate>(limits, owners_batch, seen, std::move(types));
}

std::shared_ptr<const SpeedModel> make_typed(const JsonValue& json, FieldsIn& fields) {
  std::shared_ptr<const ThroughputTable> table;
  std::size_t row = 0;
  fields("row", row);
  fields.required("table", table);
  if (!json.ok()) return nullptr;
  if (!json.must_be(row < table->rows(), "a row of its table")) return nullptr;
  return std::make_shared<TypedSpeed>(std::move(table), row);
}

// The text by which a pool knows a speed. A typed speed keeps its table alive, so the address of
// the table identifies the table.
std::string text_of(const SpeedModel& speed) {
  if (const auto* typed = dynamic_cast<const TypedSpeed*>(&speed))
    return fmt::format("row {} of {}", typed->row(), fmt::ptr(typed->table().get()));
  Writing writing;
  Writer writer(writing);
  return canonical_json(write_speed(writer, speed)).value();
}

std::shared_ptr<const SpeedModel> read_new_speed(Reader& reader, const JsonValue& json) {
  FieldsIn fields(json, reader);
  std::string kind;
  fields("kind", kind);
  if (kind == "constant") {
    WorkRate rate = 0;
    fields("rate", rate);
    return std::make_shared<ConstantSpeed>(rate);
  }
  if (kind == "curve") return make_curve(json, fields, reader.format());
  if (kind == "power") return make_power(json, fields);
  if (kind == "measured") return make_measured(json, fields);
  if (kind == "goodput") return make_goodput(json, fields);
  if (kind == "typed") return make_typed(json, fields);
  json.refuse(fmt::format("{} is no kind of speed", base::quoted(kind)));
  return nullptr;
}

void read_speed(Reader& reader, const JsonValue& json, std::shared_ptr<const SpeedModel>& speed) {
  const Reading& reading = reader.format();
  if (reading.speeds != nullptr) {
    const auto number = json.whole<std::size_t>();
    if (json.must_be(number < reading.speeds->size(), "the number of a listed speed"))
      speed = (*reading.speeds)[number];
    return;
  }
  speed = read_new_speed(reader, json);
  if (!json.ok()) return;
  auto shared = reading.pool.share(text_of(*speed), speed);
  if (!reading.listing) speed = std::move(shared);
}

std::shared_ptr<const ThroughputTable> read_new_table(Reader& reader, const JsonValue& json) {
  FieldsIn fields(json, reader);
  std::size_t rows = 0;
  std::size_t types = 0;
  fields("rows", rows);
  fields("types", types);
  if (!json.must_be(
          rows >= 1 && rows <= kMostTableRows && types >= 1 && types <= kMostTypes,
          fmt::format("a table of up to {} rows and {} types", kMostTableRows, kMostTypes)))
    return nullptr;
  if (!reader.format().has_room(json, rows * types * sizeof(std::map<int, WorkRate>)))
    return nullptr;
  auto read = std::make_shared<ThroughputTable>(rows, types);
  struct Measured {
    GpuType type;
    int gpus = 0;
    WorkRate rate = 0;
  };
  // The last three elements of a row, in both lists.
  const auto measured = [&](const JsonValue& row, std::size_t at) {
    const Measured m{row.at(at).id<GpuType>(), row.at(at + 1).whole<int>(),
                     row.at(at + 2).number()};
    row.must_be(m.type.index() < types && m.gpus >= 1 && m.rate >= 0,
                "a type of the table, at least 1 GPU and a rate from 0");
    return m;
  };
  const auto row_number = [&](const JsonValue& number) {
    const auto row = number.whole<std::size_t>();
    number.must_be(row < rows, "a row of the table");
    return row;
  };
  fields.list("alone", [&](const JsonValue& row) {
    if (!row.is_row(4)) return;
    const std::size_t of = row_number(row.at(0));
    const Measured m = measured(row, 1);
    if (row.ok()) read->set_alone(of, m.type, m.gpus, m.rate);
  });
  fields.list("beside", [&](const JsonValue& row) {
    if (!row.is_row(5)) return;
    const std::size_t of = row_number(row.at(0));
    const std::size_t other = row_number(row.at(1));
    const Measured m = measured(row, 2);
    if (row.ok()) read->set_beside(of, other, m.type, m.gpus, m.rate);
  });
  return read;
}

void read_table(Reader& reader, const JsonValue& json,
                std::shared_ptr<const ThroughputTable>& table) {
  const Reading& reading = reader.format();
  if (reading.tables != nullptr) {
    const auto number = json.whole<std::size_t>();
    if (json.must_be(number < reading.tables->size(), "the number of a listed table"))
      table = (*reading.tables)[number];
    return;
  }
  table = read_new_table(reader, json);
  if (!json.ok()) return;
  auto text = canonical_json(write_table(*table), kLimits);
  if (!text) return json.refuse(text.error().message);
  auto shared = reading.pool.share(*text, table);
  if (!reading.listing) table = std::move(shared);
}

// --- clusters and states ---

Json write_cluster(Writer& writer, const Cluster& cluster) {
  if (cluster.nodes().size() > static_cast<std::size_t>(kMostStoredNodes))
    writer.refuse(
        fmt::format("a cluster of more than {} nodes cannot be stored", kMostStoredNodes));
  Json groups = Json::array();
  for (const auto& [nodes, gpus, type] : cluster.groups())
    groups.push_back(Json::array({nodes, gpus, type.value()}));
  Json not_up = Json::array();
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    const NodeState state = cluster.nodes()[i].state;
    if (state != NodeState::up) not_up.push_back(Json::array({i, writer.write(state)}));
  }
  Json types = Json::array();
  for (int t = 0; t < cluster.types(); ++t)
    types.push_back(cluster.type_name(GpuType(static_cast<GpuType::rep>(t))));
  Json json = {
      {"groups", std::move(groups)}, {"not_up", std::move(not_up)}, {"types", std::move(types)}};
  // Clusters of one machine have neither, and older rows do not know them.
  Json described = Json::array();
  Json reserved = Json::array();
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    const NodeId id(static_cast<NodeId::rep>(i));
    const NodeLabels& labels = cluster.labels(id);
    if (cluster.has_own_name(id) || !labels.empty())
      described.push_back(Json::array({i, cluster.name(id), labels}));
    if (const std::uint64_t gpus = cluster.node(id).reserved; gpus != 0)
      reserved.push_back(Json::array({i, gpus}));
  }
  if (!described.empty()) json["described"] = std::move(described);
  if (!reserved.empty()) json["reserved"] = std::move(reserved);
  return json;
}

void read_cluster(Reader& reader, const JsonValue& json, Cluster& cluster) {
  FieldsIn fields(json, reader);
  std::vector<std::string> types;
  fields("types", types);
  if (!json.must_be(types.size() <= kMostTypes, fmt::format("of at most {} types", kMostTypes)))
    return;
  std::vector<NodeGroup> groups;
  std::int64_t nodes = 0;
  fields.list("groups", [&](const JsonValue& group) {
    if (!group.is_row(3)) return;
    const NodeGroup read{group.at(0).whole<int>(), group.at(1).whole<int>(),
                         group.at(2).id<GpuType>()};
    nodes += read.nodes;
    const bool usable = read.nodes >= 1 && nodes <= kMostStoredNodes && read.gpus_per_node >= 1 &&
                        read.gpus_per_node <= kMaxGpusPerNode && read.type.index() < types.size();
    if (group.must_be(usable, fmt::format("nodes (up to {} in all) of 1 to {} GPUs of a type",
                                          kMostStoredNodes, kMaxGpusPerNode)))
      groups.push_back(read);
  });
  if (!json.ok()) return;
  Cluster read(groups, std::move(types));
  fields.list("not_up", [&](const JsonValue& node) {
    if (!node.is_row(2)) return;
    const auto id = node.at(0).id<NodeId>();
    const auto state = reader.get<NodeState>(node.at(1));
    if (node.must_be(id.index() < read.nodes().size() && state != NodeState::up,
                     "a node and a state other than up"))
      read.set_state(id, state);
  });
  const auto there = [&](const JsonValue& row, NodeId id) {
    return row.must_be(id.index() < read.nodes().size(), "a node of the cluster");
  };
  fields.list_if_any("described", [&](const JsonValue& row) {
    if (!row.is_row(3)) return;
    const auto id = row.at(0).id<NodeId>();
    if (there(row, id)) read.describe(id, row.at(1).text(), row.at(2).text_map());
  });
  fields.list_if_any("reserved", [&](const JsonValue& row) {
    if (!row.is_row(2)) return;
    const auto id = row.at(0).id<NodeId>();
    const std::uint64_t gpus = row.at(1).natural();
    if (there(row, id) && row.must_be((gpus & ~read.node(id).all()) == 0, "GPUs of its node"))
      read.set_reserved(id, gpus);
  });
  cluster = std::move(read);
}

Json write_state(Writer& writer, const State& state) {
  // All members are bound by position, as in describe(). Those that are not used here are rebuilt
  // on reading.
  const auto& [snapshot, free, busy, targeted, waiting_on, again_at, decision_due, asked_at, told] =
      state;
  const auto& [now, as_of, cluster, jobs, interval, lateness, jobs_move, away, changed_since,
               changed] = snapshot;
  Json job_list = Json::array();
  for (const JobView& job : jobs) job_list.push_back(writer.write(job));
  const Lists& lists = *writer.format().lists;
  Json speeds = Json::array();
  for (const SpeedModel* speed : lists.speeds.objects())
    speeds.push_back(write_speed(writer, *speed));
  Json tables = Json::array();
  for (const ThroughputTable* table : lists.tables.objects()) tables.push_back(write_table(*table));
  Json waiting = Json::array();
  for (std::size_t node = 0; node < waiting_on.size(); ++node) {
    if (!waiting_on[node].empty())
      waiting.push_back(Json::array({node, writer.write(waiting_on[node])}));
  }
  FieldsOut fields(writer);
  fields("again_at", again_at);
  fields("as_of", as_of);
  fields("asked_at", asked_at);
  fields("changed", changed);
  fields("changed_since", changed_since);
  fields("cluster", cluster);
  fields("decision_due", decision_due);
  fields("interval", interval);
  fields("jobs_move", jobs_move);
  fields("lateness", lateness);
  fields("next_job", jobs.next_id());
  fields("now", now);
  fields("targeted", targeted);
  fields("told", told);
  Json json = fields.take();
  json["jobs"] = std::move(job_list);
  json["speeds"] = std::move(speeds);
  json["tables"] = std::move(tables);
  json["waiting_on"] = std::move(waiting);
  return json;
}

std::optional<State> read_state(Reader& reader, const JsonValue& json) {
  FieldsIn fields(json, reader);
  Reading& reading = reader.format();
  Cluster cluster;
  fields("cluster", cluster);
  if (!json.ok()) return std::nullopt;
  State state(std::move(cluster));
  Snapshot& snapshot = state.snapshot;
  fields("again_at", state.again_at);
  fields("as_of", snapshot.as_of);
  fields("asked_at", state.asked_at);
  fields("changed", snapshot.changed);
  fields("changed_since", snapshot.changed_since);
  fields("decision_due", state.decision_due);
  fields("interval", snapshot.interval);
  fields("jobs_move", snapshot.jobs_move);
  fields("lateness", snapshot.lateness);
  fields("now", snapshot.now);
  fields("targeted", state.targeted);
  fields("told", state.told);

  Tables tables;
  Speeds speeds;
  reading.listing = true;
  fields("tables", tables);
  reading.tables = &tables;
  fields("speeds", speeds);
  reading.speeds = &speeds;
  JobId next;
  fields("next_job", next);
  json.must_be(next.value() <= kMostJobs, fmt::format("of at most {} jobs", kMostJobs));
  fields.list("jobs", [&](const JsonValue& one) {
    auto job = reader.get<JobView>(one);
    if (!one.must_be(job.id >= snapshot.jobs.next_id() && job.id < next,
                     "a job with an id above the one before and below next_job"))
      return;
    snapshot.jobs.insert(std::move(job));
  });
  reading.tables = nullptr;
  reading.speeds = nullptr;
  fields.list("waiting_on", [&](const JsonValue& row) {
    if (!row.is_row(2)) return;
    const auto node = row.at(0).id<NodeId>();
    if (row.must_be(node.index() < state.waiting_on.size(), "a node and the jobs that wait there"))
      state.waiting_on[node.index()] = reader.get<std::vector<JobId>>(row.at(1));
  });
  json.must_be(state.told <= snapshot.changed.size(),
               "a state that has told of no more jobs than have changed");
  if (!json.ok()) return std::nullopt;
  snapshot.jobs.use_up_to(next);
  if (const std::string wrong = rebuild_state(state); !wrong.empty()) json.refuse(wrong);
  if (!json.ok()) return std::nullopt;
  return state;
}

// --- rows ---

constexpr std::string_view type_of(const Submitted& /*event*/) { return "submitted"; }
constexpr std::string_view type_of(const Running& /*event*/) { return "running"; }
constexpr std::string_view type_of(const Released& /*event*/) { return "released"; }
constexpr std::string_view type_of(const Finished& /*event*/) { return "finished"; }
constexpr std::string_view type_of(const Failed& /*event*/) { return "failed"; }
constexpr std::string_view type_of(const NodeChanged& /*event*/) { return "node-changed"; }
constexpr std::string_view type_of(const NodeAdded& /*event*/) { return "node-added"; }
constexpr std::string_view type_of(const Reserved& /*event*/) { return "reserved"; }
constexpr std::string_view type_of(const Estimated& /*event*/) { return "estimated"; }
constexpr std::string_view type_of(const Wake& /*event*/) { return "wake"; }
constexpr std::string_view type_of(const Cancelled& /*event*/) { return "cancelled"; }
constexpr std::string_view type_of(const HoldChanged& /*event*/) { return "held"; }
constexpr std::string_view type_of(const Limited& /*event*/) { return "limited"; }
constexpr std::string_view type_of(const Due& /*event*/) { return "due"; }
constexpr std::string_view type_of(const Skipped& /*event*/) { return "skipped"; }
constexpr std::string_view type_of(const Decided& /*event*/) { return "decided"; }
constexpr std::string_view type_of(const Start& /*command*/) { return "start"; }
constexpr std::string_view type_of(const Resize& /*command*/) { return "resize"; }
constexpr std::string_view type_of(const Stop& /*command*/) { return "stop"; }

constexpr const char* kJobSpec = "job-spec";
constexpr const char* kAllocation = "allocation";
constexpr const char* kProgress = "progress";
constexpr const char* kSpeed = "speed";
constexpr const char* kCluster = "cluster";
constexpr const char* kState = "state";

Result<CodedJson> finish(const Writer& writer, std::string_view type, Json json) {
  if (!writer.trouble().empty()) return Error{fmt::format("{}: {}", type, writer.trouble())};
  const auto version = coded_versions().find(type);
  CHECK(version != coded_versions().end());
  return CodedJson{std::string(type), version->second, std::move(json)};
}

template <class T>
Result<CodedJson> coded(std::string_view type, const T& value) {
  Writing writing;
  Writer writer(writing);
  Json json = writer.write(value);
  return finish(writer, type, std::move(json));
}

Result<Coded> spelled(const Result<CodedJson>& coded) {
  if (!coded) return coded.error();
  auto body = canonical_json(coded->body, kLimits);
  if (!body) return Error{fmt::format("{}: {}", coded->type, body.error().message)};
  return Coded{coded->type, coded->version, std::move(*body)};
}

Result<void> check_version(const std::string& type, int version) {
  const auto known = coded_versions().find(type);
  if (known == coded_versions().end()) {
    return Error{
        fmt::format("{} is no type of row that this version of rubato knows", base::quoted(type))};
  }
  if (version > known->second) {
    return Error{fmt::format(
        "{} of version {}: this version of rubato reads them up to {}; use the newer one that "
        "wrote it",
        type, version, known->second)};
  }
  if (version < 1) return Error{fmt::format("{} of version {}: there is none", type, version)};
  return {};
}

Result<void> check_type(const std::string& type, std::string_view wanted) {
  if (type == wanted) return {};
  return Error{fmt::format("{} is not of type {}", base::quoted(type), wanted)};
}

Result<Json> parse_body(const Coded& coded) {
  if (auto known = check_version(coded.type, coded.version); !known) return known.error();
  return parse_json(coded.body, coded.type, kLimits);
}

template <class T>
Result<T> read_as(std::string_view type, const Json& body, SpeedPool& pool) {
  JsonTrouble trouble;
  Reading reading(pool);
  T value{};
  Reader(reading).read(JsonValue(body, trouble), value);
  if (!trouble.ok()) return trouble.error(type);
  return value;
}

template <class T>
Result<T> decode(const Coded& row, std::string_view type, SpeedPool& pool) {
  if (auto same = check_type(row.type, type); !same) return same.error();
  const auto body = parse_body(row);
  if (!body) return body.error();
  return read_as<T>(type, *body, pool);
}
template <class T>
Result<T> decode(const CodedJson& row, std::string_view type, SpeedPool& pool) {
  if (auto same = check_type(row.type, type); !same) return same.error();
  if (auto known = check_version(row.type, row.version); !known) return known.error();
  return read_as<T>(type, row.body, pool);
}

template <class T, class Row>
Result<T> decode(const Row& row, std::string_view type) {
  SpeedPool pool;
  return decode<T>(row, type, pool);
}

// The alternative of a variant that the type names.
template <class V, class Row, std::size_t kAt = 0>
Result<V> decode_alternative(const Row& row, SpeedPool& pool, std::string_view what) {
  if constexpr (kAt == std::variant_size_v<V>) {
    return Error{fmt::format("{} is no type of {}", base::quoted(row.type), what)};
  } else {
    using T = std::variant_alternative_t<kAt, V>;
    if (row.type != type_of(T())) return decode_alternative<V, Row, kAt + 1>(row, pool, what);
    auto value = decode<T>(row, row.type, pool);
    if (!value) return value.error();
    return V(std::move(*value));
  }
}

}  // namespace

const std::map<std::string, int, std::less<>>& coded_versions() {
  static const std::map<std::string, int, std::less<>> versions = {
      {"submitted", 1}, {"running", 1},      {"released", 1},  {"finished", 2},   {"failed", 2},
      {"estimated", 1}, {"node-changed", 2}, {"wake", 1},      {"cancelled", 1},  {"held", 2},
      {"limited", 1},   {"due", 1},          {"skipped", 1},   {"decided", 1},    {"start", 1},
      {"resize", 1},    {"stop", 1},         {kAllocation, 1}, {kCluster, 1},     {kJobSpec, 1},
      {kProgress, 1},   {kSpeed, 1},         {kState, 1},      {"node-added", 1}, {"reserved", 1},
  };
  return versions;
}

namespace {

template <class T, class Map>
std::shared_ptr<const T> share_in(Map& by_text, const std::string& text,
                                  std::shared_ptr<const T> object) {
  auto& slot = by_text[text];
  if (auto in_use = slot.lock()) return in_use;
  slot = object;
  return object;
}

}  // namespace

std::shared_ptr<const SpeedModel> SpeedPool::share(const std::string& text,
                                                   std::shared_ptr<const SpeedModel> speed) {
  auto shared = share_in<SpeedModel>(speeds_, text, std::move(speed));
  if (size() >= sweep_at_) {
    const auto unused = [](const auto& entry) { return entry.second.expired(); };
    std::erase_if(speeds_, unused);
    std::erase_if(tables_, unused);
    sweep_at_ = 2 * size() + 64;
  }
  return shared;
}

std::shared_ptr<const ThroughputTable> SpeedPool::share(
    const std::string& text, std::shared_ptr<const ThroughputTable> table) {
  return share_in<ThroughputTable>(tables_, text, std::move(table));
}

Result<CodedJson> encode_json(const Event& event) {
  return std::visit([](const auto& one) { return coded(type_of(one), one); }, event);
}
Result<CodedJson> encode_json(const Command& command) {
  return std::visit([](const auto& one) { return coded(type_of(one), one); }, command);
}
Result<CodedJson> encode_json(const Cluster& cluster) { return coded(kCluster, cluster); }
Result<CodedJson> encode_json(const State& state) {
  Lists lists;
  Writing writing;
  writing.lists = &lists;
  Writer writer(writing);
  Json json = write_state(writer, state);
  return finish(writer, kState, std::move(json));
}

Result<Coded> encode(const Event& event) { return spelled(encode_json(event)); }
Result<Coded> encode(const Command& command) { return spelled(encode_json(command)); }
Result<Coded> encode(const JobSpec& spec) { return spelled(coded(kJobSpec, spec)); }
Result<Coded> encode(const Allocation& gpus) { return spelled(coded(kAllocation, gpus)); }
Result<Coded> encode(const Progress& progress) { return spelled(coded(kProgress, progress)); }
Result<Coded> encode(const SpeedModel& speed) { return spelled(coded(kSpeed, speed)); }
Result<Coded> encode(const Cluster& cluster) { return spelled(encode_json(cluster)); }
Result<Coded> encode(const State& state) { return spelled(encode_json(state)); }

Result<Event> decode_event(const Coded& coded, SpeedPool& pool) {
  return decode_alternative<Event>(coded, pool, "event");
}
Result<Command> decode_command(const Coded& coded) {
  SpeedPool pool;
  return decode_alternative<Command>(coded, pool, "command");
}
Result<Command> decode_command_json(const CodedJson& coded) {
  SpeedPool pool;
  return decode_alternative<Command>(coded, pool, "command");
}
Result<JobSpec> decode_job_spec(const Coded& coded) { return decode<JobSpec>(coded, kJobSpec); }
Result<Allocation> decode_allocation(const Coded& coded) {
  return decode<Allocation>(coded, kAllocation);
}
Result<Progress> decode_progress(const Coded& coded) { return decode<Progress>(coded, kProgress); }
Result<std::shared_ptr<const SpeedModel>> decode_speed(const Coded& coded, SpeedPool& pool) {
  return decode<std::shared_ptr<const SpeedModel>>(coded, kSpeed, pool);
}
Result<Cluster> decode_cluster(const Coded& coded) { return decode<Cluster>(coded, kCluster); }
Result<Cluster> decode_cluster_json(const CodedJson& coded) {
  return decode<Cluster>(coded, kCluster);
}

Result<State> decode_state(const Coded& coded, SpeedPool& pool) {
  if (auto same = check_type(coded.type, kState); !same) return same.error();
  const auto body = parse_body(coded);
  if (!body) return body.error();
  JsonTrouble trouble;
  Reading reading(pool);
  Reader reader(reading);
  auto state = read_state(reader, JsonValue(*body, trouble));
  if (!trouble.ok()) return trouble.error(kState);
  CHECK(state.has_value());
  return std::move(*state);
}

}  // namespace rubato::journal
