#include "rubato/journal/codec.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/text.h"
#include "rubato/model/curve.h"
#include "rubato/model/goodput_estimate.h"
#include "rubato/model/measured_speed.h"

namespace rubato::journal {
namespace {

constexpr JsonLimits kLimits{.bytes = std::size_t{256} << 20U, .depth = 32};
constexpr std::size_t kLongestText = std::size_t{1} << 20U;
constexpr std::size_t kMostTypes = 200;
constexpr std::size_t kMostTableRows = 100'000;
// A table of jobs takes 4 bytes for every id that ever was.
constexpr JobId::rep kMostJobs = 50'000'000;

// --- enumerations ---

template <class E>
using Names = std::vector<std::pair<E, std::string_view>>;

const Names<Phase>& names_of(Phase /*any*/) {
  static const Names<Phase> names = {{Phase::pending, "pending"},
                                     {Phase::starting, "starting"},
                                     {Phase::running, "running"},
                                     {Phase::resizing, "resizing"},
                                     {Phase::stopping, "stopping"}};
  return names;
}

const Names<NodeState>& names_of(NodeState /*any*/) {
  static const Names<NodeState> names = {{NodeState::up, "up"},
                                         {NodeState::draining, "draining"},
                                         {NodeState::down, "down"},
                                         {NodeState::unknown, "unknown"}};
  return names;
}

const Names<Change::Kind>& names_of(Change::Kind /*any*/) {
  static const Names<Change::Kind> names = {{Change::Kind::start, "start"},
                                            {Change::Kind::stop, "stop"},
                                            {Change::Kind::resize, "resize"},
                                            {Change::Kind::move, "move"}};
  return names;
}

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

  [[nodiscard]] const std::string& trouble() const { return trouble_; }
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

// --- reading ---

using Speeds = std::vector<std::shared_ptr<const SpeedModel>>;
using Tables = std::vector<std::shared_ptr<const ThroughputTable>>;

struct Reading {
  explicit Reading(SpeedPool& shared) : pool(shared) {}

  SpeedPool& pool;
  std::string trouble;
  std::size_t room = std::size_t{1} << 30U;  // few bytes of text may not ask for many of memory
  // Of a state: what is listed there stays apart even if equal, and is referred to by number.
  bool listing = false;
  const Speeds* speeds = nullptr;
  const Tables* tables = nullptr;

  [[nodiscard]] bool ok() const { return trouble.empty(); }
};

// A value that is being read, and where it stands, which is spelled out only if it is wrong. After
// the first trouble reading goes on with empty values and says nothing more.
class Value {
 public:
  Value(const Json* json, Reading& reading, std::string_view name)
      : json_(json), reading_(reading), name_(name) {}
  Value(const Json* json, const Value& above, std::string_view name)
      : json_(json), reading_(above.reading_), above_(&above), name_(name) {}
  Value(const Json* json, const Value& above, std::size_t index)
      : json_(json), reading_(above.reading_), above_(&above), index_(index) {}

  [[nodiscard]] Reading& reading() const { return reading_; }
  [[nodiscard]] bool ok() const { return reading_.ok(); }

  void refuse(std::string_view why) const {
    if (ok()) reading_.trouble = fmt::format("{}: {}", place(), why);
  }
  // Whether the value is of the type; if not, it is refused.
  [[nodiscard]] bool must_be(bool holds, std::string_view what) const {
    if (!ok()) return false;
    if (!holds) refuse(fmt::format("must be {}", what));
    return holds;
  }

  [[nodiscard]] const Json& json() const { return *json_; }

  // The elements of a list; none if it is not one.
  template <class F>
  void each(const F& read) const {
    if (!must_be(json_->is_array(), "a list")) return;
    for (std::size_t i = 0; i < json_->size() && ok(); ++i) read(Value(&(*json_)[i], *this, i));
  }
  // A list of exactly so many.
  [[nodiscard]] bool is_row(std::size_t elements) const {
    return must_be(json_->is_array() && json_->size() == elements,
                   fmt::format("a list of {}", elements));
  }
  [[nodiscard]] Value at(std::size_t index) const { return {&(*json_)[index], *this, index}; }

  template <class T>
  void read(T& value) const;
  template <class T>
  [[nodiscard]] T get() const {
    T value{};
    read(value);
    return value;
  }
  [[nodiscard]] std::optional<State> get_state() const;

