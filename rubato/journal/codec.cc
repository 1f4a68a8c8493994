#include "rubato/journal/codec.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/json_reader.h"
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
// A table of jobs takes 4 bytes for every id that ever was.
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

const auto& names_of(Phase /*any*/) { return kPhases; }
const auto& names_of(NodeState /*any*/) { return kNodeStates; }
const auto& names_of(Change::Kind /*any*/) { return kKinds; }

// --- writing ---

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

// Makes JSON of values; the first one that cannot be said is the trouble. Numbers that are not
// finite and text that is not UTF-8 are found when the JSON is spelled.
class Writer {
 public:
  explicit Writer(Lists* lists = nullptr) : lists_(lists) {}

  [[nodiscard]] Result<CodedJson> finish(std::string_view type, Json json) const;
  void refuse(std::string why) {
    if (trouble_.empty()) trouble_ = std::move(why);
  }

  template <class T>
  [[nodiscard]] Json write(const T& value);
  [[nodiscard]] Json write_table(const ThroughputTable& table);
  [[nodiscard]] Json write_state(const State& state);

 private:
  template <class T>
  [[nodiscard]] Json write_list(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(write(value));
    return list;
  }
  [[nodiscard]] Json write_speed(const SpeedModel& speed);
  [[nodiscard]] Json write_cluster(const Cluster& cluster);

  Lists* lists_;
  std::string trouble_;
};

Result<CodedJson> Writer::finish(std::string_view type, Json json) const {
  if (!trouble_.empty()) return Error{fmt::format("{}: {}", type, trouble_)};
  const auto version = coded_versions().find(type);
  CHECK(version != coded_versions().end());
  return CodedJson{std::string(type), version->second, std::move(json)};
}

// --- reading ---

using Speeds = std::vector<std::shared_ptr<const SpeedModel>>;
using Tables = std::vector<std::shared_ptr<const ThroughputTable>>;

// Makes values of JSON; the trouble is that of the JsonValues it is given.
class Decoder {
 public:
  explicit Decoder(SpeedPool& pool) : pool_(pool) {}

  template <class T>
  void read(const JsonValue& json, T& value);
  template <class T>
  [[nodiscard]] T get(const JsonValue& json) {
    T value{};
    read(json, value);
    return value;
  }
  [[nodiscard]] std::optional<State> get_state(const JsonValue& json);

  // Whether so much memory may be used; if not, the value is refused: few bytes of text may not ask
  // for many of memory.
  bool has_room(const JsonValue& json, std::size_t bytes);

 private:
  template <class T>
  void read_list(const JsonValue& json, std::vector<T>& values) {
    json.each([&](const JsonValue& element) { values.push_back(get<T>(element)); });
  }
  template <class E>
  void read_name(const JsonValue& json, E& value);
  void read_want(const JsonValue& json, Want& want);
  void read_speed(const JsonValue& json, std::shared_ptr<const SpeedModel>& speed);
  [[nodiscard]] std::shared_ptr<const SpeedModel> read_new_speed(const JsonValue& json);
  void read_table(const JsonValue& json, std::shared_ptr<const ThroughputTable>& table);
  [[nodiscard]] std::shared_ptr<const ThroughputTable> read_new_table(const JsonValue& json);
  void read_allocation(const JsonValue& json, Allocation& gpus);
  void read_cluster(const JsonValue& json, Cluster& cluster);

  SpeedPool& pool_;
  std::size_t room_ = std::size_t{1} << 30U;
  // Of a state: what is listed there stays apart even if equal, and is referred to by number.
  bool listing_ = false;
  const Speeds* speeds_ = nullptr;
  const Tables* tables_ = nullptr;
};

// The fields of an object as describe() names them.
class FieldsIn {
 public:
  FieldsIn(const JsonValue& object, Decoder& decoder) : fields_(object), decoder_(decoder) {}

  template <class T>
  void field(const char* name, T& value) {
    decoder_.read(fields_[name], value);
  }
  // Absent if there is none.
  template <class T>
  void field(const char* name, std::optional<T>& value) {
    if (const auto found = fields_.find(name)) value = decoder_.get<T>(*found);
  }
  template <class T>
  void field(const char* name, std::shared_ptr<const T>& value) {
    if (const auto found = fields_.find(name)) decoder_.read(*found, value);
  }
  template <class T>
  void required(const char* name, std::shared_ptr<const T>& value) {
    decoder_.read(fields_[name], value);
  }
  // Absent if it is as in every new value.
  template <class T>
  void unless_plain(const char* name, T& value) {
    if (const auto found = fields_.find(name)) decoder_.read(*found, value);
  }
  // Calls `read` with each element of a list.
  template <class F>
  void list(const char* name, const F& read) {
    fields_[name].each(read);
  }

