#include "rubato/launch/master_messages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <set>

#include "rubato/base/text.h"

namespace rubato::launch {
namespace {

constexpr double kMostSeconds = 1e9;
// Above this number, two integers may be the same double.
constexpr std::int64_t kMostExact = std::int64_t{1} << 53U;
constexpr int kMostWorkers = 100'000;
constexpr int kMostInt = std::numeric_limits<int>::max();
constexpr double kMostReal = std::numeric_limits<double>::max();

constexpr std::array<NameOf<JobEnd::How>, 3> kHows = {{{JobEnd::How::finished, "finished"},
                                                       {JobEnd::How::stopped, "stopped"},
                                                       {JobEnd::How::failed, "failed"}}};

// JSON has no infinity and no NaN.
double finite(double value) { return std::isfinite(value) ? value : 0; }

void set_if(Json& json, const char* name, const std::optional<int>& value) {
  if (value) json[name] = *value;
}

Json to_json(const std::map<std::string, std::string>& variables) {
  Json json = Json::object();
  for (const auto& [name, value] : variables) json[name] = value;
  return json;
}

Json to_json(const std::optional<Batch>& batch) {
  if (!batch) return nullptr;
  return {{"per_gpu", batch->per_gpu}, {"accumulation", batch->accumulation}};
}

Json to_json(const std::vector<PlacedShare>& shares) {
  Json json = Json::array();
  for (const PlacedShare& share : shares) {
    json.push_back({{"name", share.name}, {"node", share.node}, {"slots", share.slots}});
  }
  return json;
}

Json to_json(const SharesLaunch& shares) {
  return {{"directory", shares.directory},
          {"placed", to_json(shares.placed)},
          {"address", shares.address}};
}

Json to_json(const std::vector<ShareView>& shares) {
  Json json = Json::array();
  for (const ShareView& share : shares) {
    json.push_back({{"name", share.name}, {"linked", share.linked}, {"native", share.native}});
  }
  return json;
}

Json to_json(const Place& place) {
  Json json = {{"type", "place"},
               {"generation", place.generation.value()},
               {"slots", place.slots},
               {"batch", to_json(place.batch)}};
  if (place.revision != 0) json["revision"] = place.revision;
  if (!place.shares.empty()) json["shares"] = to_json(place.shares);
  if (!place.ended_shares.empty()) json["ended_shares"] = place.ended_shares;
  return json;
}

}  // namespace

bool is_share_name(std::string_view name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  return !name.empty() && name.size() <= kLongestShareName &&
         std::all_of(name.begin(), name.end(), good);
}

// --- writing -------------------------------------------------------------------------------------

std::string_view to_text(JobEnd::How how) { return name_in(kHows, how); }

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
  if (launch.opportunistic) json["opportunistic"] = true;
  if (launch.silent) json["silent"] = true;
  if (launch.shares) json["shares"] = to_json(*launch.shares);
  return json;
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
  if (progress.learning_rate && std::isfinite(*progress.learning_rate))
    json["learning_rate"] = *progress.learning_rate;
  if (progress.skew) json["skew"] = *progress.skew;
  if (progress.tuning) json["tuning"] = wire::to_json(*progress.tuning);
  for (const auto& [name, value] : progress.metrics) {
    if (std::isfinite(value)) json["metrics"][name] = value;
  }
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
  if (status.revision != 0) json["revision"] = status.revision;
  if (!status.shares.empty()) json["shares"] = to_json(status.shares);
  if (status.applied_at) json["applied_at"] = finite(*status.applied_at);
  if (status.guest_share) json["guest_share"] = *status.guest_share;
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
  if (const auto* place = std::get_if<Place>(&message)) return to_json(*place);
  if (const auto* stop = std::get_if<StopJob>(&message)) {
    return {{"type", "stop"}, {"generation", stop->generation.value()}};
  }
  if (const auto* throttle = std::get_if<ThrottleJob>(&message)) {
    return {{"type", "throttle"}, {"share", throttle->share}, {"guest", throttle->guest}};
  }
  return {{"type", "kill"}};
}

Json status_message(const JobStatus& status) {
  Json json = {{"type", "status"}};
  json.update(to_json(status));
  return json;
}

// --- reading -------------------------------------------------------------------------------------

