#include "rubato/daemon/records.h"

#include <array>
#include <fmt/format.h>
#include <type_traits>
#include <utility>

#include "rubato/base/json_reader.h"
#include "rubato/journal/codec.h"
#include "rubato/model/fit.h"

namespace rubato::daemon {
namespace {

template <class T, class Plain>
concept Is = std::is_same_v<std::remove_const_t<T>, Plain>;

constexpr std::array<NameOf<Ending>, 4> kEndings = {{
    {Ending::completed, "completed"},
    {Ending::failed, "failed"},
    {Ending::cancelled, "cancelled"},
    {Ending::refused, "refused"},
}};

// One description of each record for reading and writing. It binds all members by position, so it
// does not compile if one is forgotten.
void describe(auto& f, Is<JobEnding> auto& value) {
  auto& [how, why, code, earliest] = value;
  f("code", code);
  f("earliest", earliest);
  f("how", how);
  f("why", why);
}

void describe(auto& f, Is<Rates> auto& value) {
  auto& [by_gpus, pause, tuning] = value;
  f("by_gpus", by_gpus);
  f("pause", pause);
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

void describe(auto& f, Is<JobRecord> auto& value) {
  auto& [id, user, key, digest, text_bytes, file, name, nonce, submitted, started, ended, deadline,
         ending, work, scale, rates, promise, honoured, measured_by, measures_for, verdict_by, told,
         home, running_since, failures, worker_failures, resizes, setbacks, leaves_as, plain,
         progress, measured_at, attained, restarts, limits, last_pause] = value;
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
  f("user", user);
  f("verdict_by", verdict_by);
  f("work", work);
  f("worker_failures", worker_failures);
}

void describe(auto& f, Is<UserRecord> auto& value) {
  auto& [name, admin, most_weight, tokens] = value;
  f("admin", admin);
  f("most_weight", most_weight);
  f("name", name);
  f("tokens", tokens);
}

template <class T>
struct IsId : std::false_type {};
template <class Tag, class Rep>
struct IsId<Id<Tag, Rep>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

class Writer {
 public:
  template <class T>
  Json record(const T& value) {
    Json json = Json::object();
    const auto field = [&](const char* name, const auto& member) {
      if constexpr (IsOptional<std::remove_cvref_t<decltype(member)>>::value) {
        if (member) json[name] = write(*member);
      } else {
        json[name] = write(member);
      }
    };
    describe(field, value);
    return json;
  }

  template <class T>
  Json write(const T& value) {
    if constexpr (std::is_same_v<T, bool> || std::is_arithmetic_v<T> ||
                  std::is_same_v<T, std::string>) {
      return value;
    } else if constexpr (IsId<T>::value) {
      return value.value();
    } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, WallTime>) {
      return value.time_since_epoch().count();
    } else if constexpr (std::is_same_v<T, GpuTime>) {
      return value.gpu_micros();
    } else if constexpr (std::is_same_v<T, Ending>) {
      return std::string(to_text(value));
    } else if constexpr (std::is_same_v<T, Digest>) {
      return hex(value);
    } else if constexpr (std::is_same_v<T, std::map<int, WorkRate>>) {
      Json list = Json::array();
      for (const auto& [gpus, rate] : value) list.push_back(Json::array({gpus, rate}));
      return list;
    } else if constexpr (std::is_same_v<T, std::set<std::string>> ||
                         std::is_same_v<T, std::vector<int>>) {
      Json list = Json::array();
      for (const auto& one : value) list.push_back(one);
      return list;
    } else if constexpr (std::is_same_v<T, std::vector<GpuStep>>) {
      Json list = Json::array();
      for (const auto& step : value) list.push_back(Json::array({write(step.from), step.gpus}));
      return list;
    } else if constexpr (std::is_same_v<T, std::vector<StepMeasurement>>) {
      Json list = Json::array();
      for (const auto& [place, batch, step_seconds, grad_seconds] : value) {
        list.push_back(Json::array({place.nodes, place.gpus, batch.per_gpu, batch.accumulation,
                                    step_seconds, grad_seconds}));
      }
      return list;
    } else if constexpr (std::is_same_v<T, JobFile> || std::is_same_v<T, JobProgress>) {
      return to_json(value);
    } else if constexpr (std::is_same_v<T, Command>) {
      return command(value);
    } else {
      return record(value);
    }
  }

  [[nodiscard]] Result<Json> finish(Json json) const {
    if (!wrong_.empty()) return Error{wrong_};
    return json;
  }

 private:
  Json command(const Command& value) {
    auto coded = encode_json(value);
    if (!coded) {
      wrong_ = coded.error().message;
      return nullptr;
    }
    return {
        {"type", coded->type}, {"version", coded->version}, {"command", std::move(coded->body)}};
  }

  std::string wrong_;
};

// --- reading ---

template <class T>
void read(const JsonValue& json, T& value);

template <class T>
void read_record_of(const JsonValue& json, T& value) {
  JsonFields fields(json);
  const auto field = [&](const char* name, auto& member) {
    if constexpr (IsOptional<std::remove_cvref_t<decltype(member)>>::value) {
      if (const auto found = fields.find(name)) read(*found, member.emplace());
    } else {
      read(fields[name], member);
    }
  };
  describe(field, value);
}

template <class T>
void take(const JsonValue& json, Result<T> parsed, T& value) {
  if (!parsed) return json.refuse(parsed.error().message);
  value = std::move(*parsed);
}

void read_rates(const JsonValue& json, std::map<int, WorkRate>& rates) {
  json.each([&](const JsonValue& pair) {
    if (!pair.is_row(2)) return;
    const int gpus = pair.at(0).whole<int>();
    const WorkRate rate = pair.at(1).number();
    if (pair.must_be(gpus >= 1 && rate > 0, "a count and a speed above 0")) rates[gpus] = rate;
  });
}

void read_steps(const JsonValue& json, std::vector<StepMeasurement>& steps) {
  if (!json.must_be(json.json().is_array() && json.size() <= kStepsKept,
                    fmt::format("a list of at most {}", kStepsKept)))
    return;
  json.each([&](const JsonValue& row) {
    if (!row.is_row(6)) return;
    const StepMeasurement step{{row.at(0).whole<int>(), row.at(1).whole<int>()},
                               {row.at(2).whole<int>(), row.at(3).whole<int>()},
                               row.at(4).number(),
                               row.at(5).number()};
    if (!row.ok()) return;
    if (auto ok = check_measurement(step); !ok) return row.refuse(ok.error().message);
    steps.push_back(step);
  });
}

void check(const JsonValue& json, const Tuning& tuning) {
  json.must_be(
      tuning.initial >= 1 && tuning.largest >= tuning.initial && tuning.largest_per_gpu >= 1,
      "limits from 1 on, in order");
  json.must_be(!tuning.noise || *tuning.noise >= 0, "with a noise of 0 or more");
}

void read_command(const JsonValue& json, Command& command) {
  CodedJson coded;
  JsonFields fields(json);
  coded.type = fields["type"].text();
  coded.version = fields["version"].whole<int>();
  coded.body = fields["command"].json();
  if (json.ok()) take(json, decode_command_json(coded), command);
}

template <class T>
void read(const JsonValue& json, T& value) {
  if (!json.ok()) return;
  if constexpr (std::is_same_v<T, bool>) {
    value = json.boolean();
  } else if constexpr (std::is_integral_v<T>) {
    value = json.whole<T>();
  } else if constexpr (std::is_floating_point_v<T>) {
    value = json.number();
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = json.text(std::string::npos);
  } else if constexpr (IsId<T>::value) {
    value = json.id<T>();
  } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, WallTime>) {
    value = T(Duration(json.whole<std::int64_t>()));
  } else if constexpr (std::is_same_v<T, GpuTime>) {
    value = GpuTime::micros(json.whole<std::int64_t>());
  } else if constexpr (std::is_same_v<T, Ending>) {
    value = json.choice(kEndings);
  } else if constexpr (std::is_same_v<T, Digest>) {
    const auto digest = parse_digest(json.text());
    if (json.must_be(digest.has_value(), "64 hexadecimal digits")) value = *digest;
  } else if constexpr (std::is_same_v<T, std::map<int, WorkRate>>) {
    read_rates(json, value);
  } else if constexpr (std::is_same_v<T, std::vector<int>>) {
    json.each([&](const JsonValue& one) { value.push_back(one.whole<int>()); });
  } else if constexpr (std::is_same_v<T, std::set<std::string>>) {
    json.each([&](const JsonValue& one) { value.insert(one.text()); });
  } else if constexpr (std::is_same_v<T, std::vector<GpuStep>>) {
    json.each([&](const JsonValue& pair) {
      if (!pair.is_row(2)) return;
      value.push_back({Time(Duration(pair.at(0).whole<std::int64_t>())), pair.at(1).whole<int>()});
    });
  } else if constexpr (std::is_same_v<T, Tuning>) {
    read_record_of(json, value);
    check(json, value);
  } else if constexpr (std::is_same_v<T, std::vector<StepMeasurement>>) {
    read_steps(json, value);
  } else if constexpr (std::is_same_v<T, JobFile>) {
    take(json, read_job(json.json(), "the job's file"), value);
  } else if constexpr (std::is_same_v<T, JobProgress>) {
    read_job_progress(json, value);
  } else if constexpr (std::is_same_v<T, Command>) {
    read_command(json, value);
  } else {
    read_record_of(json, value);
  }
}

template <class T>
Result<Json> write_any(const T& value) {
  Writer writer;
  Json json = writer.write(value);
  return writer.finish(std::move(json));
}

template <class T>
Result<void> read_any(const Json& json, T& value, std::string_view what) {
  JsonTrouble trouble;
  read(JsonValue(json, trouble), value);
  if (!trouble.ok()) return trouble.error(what);
  return {};
}

}  // namespace