 private:
  JsonFields fields_;
  Decoder& decoder_;
};

// The same names when writing.
class FieldsOut {
 public:
  FieldsOut(Json& object, Writer& writer) : object_(object), writer_(writer) {
    object_ = Json::object();
  }

  template <class T>
  void field(const char* name, const T& value) {
    object_[name] = writer_.write(value);
  }
  template <class T>
  void field(const char* name, const std::optional<T>& value) {
    if (value) object_[name] = writer_.write(*value);
  }
  template <class T>
  void field(const char* name, const std::shared_ptr<const T>& value) {
    if (value != nullptr) object_[name] = writer_.write(value);
  }
  template <class T>
  void unless_plain(const char* name, const T& value) {
    if (value != T()) field(name, value);
  }
  template <class T>
  void required(const char* name, const std::shared_ptr<const T>& value) {
    if (value == nullptr) writer_.refuse(fmt::format("a job without its {}", name));
    field(name, value);
  }

 private:
  Json& object_;
  Writer& writer_;
};

// --- the fields of each type ---
//
// One description for both ways. They bind every member by position, so that a type which gets one
// more does not compile before it is stored, too.

template <class T, class U>
concept Is = std::is_same_v<std::remove_const_t<T>, U>;

void describe(auto& f, Is<Batch> auto& value) {
  auto& [per_gpu, accumulation] = value;
  f.field("accumulation", accumulation);
  f.field("per_gpu", per_gpu);
}

void describe(auto& f, Is<BatchLimits> auto& value) {
  auto& [initial, largest, per_gpu_min, per_gpu_max, accumulate] = value;
  f.field("accumulate", accumulate);
  f.field("initial", initial);
  f.field("largest", largest);
  f.field("per_gpu_max", per_gpu_max);
  f.field("per_gpu_min", per_gpu_min);
}

void describe(auto& f, Is<GpuLimits> auto& value) {
  auto& [min, max, allowed] = value;
  f.field("allowed", allowed);
  f.field("max", max);
  f.field("min", min);
}

void describe(auto& f, Is<Utility> auto& value) {
  auto& [worth, decay, target] = value;
  f.field("decay", decay);
  f.field("target", target);
  f.field("value", worth);
}

void describe(auto& f, Is<JobSpec> auto& value) {
  auto& [name, user, model, requested, limits, preemptible, weight, batch, adaptive_batch, deadline,
         restart_cost, cooldown, goes_first, work_guessed, utility] = value;
  f.field("adaptive_batch", adaptive_batch);
  f.field("batch", batch);
  f.field("cooldown", cooldown);
  f.field("deadline", deadline);
  f.field("goes_first", goes_first);
  f.field("limits", limits);
  f.field("model", model);
  f.field("name", name);
  f.field("preemptible", preemptible);
  f.field("requested", requested);
  f.field("restart_cost", restart_cost);
  f.field("user", user);
  f.unless_plain("utility", utility);
  f.field("weight", weight);
  f.unless_plain("work_guessed", work_guessed);
}

void describe(auto& f, Is<Progress> auto& value) {
  auto& [work_left, at, rate] = value;
  f.field("at", at);
  f.field("rate", rate);
  f.field("work_left", work_left);
}

void describe(auto& f, Is<ShownLosses> auto& value) {
  auto& [points, epoch, threshold] = value;
  f.field("epoch", epoch);
  f.field("points", points);
  f.field("threshold", threshold);
}

void describe(auto& f, Is<StepTime> auto& value) {
  auto& [grad_fixed, grad_per_sample, node_sync, node_sync_per_gpu, network_sync,
         network_sync_per_gpu, overlap] = value;
  f.field("grad_fixed", grad_fixed);
  f.field("grad_per_sample", grad_per_sample);
  f.field("network_sync", network_sync);
  f.field("network_sync_per_gpu", network_sync_per_gpu);
  f.field("node_sync", node_sync);
  f.field("node_sync_per_gpu", node_sync_per_gpu);
  f.field("overlap", overlap);
}

void describe(auto& f, Is<GradientNoise> auto& value) {
  auto& [sqr, var] = value;
  f.field("sqr", sqr);
  f.field("var", var);
}