 private:
  [[nodiscard]] std::string place() const {
    if (above_ == nullptr) return std::string(name_);
    if (name_.empty()) return fmt::format("{}[{}]", above_->place(), index_);
    return fmt::format("{}.{}", above_->place(), name_);
  }

  template <class T>
  void read_whole(T& value) const;
  template <class T>
  void read_list(std::vector<T>& values) const {
    each([&](const Value& element) { values.push_back(element.get<T>()); });
  }
  void read_speed(std::shared_ptr<const SpeedModel>& speed) const;
  void read_table(std::shared_ptr<const ThroughputTable>& table) const;
  void read_allocation(Allocation& gpus) const;
  void read_cluster(Cluster& cluster) const;

  const Json* json_;
  Reading& reading_;
  const Value* above_ = nullptr;
  std::string_view name_;
  std::size_t index_ = 0;
};

// A list whose elements go to a function.
template <class F>
struct Elements {
  const F& read;
};
template <class T>
struct IsElements : std::false_type {};
template <class F>
struct IsElements<Elements<F>> : std::true_type {};

// The fields of an object, each asked for once; who was not asked for is refused at the end.
class FieldsIn {
 public:
  explicit FieldsIn(const Value& object) : object_(object) {
    is_object_ = object.must_be(object.json().is_object(), "an object");
  }
  FieldsIn(const FieldsIn&) = delete;
  FieldsIn& operator=(const FieldsIn&) = delete;
  ~FieldsIn() {
    if (!is_object_ || !object_.ok() || asked_.size() == object_.json().size()) return;
    for (auto at = object_.json().begin(); at != object_.json().end(); ++at) {
      if (std::find(asked_.begin(), asked_.end(), at.key()) == asked_.end())
        object_.refuse(fmt::format("has the unknown field {}", base::quoted(at.key())));
    }
  }

  template <class T>
  void field(const char* name, T& value) {
    if (const Json* found = find(name)) {
      Value(found, object_, name).read(value);
    } else if (is_object_) {
      object_.refuse(fmt::format("lacks the field \"{}\"", name));
    }
  }
  // Absent if there is none.
  template <class T>
  void field(const char* name, std::optional<T>& value) {
    if (const Json* found = find(name)) value = Value(found, object_, name).get<T>();
  }
  template <class T>
  void field(const char* name, std::shared_ptr<const T>& value) {
    if (const Json* found = find(name)) Value(found, object_, name).read(value);
  }
  template <class T>
  void required(const char* name, std::shared_ptr<const T>& value) {
    field<std::shared_ptr<const T>>(name, value);
  }
  // Absent if it is as in every new value.
  template <class T>
  void unless_plain(const char* name, T& value) {
    if (const Json* found = find(name)) Value(found, object_, name).read(value);
  }
  // Calls `read` with each element of a list.
  template <class F>
  void list(const char* name, const F& read) {
    Elements<F> elements{read};
    field(name, elements);
  }

 private:
  const Json* find(const char* name) {
    if (!is_object_) return nullptr;
    const auto at = object_.json().find(name);
    if (at == object_.json().end()) return nullptr;
    asked_.emplace_back(name);
    return &at.value();
  }

