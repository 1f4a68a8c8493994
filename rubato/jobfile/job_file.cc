#include "rubato/jobfile/job_file.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

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

template <class Choice>
using Choices = std::vector<std::pair<std::string, Choice>>;

const Choices<WorkUnit>& work_units() {
  static const Choices<WorkUnit> units{
      {"steps", WorkUnit::steps}, {"epochs", WorkUnit::epochs}, {"samples", WorkUnit::samples}};
  return units;
}
const Choices<BatchMode>& batch_modes() {
  static const Choices<BatchMode> modes{{"fixed", BatchMode::fixed},
                                        {"adaptive", BatchMode::adaptive}};
  return modes;
}
const Choices<RateRule>& rate_rules() {
  static const Choices<RateRule> rules{{"adascale", RateRule::adascale},
                                       {"sqrt", RateRule::square_root},
                                       {"linear", RateRule::linear}};
  return rules;
}

template <class Choice>
const std::string& word_of(Choice choice, const Choices<Choice>& choices) {
  const auto at = std::find_if(choices.begin(), choices.end(),
                               [&](const auto& known) { return known.second == choice; });
  CHECK(at != choices.end());
  return at->first;
}

// "a, b or c".
std::string alternatives(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += i == 0 ? "" : i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

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

// One level of the file: every field that is read is crossed off, the rest is unknown. The first
// thing that is wrong stays; nothing is read after it.
class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) {
      fail(where_.empty() ? "a job has named fields, such as command"
                          : where_ + " must have named fields");
    }
  }

  const Json* find(const std::string& name) {
    known_.push_back(name);
    if (error_ || !json_.contains(name)) return nullptr;
    return &json_.at(name);
  }
  void text(const std::string& name, std::string& value) {
    const Json* json = find(name);
    if (json == nullptr) return;
    if (!json->is_string()) return fail(path(name) + " must be text, in quotes");
    if (has_zero(json->get_ref<const std::string&>())) {
      return fail(path(name) + " has a zero byte in it");
    }
    value = json->get<std::string>();
  }
  void integer(const std::string& name, int& value, int least, int most) {
    const Json* json = find(name);
    if (json == nullptr) return;
    const auto given = whole(*json);
    if (!given || *given < least || *given > most) {
      return fail(fmt::format("{} must be a whole number from {} to {}", path(name), least, most));
    }
    value = static_cast<int>(*given);
  }
  void number(const std::string& name, double& value, double least, double most) {
    const Json* json = find(name);
    if (json == nullptr) return;
    const auto given = json->is_string()   ? parse_double(json->get_ref<const std::string&>())
                       : json->is_number() ? std::optional(json->get<double>())
                                           : std::nullopt;
    if (!given || !(*given > 0) || !(*given >= least) || !(*given <= most)) {
      return fail(fmt::format("{} must be a number above {} and at most {}", path(name),
                              shortest(least), shortest(most)));
    }
    value = *given;
  }
  template <class Choice>
  void choice(const std::string& name, Choice& value, const Choices<Choice>& choices) {
    const Json* json = find(name);
    if (json == nullptr) return;
    std::vector<std::string> words;
    words.reserve(choices.size());
    for (const auto& [word, meaning] : choices) {
      if (*json == word) value = meaning;
      if (*json == word) return;
      words.push_back(word);
    }
    fail(fmt::format("{} must be {}", path(name), alternatives(words)));
  }
  // Words stand for truth in YAML; those that some YAML reads as truth and some as text are
  // refused.
  void flag(const std::string& name, bool& value) {
    const Json* json = find(name);
    if (json == nullptr) return;
    const bool yes = *json == true || *json == "true";
    if (!yes && *json != false && *json != "false")
      return fail(path(name) + " must be true or false");
    value = yes;
  }
  void span(const std::string& name, std::optional<Duration>& value) {
    const Json* json = find(name);
    if (json == nullptr) return;
    value = parse_span(json->is_string()   ? json->get<std::string>()
                       : json->is_number() ? json->dump()
                                           : "");
    if (!value) fail(path(name) + " must be a time such as 90s, 15m or 1h30m");
  }
  // Names of variables with what check(value) has nothing against. What is wrong with a value is
  // said without the value: it may be the secret itself.
  template <class Check>
  void variables(const std::string& name, std::map<std::string, std::string>& values,
                 const Check& check) {
    const Json* json = find(name);
    if (json == nullptr) return;
    if (!json->is_object()) return fail(path(name) + " must have named fields");
    for (const auto& [key, word] : json->items()) {
      if (!is_variable(key)) {
        return fail(fmt::format("{}: {} is no name of a variable; use letters, digits and _",
                                path(name), base::quoted(key)));
      }
      if (key.starts_with("RUBATO_")) {
        return fail(fmt::format("{}.{}: names that begin with RUBATO_ are set by rubato itself",
                                path(name), key));
      }
      const std::string wrong = check(word);
      if (!wrong.empty()) return fail(fmt::format("{}.{} {}", path(name), key, wrong));
      values[key] = word.template get<std::string>();
    }
  }

  void fail(std::string sentence) {
    if (!error_) error_ = Error{std::move(sentence)};
  }
  // The first thing that is wrong; else a field that nobody asked for.
  std::optional<Error> finish() {
    if (error_) return error_;
    for (const auto& [name, value] : json_.items()) {
      if (std::find(known_.begin(), known_.end(), name) == known_.end()) return unknown(name);
    }
    return std::nullopt;
  }
  // Words stand for numbers in YAML.
  static std::optional<long long> whole(const Json& json) {
    if (json.is_string()) return parse_integer(json.get_ref<const std::string&>());
    if (!json.is_number_integer()) return std::nullopt;
    if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
    return json.get<long long>();
  }

 private:
  [[nodiscard]] std::string path(const std::string& name) const {
    return where_.empty() ? name : where_ + "." + name;
  }
  [[nodiscard]] Error unknown(const std::string& name) const {
    constexpr std::size_t kWorthGuessing = 40;
    const auto meant = name.size() <= kWorthGuessing ? closest(name, known_) : std::nullopt;
    return Error{fmt::format("{} has no field {}{}; it can have {}",
                             where_.empty() ? "a job" : where_, base::quoted(name),
                             meant ? fmt::format(" (did you mean {}?)", *meant) : "",
                             alternatives(known_))};
  }

  const Json& json_;
  std::string where_;
  std::vector<std::string> known_;
  std::optional<Error> error_;
};