void describe(auto& f, Is<GoodputEstimate::Seen> auto& value) {
  auto& [time, noise, most_gpus] = value;
  f.field("most_gpus", most_gpus);
  f.field("noise", noise);
  f.field("time", time);
}

void describe(auto& f, Is<Count> auto& value) {
  auto& [type, gpus] = value;
  f.field("gpus", gpus);
  f.field("type", type);
}

void describe(auto& f, Is<Spread> auto& value) {
  auto& [gpus] = value;
  f.field("gpus", gpus);
}

void describe(auto& f, Is<Exact> auto& value) {
  auto& [gpus] = value;
  f.field("gpus", gpus);
}

void describe(auto& f, Is<Beside> auto& value) {
  auto& [host] = value;
  f.field("host", host);
}

void describe(auto& f, Is<Grant> auto& value) {
  auto& [job, want, batch] = value;
  f.field("batch", batch);
  f.field("job", job);
  f.field("want", want);
}

void describe(auto& f, Is<Reject> auto& value) {
  auto& [job, reason, earliest] = value;
  f.field("earliest", earliest);
  f.field("job", job);
  f.field("reason", reason);
}

void describe(auto& f, Is<Advice> auto& value) {
  auto& [utility, nodes] = value;
  f.field("nodes", nodes);
  f.field("utility", utility);
}

void describe(auto& f, Is<Promise> auto& value) {
  auto& [job, finish, plan, movable] = value;
  f.field("finish", finish);
  f.field("job", job);
  f.field("movable", movable);
  f.field("plan", plan);
}

void describe(auto& f, Is<Decision> auto& value) {
  auto& [run, reject, promise, again_at, as_of, advice] = value;
  f.field("advice", advice);
  f.field("again_at", again_at);
  f.field("as_of", as_of);
  f.field("promise", promise);
  f.field("reject", reject);
  f.field("run", run);
}

void describe(auto& f, Is<Submitted> auto& value) {
  auto& [job, spec, speed, work] = value;
  f.field("job", job);
  f.required("spec", spec);
  f.field("speed", speed);
  f.field("work", work);
}

void describe(auto& f, Is<Running> auto& value) {
  auto& [job, generation, progress] = value;
  f.field("generation", generation);
  f.field("job", job);
  f.field("progress", progress);
}

void describe(auto& f, Is<Released> auto& value) {
  auto& [job, generation, gpus, progress, stopped] = value;
  f.field("generation", generation);
  f.field("gpus", gpus);
  f.field("job", job);
  f.field("progress", progress);
  f.field("stopped", stopped);
}

void describe(auto& f, Is<Finished> auto& value) {
  auto& [job, generation, at] = value;
  f.field("at", at);
  f.field("generation", generation);
  f.field("job", job);
}

void describe(auto& f, Is<Failed> auto& value) {
  auto& [job, generation, progress, infrastructure, why] = value;
  f.field("generation", generation);
  f.unless_plain("infrastructure", infrastructure);
  f.field("job", job);
  f.field("progress", progress);
  f.unless_plain("why", why);
}

void describe(auto& f, Is<NodeChanged> auto& value) {
  auto& [node, state, why] = value;
  f.field("node", node);
  f.field("state", state);
  f.unless_plain("why", why);
}

void describe(auto& f, Is<Estimated> auto& value) {
  auto& [job, speed, losses] = value;
  f.field("job", job);
  f.field("losses", losses);
  f.field("speed", speed);
}

void describe(auto& /*f*/, Is<Wake> auto& /*value*/) {}

void describe(auto& f, Is<Cancelled> auto& value) {
  auto& [job] = value;
  f.field("job", job);
}

void describe(auto& f, Is<Held> auto& value) {
  auto& [job, on, until] = value;
  f.field("job", job);
  f.field("on", on);
  f.field("until", until);
}

void describe(auto& f, Is<Limited> auto& value) {
  auto& [job, limits, keeps] = value;
  f.field("job", job);
  f.field("keeps", keeps);
  f.field("limits", limits);
}

void describe(auto& f, Is<Due> auto& value) {
  auto& [job, deadline] = value;
  f.field("deadline", deadline);
  f.field("job", job);
}

void describe(auto& f, Is<Skipped> auto& value) {
  auto& [jobs, generations] = value;
  f.field("generations", generations);
  f.field("jobs", jobs);
}

