#include "rubato/jobfile/job_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "rubato/base/text.h"
#include "rubato/jobfile/job_flags.h"
#include "rubato/jobfile/job_name.h"
#include "rubato/jobfile/times.h"

namespace rubato::jobfile {
namespace {

constexpr std::size_t kLongestPath = 4095;
constexpr int kMostGpus = 1 << 20U;
constexpr int kMostBatch = 1 << 30U;
constexpr int kMostFailures = 1'000'000;
constexpr double kMostWork = 1e15;
constexpr double kLeastWeight = 1e-6;
constexpr double kMostWeight = 1e6;

constexpr std::array<NameOf<WorkUnit>, 3> kWorkUnits = {
    {{WorkUnit::steps, "steps"}, {WorkUnit::epochs, "epochs"}, {WorkUnit::samples, "samples"}}};
constexpr std::array<NameOf<BatchMode>, 2> kBatchModes = {
    {{BatchMode::fixed, "fixed"}, {BatchMode::adaptive, "adaptive"}}};
constexpr std::array<NameOf<JobClass>, 2> kJobClasses = {
    {{JobClass::guaranteed, "guaranteed"}, {JobClass::opportunistic, "opportunistic"}}};
constexpr std::array<NameOf<RateRule>, 3> kRateRules = {{{RateRule::adascale, "adascale"},
                                                         {RateRule::square_root, "sqrt"},
                                                         {RateRule::linear, "linear"}}};

// --- values, as people write them in JSON or YAML ------------------------------------------------

bool has_zero(const std::string& text) { return text.find('\0') != std::string::npos; }

// The sentences do not repeat the value, because it may be a secret.
const std::string& word(const JsonValue& json) {
  static const std::string none;
  const auto* text = json.json().get_ptr<const std::string*>();
  if (text == nullptr) {
    json.refuse("must be text, in quotes");
  } else if (has_zero(*text)) {
    json.refuse("has a zero byte in it");
  }
  return json.ok() ? *text : none;
}

std::optional<std::int64_t> whole(const Json& json) {
  if (const auto* text = json.get_ptr<const std::string*>()) return parse_integer(*text);
  JsonTrouble trouble;
  const auto number = JsonValue(json, trouble).whole<std::int64_t>();
  return trouble.ok() ? std::optional(number) : std::nullopt;
}

std::optional<double> real(const Json& json) {
  if (const auto* text = json.get_ptr<const std::string*>()) return parse_double(*text);
  JsonTrouble trouble;
  const double number = JsonValue(json, trouble).number();
  return trouble.ok() ? std::optional(number) : std::nullopt;
}

void read_text(JsonFields& fields, std::string_view name, std::string& value) {
  if (const auto json = fields.find(name)) value = word(*json);
}

void read_integer(const JsonValue& json, int& value, int least, int most) {
  const auto given = whole(json.json());
  if (json.must_be(given && *given >= least && *given <= most,
                   fmt::format("a whole number from {} to {}", least, most)))
    value = static_cast<int>(*given);
}

void read_integer(JsonFields& fields, std::string_view name, int& value, int least, int most) {
  if (const auto json = fields.find(name)) read_integer(*json, value, least, most);
}

void read_number(JsonFields& fields, std::string_view name, double& value, double least,
                 double most) {
  const auto json = fields.find(name);
  if (!json) return;
  const auto given = real(json->json());
  if (json->must_be(
          given && *given > 0 && *given >= least && *given <= most,
          fmt::format("a number above {} and at most {}", shortest(least), shortest(most))))
    value = *given;
}

template <class E, std::size_t kSize>
void read_choice(JsonFields& fields, std::string_view name, E& value,
                 const std::array<NameOf<E>, kSize>& names) {
  if (const auto json = fields.find(name)) value = json->choice(names);
}

// Other words than true and false are refused, because some readers of YAML take them for truth
// and some for text.
void read_truth(JsonFields& fields, std::string_view name, bool& value) {
  const auto json = fields.find(name);
  if (!json) return;
  const auto* text = json->json().get_ptr<const std::string*>();
  const auto* truth = json->json().get_ptr<const bool*>();
  const bool yes = (truth != nullptr && *truth) || (text != nullptr && *text == "true");
  const bool no = (truth != nullptr && !*truth) || (text != nullptr && *text == "false");
  if (json->must_be(yes || no, "true or false")) value = yes;
}

bool has_fields(const JsonValue& json) {
  if (!json.json().is_object()) json.refuse("must have named fields");
  return json.ok();
}

// Between two steps only Rubato's library can slow a program down.
void read_class(JsonFields& fields, std::string_view name, JobFile& job) {
  read_choice(fields, name, job.job_class, kJobClasses);
  if (job.job_class == JobClass::opportunistic && !job.elastic)
    fields.refuse(
        "class opportunistic needs a program that uses Rubato's library, so that it can "
        "be slowed down: leave out elastic: false (--no-elastic), or class");
}

// --- kinds of fields, by the member of JobFile ---------------------------------------------------

template <auto kMember>
void read_name(JsonFields& fields, std::string_view name, JobFile& job) {
  std::string& value = job.*kMember;
  read_text(fields, name, value);
  if (!has_name_characters(value)) {
    return fields.refuse(
        fmt::format("{} {}: use at most {} bytes of visible characters, no blank, no /", name,
                    base::quoted(value), kLongestName));
  }
  if (is_number(value)) fields.refuse(fmt::format("{} {} is a number; add a letter", name, value));
}

template <auto kMember>
void read_span(JsonFields& fields, std::string_view name, JobFile& job) {
  const auto json = fields.find(name);
  if (!json) return;
  const auto* text = json->json().get_ptr<const std::string*>();
  const auto span = parse_span(text != nullptr            ? *text
                               : json->json().is_number() ? json->json().dump()
                                                          : "");
  if (json->must_be(span.has_value(), "a time such as 90s, 15m or 1h30m")) job.*kMember = *span;
}

template <auto kMember>
Json write_text(const JobFile& job) {
  const std::string& text = job.*kMember;
  if (text.empty()) return {};
  return text;
}

template <auto kMember>
Json write_span(const JobFile& job) {
  const Duration span = job.*kMember;
  return span > Duration() ? Json(to_text(span)) : Json();
}

template <auto kMember>
Json write_map(const JobFile& job) {
  return (job.*kMember).empty() ? Json() : Json(job.*kMember);
}

// --- command, directory --------------------------------------------------------------------------

void read_command(JsonFields& fields, std::string_view name, JobFile& job) {
  const auto command = fields.find(name);
  if (!command)
    return fields.refuse("command is missing: say what to run, as in [python, train.py]");
  if (!command->must_be(command->json().is_array() && command->size() > 0,
                        "a list, as in [python, train.py]; no shell reads it"))
    return;
  job.command.reserve(command->size());
  command->each([&](const JsonValue& element) { job.command.push_back(word(element)); });
  if (fields.ok() && job.command.front().empty())
    fields.refuse("command begins with an empty word");
}

bool is_path(const std::string& path) {
  return path.starts_with('/') && path.size() <= kLongestPath && !has_zero(path) &&
         path.find('\n') == std::string::npos;
}

void read_directory(JsonFields& fields, std::string_view name, JobFile& job) {
  read_text(fields, name, job.directory);
  if (!job.directory.empty() && !is_path(job.directory))
    fields.refuse("directory must be an absolute path");
}

// --- goal ----------------------------------------------------------------------------------------

void read_goal(JsonFields& fields, std::string_view name, JobFile& job) {
  const auto goal = fields.find(name);
  if (!goal || goal->json() == "asap") return;
  if (!goal->must_be(goal->json().is_object(), "asap or {deadline: TIME}")) return;
  JsonFields inner(*goal);
  std::string text;
  read_text(inner, "deadline", text);
  inner.finish();
  if (!fields.ok()) return;
  if (text.starts_with('+')) {
    job.deadline_after = parse_span(text.substr(1));
  } else {
    job.deadline = parse_wall_time(text);
  }
  if (job.deadline_after != Duration() && (job.deadline || job.deadline_after)) return;
  if (any_moment(text) || (text.starts_with('+') && any_seconds(text.substr(1)) > kLongestSpan)) {
    fields.refuse(fmt::format(
        "goal.deadline {} is out of range: it must be in the years {} to {}, or at most +{}d",
        base::quoted(text), kFirstYear, kLastYear - 1, std::floor(kLongestSpan / 86400)));
  } else {
    fields.refuse(fmt::format(
        "goal.deadline is {}; write +2h, or a time with its offset as 2026-11-20T17:00:00+01:00",
        base::quoted(text)));
  }
}

Json write_goal(const JobFile& job) {
  if (job.deadline) return {{"deadline", to_text(*job.deadline)}};
  if (job.deadline_after) return {{"deadline", "+" + to_text(*job.deadline_after)}};
  return {};
}

Result<void> put_goal(Json& job, const std::string& text) {
  job["goal"] = text == "none" ? Json("asap") : Json{{"deadline", text}};
  return {};
}

// --- work ----------------------------------------------------------------------------------------

std::optional<WorkAmount> read_amount(JsonFields& fields, std::string_view name) {
  const auto work = fields.find(name);
  if (!work || !has_fields(*work)) return std::nullopt;
  JsonFields inner(*work);
  std::optional<WorkAmount> read;
  int units = 0;
  for (const auto& [unit, unit_name] : kWorkUnits) {
    double amount = 0;
    read_number(inner, unit_name, amount, 0, kMostWork);
    if (!(amount > 0)) continue;
    read = WorkAmount{unit, amount};
    ++units;
  }
  inner.finish();
  if (units != 1) fields.refuse(fmt::format("{} needs one of steps, epochs or samples", name));
  return read;
}

void read_work(JsonFields& fields, std::string_view name, JobFile& job) {
  if (const auto amount = read_amount(fields, name)) job.work = amount;
}

Json write_amount(const WorkAmount& work) {
  return {{std::string(name_in(kWorkUnits, work.unit)), work.amount}};
}

Json write_work(const JobFile& job) { return job.work ? write_amount(*job.work) : Json(); }

Result<void> put_work(Json& job, const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) {
    return Error{
        fmt::format("--work is {}; write epochs=3, steps=1000 or samples=1e6", base::quoted(text))};
  }
  job["work"] = {{text.substr(0, equals), text.substr(equals + 1)}};
  return {};
}

// --- gpus ----------------------------------------------------------------------------------------

void read_allowed(JsonFields& inner, std::vector<int>& counts) {
  const auto allowed = inner.find("allowed");
  if (!allowed) return;
  const std::string list = fmt::format("a list of counts from 1 to {}", kMostGpus);
  if (!allowed->must_be(allowed->json().is_array() && allowed->size() > 0, list)) return;
  counts.reserve(allowed->size());
  for (const Json& count : allowed->json()) {
    const auto given = whole(count);
    if (!allowed->must_be(given && *given >= 1 && *given <= kMostGpus, list)) return;
    counts.push_back(static_cast<int>(*given));
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
}

void read_gpus(JsonFields& fields, std::string_view name, JobFile& job) {
  const auto gpus = fields.find(name);
  if (!gpus) return;
  if (!gpus->json().is_object()) {
    int count = 0;
    read_integer(*gpus, count, 1, kMostGpus);
    job.gpus = {count, count, {}};
    return;
  }
  JsonFields inner(*gpus);
  read_integer(inner, "min", job.gpus.min, 1, kMostGpus);
  read_integer(inner, "max", job.gpus.max, 1, kMostGpus);
  auto& allowed = job.gpus.allowed;
  read_allowed(inner, allowed);
  inner.finish();
  if (!fields.ok()) return;
  const int most = job.gpus.max > 0 ? job.gpus.max : kMostGpus;
  if (most < job.gpus.min) return fields.refuse("gpus.max is below gpus.min");
  if (allowed.empty()) return;
  std::erase_if(allowed, [&](int count) { return count < job.gpus.min || count > most; });
  if (allowed.empty()) fields.refuse("gpus.allowed names no count from gpus.min to gpus.max");
}

Json write_gpus(const JobFile& job) {
  Json json = {{"min", job.gpus.min}};
  if (job.gpus.max > 0) json["max"] = job.gpus.max;
  if (!job.gpus.allowed.empty()) json["allowed"] = job.gpus.allowed;
  return json;
}

Result<void> put_gpus(Json& job, const std::string& text) {
  auto gpus = parse_gpus(text);
  if (!gpus) return gpus.error();
  job["gpus"] = std::move(*gpus);
  return {};
}

// --- batch ---------------------------------------------------------------------------------------

void read_batch(JsonFields& fields, std::string_view name, JobFile& job) {
  const auto batch = fields.find(name);
  if (!batch || !has_fields(*batch)) return;
  JsonFields inner(*batch);
  read_choice(inner, "mode", job.batch.mode, kBatchModes);
  read_integer(inner, "min", job.batch.min, 1, kMostBatch);
  read_integer(inner, "max", job.batch.max, 1, kMostBatch);
  inner.finish();
  if (job.batch.max > 0 && job.batch.max < job.batch.min)
    fields.refuse("batch.max is below batch.min");
}

Json write_batch(const JobFile& job) {
  Json json = {{"mode", name_in(kBatchModes, job.batch.mode)}};
  if (job.batch.min > 0) json["min"] = job.batch.min;
  if (job.batch.max > 0) json["max"] = job.batch.max;
  return json;
}

Result<void> put_batch(Json& job, const std::string& text) {
  const auto parts = split(text, ':');
  if (parts.size() > 3) {
    return Error{fmt::format("--batch is {}; write fixed, adaptive or adaptive:MIN:MAX",
                             base::quoted(text))};
  }
  job["batch"] = {{"mode", std::string(parts[0])}};
  if (parts.size() > 1) job["batch"]["min"] = std::string(parts[1]);
  if (parts.size() > 2) job["batch"]["max"] = std::string(parts[2]);
  return {};
}

// --- env, secrets --------------------------------------------------------------------------------

// As every shell and C library understands it.
bool is_variable(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && name.size() <= kLongestName && letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

// Names of variables, with what `value` reads for each.
void read_variables(JsonFields& fields, std::string_view name,
                    std::map<std::string, std::string>& values,
                    const std::string& (*value)(const JsonValue&)) {
  const auto json = fields.find(name);
  if (!json || !has_fields(*json)) return;
  json->each_field([&](const std::string& key, const JsonValue& given) {
    if (!is_variable(key)) {
      return fields.refuse(fmt::format("{}: {} is no name of a variable; use letters, digits and _",
                                       name, base::quoted(key)));
    }
    if (key.starts_with("RUBATO_")) {
      return fields.refuse(
          fmt::format("{}.{}: names that begin with RUBATO_ are set by rubato itself", name, key));
    }
    values[key] = value(given);
  });
}

const std::string& secret_path(const JsonValue& json) {
  static const std::string none;
  const auto* text = json.json().get_ptr<const std::string*>();
  const bool fits = text != nullptr && is_path(*text);
  return json.must_be(fits,
                      "the absolute path of the file with the secret, never the secret itself")
             ? *text
             : none;
}

void read_env(JsonFields& fields, std::string_view name, JobFile& job) {
  read_variables(fields, name, job.env, word);
}

void read_secrets(JsonFields& fields, std::string_view name, JobFile& job) {
  read_variables(fields, name, job.secrets, secret_path);
  for (const auto& [variable, path] : job.secrets) {
    if (job.env.contains(variable))
      fields.refuse(fmt::format("{} is both in env and in secrets", variable));
  }
}

Result<void> put_variable(Json& job, const char* field, const char* flag, const std::string& text) {
  const auto equals = text.find('=');
  // The sentence does not repeat the text, which may be a secret that is here by mistake.
  if (equals == std::string::npos || equals == 0)
    return Error{fmt::format("{} needs NAME=VALUE", flag)};
  Json& variables = job[field];
  if (!variables.is_object() && !variables.is_null()) return {};  // read_job() says so
  variables[text.substr(0, equals)] = text.substr(equals + 1);
  return {};
}

// --- search --------------------------------------------------------------------------------------

constexpr std::array<NameOf<bool>, 2> kBestMetrics = {{{false, "lowest"}, {true, "highest"}}};
constexpr std::string_view kSearchFlag =
    "--search needs NAME:trials=N:UNIT=AMOUNT, as in lr:trials=8:epochs=1; more settings are "
    "keep-one-in=N, metric=NAME, best=highest and wait=false";

void check_name(JsonFields& fields, std::string_view name, const std::string& value) {
  if (value.empty() || !has_name_characters(value) || is_number(value))
    fields.refuse(
        fmt::format("{} must be a name: visible characters with a letter, no blank, no /", name));
}

void read_search(JsonFields& fields, std::string_view name, JobFile& job) {
  const auto json = fields.find(name);
  if (!json || !has_fields(*json)) return;
  SearchWish search;
  JsonFields inner(*json);
  read_text(inner, "name", search.name);
  search.rule.trials = 0;
  read_integer(inner, "trials", search.rule.trials, 2, kMostTrials);
  if (const auto stage = read_amount(inner, "stage")) search.stage = *stage;
  read_integer(inner, "keep_one_in", search.rule.keep_one_in, 2, kMostTrials);
  read_text(inner, "metric", search.metric);
  read_choice(inner, "best", search.rule.highest, kBestMetrics);
  read_truth(inner, "wait", search.wait);
  inner.finish();
  if (!fields.ok()) return;
  check_name(fields, "search.name", search.name);
  check_name(fields, "search.metric", search.metric);
  if (search.rule.trials == 0)
    return fields.refuse("search.trials is missing: say how many trials the search has");
  if (!(search.stage.amount > 0))
    return fields.refuse(
        "search.stage is missing: say how long the first stage is, as {epochs: 1}");
  job.search = std::move(search);
}

Json write_search(const JobFile& job) {
  if (!job.search) return {};
  const SearchWish& search = *job.search;
  return {{"name", search.name},
          {"trials", search.rule.trials},
          {"stage", write_amount(search.stage)},
          {"keep_one_in", search.rule.keep_one_in},
          {"metric", search.metric},
          {"best", name_in(kBestMetrics, search.rule.highest)},
          {"wait", search.wait}};
}

Result<void> put_search(Json& job, const std::string& text) {
  const auto parts = split(text, ':');
  Json search = {{"name", std::string(parts[0])}};
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto equals = parts[i].find('=');
    if (equals == std::string_view::npos) return Error{std::string(kSearchFlag)};
    std::string key(parts[i].substr(0, equals));
    std::replace(key.begin(), key.end(), '-', '_');
    const std::string value(parts[i].substr(equals + 1));
    const bool is_unit = std::any_of(kWorkUnits.begin(), kWorkUnits.end(),
                                     [&](const auto& unit) { return unit.second == key; });
    Json& place = is_unit ? search["stage"][key] : search[key];
    if (!place.is_null()) return Error{std::string(kSearchFlag)};
    place = value;
  }
  job["search"] = std::move(search);
  return {};
}

// --- notice --------------------------------------------------------------------------------------

void read_notice(JsonFields& fields, std::string_view name, JobFile& job) {
  const bool given = look_for(fields.object().json(), name) != nullptr;
  read_span<&JobFile::notice>(fields, name, job);
  if (given && job.notice == Duration())
    fields.refuse("notice must be above 0s: a worker needs a moment to end by itself");
}

}  // namespace

std::string_view to_text(RateRule rule) { return name_in(kRateRules, rule); }

std::string to_text(const WorkAmount& amount) {
  return fmt::format("{} {}", shortest(amount.amount), name_in(kWorkUnits, amount.unit));
}

std::span<const JobField> job_fields() {
  using Kind = JobFlag::Kind;
  static const std::array kFields = {
      JobField{
          .name = "command",
          .docs = "| `command` | list of texts | required | program and arguments; no shell reads "
                  "it, nothing is expanded |\n",
          .schema = "{type: array, items: {type: string}}",
          .example = R"(["python", "train.py"])",
          // Not an option: the words after "--".
          .flag = {.kind = Kind::none, .docs = "`-- PROGRAM ARGUMENT ...`"},
          .read = read_command,
          .write = [](const JobFile& job) { return Json(job.command); },
      },
      JobField{
          .name = "name",
          .docs = "| `name` | text | the program's name | name for `rubato status` and the other "
                  "commands |\n",
          .schema = "{type: string}",
          .example = R"("resnet")",
          .flag = {.kind = Kind::one,
                   .name = "--name",
                   .value = "NAME",
                   .help = "name for rubato status and other commands (default: that of the "
                           "program)"},
          .read = read_name<&JobFile::name>,
          .write = write_text<&JobFile::name>,
      },
      JobField{
          .name = "profile",
          .docs = "| `profile` | text | none | jobs of one profile share their [measured "
                  "speeds](#deadlines-and-unknown-speeds) |\n",
          .schema = "{type: string}",
          .example = R"("resnet-cifar")",
          .flag = {.kind = Kind::one,
                   .name = "--profile",
                   .value = "NAME",
                   .help = "jobs with the same profile share measured speeds"},
          .read = read_name<&JobFile::profile>,
          .write = write_text<&JobFile::profile>,
          .shown = true,
      },
      JobField{
          .name = "directory",
          .docs = "| `directory` | absolute path | see [below](#where-a-job-runs) | working "
                  "directory of the job |\n",
          .schema = "{type: string}",
          .example = R"("/data/resnet")",
          .flag = {.kind = Kind::one,
                   .name = "--directory",
                   .value = "DIR",
                   .help = "working directory of the job (default: this one)"},
          .read = read_directory,
          .write = write_text<&JobFile::directory>,
      },
      JobField{
          .name = "goal",
          .docs =
              "| `goal` | `asap` or `{deadline: TIME}` | `asap` | when the job must be done |\n",
          .schema = "{}",
          .example = R"({"deadline": "+7200s"})",
          .flag = {.kind = Kind::one,
                   .name = "--deadline",
                   .value = "TIME",
                   .help = "when the job must be done: +2h (from now), 2026-11-20T17:00:00+01:00, "
                           "or none",
                   .docs = "`--deadline TIME`; `--deadline none` removes the deadline of the file",
                   .put = put_goal},
          .read = read_goal,
          .write = write_goal,
      },
      JobField{
          .name = "work",
          .docs = "| `work` | `{epochs: N}`, `{steps: N}` or `{samples: N}` | unknown | how much "
                  "work the job has; exactly one unit, N up to 1e15 |\n",
          .schema = "{type: object}",
          .example = R"({"epochs": 3.0})",
          .flag = {.kind = Kind::one,
                   .name = "--work",
                   .value = "UNIT=AMOUNT",
                   .help = "how much there is to do: epochs=3, steps=1000 or samples=1e6",
                   .docs = "`--work epochs=3`, `--work steps=1000`, `--work samples=1e6`",
                   .put = put_work},
          .read = read_work,
          .write = write_work,
      },
      JobField{
          .name = "gpus",
          .docs =
              "| `gpus` | number, or the three fields below | `{min: 1}` | how many GPUs the job "
              "may have; a number N means exactly N |\n"
              "| `gpus.min` | 1 to 1048576 | 1 | fewest GPUs |\n"
              "| `gpus.max` | 1 to 1048576 | all GPUs of the cluster | most GPUs |\n"
              "| `gpus.allowed` | list of numbers | every number from min to max | the only GPU "
              "counts that are allowed; counts below min or above max are dropped |\n",
          .schema = "{type: object}",
          .example = R"({"min": 1, "max": 8, "allowed": [1, 2, 4, 8]})",
          .flag = {.kind = Kind::one,
                   .name = "--gpus",
                   .value = "COUNT",
                   .help = "4: exactly 4; 1:8: from 1 to 8; 1,2,4,8: one of these (default: 1:)",
                   .docs = "`--gpus 4` (exactly), `1:8` (from, to), `2:` (at least), `1,2,4,8` "
                           "(one of these)",
                   .put = put_gpus},
          .read = read_gpus,
          .write = write_gpus,
      },
      JobField{
          .name = "elastic",
          .docs = "| `elastic` | `true` or `false` | `true` | `false`: the program [knows nothing "
                  "of Rubato](#programs-that-know-nothing-of-rubato) |\n",
          .schema = "{type: boolean, description: false means that the program knows nothing of "
                    "Rubato and is restarted by a resize.}",
          .example = "false",
          .flag = {.kind = Kind::off,
                   .name = "--no-elastic",
                   .help = "the program does not use Rubato's library: a resize restarts it, with "
                           "one process for each GPU",
                   .docs = "`--no-elastic`"},
          .read = [](JsonFields& fields, std::string_view name,
                     JobFile& job) { read_truth(fields, name, job.elastic); },
          .write = [](const JobFile& job) { return job.elastic ? Json() : Json(false); },
      },
      JobField{
          .name = "batch",
          .docs = "| `batch.mode` | `fixed` or `adaptive` | `fixed` | whether the batch size may "
                  "change during training |\n"
                  "| `batch.min` | 1 to 2^30 | what the program says | smallest batch size: the "
                  "one that the learning rate was tuned for |\n"
                  "| `batch.max` | 1 to 2^30 | what the program says | largest batch size |\n",
          .schema = "{type: object}",
          .example = R"({"mode": "adaptive", "min": 64, "max": 4096})",
          .flag = {.kind = Kind::one,
                   .name = "--batch",
                   .value = "MODE[:MIN[:MAX]]",
                   .help = "fixed, or adaptive with its limits: adaptive:64:4096",
                   .docs = "`--batch adaptive:64:4096`; both limits are optional",
                   .put = put_batch},
          .read = read_batch,
          .write = write_batch,
          .tell =
              [](const JobFile& job, JobSpec& spec) {
                spec.batch = job.batch.min;
                spec.adaptive_batch = job.batch.mode == BatchMode::adaptive;
              },
      },
      JobField{
          .name = "learning_rate",
          .docs = "| `learning_rate` | `adascale`, `sqrt` or `linear` | `adascale` | how the "
                  "learning rate follows an adaptive batch size |\n",
          .schema = "{type: string}",
          .example = R"("sqrt")",
          .flag = {.kind = Kind::one,
                   .name = "--learning-rate",
                   .value = "RULE",
                   .help = "how the learning rate follows the batch size: adascale, sqrt or "
                           "linear"},
          .read = [](JsonFields& fields, std::string_view name,
                     JobFile& job) { read_choice(fields, name, job.learning_rate, kRateRules); },
          .write = [](const JobFile& job) { return Json(name_in(kRateRules, job.learning_rate)); },
      },
      JobField{
          .name = "search",
          .docs = "| `search` | the fields below | none | the job is a trial of a [search]"
                  "(#searches-for-hyper-parameters), and may be stopped early |\n"
                  "| `search.name` | text | required | trials of one user with the same name "
                  "belong together |\n"
                  "| `search.trials` | 2 to 1000 | required | how many trials the search has |\n"
                  "| `search.stage` | as `work` | required | length of the first stage |\n"
                  "| `search.keep_one_in` | 2 to 1000 | 2 | one in so many trials goes on after "
                  "each stage |\n"
                  "| `search.metric` | text | `loss` | what the trials are compared by, as the "
                  "program reports it |\n"
                  "| `search.best` | `lowest` or `highest` | `lowest` | which metric is the best "
                  "|\n"
                  "| `search.wait` | `true` or `false` | `true` | whether a trial waits at the end "
                  "of a stage until it is certain whether it goes on |\n",
          .schema = "{type: object}",
          .example = R"({"name": "lr", "trials": 8, "stage": {"epochs": 1.0}, "keep_one_in": 2, )"
                     R"("metric": "accuracy", "best": "highest", "wait": false})",
          .flag = {.kind = Kind::one,
                   .name = "--search",
                   .value = "NAME:trials=N:UNIT=AMOUNT",
                   .help =
                       "the job is one of N trials of a search; after each stage, the worst "
                       "are stopped. The first stage is epochs=1, steps=100 or samples=1e6 long",
                   .docs = "`--search lr:trials=8:epochs=1`; more settings are `keep-one-in=4`, "
                           "`metric=accuracy`, `best=highest`, `wait=false`",
                   .put = put_search},
          .read = read_search,
          .write = write_search,
          .shown = true,
      },
      JobField{
          .name = "env",
          .docs = "| `env` | `{NAME: text}` | none | environment variables |\n",
          .schema = "{type: object}",
          .example = R"({"LEVEL": "3"})",
          .flag = {.kind = Kind::many,
                   .name = "--env",
                   .value = "NAME[=VALUE]",
                   .help = "an environment variable of the job; NAME alone copies your value",
                   .docs = "`--env NAME=VALUE`; `--env NAME` copies your own variable; may be "
                           "repeated",
                   .put =
                       [](Json& job, const std::string& text) {
                         return put_variable(job, "env", "--env", text);
                       }},
          .read = read_env,
          .write = write_map<&JobFile::env>,
      },
      JobField{
          .name = "secrets",
          .docs = "| `secrets` | `{NAME: absolute path}` | none | files with [secrets](#secrets) "
                  "|\n",
          .schema = "{type: object}",
          .example = R"({"HUB_TOKEN": "/data/hub.token"})",
          .flag = {.kind = Kind::many,
                   .name = "--secret",
                   .value = "NAME=FILE",
                   .help = "a file with a secret; the job gets a private copy, and $NAME is its "
                           "path",
                   .docs = "`--secret NAME=FILE`; may be repeated",
                   .put =
                       [](Json& job, const std::string& text) {
                         return put_variable(job, "secrets", "--secret", text);
                       }},
          .read = read_secrets,
          .write = write_map<&JobFile::secrets>,
      },
      JobField{
          .name = "weight",
          .docs = "| `weight` | 1e-6 to 1e6 | 1 | weight in fair shares; at most the limit of the "
                  "user |\n",
          .schema = "{type: number}",
          .example = "2.5",
          .flag = {.kind = Kind::one,
                   .name = "--weight",
                   .value = "NUMBER",
                   .help = "weight in fair sharing, up to your own limit"},
          .read =
              [](JsonFields& fields, std::string_view name, JobFile& job) {
                read_number(fields, name, job.weight, kLeastWeight, kMostWeight);
              },
          .write = [](const JobFile& job) { return Json(job.weight); },
          .tell = [](const JobFile& job, JobSpec& spec) { spec.weight = job.weight; },
      },
      JobField{
          .name = "class",
          .docs = "| `class` | `guaranteed` or `opportunistic` | `guaranteed` | an opportunistic "
                  "job takes what others leave, and yields to them first ([guests]"
                  "(fairness.md#antman-xiao-et-al-osdi20)) |\n",
          .schema = "{type: string, enum: [guaranteed, opportunistic]}",
          .example = R"("opportunistic")",
          .flag = {.kind = Kind::one,
                   .name = "--class",
                   .value = "CLASS",
                   .help = "guaranteed, or opportunistic: under the policy antman the job takes "
                           "what others leave"},
          .read = read_class,
          .write =
              [](const JobFile& job) {
                return job.job_class == JobClass::guaranteed ? Json() : Json("opportunistic");
              },
          .tell =
              [](const JobFile& job, JobSpec& spec) {
                spec.opportunistic = job.job_class == JobClass::opportunistic;
              },
          .shown = true,
      },
      JobField{
          .name = "max_failures",
          .docs = "| `max_failures` | 0 to 1000000 | 3 | how many failures are tolerated; after "
                  "one more the job is `FAILED` ([restarts](#restarts)) |\n",
          .schema = "{type: integer}",
          .example = "5",
          .flag = {.kind = Kind::one,
                   .name = "--max-failures",
                   .value = "NUMBER",
                   .help = "how many workers may fail and be replaced; resizes do not count"},
          .read =
              [](JsonFields& fields, std::string_view name, JobFile& job) {
                read_integer(fields, name, job.max_failures, 0, kMostFailures);
              },
          .write = [](const JobFile& job) { return Json(job.max_failures); },
      },
      JobField{
          .name = "notice",
          .docs = "| `notice` | span above 0 | 10s | grace time between the request to stop and "
                  "SIGKILL |\n",
          .schema = "{type: string}",
          .example = R"("30s")",
          .flag = {.kind = Kind::one,
                   .name = "--notice",
                   .value = "SPAN",
                   .help = "time that a worker has to end by itself before it is killed"},
          .read = read_notice,
          .write = write_span<&JobFile::notice>,
          .tell = [](const JobFile& job, JobSpec& spec) { spec.notice = job.notice; },
      },
      JobField{
          .name = "cooldown",
          .docs = "| `cooldown` | span | 0s | after a resize, the job does not grow for this time "
                  "|\n",
          .schema = "{type: string, description: \"After a resize, the job does not grow for this "
                    "time. Shrinking for other jobs, and growth for a deadline, do not wait.\"}",
          .example = R"("120s")",
          .flag = {.kind = Kind::one,
                   .name = "--cooldown",
                   .value = "SPAN",
                   .help = "time after a resize in which the job is not grown"},
          .read = read_span<&JobFile::cooldown>,
          .write = write_span<&JobFile::cooldown>,
          .tell = [](const JobFile& job, JobSpec& spec) { spec.cooldown = job.cooldown; },
      },
      JobField{
          .name = "stop_after",
          .docs = "| `stop_after` | span | never | the job stops itself if it has no contact with "
                  "the daemon for this time |\n",
          .schema = "{type: string}",
          .example = R"("600s")",
          .flag = {.kind = Kind::one,
                   .name = "--stop-after",
                   .value = "SPAN",
                   .help = "the job stops itself if it hears nothing from the daemon for this "
                           "time"},
          .read = read_span<&JobFile::stop_after>,
          .write =
              [](const JobFile& job) {
                return job.stop_after ? Json(to_text(*job.stop_after)) : Json();
              },
      },
  };
  return kFields;
}

}  // namespace rubato::jobfile
