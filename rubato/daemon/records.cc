#include "rubato/daemon/records.h"

#include <array>
#include <fmt/format.h>
#include <utility>

#include "rubato/base/json_record.h"
#include "rubato/journal/codec.h"
#include "rubato/model/fit.h"

namespace rubato::daemon {
namespace {

constexpr std::array<NameOf<Ending>, 4> kEndings = {{
    {Ending::completed, "completed"},
    {Ending::failed, "failed"},
    {Ending::cancelled, "cancelled"},
    {Ending::refused, "refused"},
}};

struct Format : RecordFormat {
  static constexpr std::size_t kLongestText = std::string::npos;
};
using Writer = RecordWriter<Format>;
using FormatReader = RecordReader<Format>;

const auto& names_of(const Format& /*format*/, Ending /*any*/) { return kEndings; }

// One description of each record for reading and writing (base/json_record.h).
void describe(auto& f, Is<JobEnding> auto& value) {
  auto& [how, why, code, earliest] = value;
  f("code", code);
  f("earliest", earliest);
  f("how", how);
  f("why", why);
}

void describe(auto& f, Is<Rates> auto& value) {
  auto& [by_gpus, pause, tuning, skew] = value;
  f("by_gpus", by_gpus);
  f("pause", pause);
  f("skew", skew);
  f("tuning", tuning);
}

void describe(auto& f, Is<Tuning> auto& value) {
  auto& [initial, largest, largest_per_gpu, noise, steps] = value;
  f("initial", initial);
  f("largest", largest);
  f("largest_per_gpu", largest_per_gpu);
  f("noise", noise);
  f("steps", steps);
}

void describe(auto& f, Is<Promise> auto& value) {
  auto& [job, finish, plan, movable] = value;
  f("finish", finish);
  f("job", job);
  f("movable", movable);
  f("plan", plan);
}

void describe(auto& f, Is<Setbacks> auto& value) {
  auto& [in_a_row, last, infrastructure, why, until] = value;
  f("in_a_row", in_a_row);
  f("infrastructure", infrastructure);
  f("last", last);
  f("until", until);
  f("why", why);
}

void describe(auto& f, Is<GpuLimits> auto& value) {
  auto& [min, max, allowed] = value;
  f("allowed", allowed);
  f("max", max);
  f("min", min);
}

void describe(auto& f, Is<Quota> auto& value) {
  auto& [before, why, gpus, in_a_row, last, until] = value;
  f("before", before);
  f("gpus", gpus);
  f("in_a_row", in_a_row);
  f("last", last);
  f("until", until);
  f("why", why);
}

void describe(auto& f, Is<SearchTrial> auto& value) {
  auto& [search, number, stages, waits, stopped] = value;
  f("number", number);
  f("search", search);
  f("stages", stages);
  f.unless_plain("stopped", stopped);
  f("waits", waits);
}

void describe(auto& f, Is<JobRecord> auto& value) {
  auto& [id, user, key, digest, text_bytes, file, name, nonce, submitted, started, ended, deadline,
         ending, work, scale, rates, promise, honoured, measured_by, measures_for, verdict_by, told,
         home, running_since, failures, worker_failures, resizes, setbacks, leaves_as, plain, quota,
         progress, measured_at, attained, restarts, limits, last_pause, trial] = value;
  f("attained", attained);
  f("deadline", deadline);
  f("digest", digest);
  f("ended", ended);
  f("ending", ending);
  f("failures", failures);
  f("file", file);
  f("home", home);
  f("honoured", honoured);
  f("id", id);
  f("key", key);
  f("last_pause", last_pause);
  f("leaves_as", leaves_as);
  f("limits", limits);
  f("measured_at", measured_at);
  f("measured_by", measured_by);
  f("measures_for", measures_for);
  f("name", name);
  f("nonce", nonce);
  f("plain", plain);
  f("progress", progress);
  f("promise", promise);
  f("quota", quota);
  f("rates", rates);
  f("resizes", resizes);
  f("restarts", restarts);
  f("running_since", running_since);
  f("scale", scale);
  f("setbacks", setbacks);
  f("started", started);
  f("submitted", submitted);
  f("text_bytes", text_bytes);
  f("told", told);
  f("trial", trial);
  f("user", user);
  f("verdict_by", verdict_by);
  f("work", work);
  f("worker_failures", worker_failures);
}

void describe(auto& f, Is<PageToken> auto& value) {
  auto& [token, until] = value;
  f("token", token);
  f("until", until);
}

void describe(auto& f, Is<UserRecord> auto& value) {
  auto& [name, admin, most_weight, tokens, pages, guaranteed] = value;
  f("admin", admin);
  f.unless_plain("guaranteed", guaranteed);
  f("most_weight", most_weight);
  f("name", name);
  f.unless_plain("pages", pages);
  f("tokens", tokens);
}

void describe_row(auto& f, Is<GpuStep> auto& value) {
  auto& [from, gpus] = value;
  f(from, gpus);
}

// --- values that are written in another way, or checked when they are read ---

template <class T>
void take(const JsonValue& json, Result<T> parsed, T& value) {
  if (!parsed) return json.refuse(parsed.error().message);
  value = std::move(*parsed);
}

Json write_json(Writer& /*writer*/, const Is<Digest> auto& value) { return hex(value); }
void read_json(FormatReader& /*reader*/, const JsonValue& json, Is<Digest> auto& value) {
  const auto digest = parse_digest(json.text());
  if (json.must_be(digest.has_value(), "64 hexadecimal digits")) value = *digest;
}

Json write_json(Writer& /*writer*/, const Is<std::set<std::string>> auto& value) {
  Json list = Json::array();
  for (const std::string& one : value) list.push_back(one);
  return list;
}
void read_json(FormatReader& /*reader*/, const JsonValue& json,
               Is<std::set<std::string>> auto& value) {
  json.each([&](const JsonValue& one) { value.insert(one.text()); });
}

Json write_json(Writer& /*writer*/, const Is<std::map<int, WorkRate>> auto& value) {
  Json list = Json::array();
  for (const auto& [gpus, rate] : value) list.push_back(Json::array({gpus, rate}));
  return list;
}
void read_json(FormatReader& /*reader*/, const JsonValue& json,
               Is<std::map<int, WorkRate>> auto& value) {
  json.each([&](const JsonValue& pair) {
    if (!pair.is_row(2)) return;
    const int gpus = pair.at(0).whole<int>();
    const WorkRate rate = pair.at(1).number();
    if (pair.must_be(gpus >= 1 && rate > 0, "a count and a speed above 0")) value[gpus] = rate;
  });
}

// null: nothing was reported.
Json write_json(Writer& /*writer*/, const Is<std::vector<StageMetric>> auto& value) {
  Json list = Json::array();
  for (const StageMetric& metric : value) list.push_back(metric ? Json(*metric) : Json());
  return list;
}
void read_json(FormatReader& /*reader*/, const JsonValue& json,
               Is<std::vector<StageMetric>> auto& value) {
  json.each([&](const JsonValue& one) {
    value.push_back(one.json().is_null() ? StageMetric() : StageMetric(one.number()));
  });
}

// A list of six numbers, and the GPU type unless it is the first one.
Json write_json(Writer& /*writer*/, const Is<MeasuredStep> auto& value) {
  const auto& [place, batch, step_seconds, grad_seconds] = value.step;
  Json row = Json::array(
      {place.nodes, place.gpus, batch.per_gpu, batch.accumulation, step_seconds, grad_seconds});
  if (value.type != GpuType()) row.push_back(value.type.value());
  return row;
}
void read_json(FormatReader& /*reader*/, const JsonValue& json, Is<MeasuredStep> auto& value) {
  if (!json.must_be(json.json().is_array() && (json.size() == 6 || json.size() == 7),
                    "a list of 6 or 7 numbers"))
    return;
  auto& [place, batch, step_seconds, grad_seconds] = value.step;
  place.nodes = json.at(0).template whole<int>();
  place.gpus = json.at(1).template whole<int>();
  batch.per_gpu = json.at(2).template whole<int>();
  batch.accumulation = json.at(3).template whole<int>();
  step_seconds = json.at(4).number();
  grad_seconds = json.at(5).number();
  if (json.size() == 7) value.type = GpuType(json.at(6).template whole<GpuType::rep>());
}

void read_json(FormatReader& reader, const JsonValue& json,
               Is<std::vector<MeasuredStep>> auto& value) {
  if (!json.must_be(json.json().is_array() && json.size() <= kStepsKept,
                    fmt::format("a list of at most {}", kStepsKept)))
    return;
  json.each([&](const JsonValue& row) {
    const auto step = reader.get<MeasuredStep>(row);
    if (!row.ok()) return;
    if (auto ok = check_measurement(step.step); !ok) return row.refuse(ok.error().message);
    value.push_back(step);
  });
}

void read_json(FormatReader& reader, const JsonValue& json, Is<Tuning> auto& value) {
  reader.read_fields(json, value);
  json.must_be(value.initial >= 1 && value.largest >= value.initial && value.largest_per_gpu >= 1,
               "limits from 1 on, in order");
  json.must_be(!value.noise || *value.noise >= 0, "with a noise of 0 or more");
}

Json write_json(Writer& /*writer*/, const Is<JobFile> auto& value) { return to_json(value); }
void read_json(FormatReader& /*reader*/, const JsonValue& json, Is<JobFile> auto& value) {
  take(json, read_job(json.json(), "the job's file"), value);
}

Json write_json(Writer& /*writer*/, const Is<JobProgress> auto& value) { return to_json(value); }
void read_json(FormatReader& /*reader*/, const JsonValue& json, Is<JobProgress> auto& value) {
  read_job_progress(json, value);
}

Json write_json(Writer& writer, const Is<Command> auto& value) {
  auto coded = encode_json(value);
  if (!coded) {
    writer.refuse(coded.error().message);
    return nullptr;
  }
  return {{"type", coded->type}, {"version", coded->version}, {"command", std::move(coded->body)}};
}
void read_json(FormatReader& /*reader*/, const JsonValue& json, Is<Command> auto& value) {
  CodedJson coded;
  JsonFields fields(json);
  coded.type = fields["type"].text();
  coded.version = fields["version"].template whole<int>();
  coded.body = fields["command"].json();
  if (json.ok()) take(json, decode_command_json(coded), value);
}

template <class T>
Result<Json> write_any(const T& value) {
  Format format;
  Writer writer(format);
  Json json = writer.write(value);
  if (!writer.trouble().empty()) return Error{writer.trouble()};
  return json;
}

template <class T>
Result<void> read_any(const Json& json, T& value, std::string_view what) {
  JsonTrouble trouble;
  Format format;
  FormatReader(format).read(JsonValue(json, trouble), value);
  if (!trouble.ok()) return trouble.error(what);
  return {};
}

}  // namespace

std::string_view to_text(Ending how) { return name_in(kEndings, how); }

void Rates::learn(const Rates& newer) {
  for (const auto& [gpus, rate] : newer.by_gpus) by_gpus[gpus] = rate;
  if (newer.pause > 0) pause = newer.pause;
  if (newer.skew) skew = newer.skew;
  if (!newer.tuning) return;
  std::vector<MeasuredStep> steps;
  if (tuning) steps = std::move(tuning->steps);
  const auto noise = newer.tuning->noise ? newer.tuning->noise
                     : tuning            ? tuning->noise
                                         : std::nullopt;
  for (const MeasuredStep& newest : newer.tuning->steps) {
    std::erase_if(steps, [&](const MeasuredStep& known) {
      return known.type == newest.type && known.step.place.nodes == newest.step.place.nodes &&
             known.step.place.gpus == newest.step.place.gpus &&
             known.step.batch == newest.step.batch;
    });
    steps.push_back(newest);
  }
  if (steps.size() > kStepsKept)
    steps.erase(steps.begin(), steps.end() - static_cast<std::ptrdiff_t>(kStepsKept));
  tuning = newer.tuning;
  tuning->noise = noise;
  tuning->steps = std::move(steps);
}

std::string JobRecord::profile() const {
  if (file.profile.empty()) return {};
  constexpr std::array<const char*, 3> kUnits = {"steps", "epochs", "samples"};
  return fmt::format("{}/{}/{}", user, kUnits[static_cast<std::size_t>(unit())], file.profile);
}

Result<Json> write_record(const JobRecord& job) { return write_any(job); }
Result<Json> write_record(const UserRecord& user) { return write_any(user); }
Result<Json> write_record(const JobEnding& ending) { return write_any(ending); }
Result<Json> write_record(const Rates& rates) { return write_any(rates); }
Result<Json> write_record(const GpuLimits& limits) { return write_any(limits); }
Result<Json> write_record(const Quota& quota) { return write_any(quota); }
Result<Json> write_record(const Command& command) { return write_any(command); }

Result<void> read_record(const Json& json, JobRecord& job) { return read_any(json, job, "job"); }
Result<void> read_record(const Json& json, UserRecord& user) {
  return read_any(json, user, "user");
}
Result<void> read_record(const Json& json, JobEnding& ending) {
  return read_any(json, ending, "ending");
}
Result<void> read_record(const Json& json, Rates& rates) { return read_any(json, rates, "rates"); }
Result<void> read_record(const Json& json, Quota& quota) { return read_any(json, quota, "quota"); }
Result<void> read_record(const Json& json, GpuLimits& limits) {
  return read_any(json, limits, "limits");
}
Result<void> read_record(const Json& json, Command& command) {
  return read_any(json, command, "command");
}

}  // namespace rubato::daemon