void describe(auto& f, Is<Change> auto& value) {
  auto& [job, kind, target] = value;
  f.field("job", job);
  f.field("kind", kind);
  f.field("target", target);
}

void describe(auto& f, Is<Carried> auto& value) {
  auto& [changes, refused] = value;
  f.field("changes", changes);
  f.field("refused", refused);
}

void describe(auto& f, Is<Decided> auto& value) {
  auto& [decision, carried] = value;
  f.field("carried", carried);
  f.field("decision", decision);
}

void describe(auto& f, Is<Start> auto& value) {
  auto& [job, generation, gpus, batch] = value;
  f.field("batch", batch);
  f.field("generation", generation);
  f.field("gpus", gpus);
  f.field("job", job);
}

void describe(auto& f, Is<Resize> auto& value) {
  auto& [job, generation, gpus, batch] = value;
  f.field("batch", batch);
  f.field("generation", generation);
  f.field("gpus", gpus);
  f.field("job", job);
}

void describe(auto& f, Is<Stop> auto& value) {
  auto& [job, generation] = value;
  f.field("generation", generation);
  f.field("job", job);
}

void describe(auto& f, Is<JobView> auto& value) {
  auto& [id, phase, generation, release_due, progress, target, held, shares_with, counted_from,
         attained_before, ran_before, last_ran, spec, speed, losses, work, submitted, first_start,
         restarts, batch, batch_told, on_hold, leaving, taken_in, resized] = value;
  f.field("attained_before", attained_before);
  f.field("batch", batch);
  f.field("batch_told", batch_told);
  f.field("counted_from", counted_from);
  f.field("first_start", first_start);
  f.field("generation", generation);
  f.field("held", held);
  f.field("id", id);
  f.field("last_ran", last_ran);
  f.field("leaving", leaving);
  f.field("losses", losses);
  f.field("on_hold", on_hold);
  f.field("phase", phase);
  f.field("progress", progress);
  f.field("ran_before", ran_before);
  f.field("release_due", release_due);
  f.field("resized", resized);
  f.field("restarts", restarts);
  f.field("shares_with", shares_with);
  f.required("spec", spec);
  f.field("speed", speed);
  f.field("submitted", submitted);
  f.field("taken_in", taken_in);
  f.field("target", target);
  f.field("work", work);
}

// Wants are told apart by a field more.
constexpr std::string_view kind_of(const Count& /*want*/) { return "count"; }
constexpr std::string_view kind_of(const Spread& /*want*/) { return "spread"; }
constexpr std::string_view kind_of(const Exact& /*want*/) { return "exact"; }
constexpr std::string_view kind_of(const Beside& /*want*/) { return "beside"; }

template <class T>
struct IsId : std::false_type {};
template <class Tag, class Rep>
struct IsId<Id<Tag, Rep>> : std::true_type {};

template <class T>
struct IsList : std::false_type {};
template <class T>
struct IsList<std::vector<T>> : std::true_type {};

template <class T>
struct IsShared : std::false_type {};
template <class T>
struct IsShared<std::shared_ptr<const T>> : std::true_type {};

template <class T>
Json Writer::write(const T& value) {
  if constexpr (std::is_same_v<T, bool> || std::is_integral_v<T> || std::is_same_v<T, double> ||
                std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_enum_v<T>) {
    const std::string_view name = name_in(names_of(value), value);
    if (name.empty()) refuse("a state or phase without a name");
    return std::string(name);
  } else if constexpr (IsId<T>::value) {
    return value.value();
  } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, WallTime>) {
    return value.time_since_epoch().count();
  } else if constexpr (std::is_same_v<T, Duration>) {
    return value.count();
  } else if constexpr (std::is_same_v<T, GpuTime>) {
    return value.gpu_micros();
  } else if constexpr (IsList<T>::value) {
    return write_list(value);
  } else if constexpr (std::is_same_v<T, Want>) {
    Json json = std::visit([&](const auto& want) { return write(want); }, value);
    json["kind"] = std::string(std::visit([](const auto& want) { return kind_of(want); }, value));
    return json;
  } else if constexpr (std::is_same_v<T, LossPoint>) {
    const auto& [done, loss] = value;
    return Json::array({done, loss});
  } else if constexpr (std::is_same_v<T, PlanStep>) {
    const auto& [from, gpus] = value;
    return Json::array({write(from), gpus});
  } else if constexpr (std::is_same_v<T, std::pair<NodeId, int>>) {
    return Json::array({value.first.value(), value.second});
  } else if constexpr (std::is_same_v<T, Allocation>) {
    Json slices = Json::array();
    for (const auto& [node, mask] : value.slices())
      slices.push_back(Json::array({node.value(), mask}));
    return {{"slices", std::move(slices)}, {"type", value.type().value()}};
  } else if constexpr (std::is_same_v<T, std::shared_ptr<const SpeedModel>>) {
    if (lists_ != nullptr) return lists_->speeds.number_of(value.get());
    return write_speed(*value);
  } else if constexpr (std::is_base_of_v<SpeedModel, T>) {
    return write_speed(value);
  } else if constexpr (IsShared<T>::value) {
    return write(*value);
  } else if constexpr (std::is_same_v<T, Cluster>) {
    return write_cluster(value);
  } else {
    Json json;
    FieldsOut fields(json, *this);
    describe(fields, value);
    return json;
  }
}