  const Value& object_;
  bool is_object_ = false;
  std::vector<std::string_view> asked_;
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

void describe(auto& f, Is<JobSpec> auto& value) {
  auto& [name, user, model, requested, limits, preemptible, weight, batch, adaptive_batch, deadline,
         restart_cost, cooldown, goes_first] = value;
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
  f.field("weight", weight);
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
    for (const auto& [known, name] : names_of(value)) {
      if (known == value) return std::string(name);
    }
    refuse("a state or phase without a name");
    return nullptr;
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

template <class T>
void Value::read_whole(T& value) const {
  constexpr auto kLeast = std::numeric_limits<T>::min();
  constexpr auto kMost = std::numeric_limits<T>::max();
  const auto wrong = [&] {
    refuse(fmt::format("must be a whole number from {} to {}", kLeast, kMost));
  };
  if (!ok()) return;
  if (json_->is_number_unsigned()) {
    const auto number = json_->get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(kMost)) return wrong();
    value = static_cast<T>(number);
  } else if (json_->is_number_integer()) {
    const auto number = json_->get<std::int64_t>();  // it is negative
    if (number < static_cast<std::int64_t>(kLeast)) return wrong();
    value = static_cast<T>(number);
  } else {
    wrong();
  }
}

template <class T>
void Value::read(T& value) const {
  if constexpr (std::is_same_v<T, bool>) {
    if (must_be(json_->is_boolean(), "true or false")) value = json_->get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    read_whole(value);
  } else if constexpr (std::is_same_v<T, double>) {
    if (must_be(json_->is_number(), "a number")) value = json_->get<double>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!must_be(json_->is_string(), "text")) return;
    if (json_->get_ref<const std::string&>().size() > kLongestText)
      return refuse(fmt::format("is longer than {} bytes", kLongestText));
    value = json_->get<std::string>();
  } else if constexpr (std::is_enum_v<T>) {
    const auto name = get<std::string>();
    for (const auto& [known, its_name] : names_of(value)) {
      if (name == its_name) {
        value = known;
        return;
      }
    }
    refuse(fmt::format("{} is no state, phase or kind", base::quoted(name)));
  } else if constexpr (IsId<T>::value) {
    value = T(get<typename T::rep>());
  } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, WallTime>) {
    value = T(Duration(get<std::int64_t>()));
  } else if constexpr (std::is_same_v<T, Duration>) {
    value = Duration(get<std::int64_t>());
  } else if constexpr (std::is_same_v<T, GpuTime>) {
    value = GpuTime::micros(get<std::int64_t>());
  } else if constexpr (IsList<T>::value) {
    read_list(value);
  } else if constexpr (IsElements<T>::value) {
    each(value.read);
  } else if constexpr (std::is_same_v<T, LossPoint>) {
    if (is_row(2)) value = {at(0).get<Work>(), at(1).get<double>()};
  } else if constexpr (std::is_same_v<T, PlanStep>) {
    if (is_row(2)) value = {at(0).get<Time>(), at(1).get<int>()};
  } else if constexpr (std::is_same_v<T, std::pair<NodeId, int>>) {
    if (is_row(2)) value = {at(0).get<NodeId>(), at(1).get<int>()};
  } else if constexpr (std::is_same_v<T, Want>) {
    FieldsIn fields(*this);
    std::string kind;
    fields.field("kind", kind);
    const auto read_as = [&](auto want) {
      if (kind != kind_of(want)) return false;
      describe(fields, want);
      value = std::move(want);
      return true;
    };
    if (!read_as(Count()) && !read_as(Spread()) && !read_as(Exact()) && !read_as(Beside()))
      refuse(fmt::format("{} is no kind of want", base::quoted(kind)));
  } else if constexpr (std::is_same_v<T, Allocation>) {
    read_allocation(value);
  } else if constexpr (std::is_same_v<T, std::shared_ptr<const SpeedModel>>) {
    read_speed(value);
  } else if constexpr (std::is_same_v<T, std::shared_ptr<const ThroughputTable>>) {
    read_table(value);
  } else if constexpr (IsShared<T>::value) {
    auto fresh = std::make_shared<std::remove_const_t<typename T::element_type>>();
    read(*fresh);
    value = std::move(fresh);
  } else if constexpr (std::is_same_v<T, Cluster>) {
    read_cluster(value);
  } else {
    FieldsIn fields(*this);
    describe(fields, value);
  }
}

void Value::read_allocation(Allocation& gpus) const {
  FieldsIn fields(*this);
  GpuType type;
  fields.field("type", type);
  Allocation read(type);
  fields.list("slices", [&](const Value& slice) {
    if (!slice.is_row(2)) return;
    const Slice one{slice.at(0).get<NodeId>(), slice.at(1).get<std::uint64_t>()};
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

// Whether so much memory may be used; if not, the value is refused.
bool has_room(const Value& value, std::size_t bytes) {
  auto& room = value.reading().room;
  if (bytes > room) value.refuse("asks for too much memory");
  if (!value.ok()) return false;
  room -= bytes;
  return true;
}

// Pairs of a GPU count and a rate, ascending.
std::vector<CurvePoint> read_points(FieldsIn& fields, const char* name) {
  std::vector<CurvePoint> points;
  fields.list(name, [&](const Value& point) {
    if (!point.is_row(2)) return;
    points.push_back({point.at(0).get<int>(), point.at(1).get<WorkRate>()});
    const int before = points.size() < 2 ? 0 : points[points.size() - 2].gpus;
    if (points.back().gpus <= before) point.refuse("is not at more GPUs than the one before");
  });
  return points;
}

std::shared_ptr<const SpeedModel> make_curve(const Value& value, FieldsIn& fields) {
  const auto points = read_points(fields, "points");
  double network = 0;
  fields.field("network", network);
  const bool usable = !points.empty() && points.back().gpus <= 4096 &&
                      std::all_of(points.begin(), points.end(),
                                  [](const CurvePoint& point) { return point.rate > 0; });
  if (!value.must_be(usable, "a curve of rates above 0 at up to 4096 GPUs")) return nullptr;
  if (!has_room(value, sizeof(WorkRate) * static_cast<std::size_t>(points.back().gpus)))
    return nullptr;
  return std::make_shared<CurveSpeed>(points, network);
}

std::shared_ptr<const SpeedModel> make_power(const Value& value, FieldsIn& fields) {
  double q = 0;
  int most = 0;
  WorkRate one = 0;
  fields.field("most", most);
  fields.field("one", one);
  fields.field("q", q);
  const bool usable = q > 0 && q <= 1 && most >= 1 && one > 0;
  if (!value.must_be(usable, "a power above 0 and up to 1, of a rate above 0")) return nullptr;
  return std::make_shared<PowerSpeed>(q, most, one);
}

std::shared_ptr<const SpeedModel> make_measured(const Value& value, FieldsIn& fields) {
  int most = 0;
  fields.field("most", most);
  std::map<int, WorkRate> rates;
  for (const auto& [gpus, rate] : read_points(fields, "rates")) rates[gpus] = rate;
  if (!value.must_be(!rates.empty(), "a list of at least one rate")) return nullptr;
  return std::make_shared<MeasuredSpeed>(rates, most);
}

std::shared_ptr<const SpeedModel> make_goodput(const Value& value, FieldsIn& fields) {
  BatchLimits limits;
  std::optional<int> owners_batch;
  std::optional<GoodputEstimate::Seen> seen;
  fields.field("limits", limits);
  fields.field("owners_batch", owners_batch);
  fields.field("seen", seen);
  const bool usable = limits.initial >= 1 && limits.largest >= 1 && limits.per_gpu_min >= 1 &&
                      limits.per_gpu_max >= limits.per_gpu_min;
  if (!value.must_be(usable, "an estimate with limits of the batch from 1 on, in order"))
    return nullptr;
  return std::make_shared<GoodputEstimate>(limits, owners_batch, seen);
}

std::shared_ptr<const SpeedModel> make_typed(const Value& value, FieldsIn& fields) {
  std::shared_ptr<const ThroughputTable> table;
  std::size_t row = 0;
  fields.field("row", row);
  fields.required("table", table);
  if (!value.ok()) return nullptr;
  if (!value.must_be(row < table->rows(), "a row of its table")) return nullptr;
  return std::make_shared<TypedSpeed>(std::move(table), row);
}

// What tells a speed from others in a pool. The table of a typed one lives as long as the speed
// does, so its address will do.
std::string text_of(const SpeedModel& speed) {
  if (const auto* typed = dynamic_cast<const TypedSpeed*>(&speed))
    return fmt::format("row {} of {}", typed->row(), fmt::ptr(typed->table().get()));
  return canonical_json(Writer().write(speed)).value();
}

void Value::read_speed(std::shared_ptr<const SpeedModel>& speed) const {
  if (!ok()) return;
  if (reading_.speeds != nullptr) {
    const auto number = get<std::size_t>();
    if (must_be(number < reading_.speeds->size(), "the number of a listed speed"))
      speed = (*reading_.speeds)[number];
    return;
  }
  {
    FieldsIn fields(*this);
    std::string kind;
    fields.field("kind", kind);
    if (kind == "constant") {
      WorkRate rate = 0;
      fields.field("rate", rate);
      speed = std::make_shared<ConstantSpeed>(rate);
    } else if (kind == "curve") {
      speed = make_curve(*this, fields);
    } else if (kind == "power") {
      speed = make_power(*this, fields);
    } else if (kind == "measured") {
      speed = make_measured(*this, fields);
    } else if (kind == "goodput") {
      speed = make_goodput(*this, fields);
    } else if (kind == "typed") {
      speed = make_typed(*this, fields);
    } else {
      refuse(fmt::format("{} is no kind of speed", base::quoted(kind)));
    }
  }
  if (!ok()) return;
  auto shared = reading_.pool.share(text_of(*speed), speed);
  if (!reading_.listing) speed = std::move(shared);
}

void Value::read_table(std::shared_ptr<const ThroughputTable>& table) const {
  if (!ok()) return;
  if (reading_.tables != nullptr) {
    const auto number = get<std::size_t>();
    if (must_be(number < reading_.tables->size(), "the number of a listed table"))
      table = (*reading_.tables)[number];
    return;
  }
  std::shared_ptr<ThroughputTable> read;
  {
    FieldsIn fields(*this);
    std::size_t rows = 0;
    std::size_t types = 0;
    fields.field("rows", rows);
    fields.field("types", types);
    if (!must_be(rows >= 1 && rows <= kMostTableRows && types >= 1 && types <= kMostTypes,
                 fmt::format("a table of up to {} rows and {} types", kMostTableRows, kMostTypes)))
      return;
    if (!has_room(*this, rows * types * sizeof(std::map<int, WorkRate>))) return;
    read = std::make_shared<ThroughputTable>(rows, types);
    struct Measured {
      GpuType type;
      int gpus = 0;
      WorkRate rate = 0;
    };
    // The end of a row, as both lists have it.
    const auto measured = [&](const Value& row, std::size_t at) {
      const Measured m{row.at(at).get<GpuType>(), row.at(at + 1).get<int>(),
                       row.at(at + 2).get<WorkRate>()};
      static_cast<void>(row.must_be(m.type.index() < types && m.gpus >= 1 && m.rate >= 0,
                                    "a type of the table, at least 1 GPU and a rate from 0"));
      return m;
    };
    const auto row_number = [&](const Value& number) {
      const auto row = number.get<std::size_t>();
      static_cast<void>(number.must_be(row < rows, "a row of the table"));
      return row;
    };
    fields.list("alone", [&](const Value& row) {
      if (!row.is_row(4)) return;
      const std::size_t of = row_number(row.at(0));
      const Measured m = measured(row, 1);
      if (row.ok()) read->set_alone(of, m.type, m.gpus, m.rate);
    });
    fields.list("beside", [&](const Value& row) {
      if (!row.is_row(5)) return;
      const std::size_t of = row_number(row.at(0));
      const std::size_t other = row_number(row.at(1));
      const Measured m = measured(row, 2);
      if (row.ok()) read->set_beside(of, other, m.type, m.gpus, m.rate);
    });
  }
  if (!ok()) return;
  table = read;
  auto text = canonical_json(Writer().write_table(*table), kLimits);
  if (!text) return refuse(text.error().message);
  auto shared = reading_.pool.share(*text, table);
  if (!reading_.listing) table = std::move(shared);
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

void Value::read_cluster(Cluster& cluster) const {
  FieldsIn fields(*this);
  std::vector<std::string> types;
  fields.field("types", types);
  if (!must_be(types.size() <= kMostTypes, fmt::format("of at most {} types", kMostTypes))) return;
  std::vector<NodeGroup> groups;
  std::int64_t nodes = 0;
  fields.list("groups", [&](const Value& group) {
    if (!group.is_row(3)) return;
    const NodeGroup read{group.at(0).get<int>(), group.at(1).get<int>(),
                         group.at(2).get<GpuType>()};
    nodes += read.nodes;
    const bool usable = read.nodes >= 1 && nodes <= kMostStoredNodes && read.gpus_per_node >= 1 &&
                        read.gpus_per_node <= kMaxGpusPerNode && read.type.index() < types.size();
    if (group.must_be(usable, fmt::format("nodes (up to {} in all) of 1 to {} GPUs of a type",
                                          kMostStoredNodes, kMaxGpusPerNode)))
      groups.push_back(read);
  });
  if (!ok()) return;
  Cluster read(groups, std::move(types));
  fields.list("not_up", [&](const Value& node) {
    if (!node.is_row(2)) return;
    const auto id = node.at(0).get<NodeId>();
    const auto state = node.at(1).get<NodeState>();
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

// Checks the jobs of a state against each other and rebuilds from them what is not stored. The
// first contradiction is the answer; empty if there is none.
class Rebuilding {
 public:
  explicit Rebuilding(State& state)
      : state_(state),
        targeted_(state.waiting_on.size()),
        used_(state.waiting_on.size()),
        shared_(state.waiting_on.size()) {}

  std::string run() {
    for (const JobView& job : state_.snapshot.jobs) {
      const char* wrong = check(job);
      if (wrong != nullptr) return fmt::format("job {} {}", job.id.value(), wrong);
    }
    return "";
  }

 private:
  const char* check(const JobView& job) {
    if (!exists(job.target) || !exists(job.held)) return "has GPUs that the cluster has not";
    const JobView* partner = nullptr;
    if (job.shares_with) {
      partner = std::as_const(state_.snapshot.jobs).find(*job.shares_with);
      if (partner == nullptr || partner == &job || partner->shares_with != job.id)
        return "shares GPUs with a job that does not share them";
    }
    if (!take_target(job, partner)) return "is to have GPUs that another is to have";
    if (!take_held(job)) return "has GPUs that two others have";
    if (job.stays_away() && !job.target.empty()) return "is to have GPUs, but its owner wants none";
    if (job.leaving && job.held.empty()) return "is leaving, and nothing keeps it";
    state_.snapshot.away += job.stays_away() ? 1 : 0;
    return nullptr;
  }

  [[nodiscard]] bool exists(const Allocation& gpus) const {
    const auto& nodes = state_.snapshot.cluster.nodes();
    return std::all_of(gpus.slices().begin(), gpus.slices().end(), [&](const Slice& slice) {
      if (slice.node.index() >= nodes.size()) return false;
      const Node& node = nodes[slice.node.index()];
      return node.type == gpus.type() && static_cast<int>(std::bit_width(slice.mask)) <= node.gpus;
    });
  }

  // GPUs that a pair shares leave the free ones when the first of the two is looked at.
  bool take_target(const JobView& job, const JobView* partner) {
    const bool second = partner != nullptr && partner->id < job.id;
    const Allocation own = second ? minus(job.target, partner->target) : job.target;
    for (const auto& slice : own.slices()) {
      if ((targeted_[slice.node.index()] & slice.mask) != 0) return false;
      targeted_[slice.node.index()] |= slice.mask;
      state_.free.take(slice);
    }
    return true;
  }

  bool take_held(const JobView& job) {
    for (const auto& slice : job.held.slices()) {
      if ((shared_[slice.node.index()] & slice.mask) != 0) return false;
      shared_[slice.node.index()] |= used_[slice.node.index()] & slice.mask;
      used_[slice.node.index()] |= slice.mask;
    }
    state_.busy.take(job.held);
    return true;
  }

  State& state_;
  std::vector<std::uint64_t> targeted_, used_, shared_;  // by node
};

std::optional<State> Value::get_state() const {
  FieldsIn fields(*this);
  Cluster cluster;
  fields.field("cluster", cluster);
  if (!ok()) return std::nullopt;
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
  reading_.listing = true;
  fields.field("tables", tables);
  reading_.tables = &tables;
  fields.field("speeds", speeds);
  reading_.speeds = &speeds;
  JobId next;
  fields.field("next_job", next);
  static_cast<void>(
      must_be(next.value() <= kMostJobs, fmt::format("of at most {} jobs", kMostJobs)));
  fields.list("jobs", [&](const Value& one) {
    auto job = one.get<JobView>();
    if (!one.must_be(job.id >= snapshot.jobs.next_id() && job.id < next,
                     "a job with an id above the one before and below next_job"))
      return;
    snapshot.jobs.insert(std::move(job));
  });
  reading_.tables = nullptr;
  reading_.speeds = nullptr;
  fields.list("waiting_on", [&](const Value& row) {
    if (!row.is_row(2)) return;
    const auto node = row.at(0).get<NodeId>();
    if (row.must_be(node.index() < state.waiting_on.size(), "a node and the jobs that wait there"))
      state.waiting_on[node.index()] = row.at(1).get<std::vector<JobId>>();
  });
  static_cast<void>(must_be(state.told <= snapshot.changed.size(),
                            "a state that has told of no more jobs than have changed"));
  if (!ok()) return std::nullopt;
  snapshot.jobs.use_up_to(next);
  if (const std::string wrong = Rebuilding(state).run(); !wrong.empty()) refuse(wrong);
  if (!ok()) return std::nullopt;
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

Result<Coded> coded(std::string_view type, const Writer& writer, const Json& json) {
  if (!writer.trouble().empty()) return Error{fmt::format("{}: {}", type, writer.trouble())};
  auto body = canonical_json(json, kLimits);
  if (!body) return Error{fmt::format("{}: {}", type, body.error().message)};
  const auto version = coded_versions().find(type);
  CHECK(version != coded_versions().end());
  return Coded{std::string(type), version->second, std::move(*body)};
}

template <class T>
Result<Coded> coded(std::string_view type, const T& value) {
  Writer writer;
  const Json json = writer.write(value);
  return coded(type, writer, json);
}

Result<Json> parse_body(const Coded& coded) {
  const auto known = coded_versions().find(coded.type);
  if (known == coded_versions().end()) {
    return Error{fmt::format("{} is no type of row that this version of rubato knows",
                             base::quoted(coded.type))};
  }
  if (coded.version > known->second) {
    return Error{fmt::format(
        "{} of version {}: this version of rubato reads them up to {}; use the newer one that "
        "wrote it",
        coded.type, coded.version, known->second)};
  }
  if (coded.version < 1)
    return Error{fmt::format("{} of version {}: there is none", coded.type, coded.version)};
  return parse_json(coded.body, coded.type, kLimits);
}

template <class T>
std::optional<T> read_as(const Json& json, Reading& reading, std::string_view type) {
  T value{};
  Value(&json, reading, type).read(value);
  if (!reading.ok()) return std::nullopt;
  return value;
}

template <class T>
Result<T> decode(const Coded& coded, std::string_view type, SpeedPool& pool) {
  if (coded.type != type)
    return Error{fmt::format("{} is not of type {}", base::quoted(coded.type), type)};
  const auto json = parse_body(coded);
  if (!json) return json.error();
  Reading reading(pool);
  auto value = read_as<T>(*json, reading, type);
  if (!value) return Error{reading.trouble};
  return std::move(*value);
}

template <class T>
Result<T> decode(const Coded& coded, std::string_view type) {
  SpeedPool pool;
  return decode<T>(coded, type, pool);
}

// The alternative of a variant that the type names.
template <class V, std::size_t kAt = 0>
Result<V> decode_alternative(const Coded& coded, SpeedPool& pool, std::string_view what) {
  if constexpr (kAt == std::variant_size_v<V>) {
    return Error{fmt::format("{} is no type of {}", base::quoted(coded.type), what)};
  } else {
    using T = std::variant_alternative_t<kAt, V>;
    if (coded.type != type_of(T())) return decode_alternative<V, kAt + 1>(coded, pool, what);
    auto value = decode<T>(coded, coded.type, pool);
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

Result<Coded> encode(const Event& event) {
  return std::visit([](const auto& one) { return coded(type_of(one), one); }, event);
}
Result<Coded> encode(const Command& command) {
  return std::visit([](const auto& one) { return coded(type_of(one), one); }, command);
}
Result<Coded> encode(const JobSpec& spec) { return coded(kJobSpec, spec); }
Result<Coded> encode(const Allocation& gpus) { return coded(kAllocation, gpus); }
Result<Coded> encode(const Progress& progress) { return coded(kProgress, progress); }
Result<Coded> encode(const SpeedModel& speed) { return coded(kSpeed, speed); }
Result<Coded> encode(const Cluster& cluster) { return coded(kCluster, cluster); }
Result<Coded> encode(const State& state) {
  Lists lists;
  Writer writer(&lists);
  const Json json = writer.write_state(state);
  return coded(kState, writer, json);
}

Result<Event> decode_event(const Coded& coded, SpeedPool& pool) {
  return decode_alternative<Event>(coded, pool, "event");
}
Result<Command> decode_command(const Coded& coded) {
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

Result<State> decode_state(const Coded& coded, SpeedPool& pool) {
  if (coded.type != kState)
    return Error{fmt::format("{} is not of type {}", base::quoted(coded.type), kState)};
  const auto json = parse_body(coded);
  if (!json) return json.error();
  Reading reading(pool);
  auto state = Value(&*json, reading, kState).get_state();
  if (!reading.ok()) return Error{reading.trouble};
  CHECK(state.has_value());
  return std::move(*state);
}

}  // namespace rubato::journal
