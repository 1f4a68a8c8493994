#include "rubato/api/routes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <limits>

#include "rubato/api/job_verbs.h"
#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"
#include "rubato/jobfile/times.h"

namespace rubato::api {

// The longest user name, or pattern of job names, in a body.
constexpr std::size_t kLongestPattern = 400;

enum class BodyKind : std::uint8_t { none, json, job_file };

template <class T>
using Checked = std::variant<T, HttpRefusal>;

using Task = Checked<HttpTask>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

// The parts of a request, as the functions of the routes get them.
struct Parts {
  const std::vector<std::string>& parts;
  const Pairs& queries;
  const std::string& content_type;
  const std::string& key;
  const std::string& last_event_id;
  std::string_view body;

  [[nodiscard]] std::optional<std::string> query(std::string_view name) const {
    for (const auto& [key_text, value] : queries) {
      if (key_text == name) return value;
    }
    return std::nullopt;
  }
};

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

HttpRefusal bad(std::string sentence) { return {400, std::move(sentence), {}}; }

}  // namespace

struct Route {
  const char* verb;
  const char* pattern;
  const char* queries;  // names, separated by spaces
  BodyKind body;
  bool admin;
  Task (*make)(const Parts& parts);
  Ask (*about)(JobRef job) = nullptr;  // for a JobVerb, instead of `make`
};

namespace {

template <class T>
Task task(T what) {
  return HttpTask{Ask(std::move(what))};
}

bool printable(std::string_view text, std::size_t most) {
  return !text.empty() && text.size() <= most &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c > 0x20 && c < 0x7F; });
}

// A number that cannot be a job id gets the same answer as a job that does not exist.
Checked<JobRef> job_ref(const std::string& text) {
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
  if (!digits) return JobRef(text);
  const auto number = parse_integer(text);
  if (!number || *number > std::numeric_limits<JobId::rep>::max()) {
    return HttpRefusal{404, fmt::format("there is no job {}", base::quoted(text)), {}};
  }
  return JobRef(JobId(static_cast<JobId::rep>(*number)));
}

template <class Make>
Task with_job(const Parts& parts, const Make& make) {
  auto job = job_ref(parts.parts.front());
  if (auto* refused = std::get_if<HttpRefusal>(&job)) return std::move(*refused);
  return make(std::move(std::get<JobRef>(job)));
}

Checked<bool> flag(const Parts& parts, std::string_view name) {
  const auto text = parts.query(name);
  if (!text || *text == "0") return false;
  if (*text == "1") return true;
  return bad(fmt::format("the parameter {} must be 0 or 1, not {}", name, base::quoted(*text)));
}

Checked<std::int64_t> integer(const Parts& parts, std::string_view name, std::int64_t otherwise,
                              std::int64_t least, std::int64_t most) {
  const auto text = parts.query(name);
  if (!text) return otherwise;
  const auto number = parse_integer(*text);
  if (!number || *number < least || *number > most) {
    return bad(fmt::format("the parameter {} must be a whole number from {} to {}, not {}", name,
                           least, most, base::quoted(*text)));
  }
  return *number;
}

std::optional<Moment> moment_of(const std::string& text) {
  if (const auto time = parse_wall_time(text)) return *time;
  if (const auto ago = parse_span(text)) return *ago;
  return std::nullopt;
}

std::string bad_moment(std::string_view what, const std::string& text) {
  return fmt::format(
      "{} must be a time such as 2026-11-18T09:00:00Z, or how long ago, such as 24h, not {}", what,
      base::quoted(text));
}

Checked<std::optional<Moment>> moment(const Parts& parts, std::string_view name) {
  const auto text = parts.query(name);
  if (!text) return std::optional<Moment>();
  auto found = moment_of(*text);
  if (!found) return bad(bad_moment(fmt::format("the parameter {}", name), *text));
  return found;
}

// --- bodies --------------------------------------------------------------------------------------

constexpr int kMostGpus = 1'000'000;

// The sentence for a problem that the reader of a body has found.
std::string sentence(const JsonProblem& problem) {
  const auto& [kind, path, why, field, known] = problem;
  switch (kind) {
    case JsonProblem::Kind::wrong:
      return path.empty() ? fmt::format("the body {}", why)
                          : fmt::format("the field \"{}\" {}", path, why);
    case JsonProblem::Kind::missing:
      return fmt::format("the body needs a field \"{}\"", field);
    case JsonProblem::Kind::unknown:
      break;
  }
  const auto near = closest(field, known);
  return fmt::format("the body has an unknown field {}{}", base::quoted(field),
                     near ? fmt::format("; did you mean {}?", *near) : "");
}

// Reads a body that must be a JSON object.
template <class T>
Checked<T> read_body(const Parts& parts, void (*read)(JsonFields&, T&)) {
  const auto json = parse_json(parts.body, "the body", {kLargestHttpBody, kDeepestHttpBody});
  if (!json) return bad(json.error().message);
  if (!json->is_object()) return bad("the body must be a JSON object");
  JsonTrouble trouble;
  T value;
  {
    JsonFields fields(JsonValue(*json, trouble));
    read(fields, value);
  }
  if (!trouble.ok()) return bad(sentence(*trouble.problem()));
  return value;
}