template <class E>
void Decoder::read_name(const JsonValue& json, E& value) {
  const std::string& name = json.text();
  for (const auto& [known, its_name] : names_of(value)) {
    if (name != its_name) continue;
    value = known;
    return;
  }
  json.refuse(fmt::format("{} is no state, phase or kind", base::quoted(name)));
}

template <class T>
void Decoder::read(const JsonValue& json, T& value) {
  if (!json.ok()) return;
  if constexpr (std::is_same_v<T, bool>) {
    value = json.boolean();
  } else if constexpr (std::is_integral_v<T>) {
    value = json.whole<T>();
  } else if constexpr (std::is_same_v<T, double>) {
    value = json.number();
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = json.text();
  } else if constexpr (std::is_enum_v<T>) {
    read_name(json, value);
  } else if constexpr (IsId<T>::value) {
    value = json.id<T>();
  } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, WallTime>) {
    value = T(Duration(json.whole<std::int64_t>()));
  } else if constexpr (std::is_same_v<T, Duration>) {
    value = Duration(json.whole<std::int64_t>());
  } else if constexpr (std::is_same_v<T, GpuTime>) {
    value = GpuTime::micros(json.whole<std::int64_t>());
  } else if constexpr (IsList<T>::value) {
    read_list(json, value);
  } else if constexpr (std::is_same_v<T, LossPoint>) {
    if (json.is_row(2)) value = {json.at(0).number(), json.at(1).number()};
  } else if constexpr (std::is_same_v<T, PlanStep>) {
    if (json.is_row(2)) value = {get<Time>(json.at(0)), json.at(1).whole<int>()};
  } else if constexpr (std::is_same_v<T, std::pair<NodeId, int>>) {
    if (json.is_row(2)) value = {json.at(0).id<NodeId>(), json.at(1).whole<int>()};
  } else if constexpr (std::is_same_v<T, Want>) {
    read_want(json, value);
  } else if constexpr (std::is_same_v<T, Allocation>) {
    read_allocation(json, value);
  } else if constexpr (std::is_same_v<T, std::shared_ptr<const SpeedModel>>) {
    read_speed(json, value);
  } else if constexpr (std::is_same_v<T, std::shared_ptr<const ThroughputTable>>) {
    read_table(json, value);
  } else if constexpr (IsShared<T>::value) {
    auto fresh = std::make_shared<std::remove_const_t<typename T::element_type>>();
    read(json, *fresh);
    value = std::move(fresh);
  } else if constexpr (std::is_same_v<T, Cluster>) {
    read_cluster(json, value);
  } else {
    FieldsIn fields(json, *this);
    describe(fields, value);
  }
}

void Decoder::read_want(const JsonValue& json, Want& want) {
  FieldsIn fields(json, *this);
  std::string kind;
  fields.field("kind", kind);
  const auto read_as = [&](auto of_kind) {
    if (kind != kind_of(of_kind)) return false;
    describe(fields, of_kind);
    want = std::move(of_kind);
    return true;
  };
  if (!read_as(Count()) && !read_as(Spread()) && !read_as(Exact()) && !read_as(Beside()))
    json.refuse(fmt::format("{} is no kind of want", base::quoted(kind)));
}