namespace {

template <class T>
Result<T> parse(const Json& json, std::string_view what, void (*read)(const JsonValue&, T&)) {
  JsonTrouble trouble;
  T value;
  read(JsonValue(json, trouble), value);
  if (!trouble.ok()) return trouble.error(what);
  return value;
}

std::vector<Slot> read_slots(const JsonValue& json) {
  std::vector<Slot> slots;
  std::set<Slot> seen;
  json.each([&](const JsonValue& element) {
    const std::string& slot = element.text();
    element.must_be(parse_slot(slot).has_value(), "a slot, NODE.GPU, as 0.3");
    if (!seen.insert(slot).second) element.refuse(fmt::format("names the slot {} again", slot));
    slots.push_back(slot);
  });
  return slots;
}

// Names and values of environment variables.
std::map<std::string, std::string> read_variables(const JsonValue& json) {
  auto variables = json.text_map();
  for (const auto& [name, value] : variables) {
    const bool usable = !name.empty() && name.find('=') == std::string::npos &&
                        name.find('\0') == std::string::npos;
    if (!usable)
      json.refuse(
          fmt::format("has {}, which cannot be the name of a variable", base::quoted(name)));
  }
  return variables;
}

std::optional<Batch> read_batch(const JsonValue& json) {
  if (json.json().is_null()) return std::nullopt;
  JsonFields fields(json);
  return Batch{fields["per_gpu"].whole(1, kMostInt), fields["accumulation"].whole(0, kMostInt)};
}

Duration read_seconds(const JsonValue& json) { return from_seconds(json.number(0, kMostSeconds)); }

// A missing field means false.
bool read_flag(JsonFields& fields, std::string_view name) {
  const auto found = fields.find(name);
  return found && found->boolean();
}

// A missing field means 0.
std::int64_t read_revision(JsonFields& fields) {
  const auto found = fields.find("revision");
  return found ? found->integer(0, kMostInt64) : 0;
}

// It is part of names of files, and of names that a manager of clusters must accept.
ShareName read_share_name(const JsonValue& json) {
  const std::string& name = json.text();
  json.must_be(is_share_name(name), "a name of at most 63 characters a-z, 0-9 and -");
  return name;
}

std::vector<ShareName> read_share_names(const JsonValue& json) {
  std::vector<ShareName> names;
  json.each([&](const JsonValue& element) { names.push_back(read_share_name(element)); });
  return names;
}

// Each of `slots` is in one share, and no other slot is.
std::vector<PlacedShare> read_placed(const JsonValue& json, const std::vector<Slot>& slots) {
  std::vector<PlacedShare> shares;
  std::set<ShareName> names;
  std::set<Slot> rest(slots.begin(), slots.end());
  json.each([&](const JsonValue& element) {
    JsonFields fields(element);
    PlacedShare share;
    share.name = read_share_name(fields["name"]);
    share.node = fields["node"].text();
    share.slots = read_slots(fields["slots"]);
    if (!names.insert(share.name).second)
      element.refuse(fmt::format("names the share {} again", share.name));
    if (share.slots.empty()) element.refuse("has no slots");
    for (const Slot& slot : share.slots) {
      if (rest.erase(slot) == 0)
        element.refuse(fmt::format(
            "has the slot {}, which is not one of the job, or is in another share", slot));
    }
    shares.push_back(std::move(share));
  });
  if (!rest.empty()) json.refuse(fmt::format("has no share with the slot {}", *rest.begin()));
  return shares;
}

SharesLaunch read_shares_launch(const JsonValue& json, const std::vector<Slot>& slots) {
  JsonFields fields(json);
  SharesLaunch shares;
  const JsonValue directory = fields["directory"];
  shares.directory = directory.system_text();
  directory.must_be(shares.directory.starts_with('/'), "an absolute path");
  shares.placed = read_placed(fields["placed"], slots);
  shares.address = fields["address"].system_text();
  return shares;
}

std::vector<ShareView> read_share_views(const JsonValue& json) {
  std::vector<ShareView> shares;
  json.each([&](const JsonValue& element) {
    JsonFields fields(element);
    shares.push_back(
        {read_share_name(fields["name"]), fields["linked"].boolean(), fields["native"].text()});
  });
  return shares;
}

void check(JsonFields& fields, const JobLaunch& launch) {
  if (!fields.ok()) return;
  if (launch.command.empty() || launch.command.front().empty()) fields.refuse("has no command");
  if (launch.token.empty()) fields.refuse("has no token");
  if (launch.most < launch.least) fields.refuse("has a \"most\" that is less than \"least\"");
  if (launch.slots.empty()) fields.refuse("has no slots");
  if (!launch.directory.empty() && launch.directory.front() != '/')
    fields.refuse("has a \"directory\" that is not an absolute path");
  for (const auto& [name, path] : launch.secrets) {
    if (path.empty() || path.front() != '/') {
      fields.refuse(
          fmt::format("has the secret {} whose file is not an absolute path", base::quoted(name)));
    }
    if (launch.env.contains(name))
      fields.refuse(fmt::format("has {} in \"env\" and in \"secrets\"", base::quoted(name)));
  }
}

JobEnd read_job_end(JsonFields& fields) {
  JobEnd end;
  end.how = fields["how"].choice(kHows);
  end.code = fields["code"].whole<int>();
  end.why = fields["why"].system_text();
  end.infrastructure = read_flag(fields, "infrastructure");
  if (const auto at = fields.find("at")) end.at = WallTime(Duration(at->integer(0, kMostExact)));
  return end;
}

void read_job_end(const JsonValue& json, JobEnd& end) {
  JsonFields fields(json);
  end = read_job_end(fields);
}

void read_process(const JsonValue& json, ProcessName& process) {
  JsonFields fields(json);
  process = read_process_name(fields);
}

void read_worker_records(const JsonValue& json, std::vector<WorkerRecord>& workers) {
  json.each([&](const JsonValue& element) {
    JsonFields fields(element);
    WorkerRecord worker;
    worker.uid = fields["uid"].integer(1, kMostInt64);
    const JsonValue slot = fields["slot"];
    worker.slot = slot.text();
    slot.must_be(parse_slot(worker.slot).has_value(), "a slot, NODE.GPU, as 0.3");
    worker.process = read_process_name(fields);
    workers.push_back(std::move(worker));
  });
}

void read_job_exit(const JsonValue& json, JobExit& exit) {
  JsonFields fields(json);
  exit.generation = fields["generation"].id<Generation>();
  exit.end = read_job_end(fields);
  read_job_progress(fields["progress"], exit.progress);
  exit.failures = fields["failures"].whole(0, kMostInt);
  exit.resizes = fields["resizes"].whole(0, kMostInt);
}

void read_to_master(const JsonValue& json, ToMaster& message) {
  JsonFields fields(json);
  const std::string& type = fields["type"].text();
  if (type == "manage") {
    message = Manage{fields["token"].system_text()};
  } else if (type == "place") {
    message = read_place(fields);
  } else if (type == "stop") {
    message = read_stop_job(fields);
  } else if (type == "kill") {
    message = KillJob{};
  } else if (type == "throttle") {
    message = ThrottleJob{fields["share"].number(0, 1), fields["guest"].boolean()};
  } else {
    fields.refuse(fmt::format("is of the unknown type {}", base::quoted(type)));
  }
}

}  // namespace

