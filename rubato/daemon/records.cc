#include "rubato/daemon/records.h"

#include <array>
#include <fmt/format.h>
#include <limits>
#include <type_traits>
#include <utility>

#include "rubato/base/text.h"
#include "rubato/journal/codec.h"
#include "rubato/model/fit.h"

namespace rubato::daemon {
namespace {

template <class T, class Plain>
concept Is = std::is_same_v<std::remove_const_t<T>, Plain>;

constexpr std::array<std::pair<Ending, std::string_view>, 4> kEndings = {{
    {Ending::completed, "completed"},
    {Ending::failed, "failed"},
    {Ending::cancelled, "cancelled"},
    {Ending::refused, "refused"},
}};

// Each record once for both directions, with a binding of all its members: one that is forgotten
// does not compile.
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
                  std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<int>>) {
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
    } else if constexpr (std::is_same_v<T, std::set<std::string>>) {
      Json list = Json::array();
      for (const auto& one : value) list.push_back(one);
      return list;
    } else if constexpr (std::is_same_v<T, std::vector<PlanStep>>) {
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
    const auto coded = encode(value);
    if (!coded) {
      wrong_ = coded.error().message;
      return nullptr;
    }
    return {{"type", coded->type},
            {"version", coded->version},
            {"command", parse_json(coded->body, "a command").value()}};
  }

  std::string wrong_;
};

class Reader {
 public:
  template <class T>
  void record(const Json& json, T& value) {
    if (!json.is_object()) return refuse("must be an object");
    std::size_t known = 0;
    const auto field = [&](const char* name, auto& member) {
      using Member = std::remove_cvref_t<decltype(member)>;
      const auto found = json.find(name);
      if (found == json.end()) {
        if constexpr (!IsOptional<Member>::value) refuse(fmt::format("has no \"{}\"", name));
        return;
      }
      ++known;
      at_ = name;
      if constexpr (IsOptional<Member>::value) {
        read(*found, member.emplace());
      } else {
        read(*found, member);
      }
    };
    describe(field, value);
    if (known != json.size()) refuse("has a field that is not known");
  }