void read_limits(JsonFields& fields, GpuLimits& limits) {
  const auto gpus = fields.find("gpus");
  const auto min = fields.find("min");
  const auto max = fields.find("max");
  const auto allowed = fields.find("allowed");
  fields.finish();
  if (!fields.ok()) return;
  // If a field is missing, unknown or wrong, one sentence shows the whole form of the body.
  JsonTrouble inner;
  const auto count = [&](const std::optional<JsonValue>& json) {
    return json ? JsonValue(json->json(), inner).whole(1, kMostGpus) : 0;
  };
  if (gpus) {
    limits.min = limits.max = count(gpus);
  } else {
    limits.min = count(min);
    limits.max = count(max);
    if (allowed)
      limits.allowed = JsonValue(allowed->json(), inner).integers(limits.min, limits.max);
  }
  const bool one_kind = gpus ? !min && !max && !allowed : min && max;
  const bool rises = std::adjacent_find(limits.allowed.begin(), limits.allowed.end(),
                                        std::greater_equal<>()) == limits.allowed.end();
  fields.object().must_be(
      inner.ok() && one_kind && limits.min <= limits.max && rises,
      "{\"gpus\": n} or {\"min\": a, \"max\": b} with 1 <= a <= b, and may have \"allowed\": a "
      "rising list of counts within them");
}

Result<JobFile> read_job_file(const Parts& parts) {
  const std::string source = "the job file";
  // A text that does not look like JSON is read as YAML, but not if the client says that it is
  // JSON.
  if (parts.content_type == "application/json" && !trim(parts.body).starts_with('{')) {
    return Error{source + " is no JSON object; send YAML with Content-Type: application/yaml"};
  }
  return parse_job_file(parts.body, source);
}

// --- routes --------------------------------------------------------------------------------------

Task submit_job(const Parts& parts) {
  auto dry_run = flag(parts, "dry_run");
  if (auto* refused = std::get_if<HttpRefusal>(&dry_run)) return std::move(*refused);
  auto file = read_job_file(parts);
  if (!file) return HttpRefusal{422, file.error().message, {}};
  return task(SubmitJob{std::move(*file), parts.key, std::get<bool>(dry_run)});
}

Checked<std::vector<JobState>> states_of(const std::vector<std::string_view>& names) {
  std::vector<JobState> states;
  for (const auto name : names) {
    const auto state = parse_job_state(name);
    if (!state) {
      return bad(
          fmt::format("{} is no state of a job; they are PENDING (PD), PROFILING (PF), HELD (HD), "
                      "RUNNING (R), RESIZING (RS), STOPPING (CG), COMPLETED (CD), FAILED (F), "
                      "CANCELLED (CA) and REFUSED (RF)",
                      base::quoted(name)));
    }
    states.push_back(*state);
  }
  return states;
}

Task list_jobs(const Parts& parts) {
  ListJobs list;
  if (const auto states = parts.query("state")) {
    auto read = states_of(split(*states, ','));
    if (auto* refused = std::get_if<HttpRefusal>(&read)) return std::move(*refused);
    list.states = std::move(std::get<std::vector<JobState>>(read));
  }
  list.user = parts.query("user");
  if (parts.query("after")) {
    auto after = integer(parts, "after", 0, 0, std::numeric_limits<JobId::rep>::max());
    if (auto* refused = std::get_if<HttpRefusal>(&after)) return std::move(*refused);
    list.after = JobId(static_cast<JobId::rep>(std::get<std::int64_t>(after)));
  }
  auto limit = integer(parts, "limit", list.limit, 1, kLongestList);
  if (auto* refused = std::get_if<HttpRefusal>(&limit)) return std::move(*refused);
  list.limit = static_cast<int>(std::get<std::int64_t>(limit));
  return task(std::move(list));
}

Task history(const Parts& parts) {
  History ask;
  auto after = integer(parts, "after", 0, 0, std::numeric_limits<std::int64_t>::max());
  if (auto* refused = std::get_if<HttpRefusal>(&after)) return std::move(*refused);
  auto limit = integer(parts, "limit", ask.limit, 1, kLongestList);
  if (auto* refused = std::get_if<HttpRefusal>(&limit)) return std::move(*refused);
  if (parts.query("after")) ask.after = static_cast<std::uint64_t>(std::get<std::int64_t>(after));
  ask.limit = static_cast<int>(std::get<std::int64_t>(limit));
  if (const auto text = parts.query("job")) {
    auto job = job_ref(*text);
    if (auto* refused = std::get_if<HttpRefusal>(&job)) return std::move(*refused);
    ask.job = std::move(std::get<JobRef>(job));
  }
  return task(std::move(ask));
}

Task timeline(const Parts& parts) {
  ShowTimeline ask;
  auto since = moment(parts, "since");
  if (auto* refused = std::get_if<HttpRefusal>(&since)) return std::move(*refused);
  auto until = moment(parts, "until");
  if (auto* refused = std::get_if<HttpRefusal>(&until)) return std::move(*refused);
  ask.since = std::get<0>(since).value_or(ask.since);
  ask.until = std::get<0>(until);
  return task(ask);
}