void read_job_launch(const JsonValue& json, JobLaunch& launch) {
  JsonFields fields(json);
  launch.job = fields["job"].id<JobId>();
  launch.name = fields["name"].system_text();
  launch.token = fields["token"].system_text();
  launch.home = fields["home"].id<NodeId>();
  launch.generation = fields["generation"].id<Generation>();
  launch.slots = read_slots(fields["slots"]);
  launch.node_gpus = fields["node_gpus"].integers(0, kMaxGpusPerNode);
  launch.batch = read_batch(fields["batch"]);
  launch.command = fields["command"].texts();
  launch.env = read_variables(fields["env"]);
  launch.directory = fields["directory"].system_text();
  launch.user = fields["user"].system_text();
  launch.secrets = read_variables(fields["secrets"]);
  launch.least = fields["least"].whole(1, kMostWorkers);
  launch.most = fields["most"].whole(1, kMostWorkers);
  launch.max_failures = fields["max_failures"].whole(0, kMostInt);
  launch.grace = read_seconds(fields["grace"]);
  if (const auto after = fields.find("stop_after")) launch.stop_after = read_seconds(*after);
  launch.log_limit = fields["log_limit"].integer(1, kMostExact);
  launch.live = fields["live"].boolean();
  if (const auto hello = fields.find("hello")) launch.hello = read_seconds(*hello);
  launch.opportunistic = read_flag(fields, "opportunistic");
  launch.silent = read_flag(fields, "silent");
  if (const auto shares = fields.find("shares"))
    launch.shares = read_shares_launch(*shares, launch.slots);
  check(fields, launch);
}