void Decoder::read_allocation(const JsonValue& json, Allocation& gpus) {
  FieldsIn fields(json, *this);
  GpuType type;
  fields.field("type", type);
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

// --- speeds ---

Json Writer::write_speed(const SpeedModel& speed) {
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
    Json json;
    FieldsOut fields(json, *this);
    fields.field("kind", std::string("goodput"));
    fields.field("limits", goodput->limits());
    fields.field("owners_batch", goodput->owners_batch());
    fields.field("seen", goodput->seen());
    return json;
  }
  if (const auto* typed = dynamic_cast<const TypedSpeed*>(&speed)) {
    const ThroughputTable& table = *typed->table();
    return {
        {"kind", "typed"},
        {"row", typed->row()},
        {"table", lists_ != nullptr ? Json(lists_->tables.number_of(&table)) : write_table(table)}};
  }
  refuse("a speed of a kind that only the simulator knows cannot be stored");
  return nullptr;
}

Json Writer::write_table(const ThroughputTable& table) {
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

bool Decoder::has_room(const JsonValue& json, std::size_t bytes) {
  if (bytes > room_) json.refuse("asks for too much memory");
  if (!json.ok()) return false;
  room_ -= bytes;
  return true;
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
                                             Decoder& decoder) {
  const auto points = read_points(fields, "points");
  double network = 0;
  fields.field("network", network);
  const bool usable = !points.empty() && points.back().gpus <= 4096 &&
                      std::all_of(points.begin(), points.end(),
                                  [](const CurvePoint& point) { return point.rate > 0; });
  if (!json.must_be(usable, "a curve of rates above 0 at up to 4096 GPUs")) return nullptr;
  if (!decoder.has_room(json, sizeof(WorkRate) * static_cast<std::size_t>(points.back().gpus)))
    return nullptr;
  return std::make_shared<CurveSpeed>(points, network);
}

std::shared_ptr<const SpeedModel> make_power(const JsonValue& json, FieldsIn& fields) {
  double q = 0;
  int most = 0;
  WorkRate one = 0;
  fields.field("most", most);
  fields.field("one", one);
  fields.field("q", q);
  const bool usable = q > 0 && q <= 1 && most >= 1 && one > 0;
  if (!json.must_be(usable, "a power above 0 and up to 1, of a rate above 0")) return nullptr;
  return std::make_shared<PowerSpeed>(q, most, one);
}

std::shared_ptr<const SpeedModel> make_measured(const JsonValue& json, FieldsIn& fields) {
  int most = 0;
  fields.field("most", most);
  std::map<int, WorkRate> rates;
  for (const auto& [gpus, rate] : read_points(fields, "rates")) rates[gpus] = rate;
  if (!json.must_be(!rates.empty(), "a list of at least one rate")) return nullptr;
  return std::make_shared<MeasuredSpeed>(rates, most);
}

std::shared_ptr<const SpeedModel> make_goodput(const JsonValue& json, FieldsIn& fields) {
  BatchLimits limits;
  std::optional<int> owners_batch;
  std::optional<GoodputEstimate::Seen> seen;
  fields.field("limits", limits);
  fields.field("owners_batch", owners_batch);
  fields.field("seen", seen);
  const bool usable = limits.initial >= 1 && limits.largest >= 1 && limits.per_gpu_min >= 1 &&
                      limits.per_gpu_max >= limits.per_gpu_min;
  if (!json.must_be(usable, "an estimate with limits of the batch from 1 on, in order"))
    return nullptr;
  return std::make_shared<GoodputEstimate>(limits, owners_batch, seen);
}

std::shared_ptr<const SpeedModel> make_typed(const JsonValue& json, FieldsIn& fields) {
  std::shared_ptr<const ThroughputTable> table;
  std::size_t row = 0;
  fields.field("row", row);
  fields.required("table", table);
  if (!json.ok()) return nullptr;
  if (!json.must_be(row < table->rows(), "a row of its table")) return nullptr;
  return std::make_shared<TypedSpeed>(std::move(table), row);
}

// What tells a speed from others in a pool. The table of a typed one lives as long as the speed
// does, so its address will do.
std::string text_of(const SpeedModel& speed) {
  if (const auto* typed = dynamic_cast<const TypedSpeed*>(&speed))
    return fmt::format("row {} of {}", typed->row(), fmt::ptr(typed->table().get()));
  return canonical_json(Writer().write(speed)).value();
}

void Decoder::read_speed(const JsonValue& json, std::shared_ptr<const SpeedModel>& speed) {
  if (speeds_ != nullptr) {
    const auto number = json.whole<std::size_t>();
    if (json.must_be(number < speeds_->size(), "the number of a listed speed"))
      speed = (*speeds_)[number];
    return;
  }
  speed = read_new_speed(json);
  if (!json.ok()) return;
  auto shared = pool_.share(text_of(*speed), speed);
  if (!listing_) speed = std::move(shared);
}

std::shared_ptr<const SpeedModel> Decoder::read_new_speed(const JsonValue& json) {
  FieldsIn fields(json, *this);
  std::string kind;
  fields.field("kind", kind);
  if (kind == "constant") {
    WorkRate rate = 0;
    fields.field("rate", rate);
    return std::make_shared<ConstantSpeed>(rate);
  }
  if (kind == "curve") return make_curve(json, fields, *this);
  if (kind == "power") return make_power(json, fields);
  if (kind == "measured") return make_measured(json, fields);
  if (kind == "goodput") return make_goodput(json, fields);
  if (kind == "typed") return make_typed(json, fields);
  json.refuse(fmt::format("{} is no kind of speed", base::quoted(kind)));
  return nullptr;
}

void Decoder::read_table(const JsonValue& json, std::shared_ptr<const ThroughputTable>& table) {
  if (tables_ != nullptr) {
    const auto number = json.whole<std::size_t>();
    if (json.must_be(number < tables_->size(), "the number of a listed table"))
      table = (*tables_)[number];
    return;
  }
  table = read_new_table(json);
  if (!json.ok()) return;
  auto text = canonical_json(Writer().write_table(*table), kLimits);
  if (!text) return json.refuse(text.error().message);
  auto shared = pool_.share(*text, table);
  if (!listing_) table = std::move(shared);
}

std::shared_ptr<const ThroughputTable> Decoder::read_new_table(const JsonValue& json) {
  FieldsIn fields(json, *this);
  std::size_t rows = 0;
  std::size_t types = 0;
  fields.field("rows", rows);
  fields.field("types", types);
  if (!json.must_be(
          rows >= 1 && rows <= kMostTableRows && types >= 1 && types <= kMostTypes,
          fmt::format("a table of up to {} rows and {} types", kMostTableRows, kMostTypes)))
    return nullptr;
  if (!has_room(json, rows * types * sizeof(std::map<int, WorkRate>))) return nullptr;
  auto read = std::make_shared<ThroughputTable>(rows, types);
  struct Measured {
    GpuType type;
    int gpus = 0;
    WorkRate rate = 0;
  };
  // The end of a row, as both lists have it.
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

// --- clusters and states ---

Json Writer::write_cluster(const Cluster& cluster) {
  if (cluster.nodes().size() > static_cast<std::size_t>(kMostStoredNodes))
    refuse(fmt::format("a cluster of more than {} nodes cannot be stored", kMostStoredNodes));
  Json groups = Json::array();
  for (const auto& [nodes, gpus, type] : cluster.groups())
    groups.push_back(Json::array({nodes, gpus, type.value()}));
  Json not_up = Json::array();
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    const NodeState state = cluster.nodes()[i].state;
    if (state != NodeState::up) not_up.push_back(Json::array({i, write(state)}));
  }
  Json types = Json::array();
  for (int t = 0; t < cluster.types(); ++t)
    types.push_back(cluster.type_name(GpuType(static_cast<GpuType::rep>(t))));
  return {
      {"groups", std::move(groups)}, {"not_up", std::move(not_up)}, {"types", std::move(types)}};
}

void Decoder::read_cluster(const JsonValue& json, Cluster& cluster) {
  FieldsIn fields(json, *this);
  std::vector<std::string> types;
  fields.field("types", types);
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
    const auto state = get<NodeState>(node.at(1));
    if (node.must_be(id.index() < read.nodes().size() && state != NodeState::up,
                     "a node and a state other than up"))
      read.set_state(id, state);
  });
  cluster = std::move(read);
}