Task decisions(const Parts& parts) {
  ShowDecisions ask;
  auto since = moment(parts, "since");
  if (auto* refused = std::get_if<HttpRefusal>(&since)) return std::move(*refused);
  ask.since = std::get<0>(since);
  auto before = integer(parts, "before", 0, 0, std::numeric_limits<std::int64_t>::max());
  if (auto* refused = std::get_if<HttpRefusal>(&before)) return std::move(*refused);
  if (parts.query("before"))
    ask.before = static_cast<std::uint64_t>(std::get<std::int64_t>(before));
  auto limit = integer(parts, "limit", ask.limit, 1, kLongestList);
  if (auto* refused = std::get_if<HttpRefusal>(&limit)) return std::move(*refused);
  ask.limit = static_cast<int>(std::get<std::int64_t>(limit));
  return task(ask);
}

Task use(const Parts& parts) {
  ShowUse ask;
  auto since = moment(parts, "since");
  if (auto* refused = std::get_if<HttpRefusal>(&since)) return std::move(*refused);
  ask.since = std::get<0>(since).value_or(ask.since);
  return task(ask);
}

// Reads job numbers and names, as in the path of a job.
void read_refs(const JsonValue& json, std::vector<JobRef>& refs) {
  constexpr std::string_view kList = "a list of numbers and names of jobs";
  if (!json.must_be(json.json().is_array() && json.size() > 0, kList)) return;
  refs.reserve(json.size());
  for (const Json& one : json.json()) {
    if (!json.must_be(one.is_string() || one.is_number_unsigned(), kList)) return;
    const auto* name = one.get_ptr<const std::string*>();
    const std::string text = name != nullptr ? *name : one.dump();
    auto ref = job_ref(text);
    // A number that cannot be a job id is treated as a name. No job has a name of digits only.
    refs.push_back(std::holds_alternative<HttpRefusal>(ref) ? JobRef(text)
                                                            : std::get<JobRef>(std::move(ref)));
  }
}

void read_state_names(const JsonValue& json, std::vector<std::string>& names) {
  constexpr std::string_view kList = "a list of states, such as [\"PENDING\"]";
  if (!json.must_be(json.json().is_array() && json.size() > 0, kList)) return;
  for (const Json& one : json.json()) {
    const auto* name = one.get_ptr<const std::string*>();
    if (!json.must_be(name != nullptr, kList)) return;
    names.push_back(*name);
  }
}

// Reads a pattern of job names, or a user name.
const std::string& read_pattern(const JsonValue& json) {
  const std::string& text = json.text();
  if (text.empty() || text.size() > kLongestPattern)
    json.refuse(fmt::format("must have 1 to {} bytes", kLongestPattern));
  return text;
}

struct CancelBody {
  CancelJobs ask;
  std::vector<std::string> states;
  bool empty = true;
};

void read_cancel(JsonFields& fields, CancelBody& body) {
  body.empty = fields.object().size() == 0;
  if (const auto all = fields.find("all")) {
    if (all->json() != true) all->refuse("can only be true");
    body.ask.all = true;
  }
  if (const auto jobs = fields.find("jobs")) read_refs(*jobs, body.ask.jobs);
  if (const auto name = fields.find("name")) body.ask.name = read_pattern(*name);
  if (const auto states = fields.find("states")) read_state_names(*states, body.states);
  if (const auto user = fields.find("user")) body.ask.user = read_pattern(*user);
}

Task cancel_jobs(const Parts& parts) {
  auto read = read_body<CancelBody>(parts, read_cancel);
  if (auto* refused = std::get_if<HttpRefusal>(&read)) return std::move(*refused);
  auto& [ask, names, empty] = std::get<CancelBody>(read);
  auto states = states_of({names.begin(), names.end()});
  if (auto* refused = std::get_if<HttpRefusal>(&states)) return std::move(*refused);
  ask.states = std::move(std::get<std::vector<JobState>>(states));
  if (empty)
    return bad(
        "say which jobs: \"jobs\", \"user\", \"states\", \"name\", or \"all\": true for all that "
        "you may cancel");
  return task(std::move(ask));
}

Task resize_job(const Parts& parts) {
  auto limits = read_body<GpuLimits>(parts, read_limits);
  if (auto* refused = std::get_if<HttpRefusal>(&limits)) return std::move(*refused);
  return with_job(parts, [&](JobRef job) {
    return task(ResizeJob{std::move(job), std::move(std::get<GpuLimits>(limits))});
  });
}

Task read_log(const Parts& parts) {
  auto follow = flag(parts, "follow");
  if (auto* refused = std::get_if<HttpRefusal>(&follow)) return std::move(*refused);
  constexpr std::int64_t kFar = std::int64_t{1} << 53U;
  auto from = integer(parts, "from", 0, -kFar, kFar);
  if (auto* refused = std::get_if<HttpRefusal>(&from)) return std::move(*refused);
  return with_job(parts, [&](JobRef job) -> Task {
    return HttpTask(ReadLog{std::move(job), std::get<std::int64_t>(from), std::get<bool>(follow)});
  });
}

