#include "rubato/launch/master_messages.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <set>

#include "rubato/base/check.h"
#include "rubato/base/text.h"

namespace rubato::launch {
namespace {

constexpr double kMostSeconds = 1e9;
// Beyond it two integers may be one double.
constexpr std::int64_t kMostExact = std::int64_t{1} << 53U;
constexpr int kMostWorkers = 100'000;
constexpr int kMostInt = std::numeric_limits<int>::max();
constexpr double kMostReal = std::numeric_limits<double>::max();

// The fields of one object. The first trouble is kept; after it reading gives empty values.
class Fields {
 public:
  Fields(const Json& object, std::string_view what) : object_(object), what_(what) {
    if (!object.is_object()) refuse("must be an object");
  }

  [[nodiscard]] bool ok() const { return trouble_.empty(); }
  [[nodiscard]] Error error() const { return {fmt::format("{} {}", what_, trouble_)}; }
  void refuse(std::string why) {
    if (ok()) trouble_ = std::move(why);
  }
  void refuse(const char* name, std::string_view must) {
    refuse(fmt::format("has a \"{}\" that is not {}", name, must));
  }

  // nullptr if there is none, which `optional` says is no trouble, or if there was trouble.
  const Json* find(const char* name, bool optional = false) {
    if (!ok()) return nullptr;
    const auto found = object_.find(name);
    if (found == object_.end()) {
      if (!optional) refuse(fmt::format("lacks \"{}\"", name));
      return nullptr;
    }
    asked_.insert(name);
    return &*found;
  }

  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most) {
    const Json* found = find(name);
    return found == nullptr ? least : integer_in(*found, name, least, most);
  }
  std::optional<int> optional_integer(const char* name, int least, int most) {
    const Json* found = find(name, true);
    if (found == nullptr) return std::nullopt;
    return static_cast<int>(integer_in(*found, name, least, most));
  }
  std::optional<WallTime> optional_wall_time(const char* name) {
    const Json* found = find(name, true);
    if (found == nullptr) return std::nullopt;
    return WallTime(Duration(integer_in(*found, name, 0, kMostExact)));
  }
  int small(const char* name, int least, int most) {
    return static_cast<int>(integer(name, least, most));
  }
  template <class Id>
  Id id(const char* name) {
    return Id(static_cast<typename Id::rep>(
        integer(name, 0, std::numeric_limits<typename Id::rep>::max())));
  }

  double real(const char* name, double least, double most) {
    const Json* found = find(name);
    return found == nullptr ? 0 : real_in(*found, name, least, most);
  }
  std::optional<double> optional_real(const char* name, double least, double most) {
    const Json* found = find(name, true);
    if (found == nullptr) return std::nullopt;
    return real_in(*found, name, least, most);
  }
  // Absent means false where `optional` says so.
  bool boolean(const char* name, bool optional = false) {
    const Json* found = find(name, optional);
    if (found == nullptr) return false;
    if (!found->is_boolean()) refuse(name, "true or false");
    return found->is_boolean() && found->get<bool>();
  }
  // False if it is not there.
  bool flag(const char* name) { return find(name, true) != nullptr && boolean(name); }
  // Without a NUL, which would end it for the system.
  std::string text(const char* name) {
    const Json* found = find(name);
    return found == nullptr ? "" : text_in(*found, name);
  }
  std::string text_in(const Json& json, const char* name) {
    if (!json.is_string() || json.get_ref<const std::string&>().find('\0') != std::string::npos) {
      refuse(name, "text without a NUL");
      return "";
    }
    return json.get<std::string>();
  }
  template <class Read>
  void list(const char* name, const Read& read) {
    const Json* found = find(name);
    if (found == nullptr) return;
    if (!found->is_array()) return refuse(name, "a list");
    for (const Json& element : *found) {
      if (!ok()) return;
      read(element);
    }
  }
  std::vector<std::string> texts(const char* name) {
    std::vector<std::string> all;
    list(name, [&](const Json& element) { all.push_back(text_in(element, name)); });
    return all;
  }
  std::vector<int> integers(const char* name, int least, int most) {
    std::vector<int> all;
    list(name, [&](const Json& element) {
      all.push_back(static_cast<int>(integer_in(element, name, least, most)));
    });
    return all;
  }
  std::vector<Slot> slots(const char* name);
  std::map<std::string, std::string> variables(const char* name);
  std::optional<Batch> batch(const char* name);