std::string_view to_text(Ending how) { return name_in(kEndings, how); }

void Rates::learn(const Rates& newer) {
  for (const auto& [gpus, rate] : newer.by_gpus) by_gpus[gpus] = rate;
  if (newer.pause > 0) pause = newer.pause;
  if (!newer.tuning) return;
  std::vector<StepMeasurement> steps;
  if (tuning) steps = std::move(tuning->steps);
  const auto noise = newer.tuning->noise ? newer.tuning->noise
                     : tuning            ? tuning->noise
                                         : std::nullopt;
  for (const StepMeasurement& step : newer.tuning->steps) {
    std::erase_if(steps, [&](const StepMeasurement& known) {
      return known.place.nodes == step.place.nodes && known.place.gpus == step.place.gpus &&
             known.batch == step.batch;
    });
    steps.push_back(step);
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
Result<Json> write_record(const Command& command) { return write_any(command); }

Result<void> read_record(const Json& json, JobRecord& job) { return read_any(json, job, "job"); }
Result<void> read_record(const Json& json, UserRecord& user) {
  return read_any(json, user, "user");
}
Result<void> read_record(const Json& json, JobEnding& ending) {
  return read_any(json, ending, "ending");
}
Result<void> read_record(const Json& json, Rates& rates) { return read_any(json, rates, "rates"); }
Result<void> read_record(const Json& json, GpuLimits& limits) {
  return read_any(json, limits, "limits");
}
Result<void> read_record(const Json& json, Command& command) {
  return read_any(json, command, "command");
}

}  // namespace rubato::daemon
