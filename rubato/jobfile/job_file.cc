#include "rubato/jobfile/job_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"
#include "rubato/base/unicode.h"
#include "rubato/jobfile/yaml.h"

namespace rubato::jobfile {
namespace {

constexpr int kMostDepth = 16;
constexpr std::size_t kLongestName = 100;
constexpr std::size_t kLongestPath = 4095;
constexpr int kMostGpus = 1 << 20U;
constexpr int kMostBatch = 1 << 30U;
constexpr int kMostFailures = 1'000'000;
constexpr double kMostWork = 1e15;
constexpr double kLeastWeight = 1e-6;
constexpr double kMostWeight = 1e6;
constexpr double kLongestSpan = 3.15576e8;  // seconds; ten years, exact in a double to the last
constexpr int kFirstYear = 1970;
constexpr int kLastYear = 9000;

std::optional<double> any_seconds(std::string_view text);
std::optional<WallTime> any_moment(std::string_view given);

constexpr std::array<NameOf<WorkUnit>, 3> kWorkUnits = {
    {{WorkUnit::steps, "steps"}, {WorkUnit::epochs, "epochs"}, {WorkUnit::samples, "samples"}}};
constexpr std::array<NameOf<BatchMode>, 2> kBatchModes = {
    {{BatchMode::fixed, "fixed"}, {BatchMode::adaptive, "adaptive"}}};
constexpr std::array<NameOf<RateRule>, 3> kRateRules = {{{RateRule::adascale, "adascale"},
                                                         {RateRule::square_root, "sqrt"},
                                                         {RateRule::linear, "linear"}}};

bool has_zero(const std::string& text) { return text.find('\0') != std::string::npos; }

// As every shell and C library understands it.
bool is_variable(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && name.size() <= kLongestName && letter(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

bool is_path(const std::string& path) {
  return path.starts_with('/') && path.size() <= kLongestPath && !has_zero(path) &&
         path.find('\n') == std::string::npos;
}

// --- values, as people write them in JSON or YAML ------------------------------------------------

// What is wrong with it is said without the value: it may be a secret.
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

// Words stand for numbers in YAML.
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

// Words stand for truth in YAML; those that some YAML reads as truth and some as text are refused.
void read_flag(JsonFields& fields, std::string_view name, bool& value) {
  const auto json = fields.find(name);
  if (!json) return;
  const auto* text = json->json().get_ptr<const std::string*>();
  const auto* truth = json->json().get_ptr<const bool*>();
  const bool yes = (truth != nullptr && *truth) || (text != nullptr && *text == "true");
  const bool no = (truth != nullptr && !*truth) || (text != nullptr && *text == "false");
  if (json->must_be(yes || no, "true or false")) value = yes;
}

void read_span(JsonFields& fields, std::string_view name, std::optional<Duration>& value) {
  const auto json = fields.find(name);
  if (!json) return;
  const auto* text = json->json().get_ptr<const std::string*>();
  value = parse_span(text != nullptr ? *text : json->json().is_number() ? json->json().dump() : "");
  json->must_be(value.has_value(), "a time such as 90s, 15m or 1h30m");
}

bool has_fields(const JsonValue& json) {
  const std::string path = json.path();
  if (!json.json().is_object())
    json.refuse(path.empty() ? "a job has named fields, such as command"
                             : "must have named fields");
  return json.ok();
}

// Names of variables with what `value` reads of each.
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

// The words for what the reader found.
std::string sentence(const JsonProblem& problem) {
  const auto& [kind, path, why, field, known] = problem;
  if (kind != JsonProblem::Kind::unknown)
    return path.empty() ? why : fmt::format("{} {}", path, why);
  constexpr std::size_t kWorthGuessing = 40;
  const auto meant = field.size() <= kWorthGuessing ? closest(field, known) : std::nullopt;
  const std::vector<std::string_view> fields(known.begin(), known.end());
  return fmt::format("{} has no field {}{}; it can have {}", path.empty() ? "a job" : path,
                     base::quoted(field), meant ? fmt::format(" (did you mean {}?)", *meant) : "",
                     alternatives(fields));
}

// --- fields --------------------------------------------------------------------------------------

void read_command(JsonFields& fields, JobFile& job) {
  const auto command = fields.find("command");
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

bool fits_a_name(char32_t c) { return visible(c) && c != ' ' && c != '/' && c != 0xA0; }

// Where a job is asked for, a number is an id.
bool is_number(std::string_view name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void read_name(JsonFields& fields, std::string_view field, std::string& name) {
  read_text(fields, field, name);
  bool seen = is_utf8(name);
  for (std::string_view rest = name; seen && !rest.empty();) {
    const CodePoint c = *first_code_point(rest);
    seen = fits_a_name(c.value);
    rest.remove_prefix(c.bytes);
  }
  if (!seen || name.size() > kLongestName || name == "." || name == "..") {
    return fields.refuse(fmt::format("{} {}: use at most {} bytes that can be seen, no blank, no /",
                                     field, base::quoted(name), kLongestName));
  }
  if (is_number(name)) fields.refuse(fmt::format("{} {} is a number; add a letter", field, name));
}

void read_directory(JsonFields& fields, JobFile& job) {
  read_text(fields, "directory", job.directory);
  if (!job.directory.empty() && !is_path(job.directory)) {
    fields.refuse("directory must be an absolute path");
  }
}

void read_goal(JsonFields& fields, JobFile& job) {
  const auto goal = fields.find("goal");
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

void read_work(JsonFields& fields, JobFile& job) {
  const auto work = fields.find("work");
  if (!work || !has_fields(*work)) return;
  JsonFields inner(*work);
  int units = 0;
  for (const auto& [unit, name] : kWorkUnits) {
    double amount = 0;
    read_number(inner, name, amount, 0, kMostWork);
    if (!(amount > 0)) continue;
    job.work = WorkAmount{unit, amount};
    ++units;
  }
  inner.finish();
  if (units != 1) fields.refuse("work needs one of steps, epochs or samples");
}

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

void read_gpus(JsonFields& fields, JobFile& job) {
  const auto gpus = fields.find("gpus");
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

void read_batch(JsonFields& fields, JobFile& job) {
  const auto batch = fields.find("batch");
  if (!batch || !has_fields(*batch)) return;
  JsonFields inner(*batch);
  read_choice(inner, "mode", job.batch.mode, kBatchModes);
  read_integer(inner, "min", job.batch.min, 1, kMostBatch);
  read_integer(inner, "max", job.batch.max, 1, kMostBatch);
  inner.finish();
  if (job.batch.max > 0 && job.batch.max < job.batch.min) {
    fields.refuse("batch.max is below batch.min");
  }
}

void read_variables(JsonFields& fields, JobFile& job) {
  read_variables(fields, "env", job.env, word);
  read_variables(fields, "secrets", job.secrets, secret_path);
  for (const auto& [name, path] : job.secrets) {
    if (job.env.contains(name))
      fields.refuse(fmt::format("{} is both in env and in secrets", name));
  }
}

void read_spans(JsonFields& fields, JobFile& job) {
  std::optional<Duration> notice;
  std::optional<Duration> cooldown;
  read_span(fields, "notice", notice);
  read_span(fields, "cooldown", cooldown);
  read_span(fields, "stop_after", job.stop_after);
  if (notice == Duration())
    fields.refuse("notice must be above 0s: a worker needs a moment to end in peace");
  job.notice = notice.value_or(Duration());
  job.cooldown = cooldown.value_or(Duration());
}

void read_all(const JsonValue& json, JobFile& job) {
  JsonFields fields(json);
  if (look_for(json.json(), "user") != nullptr)
    fields.refuse("user cannot be given: who submits a job is known from the connection");
  read_command(fields, job);
  read_name(fields, "name", job.name);
  read_name(fields, "profile", job.profile);
  read_directory(fields, job);
  read_goal(fields, job);
  read_work(fields, job);
  read_gpus(fields, job);
  read_flag(fields, "elastic", job.elastic);
  read_batch(fields, job);
  read_choice(fields, "learning_rate", job.learning_rate, kRateRules);
  read_variables(fields, job);
  read_number(fields, "weight", job.weight, kLeastWeight, kMostWeight);
  read_integer(fields, "max_failures", job.max_failures, 0, kMostFailures);
  read_spans(fields, job);
}

}  // namespace

std::string name_after(std::string_view program) {
  std::string name;
  for (std::string_view rest = program.substr(program.find_last_of('/') + 1); !rest.empty();) {
    const auto c = first_code_point(rest);
    const std::string_view bytes = rest.substr(0, c ? c->bytes : 1);
    const std::string_view part = c && fits_a_name(c->value) ? bytes : "_";
    if (name.size() + part.size() > kLongestName) break;
    name += part;
    rest.remove_prefix(bytes.size());
  }
  if (name.empty() || name == "." || name == "..") return "job";
  return is_number(name) ? "job-" + name.substr(0, kLongestName - 4) : name;
}

Result<JobFile> read_job(const Json& json, const std::string& source) {
  JobFile job;
  JsonTrouble trouble;
  const JsonValue whole(json, trouble);
  if (has_fields(whole)) read_all(whole, job);
  if (!trouble.ok()) return Error{fmt::format("{}: {}", source, sentence(*trouble.problem()))};
  return job;
}

Result<Json> parse_job_text(std::string_view text, const std::string& source) {
  const bool looks_like_json = trim(text).starts_with('{');
  return looks_like_json ? parse_json(text, source, {kLargestJobFile, kMostDepth})
                         : parse_yaml(text, source, {kLargestJobFile, kMostDepth});
}

Result<JobFile> parse_job_file(std::string_view text, const std::string& source) {
  const auto json = parse_job_text(text, source);
  if (!json) return json.error();
  return read_job(*json, source);
}

Json to_json(const JobFile& job) {
  Json json = {{"command", job.command}};
  if (!job.name.empty()) json["name"] = job.name;
  if (!job.profile.empty()) json["profile"] = job.profile;
  if (!job.directory.empty()) json["directory"] = job.directory;
  if (job.deadline) json["goal"] = {{"deadline", to_text(*job.deadline)}};
  if (job.deadline_after) json["goal"] = {{"deadline", "+" + to_text(*job.deadline_after)}};
  if (job.work) {
    json["work"] = {{std::string(name_in(kWorkUnits, job.work->unit)), job.work->amount}};
  }
  json["gpus"] = {{"min", job.gpus.min}};
  if (job.gpus.max > 0) json["gpus"]["max"] = job.gpus.max;
  if (!job.gpus.allowed.empty()) json["gpus"]["allowed"] = job.gpus.allowed;
  if (!job.elastic) json["elastic"] = false;
  json["batch"] = {{"mode", name_in(kBatchModes, job.batch.mode)}};
  if (job.batch.min > 0) json["batch"]["min"] = job.batch.min;
  if (job.batch.max > 0) json["batch"]["max"] = job.batch.max;
  json["learning_rate"] = name_in(kRateRules, job.learning_rate);
  if (!job.env.empty()) json["env"] = job.env;
  if (!job.secrets.empty()) json["secrets"] = job.secrets;
  json["weight"] = job.weight;
  json["max_failures"] = job.max_failures;
  if (job.notice > Duration()) json["notice"] = to_text(job.notice);
  if (job.cooldown > Duration()) json["cooldown"] = to_text(job.cooldown);
  if (job.stop_after) json["stop_after"] = to_text(*job.stop_after);
  return json;
}

std::string_view to_text(RateRule rule) { return name_in(kRateRules, rule); }

// --- times ---------------------------------------------------------------------------------------

namespace {

// However many.
std::optional<double> any_seconds(std::string_view text) {
  constexpr std::string_view kNumber = "0123456789.";
  double total = 0;
  double unit_before = INFINITY;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_not_of(kNumber), text.size());
    const auto number = parse_double(text.substr(0, end));
    const char unit = end == text.size() ? 's' : text[end];
    const double in_seconds = unit == 's'   ? 1
                              : unit == 'm' ? 60
                              : unit == 'h' ? 3600
                              : unit == 'd' ? 86400
                                            : 0;
    // Each unit once, the larger first: "30m1h" is a slip of the pen.
    if (!number || in_seconds == 0 || in_seconds >= unit_before) return std::nullopt;
    unit_before = in_seconds;
    total += *number * in_seconds;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return unit_before == INFINITY ? std::nullopt : std::optional(total);
}

}  // namespace

std::optional<Duration> parse_span(std::string_view text) {
  const auto total = any_seconds(text);
  if (!total || !(*total <= kLongestSpan)) return std::nullopt;
  return from_seconds(*total);
}

std::string to_text(Duration span) {
  constexpr std::int64_t kSecond = 1'000'000;
  const std::int64_t rest = span.count() % kSecond;
  return fmt::format("{}{}s", span.count() / kSecond, rest == 0 ? "" : fmt::format(".{:06}", rest));
}

namespace {

// Takes a text apart from its front; what does not fit stays and is seen at the end.
class Taker {
 public:
  explicit Taker(std::string_view text) : rest_(text) {}

  bool take(std::string_view any) {
    if (rest_.empty() || any.find(rest_.front()) == std::string_view::npos) return false;
    taken_ = rest_.front();
    rest_.remove_prefix(1);
    return true;
  }
  // Exactly so many digits, of a number up to `most`.
  std::optional<int> digits(int count, int most) {
    int value = 0;
    for (int i = 0; i < count; ++i) {
      if (!take("0123456789")) return std::nullopt;
      value = value * 10 + (taken_ - '0');
    }
    return value <= most ? std::optional(value) : std::nullopt;
  }
  // The digits behind a point, as microseconds; what is finer is cut off.
  std::int64_t fraction() {
    std::int64_t value = 0;
    for (std::int64_t unit = 100'000; take("0123456789"); unit /= 10)
      value += unit * (taken_ - '0');
    return value;
  }
  [[nodiscard]] char taken() const { return taken_; }
  [[nodiscard]] bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  char taken_ = 0;
};

std::optional<Duration> take_clock(Taker& text) {
  const auto hour = text.digits(2, 23);
  if (!hour || !text.take(":")) return std::nullopt;
  const auto minute = text.digits(2, 59);
  if (!minute) return std::nullopt;
  Duration clock = std::chrono::hours(*hour) + std::chrono::minutes(*minute);
  if (!text.take(":")) return clock;
  const auto second = text.digits(2, 59);
  if (!second) return std::nullopt;
  clock += std::chrono::seconds(*second);
  if (text.take(".")) clock += Duration(text.fraction());
  return clock;
}

std::optional<Duration> take_offset(Taker& text) {
  if (text.take("Zz")) return Duration();
  if (!text.take("+-")) return std::nullopt;
  const int sign = text.taken() == '-' ? -1 : 1;
  const auto hours = text.digits(2, 23);
  text.take(":");
  const auto minutes = text.digits(2, 59);
  if (!hours || !minutes) return std::nullopt;
  return sign * (std::chrono::hours(*hours) + std::chrono::minutes(*minutes));
}

// In whatever year.
std::optional<WallTime> any_moment(std::string_view given) {
  Taker text(given);
  const auto year = text.digits(4, 9999);
  if (!year || !text.take("-")) return std::nullopt;
  const auto month = text.digits(2, 12);
  if (!month || !text.take("-")) return std::nullopt;
  const auto day = text.digits(2, 31);
  if (!day || !text.take("Tt ")) return std::nullopt;
  const auto clock = take_clock(text);
  if (!clock) return std::nullopt;
  const auto offset = take_offset(text);
  const std::chrono::year_month_day date{std::chrono::year{*year},
                                         std::chrono::month{static_cast<unsigned>(*month)},
                                         std::chrono::day{static_cast<unsigned>(*day)}};
  if (!offset || !text.done() || !date.ok()) return std::nullopt;
  return std::chrono::sys_days{date} + *clock - *offset;
}

}  // namespace

std::optional<WallTime> parse_wall_time(std::string_view given) {
  constexpr std::chrono::sys_days kBegin{std::chrono::year{kFirstYear} / 1 / 1};
  constexpr std::chrono::sys_days kEnd{std::chrono::year{kLastYear} / 1 / 1};
  const auto time = any_moment(given);
  return time && *time >= kBegin && *time < kEnd ? time : std::nullopt;
}

std::string to_text(WallTime time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  const auto micros = clock.subseconds().count();
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                     micros == 0 ? "" : fmt::format(".{:06}", micros));
}

}  // namespace rubato::jobfile