Task set_node(const Parts& parts) {
  auto state = read_body<std::string>(
      parts, [](JsonFields& fields, std::string& text) { text = fields["state"].text(); });
  if (auto* refused = std::get_if<HttpRefusal>(&state)) return std::move(*refused);
  const std::string& wanted = std::get<std::string>(state);
  SetNode ask{parts.parts.front(), NodeState::up};
  if (wanted == "drain") {
    ask.state = NodeState::draining;
  } else if (wanted == "down") {
    ask.state = NodeState::down;
  } else if (wanted != "resume") {
    return bad(fmt::format("a node can be told to drain, to resume or that it is down, not {}",
                           base::quoted(wanted)));
  }
  return task(ask);
}

Task switch_policy(const Parts& parts) {
  auto policy = read_body<std::string>(
      parts, [](JsonFields& fields, std::string& text) { text = fields["policy"].text(); });
  if (auto* refused = std::get_if<HttpRefusal>(&policy)) return std::move(*refused);
  auto dry_run = flag(parts, "dry_run");
  if (auto* refused = std::get_if<HttpRefusal>(&dry_run)) return std::move(*refused);
  return task(SwitchPolicy{std::move(std::get<std::string>(policy)), std::get<bool>(dry_run)});
}

constexpr double kMostWeight = 1e6;
constexpr int kMostQuota = 1 << 20U;

void read_user(JsonFields& fields, AddUser& ask) {
  ask.name = fields["name"].text();
  if (const auto role = fields.find("role")) {
    const std::string& text = look_for_text(fields.object().json(), "role");
    role->must_be(text == "user" || text == "admin", "\"user\" or \"admin\"");
    ask.admin = text == "admin";
  }
  if (const auto weight = fields.find("weight")) {
    ask.most_weight = weight->number();
    weight->must_be(ask.most_weight > 0 && ask.most_weight <= kMostWeight,
                    "the largest weight that a job of the user may have: a number above 0 and at "
                    "most 1000000");
  }
  if (const auto quota = fields.find("guaranteed")) ask.guaranteed = quota->whole(1, kMostQuota);
}

Task add_user(const Parts& parts) {
  auto read = read_body<AddUser>(parts, read_user);
  if (auto* refused = std::get_if<HttpRefusal>(&read)) return std::move(*refused);
  auto& ask = std::get<AddUser>(read);
  if (!valid_user_name(ask.name)) {
    return bad(
        fmt::format("{} is no name for a user: at most 32 letters, digits, '-', '_' and '.', "
                    "beginning with a letter or '_'",
                    base::quoted(ask.name)));
  }
  return task(std::move(ask));
}

void read_cells(JsonFields& fields, SetCells& ask) {
  ask.cells = fields["cells"].text();
  if (const auto members = fields.find("members")) ask.members = members->texts();
}

Task set_cells(const Parts& parts) {
  auto read = read_body<SetCells>(parts, read_cells);
  if (auto* refused = std::get_if<HttpRefusal>(&read)) return std::move(*refused);
  auto& ask = std::get<SetCells>(read);
  ask.tenant = parts.parts.front();
  return task(std::move(ask));
}

// The longest one-time code; those that the daemon makes are shorter.
constexpr std::size_t kLongestCode = 128;

Task use_page_code(const Parts& parts) {
  auto code = read_body<std::string>(
      parts, [](JsonFields& fields, std::string& text) { text = fields["code"].text(); });
  if (auto* refused = std::get_if<HttpRefusal>(&code)) return std::move(*refused);
  std::string& text = std::get<std::string>(code);
  if (text.size() > kLongestCode) return bad("this is no code of `rubato page`");
  return HttpTask(UsePageCode{std::move(text)});
}

// The longest list of policies in a body, and the most policies in it.
constexpr std::size_t kLongestPolicies = 4000;
constexpr std::size_t kMostPolicyNames = 8;

struct WhatIfBody {
  std::string since = "24h";
  std::string until;
  std::vector<std::string> policies;
};

void read_what_if(JsonFields& fields, WhatIfBody& body) {
  const JsonValue list = fields["policies"];
  constexpr std::string_view kList = "a list of 1 to 8 policies, such as [\"afs-l\", \"srtf\"]";
  if (list.must_be(list.json().is_array() && list.size() > 0 && list.size() <= kMostPolicyNames,
                   kList)) {
    for (const Json& one : list.json()) {
      const auto* name = one.get_ptr<const std::string*>();
      if (!list.must_be(name != nullptr && !name->empty() && name->size() <= kLongestPolicies &&
                            name->find('\0') == std::string::npos,
                        kList))
        return;
      body.policies.push_back(*name);
    }
  }
  if (const auto since = fields.find("since")) body.since = since->text();
  if (const auto until = fields.find("until")) body.until = until->text();
}