  // Nothing else may be there but the type of the message.
  void finish() {
    if (!ok()) return;
    for (auto at = object_.begin(); at != object_.end(); ++at) {
      if (at.key() != "type" && !asked_.contains(at.key())) {
        return refuse(fmt::format("has the unknown field {}", base::quoted(at.key())));
      }
    }
  }
  template <class T>
  Result<T> result(T value) {
    finish();
    if (!ok()) return error();
    return value;
  }

 private:
  std::int64_t integer_in(const Json& json, const char* name, std::int64_t least,
                          std::int64_t most) {
    const bool fits = json.is_number_integer() &&
                      (!json.is_number_unsigned() ||
                       json.get<std::uint64_t>() <=
                           static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) &&
                      json.get<std::int64_t>() >= least && json.get<std::int64_t>() <= most;
    if (fits) return json.get<std::int64_t>();
    refuse(name, fmt::format("an integer from {} to {}", least, most));
    return least;
  }
  double real_in(const Json& json, const char* name, double least, double most) {
    const double value = json.is_number() ? json.get<double>() : std::nan("");
    if (value >= least && value <= most) return value;
    refuse(name, fmt::format("a number from {:g} to {:g}", least, most));
    return least;
  }

  const Json& object_;
  std::string_view what_;
  std::set<std::string, std::less<>> asked_;
  std::string trouble_;
};

std::vector<Slot> Fields::slots(const char* name) {
  std::vector<Slot> all = texts(name);
  std::set<Slot> seen;
  for (const Slot& slot : all) {
    if (!parse_slot(slot)) {
      refuse(fmt::format("has the slot {}; a slot is NODE.GPU, as 0.3", base::quoted(slot)));
    } else if (!seen.insert(slot).second) {
      refuse(fmt::format("names the slot {} twice", slot));
    }
  }
  return all;
}

bool is_variable(std::string_view name) {
  return !name.empty() && name.find('=') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

std::map<std::string, std::string> Fields::variables(const char* name) {
  std::map<std::string, std::string> all;
  const Json* found = find(name);
  if (found == nullptr) return all;
  if (!found->is_object()) {
    refuse(name, "an object");
    return all;
  }
  for (auto at = found->begin(); at != found->end() && ok(); ++at) {
    if (!is_variable(at.key())) {
      refuse(fmt::format("has {} in \"{}\", which cannot be the name of a variable",
                         base::quoted(at.key()), name));
    }
    all[at.key()] = text_in(at.value(), name);
  }
  return all;
}

std::optional<Batch> Fields::batch(const char* name) {
  const Json* found = find(name);
  if (found == nullptr || found->is_null()) return std::nullopt;
  Fields inner(*found, "a batch");
  const Batch batch{inner.small("per_gpu", 1, kMostInt), inner.small("accumulation", 0, kMostInt)};
  inner.finish();
  if (!inner.ok()) refuse(name, fmt::format("a batch: {}", inner.error().message));
  return batch;
}

Json to_json(const std::optional<Batch>& batch) {
  if (!batch) return nullptr;
  return {{"per_gpu", batch->per_gpu}, {"accumulation", batch->accumulation}};
}

// JSON has no word for what is not finite.
double finite(double value) { return std::isfinite(value) ? value : 0; }

void set_if(Json& json, const char* name, const auto& optional) {
  if (optional) json[name] = *optional;
}

Json to_json(const std::map<std::string, std::string>& variables) {
  Json json = Json::object();
  for (const auto& [name, value] : variables) json[name] = value;
  return json;
}

void check(Fields& fields, const JobLaunch& launch) {
  if (launch.command.empty() || launch.command.front().empty()) {
    fields.refuse("has no command");
  }
  if (launch.token.empty()) fields.refuse("has no token");
  if (launch.most < launch.least) fields.refuse("has a \"most\" that is less than \"least\"");
  if (launch.slots.empty()) fields.refuse("has no slots");
  if (!launch.directory.empty() && launch.directory.front() != '/') {
    fields.refuse("has a \"directory\" that is not an absolute path");
  }
  for (const auto& [name, path] : launch.secrets) {
    if (path.empty() || path.front() != '/') {
      fields.refuse(
          fmt::format("has the secret {} whose file is not an absolute path", base::quoted(name)));
    }
    if (launch.env.contains(name)) {
      fields.refuse(fmt::format("has {} in \"env\" and in \"secrets\"", base::quoted(name)));
    }
  }
}

template <class T>
void nested(Fields& fields, const char* name, Result<T> (*parse)(const Json&), T& value) {
  const Json* found = fields.find(name);
  if (found == nullptr) return;
  auto parsed = parse(*found);
  if (parsed) {
    value = std::move(*parsed);
  } else {
    fields.refuse(fmt::format("has a \"{}\" that is wrong: {}", name, parsed.error().message));
  }
}

}  // namespace

// --- slots ---------------------------------------------------------------------------------------

Slot to_slot(SlotPlace place) { return fmt::format("{}.{}", place.node.value(), place.gpu); }

std::optional<int> device_of(SlotPlace place, const std::vector<int>& node_gpus, int machine_gpus) {
  if (machine_gpus <= 0) return std::nullopt;
  const std::size_t before = std::min(place.node.index(), node_gpus.size());
  const auto end = node_gpus.begin() + static_cast<std::ptrdiff_t>(before);
  const std::int64_t number = std::accumulate(node_gpus.begin(), end, std::int64_t{0}) + place.gpu;
  return static_cast<int>(number % machine_gpus);
}

std::optional<SlotPlace> parse_slot(std::string_view slot) {
  const auto dot = slot.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto node = parse_integer(slot.substr(0, dot));
  const auto gpu = parse_integer(slot.substr(dot + 1));
  if (!node || !gpu || *node < 0 || *node > std::numeric_limits<NodeId::rep>::max() || *gpu < 0 ||
      *gpu >= kMaxGpusPerNode) {
    return std::nullopt;
  }
  const SlotPlace place{NodeId(static_cast<NodeId::rep>(*node)), static_cast<int>(*gpu)};
  return to_slot(place) == slot ? std::optional(place) : std::nullopt;
}

std::vector<Slot> slots_of(const Allocation& gpus) {
  std::vector<Slot> slots;
  slots.reserve(static_cast<std::size_t>(gpus.gpus()));
  for (const Slice& slice : gpus.slices()) {
    for (int gpu = 0; gpu < kMaxGpusPerNode; ++gpu) {
      if ((slice.mask >> static_cast<unsigned>(gpu) & 1U) != 0) {
        slots.push_back(to_slot({slice.node, gpu}));
      }
    }
  }
  return slots;
}

Result<Allocation> allocation_of(const std::vector<Slot>& slots, const Cluster& cluster) {
  Allocation gpus;
  for (const Slot& slot : slots) {
    const auto place = parse_slot(slot);
    if (!place || place->node.index() >= cluster.nodes().size() ||
        place->gpu >= cluster.node(place->node).gpus) {
      return Error{fmt::format("the cluster has no slot {}", base::quoted(slot))};
    }
    const GpuType type = cluster.node(place->node).type;
    if (gpus.empty()) gpus = Allocation(type);
    if (gpus.type() != type) {
      return Error{fmt::format("the slot {} is of another type than {}", slot, slots.front())};
    }
    const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(place->gpu);
    if ((gpus.mask_on(place->node) & bit) != 0) {
      return Error{fmt::format("the slot {} is named twice", slot)};
    }
    gpus.add({place->node, bit});
  }
  return gpus;
}

// --- writing -------------------------------------------------------------------------------------

std::string_view to_text(JobEnd::How how) {
  switch (how) {
    case JobEnd::How::finished:
      return "finished";
    case JobEnd::How::stopped:
      return "stopped";
    case JobEnd::How::failed:
      return "failed";
  }
  CHECK(false);
}

Json to_json(const JobLaunch& launch) {
  Json json = {{"job", launch.job.value()},
               {"name", launch.name},
               {"token", launch.token},
               {"home", launch.home.value()},
               {"generation", launch.generation.value()},
               {"slots", launch.slots},
               {"node_gpus", launch.node_gpus},
               {"batch", to_json(launch.batch)},
               {"command", launch.command},
               {"env", to_json(launch.env)},
               {"directory", launch.directory},
               {"user", launch.user},
               {"secrets", to_json(launch.secrets)},
               {"least", launch.least},
               {"most", launch.most},
               {"max_failures", launch.max_failures},
               {"grace", seconds(launch.grace)},
               {"log_limit", launch.log_limit},
               {"live", launch.live}};
  if (launch.stop_after) json["stop_after"] = seconds(*launch.stop_after);
  if (launch.hello != kHelloWithin) json["hello"] = seconds(launch.hello);
  if (launch.silent) json["silent"] = true;
  return json;
}

Json to_json(const JobTuning& tuning) {
  return {{"initial", tuning.initial},
          {"largest", tuning.largest},
          {"largest_per_gpu", tuning.largest_per_gpu},
          {"step_seconds", finite(tuning.step_seconds)},
          {"pass_seconds", finite(tuning.pass_seconds)}};
}

Json to_json(const JobProgress& progress) {
  Json json = {{"step", progress.step},
               {"samples", finite(progress.samples)},
               {"epoch", finite(progress.epoch)},
               {"rate", finite(progress.rate)},
               {"step_rate", finite(progress.step_rate)},
               {"workers", progress.workers},
               {"batch", progress.batch}};
  if (progress.loss && std::isfinite(*progress.loss)) json["loss"] = *progress.loss;
  set_if(json, "per_gpu", progress.per_gpu);
  set_if(json, "accumulation", progress.accumulation);
  if (progress.noise && std::isfinite(*progress.noise)) json["noise"] = *progress.noise;
  if (progress.tuning) json["tuning"] = to_json(*progress.tuning);
  return json;
}

Json to_json(const JobEnd& end) {
  Json json = {{"how", to_text(end.how)}, {"code", end.code}, {"why", end.why}};
  if (end.infrastructure) json["infrastructure"] = true;
  if (end.at) json["at"] = end.at->time_since_epoch().count();
  return json;
}

Json to_json(const JobStatus& status) {
  Json pauses = Json::array();
  for (const double pause : status.pauses) pauses.push_back(finite(pause));
  Json json = {{"job", status.job.value()},
               {"generation", status.generation.value()},
               {"in_use", status.in_use},
               {"running", status.running},
               {"progress", to_json(status.progress)},
               {"failures", status.failures},
               {"resizes", status.resizes},
               {"pauses", std::move(pauses)}};
  if (status.ended) json["ended"] = to_json(*status.ended);
  if (status.silent) json["silent"] = true;
  return json;
}

Json to_json(const ProcessName& process) {
  return {{"pid", process.pid}, {"start_time", process.start_time}};
}

Json to_json(const std::vector<WorkerRecord>& workers) {
  Json json = Json::array();
  for (const WorkerRecord& worker : workers) {
    json.push_back({{"uid", worker.uid},
                    {"slot", worker.slot},
                    {"pid", worker.process.pid},
                    {"start_time", worker.process.start_time}});
  }
  return json;
}

Json to_json(const JobExit& exit) {
  Json json = to_json(exit.end);
  json.update({{"generation", exit.generation.value()},
               {"progress", to_json(exit.progress)},
               {"failures", exit.failures},
               {"resizes", exit.resizes}});
  return json;
}

Json to_json(const ToMaster& message) {
  if (const auto* manage = std::get_if<Manage>(&message)) {
    return {{"type", "manage"}, {"token", manage->token}};
  }
  if (const auto* place = std::get_if<Place>(&message)) {
    return {{"type", "place"},
            {"generation", place->generation.value()},
            {"slots", place->slots},
            {"batch", to_json(place->batch)}};
  }
  if (const auto* stop = std::get_if<StopJob>(&message)) {
    return {{"type", "stop"}, {"generation", stop->generation.value()}};
  }
  return {{"type", "kill"}};
}

Json status_message(const JobStatus& status) {
  Json json = {{"type", "status"}};
  json.update(to_json(status));
  return json;
}

// --- reading -------------------------------------------------------------------------------------

Result<JobLaunch> parse_job_launch(const Json& json) {
  Fields fields(json, "the launch of a job");
  JobLaunch launch;
  launch.job = fields.id<JobId>("job");
  launch.name = fields.text("name");
  launch.token = fields.text("token");
  launch.home = fields.id<NodeId>("home");
  launch.generation = fields.id<Generation>("generation");
  launch.slots = fields.slots("slots");
  launch.node_gpus = fields.integers("node_gpus", 0, kMaxGpusPerNode);
  launch.batch = fields.batch("batch");
  launch.command = fields.texts("command");
  launch.env = fields.variables("env");
  launch.directory = fields.text("directory");
  launch.user = fields.text("user");
  launch.secrets = fields.variables("secrets");
  launch.least = fields.small("least", 1, kMostWorkers);
  launch.most = fields.small("most", 1, kMostWorkers);
  launch.max_failures = fields.small("max_failures", 0, kMostInt);
  launch.grace = from_seconds(fields.real("grace", 0, kMostSeconds));
  if (const auto after = fields.optional_real("stop_after", 0, kMostSeconds)) {
    launch.stop_after = from_seconds(*after);
  }
  launch.log_limit = fields.integer("log_limit", 1, kMostExact);
  launch.live = fields.boolean("live");
  if (const auto hello = fields.optional_real("hello", 0, kMostSeconds)) {
    launch.hello = from_seconds(*hello);
  }
  launch.silent = fields.boolean("silent", true);
  if (fields.ok()) check(fields, launch);
  return fields.result(std::move(launch));
}

Result<JobTuning> parse_job_tuning(const Json& json) {
  Fields fields(json, "the tuning of a job's batch");
  JobTuning tuning;
  tuning.initial = fields.small("initial", 1, kMostInt);
  tuning.largest = fields.small("largest", 1, kMostInt);
  tuning.largest_per_gpu = fields.small("largest_per_gpu", 1, kMostInt);
  tuning.step_seconds = fields.real("step_seconds", 0, kMostReal);
  tuning.pass_seconds = fields.real("pass_seconds", 0, kMostReal);
  if (fields.ok() && tuning.largest < tuning.initial)
    fields.refuse("has a \"largest\" that is less than \"initial\"");
  return fields.result(tuning);
}

Result<JobProgress> parse_job_progress(const Json& json) {
  Fields fields(json, "the progress of a job");
  JobProgress progress;
  progress.step = fields.integer("step", 0, std::numeric_limits<std::int64_t>::max());
  progress.samples = fields.real("samples", 0, kMostReal);
  progress.epoch = fields.real("epoch", 0, kMostReal);
  progress.loss = fields.optional_real("loss", -kMostReal, kMostReal);
  progress.rate = fields.real("rate", 0, kMostReal);
  progress.step_rate = fields.real("step_rate", 0, kMostReal);
  progress.workers = fields.small("workers", 0, kMostWorkers);
  progress.batch = fields.small("batch", 0, kMostInt);
  progress.per_gpu = fields.optional_integer("per_gpu", 1, kMostInt);
  progress.accumulation = fields.optional_integer("accumulation", 0, kMostInt);
  progress.noise = fields.optional_real("noise", 0, kMostReal);
  if (fields.find("tuning", true) != nullptr)
    nested(fields, "tuning", parse_job_tuning, progress.tuning.emplace());
  return fields.result(progress);
}

namespace {

JobEnd end_in(Fields& fields) {
  JobEnd end;
  const std::string how = fields.text("how");
  if (how == "stopped") {
    end.how = JobEnd::How::stopped;
  } else if (how == "failed") {
    end.how = JobEnd::How::failed;
  } else if (how != "finished") {
    fields.refuse("how", "finished, stopped or failed");
  }
  end.code = fields.small("code", std::numeric_limits<int>::min(), kMostInt);
  end.why = fields.text("why");
  end.infrastructure = fields.flag("infrastructure");
  end.at = fields.optional_wall_time("at");
  return end;
}

ProcessName process_in(Fields& fields) {
  return {fields.small("pid", 1, kMostInt),
          fields.integer("start_time", 0, std::numeric_limits<std::int64_t>::max())};
}

}  // namespace

Result<JobEnd> parse_job_end(const Json& json) {
  Fields fields(json, "the end of a job");
  return fields.result(end_in(fields));
}

Result<JobStatus> parse_job_status(const Json& json) {
  Fields fields(json, "the status of a job");
  JobStatus status;
  status.job = fields.id<JobId>("job");
  status.generation = fields.id<Generation>("generation");
  status.in_use = fields.slots("in_use");
  status.running = fields.boolean("running");
  nested(fields, "progress", parse_job_progress, status.progress);
  if (const Json* ended = fields.find("ended", true); ended != nullptr && !ended->is_null()) {
    nested(fields, "ended", parse_job_end, status.ended.emplace());
  }
  status.failures = fields.small("failures", 0, kMostInt);
  status.resizes = fields.small("resizes", 0, kMostInt);
  fields.list("pauses", [&](const Json& pause) {
    const double value = pause.is_number() ? pause.get<double>() : -1;
    if (!(value >= 0 && value <= kMostReal)) fields.refuse("pauses", "a list of seconds");
    status.pauses.push_back(value);
  });
  status.silent = fields.boolean("silent", true);
  return fields.result(std::move(status));
}

Result<ProcessName> parse_process_name(const Json& json) {
  Fields fields(json, "the name of a process");
  return fields.result(process_in(fields));
}

Result<std::vector<WorkerRecord>> parse_worker_records(const Json& json) {
  std::vector<WorkerRecord> workers;
  if (!json.is_array()) return Error{"the workers of a job must be a list"};
  workers.reserve(json.size());
  for (const Json& element : json) {
    Fields fields(element, "a worker of a job");
    WorkerRecord worker;
    worker.uid = fields.integer("uid", 1, std::numeric_limits<std::int64_t>::max());
    worker.slot = fields.text("slot");
    if (fields.ok() && !parse_slot(worker.slot)) fields.refuse("slot", "NODE.GPU, as 0.3");
    worker.process = process_in(fields);
    auto result = fields.result(std::move(worker));
    if (!result) return result.error();
    workers.push_back(std::move(*result));
  }
  return workers;
}

Result<JobExit> parse_job_exit(const Json& json) {
  Fields fields(json, "the exit of a job");
  JobExit exit;
  exit.generation = fields.id<Generation>("generation");
  exit.end = end_in(fields);
  nested(fields, "progress", parse_job_progress, exit.progress);
  exit.failures = fields.small("failures", 0, kMostInt);
  exit.resizes = fields.small("resizes", 0, kMostInt);
  return fields.result(std::move(exit));
}

Result<ToMaster> parse_to_master(const Json& message) {
  Fields fields(message, "a message to a master");
  const std::string type = fields.text("type");
  if (type == "manage") return fields.result(ToMaster(Manage{fields.text("token")}));
  if (type == "place") {
    Place place;
    place.generation = fields.id<Generation>("generation");
    place.slots = fields.slots("slots");
    place.batch = fields.batch("batch");
    if (fields.ok() && place.slots.empty())
      fields.refuse("names no slots; stop is another message");
    return fields.result(ToMaster(std::move(place)));
  }
  if (type == "stop") return fields.result(ToMaster(StopJob{fields.id<Generation>("generation")}));
  if (type == "kill") return fields.result(ToMaster(KillJob{}));
  fields.refuse(fmt::format("is of the unknown type {}", base::quoted(type)));
  return fields.error();
}

}  // namespace rubato::launch