Json Writer::write_state(const State& state) {
  // Bound by position as in describe(): what is not used here is rebuilt when it is read.
  const auto& [snapshot, free, busy, targeted, waiting_on, again_at, decision_due, asked_at, told] =
      state;
  const auto& [now, as_of, cluster, jobs, interval, lateness, jobs_move, away, changed_since,
               changed] = snapshot;
  Json job_list = Json::array();
  for (const JobView& job : jobs) job_list.push_back(write(job));
  Json speeds = Json::array();
  for (const SpeedModel* speed : lists_->speeds.objects()) speeds.push_back(write_speed(*speed));
  Json tables = Json::array();
  for (const ThroughputTable* table : lists_->tables.objects())
    tables.push_back(write_table(*table));
  Json waiting = Json::array();
  for (std::size_t node = 0; node < waiting_on.size(); ++node) {
    if (!waiting_on[node].empty()) waiting.push_back(Json::array({node, write(waiting_on[node])}));
  }
  Json json;
  FieldsOut fields(json, *this);
  fields.field("again_at", again_at);
  fields.field("as_of", as_of);
  fields.field("asked_at", asked_at);
  fields.field("changed", changed);
  fields.field("changed_since", changed_since);
  fields.field("cluster", cluster);
  fields.field("decision_due", decision_due);
  fields.field("interval", interval);
  fields.field("jobs_move", jobs_move);
  fields.field("lateness", lateness);
  fields.field("next_job", jobs.next_id());
  fields.field("now", now);
  fields.field("targeted", targeted);
  fields.field("told", told);
  json["jobs"] = std::move(job_list);
  json["speeds"] = std::move(speeds);
  json["tables"] = std::move(tables);
  json["waiting_on"] = std::move(waiting);
  return json;
}