Task start_what_if(const Parts& parts) {
  auto read = read_body<WhatIfBody>(parts, read_what_if);
  if (auto* refused = std::get_if<HttpRefusal>(&read)) return std::move(*refused);
  auto& [since, until, policies] = std::get<WhatIfBody>(read);
  StartWhatIf ask;
  ask.policies = std::move(policies);
  const auto from = moment_of(since);
  if (!from) return bad(bad_moment("the field \"since\"", since));
  ask.since = *from;
  if (!until.empty()) {
    ask.until = moment_of(until);
    if (!ask.until) return bad(bad_moment("the field \"until\"", until));
  }
  return HttpTask(WhatIfAsk(std::move(ask)));
}

template <class T>
Task about_what_if(const Parts& parts) {
  const std::string& text = parts.parts.front();
  const auto id = parse_integer(text);
  if (!id || *id < 0)
    return HttpRefusal{404, fmt::format("there is no what-if {}", base::quoted(text)), {}};
  return HttpTask(WhatIfAsk(T{static_cast<std::uint64_t>(*id)}));
}

template <class T>
Task about_job(const Parts& parts) {
  return with_job(parts, [](JobRef job) { return task(T{std::move(job)}); });
}

constexpr std::array<Route, 38> kRoutes{{
    {"POST", "/v1/jobs", "dry_run", BodyKind::job_file, false, submit_job},
    {"GET", "/v1/jobs", "state user after limit", BodyKind::none, false, list_jobs},
    {"POST", "/v1/jobs/cancel", "", BodyKind::json, false, cancel_jobs},
    {"GET", "/v1/jobs/{job}", "", BodyKind::none, false, about_job<ShowJob>},
    {"DELETE", "/v1/jobs/{job}", "", BodyKind::none, false, about_job<CancelJob>},
    {"POST", "/v1/jobs/{job}/resize", "", BodyKind::json, false, resize_job},
    {"GET", "/v1/jobs/{job}/explain", "", BodyKind::none, false, about_job<ExplainJob>},
    {"GET", "/v1/jobs/{job}/past", "", BodyKind::none, false, about_job<ShowPast>},
    {"GET", "/v1/jobs/{job}/log", "from follow", BodyKind::none, false, read_log},
    {"GET", "/v1/nodes", "", BodyKind::none, false,
     [](const Parts& /*parts*/) { return task(ShowNodes{}); }},
    {"POST", "/v1/nodes/{node}", "", BodyKind::json, true, set_node},
    {"GET", "/v1/policy", "", BodyKind::none, false,
     [](const Parts& /*parts*/) { return task(ShowPolicy{}); }},
    {"PUT", "/v1/policy", "dry_run", BodyKind::json, true, switch_policy},
    {"GET", "/v1/history", "job after limit", BodyKind::none, false, history},
    {"GET", "/v1/timeline", "since until", BodyKind::none, false, timeline},
    {"GET", "/v1/decisions", "since before limit", BodyKind::none, false, decisions},
    {"GET", "/v1/use", "since", BodyKind::none, false, use},
    {"POST", "/v1/whatif", "", BodyKind::json, true, start_what_if},
    {"GET", "/v1/whatif/{id}", "", BodyKind::none, true, about_what_if<ShowWhatIf>},
    {"DELETE", "/v1/whatif/{id}", "", BodyKind::none, true, about_what_if<StopWhatIf>},
    {"GET", "/v1/events", "", BodyKind::none, false,
     [](const Parts& parts) -> Task { return HttpTask(WatchEvents{parts.last_event_id}); }},
    {"GET", "/v1/users", "", BodyKind::none, true,
     [](const Parts& /*parts*/) { return task(ListUsers{}); }},
    {"POST", "/v1/users", "", BodyKind::json, true, add_user},
    {"DELETE", "/v1/users/{user}", "", BodyKind::none, true,
     [](const Parts& parts) { return task(RemoveUser{parts.parts[0]}); }},
    {"POST", "/v1/users/{user}/tokens", "", BodyKind::none, true,
     [](const Parts& parts) {
       return task(AddToken{parts.parts[0], {}});
     }},
    {"DELETE", "/v1/users/{user}/tokens/{token}", "", BodyKind::none, true,
     [](const Parts& parts) {
       return task(RemoveToken{parts.parts[0], parts.parts[1]});
     }},
    {"GET", "/v1/cells", "", BodyKind::none, true,
     [](const Parts& /*parts*/) { return task(ListCells{}); }},
    {"PUT", "/v1/cells/{tenant}", "", BodyKind::json, true, set_cells},
    {"DELETE", "/v1/cells/{tenant}", "", BodyKind::none, true,
     [](const Parts& parts) { return task(RemoveCells{parts.parts[0]}); }},
    {"GET", "/v1/health", "", BodyKind::none, false,
     [](const Parts& /*parts*/) { return task(ShowHealth{}); }},
    {"POST", "/v1/page/codes", "", BodyKind::none, false,
     [](const Parts& /*parts*/) -> Task { return HttpTask(MakePageCode{}); }},
    {"POST", "/v1/page/session", "", BodyKind::json, false, use_page_code},
    {"GET", "/v1/page/session", "", BodyKind::none, false,
     [](const Parts& /*parts*/) -> Task { return HttpTask(ShowCaller{}); }},
    {"DELETE", "/v1/page/session", "", BodyKind::none, false,
     [](const Parts& /*parts*/) { return task(ClosePage{}); }},
    {"GET", "/", "", BodyKind::none, false,
     [](const Parts& /*parts*/) -> Task { return HttpTask(ReadPageFile{"/"}); }},
    {"GET", "/assets/{file}", "", BodyKind::none, false,
     [](const Parts& parts) -> Task {
       return HttpTask(ReadPageFile{"/assets/" + parts.parts[0]});
     }},
    {"GET", "/metrics", "", BodyKind::none, false,
     [](const Parts& /*parts*/) -> Task { return HttpTask(ReadMetrics{}); }},
    {"GET", "/healthz", "", BodyKind::none, false,
     [](const Parts& /*parts*/) -> Task { return HttpTask(ReadHealth{}); }},
}};