std::string wrong_word(const Json& word) {
  if (!word.is_string()) return "must be text, in quotes";
  const auto& text = word.get_ref<const std::string&>();
  if (has_zero(text)) return "has a zero byte in it";
  return "";
}

void read_command(Fields& fields, JobFile& job) {
  const Json* command = fields.find("command");
  if (command == nullptr) {
    return fields.fail("command is missing: say what to run, as in [python, train.py]");
  }
  if (!command->is_array() || command->empty()) {
    return fields.fail("command must be a list, as in [python, train.py]; no shell reads it");
  }
  job.command.reserve(command->size());
  for (const Json& word : *command) {
    const std::string wrong = wrong_word(word);
    if (!wrong.empty()) {
      return fields.fail(fmt::format("command[{}] {}", job.command.size(), wrong));
    }
    job.command.push_back(word.get<std::string>());
  }
  if (job.command.front().empty()) fields.fail("command begins with an empty word");
}

bool fits_a_name(char32_t c) { return visible(c) && c != ' ' && c != '/' && c != 0xA0; }

// Where a job is asked for, a number is an id.
bool is_number(std::string_view name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void read_name(Fields& fields, const std::string& field, std::string& name) {
  fields.text(field, name);
  bool seen = is_utf8(name);
  for (std::string_view rest = name; seen && !rest.empty();) {
    const CodePoint c = *first_code_point(rest);
    seen = fits_a_name(c.value);
    rest.remove_prefix(c.bytes);
  }
  if (!seen || name.size() > kLongestName || name == "." || name == "..") {
    return fields.fail(fmt::format("{} {}: use at most {} bytes that can be seen, no blank, no /",
                                   field, base::quoted(name), kLongestName));
  }
  if (is_number(name)) fields.fail(fmt::format("{} {} is a number; add a letter", field, name));
}

void read_directory(Fields& fields, JobFile& job) {
  fields.text("directory", job.directory);
  if (!job.directory.empty() && !is_path(job.directory)) {
    fields.fail("directory must be an absolute path");
  }
}

void read_goal(Fields& fields, JobFile& job) {
  const Json* goal = fields.find("goal");
  if (goal == nullptr || *goal == "asap") return;
  if (!goal->is_object()) return fields.fail("goal must be asap or {deadline: TIME}");
  Fields inner(*goal, "goal");
  std::string text;
  inner.text("deadline", text);
  if (const auto wrong = inner.finish()) return fields.fail(wrong->message);
  if (text.starts_with('+')) {
    job.deadline_after = parse_span(text.substr(1));
  } else {
    job.deadline = parse_wall_time(text);
  }
  if (job.deadline_after != Duration() && (job.deadline || job.deadline_after)) return;
  if (any_moment(text) || (text.starts_with('+') && any_seconds(text.substr(1)) > kLongestSpan)) {
    fields.fail(fmt::format(
        "goal.deadline {} is out of range: it must be in the years {} to {}, or at most +{}d",
        base::quoted(text), kFirstYear, kLastYear - 1, std::floor(kLongestSpan / 86400)));
  } else {
    fields.fail(fmt::format(
        "goal.deadline is {}; write +2h, or a time with its offset as 2026-11-20T17:00:00+01:00",
        base::quoted(text)));
  }
}

void read_work(Fields& fields, JobFile& job) {
  const Json* work = fields.find("work");
  if (work == nullptr) return;
  Fields inner(*work, "work");
  int units = 0;
  for (const auto& [name, unit] : work_units()) {
    double amount = 0;
    inner.number(name, amount, 0, kMostWork);
    if (!(amount > 0)) continue;
    job.work = WorkAmount{unit, amount};
    ++units;
  }
  if (const auto wrong = inner.finish()) return fields.fail(wrong->message);
  if (units != 1) fields.fail("work needs one of steps, epochs or samples");
}

void read_allowed(Fields& inner, std::vector<int>& counts) {
  const Json* allowed = inner.find("allowed");
  if (allowed == nullptr) return;
  const std::string wrong =
      fmt::format("gpus.allowed must be a list of counts from 1 to {}", kMostGpus);
  if (!allowed->is_array() || allowed->empty()) {
    return inner.fail(wrong);
  }
  counts.reserve(allowed->size());
  for (const Json& count : *allowed) {
    const auto given = Fields::whole(count);
    if (!given || *given < 1 || *given > kMostGpus) return inner.fail(wrong);
    counts.push_back(static_cast<int>(*given));
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
}

void read_gpus(Fields& fields, JobFile& job) {
  const Json* gpus = fields.find("gpus");
  if (gpus == nullptr) return;
  if (!gpus->is_object()) {
    int count = 0;
    fields.integer("gpus", count, 1, kMostGpus);
    job.gpus = {count, count, {}};
    return;
  }
  Fields inner(*gpus, "gpus");
  inner.integer("min", job.gpus.min, 1, kMostGpus);
  inner.integer("max", job.gpus.max, 1, kMostGpus);
  auto& allowed = job.gpus.allowed;
  read_allowed(inner, allowed);
  if (const auto wrong = inner.finish()) return fields.fail(wrong->message);
  const int most = job.gpus.max > 0 ? job.gpus.max : kMostGpus;
  if (most < job.gpus.min) return fields.fail("gpus.max is below gpus.min");
  if (allowed.empty()) return;
  std::erase_if(allowed, [&](int count) { return count < job.gpus.min || count > most; });
  if (allowed.empty()) fields.fail("gpus.allowed names no count from gpus.min to gpus.max");
}

void read_batch(Fields& fields, JobFile& job) {
  const Json* batch = fields.find("batch");
  if (batch == nullptr) return;
  Fields inner(*batch, "batch");
  inner.choice("mode", job.batch.mode, batch_modes());
  inner.integer("min", job.batch.min, 1, kMostBatch);
  inner.integer("max", job.batch.max, 1, kMostBatch);
  if (const auto wrong = inner.finish()) return fields.fail(wrong->message);
  if (job.batch.max > 0 && job.batch.max < job.batch.min) {
    fields.fail("batch.max is below batch.min");
  }
}

void read_variables(Fields& fields, JobFile& job) {
  fields.variables("env", job.env, wrong_word);
  fields.variables("secrets", job.secrets, [](const Json& word) -> std::string {
    if (word.is_string() && is_path(word.get_ref<const std::string&>())) return "";
    return "must be the absolute path of the file with the secret, never the secret itself";
  });
  for (const auto& [name, path] : job.secrets) {
    if (job.env.contains(name)) fields.fail(fmt::format("{} is both in env and in secrets", name));
  }
}

void read_spans(Fields& fields, JobFile& job) {
  std::optional<Duration> notice;
  std::optional<Duration> cooldown;
  fields.span("notice", notice);
  fields.span("cooldown", cooldown);
  fields.span("stop_after", job.stop_after);
  if (notice == Duration())
    fields.fail("notice must be above 0s: a worker needs a moment to end in peace");
  job.notice = notice.value_or(Duration());
  job.cooldown = cooldown.value_or(Duration());
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
  Fields fields(json, "");
  if (json.is_object() && json.contains("user")) {
    fields.fail("user cannot be given: who submits a job is known from the connection");
  }
  read_command(fields, job);
  read_name(fields, "name", job.name);
  read_name(fields, "profile", job.profile);
  read_directory(fields, job);
  read_goal(fields, job);
  read_work(fields, job);
  read_gpus(fields, job);
  fields.flag("elastic", job.elastic);
  read_batch(fields, job);
  fields.choice("learning_rate", job.learning_rate, rate_rules());
  read_variables(fields, job);
  fields.number("weight", job.weight, kLeastWeight, kMostWeight);
  fields.integer("max_failures", job.max_failures, 0, kMostFailures);
  read_spans(fields, job);
  if (const auto wrong = fields.finish()) {
    return Error{fmt::format("{}: {}", source, wrong->message)};
  }
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
  if (job.work) json["work"] = {{word_of(job.work->unit, work_units()), job.work->amount}};
  json["gpus"] = {{"min", job.gpus.min}};
  if (job.gpus.max > 0) json["gpus"]["max"] = job.gpus.max;
  if (!job.gpus.allowed.empty()) json["gpus"]["allowed"] = job.gpus.allowed;
  if (!job.elastic) json["elastic"] = false;
  json["batch"] = {{"mode", word_of(job.batch.mode, batch_modes())}};
  if (job.batch.min > 0) json["batch"]["min"] = job.batch.min;
  if (job.batch.max > 0) json["batch"]["max"] = job.batch.max;
  json["learning_rate"] = word_of(job.learning_rate, rate_rules());
  if (!job.env.empty()) json["env"] = job.env;
  if (!job.secrets.empty()) json["secrets"] = job.secrets;
  json["weight"] = job.weight;
  json["max_failures"] = job.max_failures;
  if (job.notice > Duration()) json["notice"] = to_text(job.notice);
  if (job.cooldown > Duration()) json["cooldown"] = to_text(job.cooldown);
  if (job.stop_after) json["stop_after"] = to_text(*job.stop_after);
  return json;
}

std::string_view to_text(RateRule rule) { return word_of(rule, rate_rules()); }

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