std::optional<State> Decoder::get_state(const JsonValue& json) {
  FieldsIn fields(json, *this);
  Cluster cluster;
  fields.field("cluster", cluster);
  if (!json.ok()) return std::nullopt;
  State state(std::move(cluster));
  Snapshot& snapshot = state.snapshot;
  fields.field("again_at", state.again_at);
  fields.field("as_of", snapshot.as_of);
  fields.field("asked_at", state.asked_at);
  fields.field("changed", snapshot.changed);
  fields.field("changed_since", snapshot.changed_since);
  fields.field("decision_due", state.decision_due);
  fields.field("interval", snapshot.interval);
  fields.field("jobs_move", snapshot.jobs_move);
  fields.field("lateness", snapshot.lateness);
  fields.field("now", snapshot.now);
  fields.field("targeted", state.targeted);
  fields.field("told", state.told);

  Tables tables;
  Speeds speeds;
  listing_ = true;
  fields.field("tables", tables);
  tables_ = &tables;
  fields.field("speeds", speeds);
  speeds_ = &speeds;
  JobId next;
  fields.field("next_job", next);
  json.must_be(next.value() <= kMostJobs, fmt::format("of at most {} jobs", kMostJobs));
  fields.list("jobs", [&](const JsonValue& one) {
    auto job = get<JobView>(one);
    if (!one.must_be(job.id >= snapshot.jobs.next_id() && job.id < next,
                     "a job with an id above the one before and below next_job"))
      return;
    snapshot.jobs.insert(std::move(job));
  });
  tables_ = nullptr;
  speeds_ = nullptr;
  fields.list("waiting_on", [&](const JsonValue& row) {
    if (!row.is_row(2)) return;
    const auto node = row.at(0).id<NodeId>();
    if (row.must_be(node.index() < state.waiting_on.size(), "a node and the jobs that wait there"))
      state.waiting_on[node.index()] = get<std::vector<JobId>>(row.at(1));
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
constexpr std::string_view type_of(const Estimated& /*event*/) { return "estimated"; }
constexpr std::string_view type_of(const Wake& /*event*/) { return "wake"; }
constexpr std::string_view type_of(const Cancelled& /*event*/) { return "cancelled"; }
constexpr std::string_view type_of(const Held& /*event*/) { return "held"; }
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

template <class T>
Result<CodedJson> coded(std::string_view type, const T& value) {
  Writer writer;
  Json json = writer.write(value);
  return writer.finish(type, std::move(json));
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
  T value{};
  Decoder(pool).read(JsonValue(body, trouble), value);
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
      {"submitted", 1}, {"running", 1},      {"released", 1},  {"finished", 2},  {"failed", 2},
      {"estimated", 1}, {"node-changed", 2}, {"wake", 1},      {"cancelled", 1}, {"held", 2},
      {"limited", 1},   {"due", 1},          {"skipped", 1},   {"decided", 1},   {"start", 1},
      {"resize", 1},    {"stop", 1},         {kAllocation, 1}, {kCluster, 1},    {kJobSpec, 1},
      {kProgress, 1},   {kSpeed, 1},         {kState, 1},
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
  Writer writer(&lists);
  Json json = writer.write_state(state);
  return writer.finish(kState, std::move(json));
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
  auto state = Decoder(pool).get_state(JsonValue(*body, trouble));
  if (!trouble.ok()) return trouble.error(kState);
  CHECK(state.has_value());
  return std::move(*state);
}

}  // namespace rubato::journal