// The routes above, and those of the verbs.
const std::vector<Route>& routes() {
  static const std::vector<Route> all = [] {
    std::vector<Route> list(kRoutes.begin(), kRoutes.end());
    for (const JobVerb& verb : job_verbs())
      list.push_back({verb.method, verb.path, "", BodyKind::none, false, nullptr, verb.ask});
    return list;
  }();
  return all;
}

// --- heads ---------------------------------------------------------------------------------------

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// nullopt if an escape is broken, or if the result is not UTF-8 or has control characters.
std::optional<std::string> decoded(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    result += static_cast<char>(high * 16 + low);
    i += 2;
  }
  for (const unsigned char c : result) {
    if (c < 0x20 || c == 0x7F) return std::nullopt;
  }
  // Answers repeat it, and they are JSON.
  if (!canonical_json(Json(result))) return std::nullopt;
  return result;
}

// The values of the names in braces, not decoded; nullopt if the path does not match.
std::optional<std::vector<std::string_view>> match(std::string_view pattern,
                                                   std::string_view path) {
  std::vector<std::string_view> found;
  while (true) {
    const auto pattern_end = std::min(pattern.find('/', 1), pattern.size());
    const auto path_end = std::min(path.find('/', 1), path.size());
    const auto wanted = pattern.substr(0, pattern_end);
    const auto given = path.substr(0, path_end);
    if (wanted.size() > 1 && wanted[1] == '{') {
      if (given.size() < 2 || given[0] != '/') return std::nullopt;
      found.push_back(given.substr(1));
    } else if (wanted != given) {
      return std::nullopt;
    }
    pattern.remove_prefix(pattern_end);
    path.remove_prefix(path_end);
    if (pattern.empty() || path.empty()) break;
  }
  if (!pattern.empty() || !path.empty()) return std::nullopt;
  return found;
}

Checked<Pairs> parse_query(std::string_view text, const Route& route) {
  Pairs queries;
  if (text.empty()) return queries;
  std::vector<std::string> known;
  for (const auto name : split(route.queries, ' ')) {
    if (!name.empty()) known.emplace_back(name);
  }
  for (const auto part : split(text, '&')) {
    const auto equals = std::min(part.find('='), part.size());
    const auto name = decoded(part.substr(0, equals));
    auto value = decoded(part.substr(std::min(equals + 1, part.size())));
    if (!name || !value) return bad("the query of the address is not properly escaped text");
    if (std::find(known.begin(), known.end(), *name) == known.end()) {
      const auto near = closest(*name, known);
      return bad(fmt::format("{} {} takes no parameter {}{}", route.verb, route.pattern,
                             base::quoted(*name),
                             near ? fmt::format("; did you mean {}?", *near) : ""));
    }
    for (const auto& [before, unused] : queries) {
      if (before == *name) return bad(fmt::format("the parameter {} occurs twice", *name));
    }
    queries.emplace_back(*name, std::move(*value));
  }
  return queries;
}