  template <class T>
  void read(const Json& json, T& value) {
    if (!wrong_.empty()) return;
    if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) return refuse("must be true or false");
      value = json.get<bool>();
    } else if constexpr (std::is_integral_v<T>) {
      const bool fits =
          (json.is_number_unsigned() &&
           json.get<std::uint64_t>() <=
               static_cast<std::uint64_t>(std::numeric_limits<T>::max())) ||
          (json.is_number_integer() && !json.is_number_unsigned() &&
           json.get<std::int64_t>() >= static_cast<std::int64_t>(std::numeric_limits<T>::min()));
      if (!fits) return refuse("must be a whole number in its range");
      value = json.get<T>();
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!json.is_number()) return refuse("must be a number");
      value = json.get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) return refuse("must be text");
      value = json.get<std::string>();
    } else if constexpr (IsId<T>::value) {
      typename T::rep number = 0;
      read(json, number);
      value = T(number);
    } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, WallTime>) {
      std::int64_t micros = 0;
      read(json, micros);
      value = T(Duration(micros));
    } else if constexpr (std::is_same_v<T, GpuTime>) {
      std::int64_t micros = 0;
      read(json, micros);
      value = GpuTime::micros(micros);
    } else if constexpr (std::is_same_v<T, Ending>) {
      read_ending(json, value);
    } else if constexpr (std::is_same_v<T, Digest>) {
      std::string digits;
      read(json, digits);
      const auto digest = parse_digest(digits);
      if (!digest) return refuse("must be 64 hexadecimal digits");
      value = *digest;
    } else if constexpr (std::is_same_v<T, std::map<int, WorkRate>>) {
      pairs(json, [&](const Json& gpus, const Json& rate) {
        int count = 0;
        WorkRate speed = 0;
        read(gpus, count);
        read(rate, speed);
        if (count < 1 || !(speed > 0)) return refuse("must have counts and speeds above 0");
        value[count] = speed;
      });
    } else if constexpr (std::is_same_v<T, std::vector<int>>) {
      if (!json.is_array()) return refuse("must be a list");
      for (const Json& one : json) read(one, value.emplace_back());
    } else if constexpr (std::is_same_v<T, std::set<std::string>>) {
      if (!json.is_array()) return refuse("must be a list");
      for (const Json& one : json) {
        std::string text;
        read(one, text);
        value.insert(std::move(text));
      }
    } else if constexpr (std::is_same_v<T, std::vector<PlanStep>>) {
      pairs(json, [&](const Json& from, const Json& gpus) {
        PlanStep step;
        read(from, step.from);
        read(gpus, step.gpus);
        value.push_back(step);
      });
    } else if constexpr (std::is_same_v<T, Tuning>) {
      record(json, value);
      if (value.initial < 1 || value.largest < value.initial || value.largest_per_gpu < 1)
        refuse("must have limits from 1 on, in order");
      if (value.noise && !(*value.noise >= 0)) refuse("must have a noise of 0 or more");
    } else if constexpr (std::is_same_v<T, std::vector<StepMeasurement>>) {
      read_steps(json, value);
    } else if constexpr (std::is_same_v<T, JobFile>) {
      take(read_job(json, "the job's file"), value);
    } else if constexpr (std::is_same_v<T, JobProgress>) {
      take(parse_job_progress(json), value);
    } else if constexpr (std::is_same_v<T, Command>) {
      read_command(json, value);
    } else {
      record(json, value);
    }
  }

  [[nodiscard]] Result<void> finish() const {
    if (!wrong_.empty()) return Error{wrong_};
    return {};
  }

 private:
  void refuse(std::string_view what) {
    if (wrong_.empty()) wrong_ = fmt::format("{}: {}", at_.empty() ? "a record" : at_, what);
  }
  template <class T>
  void take(Result<T> read, T& value) {
    if (!read) return refuse(read.error().message);
    value = std::move(*read);
  }
  template <class Each>
  void pairs(const Json& json, const Each& each) {
    if (!json.is_array()) return refuse("must be a list");
    for (const Json& one : json) {
      if (!one.is_array() || one.size() != 2) return refuse("must be a list of pairs");
      each(one[0], one[1]);
    }
  }
  void read_steps(const Json& json, std::vector<StepMeasurement>& value) {
    if (!json.is_array() || json.size() > kStepsKept) return refuse("must be a short list");
    for (const Json& one : json) {
      if (!one.is_array() || one.size() != 6) return refuse("must be a list of lists of six");
      StepMeasurement step;
      read(one[0], step.place.nodes);
      read(one[1], step.place.gpus);
      read(one[2], step.batch.per_gpu);
      read(one[3], step.batch.accumulation);
      read(one[4], step.step_seconds);
      read(one[5], step.grad_seconds);
      if (!wrong_.empty()) return;
      if (auto ok = check_measurement(step); !ok) return refuse(ok.error().message);
      value.push_back(step);
    }
  }
  void read_ending(const Json& json, Ending& value) {
    std::string name;
    read(json, name);
    for (const auto& [known, its_name] : kEndings) {
      if (name == its_name) {
        value = known;
        return;
      }
    }
    refuse(fmt::format("{} is no way to end", base::quoted(name)));
  }
  void read_command(const Json& json, Command& value) {
    if (!json.is_object() || json.size() != 3 || !json.contains("type") ||
        !json.contains("version") || !json.contains("command")) {
      return refuse("must be an object of type, version and command");
    }
    Coded coded;
    read(json["type"], coded.type);
    read(json["version"], coded.version);
    if (!wrong_.empty()) return;
    auto body = canonical_json(json["command"]);
    if (!body) return refuse(body.error().message);
    coded.body = std::move(*body);
    take(decode_command(coded), value);
  }

  std::string at_;
  std::string wrong_;
};

template <class T>
Result<Json> write_any(const T& value) {
  Writer writer;
  Json json = writer.write(value);
  return writer.finish(std::move(json));
}

template <class T>
Result<void> read_any(const Json& json, T& value) {
  Reader reader;
  reader.read(json, value);
  return reader.finish();
}

}  // namespace

std::string_view to_text(Ending how) {
  for (const auto& [known, name] : kEndings) {
    if (known == how) return name;
  }
  return "";
}

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

Result<void> read_record(const Json& json, JobRecord& job) { return read_any(json, job); }
Result<void> read_record(const Json& json, UserRecord& user) { return read_any(json, user); }
Result<void> read_record(const Json& json, JobEnding& ending) { return read_any(json, ending); }
Result<void> read_record(const Json& json, Rates& rates) { return read_any(json, rates); }
Result<void> read_record(const Json& json, GpuLimits& limits) { return read_any(json, limits); }
Result<void> read_record(const Json& json, Command& command) { return read_any(json, command); }

}  // namespace rubato::daemon