void read_job_progress(const JsonValue& json, JobProgress& progress) {
  JsonFields fields(json);
  progress.step = fields["step"].integer(0, kMostInt64);
  progress.samples = fields["samples"].number(0, kMostReal);
  progress.epoch = fields["epoch"].number(0, kMostReal);
  if (const auto loss = fields.find("loss")) progress.loss = loss->number(-kMostReal, kMostReal);
  progress.rate = fields["rate"].number(0, kMostReal);
  progress.step_rate = fields["step_rate"].number(0, kMostReal);
  progress.workers = fields["workers"].whole(0, kMostWorkers);
  progress.batch = fields["batch"].whole(0, kMostInt);
  if (const auto per_gpu = fields.find("per_gpu")) progress.per_gpu = per_gpu->whole(1, kMostInt);
  if (const auto accumulation = fields.find("accumulation"))
    progress.accumulation = accumulation->whole(0, kMostInt);
  if (const auto noise = fields.find("noise")) progress.noise = noise->number(0, kMostReal);
  if (const auto rate = fields.find("learning_rate"))
    progress.learning_rate = rate->number(0, kMostReal);
  if (const auto skew = fields.find("skew")) progress.skew = skew->number(0, 1);
  if (const auto tuning = fields.find("tuning"))
    wire::read_job_tuning(*tuning, progress.tuning.emplace());
  if (const auto metrics = fields.find("metrics")) {
    metrics->must_be(metrics->json().size() <= wire::kMostReportedMetrics, "fewer metrics");
    metrics->each_field([&](const std::string& name, const JsonValue& value) {
      value.must_be(name.size() <= wire::kLongestMetricName, "of a shorter name");
      progress.metrics[name] = value.number(-kMostReal, kMostReal);
    });
  }
}

void read_job_status(const JsonValue& json, JobStatus& status) {
  JsonFields fields(json);
  fields.leave("type");
  status.job = fields["job"].id<JobId>();
  status.generation = fields["generation"].id<Generation>();
  status.in_use = read_slots(fields["in_use"]);
  status.running = fields["running"].boolean();
  read_job_progress(fields["progress"], status.progress);
  if (const auto ended = fields.find("ended"); ended && !ended->json().is_null())
    read_job_end(*ended, status.ended.emplace());
  status.failures = fields["failures"].whole(0, kMostInt);
  status.resizes = fields["resizes"].whole(0, kMostInt);
  fields["pauses"].each(
      [&](const JsonValue& pause) { status.pauses.push_back(pause.number(0, kMostReal)); });
  status.silent = read_flag(fields, "silent");
  status.revision = read_revision(fields);
  if (const auto shares = fields.find("shares")) status.shares = read_share_views(*shares);
  if (const auto at = fields.find("applied_at"))
    status.applied_at = at->number(-kMostReal, kMostReal);
  if (const auto share = fields.find("guest_share")) status.guest_share = share->number(0, 1);
}

ProcessName read_process_name(JsonFields& fields) {
  return {fields["pid"].whole(1, kMostInt), fields["start_time"].integer(0, kMostInt64)};
}

Place read_place(JsonFields& fields) {
  Place place;
  place.generation = fields["generation"].id<Generation>();
  place.slots = read_slots(fields["slots"]);
  place.batch = read_batch(fields["batch"]);
  place.revision = read_revision(fields);
  if (const auto shares = fields.find("shares")) place.shares = read_placed(*shares, place.slots);
  if (const auto ended = fields.find("ended_shares")) place.ended_shares = read_share_names(*ended);
  if (fields.ok() && place.slots.empty()) fields.refuse("names no slots; stop is another message");
  return place;
}

StopJob read_stop_job(JsonFields& fields) { return {fields["generation"].id<Generation>()}; }

Result<JobLaunch> parse_job_launch(const Json& json) {
  return parse<JobLaunch>(json, "launch", read_job_launch);
}
Result<JobProgress> parse_job_progress(const Json& json) {
  return parse<JobProgress>(json, "progress", read_job_progress);
}
Result<JobEnd> parse_job_end(const Json& json) { return parse<JobEnd>(json, "end", read_job_end); }
Result<JobStatus> parse_job_status(const Json& json) {
  return parse<JobStatus>(json, "status", read_job_status);
}
Result<ProcessName> parse_process_name(const Json& json) {
  return parse<ProcessName>(json, "process", read_process);
}
Result<std::vector<WorkerRecord>> parse_worker_records(const Json& json) {
  return parse<std::vector<WorkerRecord>>(json, "workers", read_worker_records);
}
Result<JobExit> parse_job_exit(const Json& json) {
  return parse<JobExit>(json, "exit", read_job_exit);
}
Result<ToMaster> parse_to_master(const Json& message) {
  return parse<ToMaster>(message, "message", read_to_master);
}

}  // namespace rubato::launch