// "application/json; charset=utf-8" without its parameters, in lower case.
std::string media_type(std::string_view text) {
  std::string result(trim(text.substr(0, text.find(';'))));
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

std::optional<HttpRefusal> check_type(const Route& route, const std::string& type) {
  if (route.body == BodyKind::none) return std::nullopt;
  if (type == "application/json") return std::nullopt;
  if (route.body == BodyKind::job_file && type == "application/yaml") return std::nullopt;
  return HttpRefusal{415,
                     fmt::format("the body must come with Content-Type: application/json{}",
                                 route.body == BodyKind::job_file ? " or application/yaml" : ""),
                     {}};
}

std::optional<HttpRefusal> check_length(const HttpHead& head, const Route& route) {
  const bool job = route.body == BodyKind::job_file;
  const auto most = static_cast<long long>(job ? kLargestJobFile : kLargestHttpBody);
  bool length = false;
  bool some = false;
  for (const auto& [name, value] : head.headers) {
    if (name == "content-length") {
      const auto size = parse_integer(value);
      if (!size || *size < 0) return bad("the Content-Length is no number");
      if (*size > most) {
        return HttpRefusal{
            413,
            fmt::format("a {} may have {} bytes at most", job ? "job file" : "body", most),
            {}};
      }
      length = true;
      some = some || *size > 0;
    } else if (name == "transfer-encoding") {
      length = true;
      some = true;
    }
  }
  if (route.body == BodyKind::none && some) {
    return bad(fmt::format("{} {} takes no body", route.verb, route.pattern));
  }
  if (route.body != BodyKind::none && !length) {
    return HttpRefusal{
        411,
        fmt::format("{} {} needs a body with a Content-Length", route.verb, route.pattern),
        {}};
  }
  return std::nullopt;
}

// The value of a header that is copied into answers and rows.
Checked<std::string> short_header(const HttpHead& head, const char* name, std::size_t most) {
  auto value = single_header(head, name);
  if (auto* refused = std::get_if<HttpRefusal>(&value)) return std::move(*refused);
  auto& text = std::get<std::optional<std::string>>(value);
  if (!text || text->empty()) return std::string();
  if (!printable(*text, most)) {
    return bad(
        fmt::format("the header {} must be at most {} letters, digits and signs without "
                    "spaces",
                    name, most));
  }
  return std::move(*text);
}

struct Found {
  const Route* route = nullptr;
  std::vector<std::string_view> parts;
};

Checked<Found> find_route(std::string_view verb, std::string_view path) {
  std::string allow;
  for (const Route& route : routes()) {
    auto parts = match(route.pattern, path);
    if (!parts) continue;
    // HEAD gets the answer of GET without the body.
    const std::string_view route_verb = route.verb;
    if (verb == route_verb || (verb == "HEAD" && route_verb == "GET"))
      return Found{&route, std::move(*parts)};
    allow += fmt::format("{}{}", allow.empty() ? "" : ", ", route_verb);
    if (route_verb == "GET") allow += ", HEAD";
  }
  if (allow.empty()) {
    return HttpRefusal{404,
                       fmt::format("there is nothing at {}; docs/openapi.yaml lists all there is",
                                   base::quoted(path)),
                       {}};
  }
  return HttpRefusal{
      405, fmt::format("{} takes {}, not {}", base::quoted(path), allow, base::quoted(verb)),
      allow};
}

}  // namespace

bool RoutedRequest::wants_body() const { return route_->body != BodyKind::none; }

std::string RoutedRequest::label() const {
  return fmt::format("{} {}", route_->verb, route_->pattern);
}

std::variant<HttpTask, HttpRefusal> RoutedRequest::with_body(std::string_view body) const {
  const Parts parts{parts_, queries_, content_type_, key_, last_event_id_, body};
  if (route_->about == nullptr) return route_->make(parts);
  return with_job(parts,
                  [&](JobRef job) -> Task { return HttpTask(route_->about(std::move(job))); });
}

std::variant<RoutedRequest, HttpRefusal> route(const HttpHead& head, const Caller& caller) {
  const std::string_view target = head.target;
  const auto path = target.substr(0, target.find('?'));
  auto found = find_route(head.verb, path);
  if (auto* refused = std::get_if<HttpRefusal>(&found)) return std::move(*refused);
  const auto& [matched, parts] = std::get<Found>(found);
  if (matched->admin && !caller.admin) {
    return HttpRefusal{
        403, fmt::format("{} {} is for admins", matched->verb, matched->pattern), {}};
  }

  RoutedRequest routed;
  routed.route_ = matched;
  routed.parts_.reserve(parts.size());
  for (const auto part : parts) {
    auto text = decoded(part);
    if (!text) return bad("the path of the address is not properly escaped text");
    routed.parts_.push_back(std::move(*text));
  }
  auto queries = parse_query(target.substr(std::min(path.size() + 1, target.size())), *matched);
  if (auto* refused = std::get_if<HttpRefusal>(&queries)) return std::move(*refused);
  routed.queries_ = std::move(std::get<Pairs>(queries));

  if (auto refused = check_length(head, *matched)) return std::move(*refused);
  auto type = single_header(head, "content-type");
  if (auto* refused = std::get_if<HttpRefusal>(&type)) return std::move(*refused);
  routed.content_type_ = media_type(std::get<std::optional<std::string>>(type).value_or(""));
  if (auto refused = check_type(*matched, routed.content_type_)) return std::move(*refused);
  auto key = short_header(head, "idempotency-key", 128);
  if (auto* refused = std::get_if<HttpRefusal>(&key)) return std::move(*refused);
  routed.key_ = std::move(std::get<std::string>(key));
  auto last = short_header(head, "last-event-id", 64);
  if (auto* refused = std::get_if<HttpRefusal>(&last)) return std::move(*refused);
  routed.last_event_id_ = std::move(std::get<std::string>(last));
  return routed;
}

std::optional<HttpRefusal> check_raw_head(std::string_view head) {
  for (auto end = head.find("\r\n"); end != std::string_view::npos; end = head.find("\r\n", end)) {
    end += 2;
    if (end < head.size() && (head[end] == ' ' || head[end] == '\t'))
      return bad("a header goes on in the next line, which HTTP no longer allows");
  }
  return std::nullopt;
}

std::optional<HttpRefusal> check_framing(const HttpHead& head, unsigned version) {
  std::size_t lengths = 0;
  std::size_t encodings = 0;
  bool chunked = false;
  for (const auto& [name, value] : head.headers) {
    if (name == "content-length") {
      ++lengths;
      // Beast would accept a list of equal numbers.
      const bool digits = !value.empty() && std::all_of(value.begin(), value.end(), is_digit);
      if (!digits) return bad("the Content-Length is no number");
    }
    if (name != "transfer-encoding") continue;
    ++encodings;
    // Must have no parameters, because programs do not agree on how to read them.
    chunked = media_type(value) == "chunked" && value.find(';') == std::string::npos;
  }
  if (lengths > 1) return bad("the header content-length occurs twice");
  if (encodings == 0) return std::nullopt;
  if (lengths > 0) return bad("a request has a Content-Length or a Transfer-Encoding, not both");
  if (encodings > 1 || !chunked) return bad("the only Transfer-Encoding known is chunked");
  if (version < 11) return bad("a request of HTTP 1.0 has no Transfer-Encoding");
  return std::nullopt;
}

std::optional<HttpRefusal> take_absolute_form(HttpHead& head) {
  constexpr std::string_view kScheme = "http://";
  const std::string_view target = head.target;
  if (media_type(target.substr(0, kScheme.size())) != kScheme) return std::nullopt;
  const auto rest = target.substr(kScheme.size());
  const auto authority = rest.substr(0, rest.find_first_of("/?"));
  const auto path = rest.substr(authority.size());
  if (authority.empty()) return bad("the address has no host");
  for (auto& [name, value] : head.headers) {
    if (name == "host") value = authority;
  }
  head.target = path.starts_with('/') ? std::string(path) : fmt::format("/{}", path);
  return std::nullopt;
}

bool is_health(const HttpHead& head) {
  return (head.verb == "GET" || head.verb == "HEAD") && head.target == "/healthz";
}

bool is_for_page(const HttpHead& head) {
  const std::string_view target = head.target;
  const std::string_view path = target.substr(0, target.find('?'));
  if (head.verb == "POST") return path == "/v1/page/session";
  return (head.verb == "GET" || head.verb == "HEAD") &&
         (path == "/" || path.starts_with("/assets/"));
}

std::optional<HttpRefusal> check_origin(const HttpHead& head, const std::vector<std::string>& hosts,
                                        std::string_view scheme) {
  auto given = single_header(head, "host");
  if (auto* refused = std::get_if<HttpRefusal>(&given)) return std::move(*refused);
  const auto& host = std::get<std::optional<std::string>>(given);
  if (!host) return bad("the request has no Host header");
  // In an IPv6 address the colon of the port follows the closing bracket.
  const auto colon = host->find(':', host->substr(0, 1) == "[" ? host->find(']') : 0);
  const std::string name = media_type(host->substr(0, colon));
  const bool good_port = colon == std::string::npos ||
                         (colon + 1 < host->size() && host->size() - colon <= 6 &&
                          std::all_of(host->begin() + static_cast<std::ptrdiff_t>(colon) + 1,
                                      host->end(), [](char c) { return c >= '0' && c <= '9'; }));
  if (!good_port || std::find(hosts.begin(), hosts.end(), name) == hosts.end()) {
    return HttpRefusal{
        403, fmt::format("this daemon does not answer to the name {}", base::quoted(*host)), {}};
  }
  auto origin = single_header(head, "origin");
  if (auto* refused = std::get_if<HttpRefusal>(&origin)) return std::move(*refused);
  const auto& from = std::get<std::optional<std::string>>(origin);
  if (from && *from != std::string(scheme) + *host) {
    return HttpRefusal{
        403, fmt::format("this daemon does not answer pages of {}", base::quoted(*from)), {}};
  }
  return std::nullopt;
}

std::variant<std::string, HttpRefusal> bearer_token(const HttpHead& head) {
  auto given = single_header(head, "authorization");
  if (auto* refused = std::get_if<HttpRefusal>(&given)) return std::move(*refused);
  const auto& text = std::get<std::optional<std::string>>(given);
  if (!text) return std::string();
  constexpr std::string_view kScheme = "bearer ";
  const bool bearer = text->size() > kScheme.size() &&
                      media_type(text->substr(0, kScheme.size() - 1)) == "bearer" &&
                      (*text)[kScheme.size() - 1] == ' ';
  const std::string token(bearer ? trim(std::string_view{*text}.substr(kScheme.size())) : "");
  if (!printable(token, 256)) {
    return HttpRefusal{401, "the Authorization header must be \"Bearer TOKEN\"", {}};
  }
  return token;
}

std::variant<std::optional<std::string>, HttpRefusal> single_header(const HttpHead& head,
                                                                    std::string_view name) {
  std::optional<std::string> found;
  for (const auto& [key, value] : head.headers) {
    if (key != name) continue;
    if (found) return bad(fmt::format("the header {} occurs twice", name));
    found = value;
  }
  return found;
}

std::vector<std::string> api_routes() {
  std::vector<std::string> names;
  names.reserve(routes().size());
  for (const Route& route : routes())
    names.push_back(fmt::format("{} {}", route.verb, route.pattern));
  return names;
}

bool valid_user_name(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && name.size() <= 32 && letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) {
           return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '.';
         });
}

}  // namespace rubato::api
