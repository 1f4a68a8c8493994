#include "rubato/node/agent_messages.h"

#include <fmt/format.h>
#include <initializer_list>
#include <limits>

#include "rubato/base/text.h"

namespace rubato::node {
namespace {

constexpr std::uint64_t kMostProtocol = 1'000'000;

Error lacks(std::string_view what, const char* field, std::string_view must) {
  return {fmt::format("{} has no \"{}\" that is {}", what, field, must)};
}

template <class Id>
Result<Id> id_in(const Json& json, const char* field, std::string_view what) {
  const auto found = json.find(field);
  constexpr auto kMost = std::numeric_limits<typename Id::rep>::max();
  if (found == json.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() > kMost) {
    return lacks(what, field, fmt::format("an integer from 0 to {}", kMost));
  }
  return Id(static_cast<typename Id::rep>(found->get<std::uint64_t>()));
}

// Parsers of what lies flat beside other fields see only what is theirs.
Json without(const Json& json, std::initializer_list<const char*> fields) {
  Json rest = json;
  for (const char* field : fields) rest.erase(field);
  return rest;
}

Result<void> only(const Json& json, std::initializer_list<const char*> fields,
                  std::string_view what) {
  const Json rest = without(json, fields);
  for (const auto& [name, value] : rest.items()) {
    if (name == "type") continue;
    return Error{fmt::format("{} has the unknown field {}", what, base::quoted(name))};
  }
  return {};
}

Json to_json(const AgentHello& hello) {
  Json json = {{"type", "hello"}, {"node", hello.node.value()}, {"token", hello.token}};
  json.update(to_json(hello.process));
  Json jobs = Json::array();
  for (const JobStatus& status : hello.jobs) jobs.push_back(to_json(status));
  json["jobs"] = std::move(jobs);
  json["protocol"] = hello.protocol;
  return json;
}

Result<FromAgent> parse_hello(const Json& json) {
  constexpr std::string_view kWhat = "an agent's hello";
  AgentHello hello;
  const auto node = id_in<NodeId>(json, "node", kWhat);
  if (!node) return node.error();
  hello.node = *node;
  const auto token = json.find("token");
  if (token == json.end() || !token->is_string()) return lacks(kWhat, "token", "text");
  hello.token = token->get<std::string>();
  const auto protocol = json.find("protocol");
  const bool said = protocol != json.end();
  const bool fits = said && protocol->is_number_integer() && protocol->get<std::int64_t>() >= 0 &&
                    protocol->get<std::uint64_t>() <= kMostProtocol;
  if (said && !fits)
    return lacks(kWhat, "protocol", fmt::format("an integer from 0 to {}", kMostProtocol));
  hello.protocol = said ? protocol->get<int>() : 1;
  const auto process =
      parse_process_name(without(json, {"type", "node", "token", "jobs", "protocol"}));
  if (!process) return process.error();
  hello.process = *process;
  const auto jobs = json.find("jobs");
  if (jobs == json.end() || !jobs->is_array()) return lacks(kWhat, "jobs", "a list");
  hello.jobs.reserve(jobs->size());
  for (const Json& element : *jobs) {
    auto status = parse_job_status(element);
    if (!status) return status.error();
    hello.jobs.push_back(std::move(*status));
  }
  return FromAgent(std::move(hello));
}

Result<FromAgent> parse_beat(const Json& json) {
  constexpr std::string_view kWhat = "an agent's beat";
  if (auto ok = only(json, {"trouble"}, kWhat); !ok) return ok.error();
  const auto trouble = json.find("trouble");
  if (trouble == json.end()) return FromAgent(AgentBeat{});
  if (!trouble->is_string()) return lacks(kWhat, "trouble", "text");
  return FromAgent(AgentBeat{trouble->get<std::string>()});
}

Json to_json(const NodeTable& table) {
  Json jobs = Json::array();
  for (const NodeTable::Entry& entry : table.jobs) {
    jobs.push_back({{"job", entry.job.value()}, {"generation", entry.generation.value()}});
  }
  return {{"type", "table"}, {"jobs", std::move(jobs)}};
}

Result<ToAgent> parse_table(const Json& json) {
  constexpr std::string_view kWhat = "the table of jobs";
  if (auto ok = only(json, {"jobs"}, kWhat); !ok) return ok.error();
  const auto jobs = json.find("jobs");
  if (jobs == json.end() || !jobs->is_array()) return lacks(kWhat, "jobs", "a list");
  NodeTable table;
  table.jobs.reserve(jobs->size());
  for (const Json& element : *jobs) {
    const auto job = id_in<JobId>(element, "job", kWhat);
    if (!job) return job.error();
    const auto generation = id_in<Generation>(element, "generation", kWhat);
    if (!generation) return generation.error();
    if (auto ok = only(element, {"job", "generation"}, kWhat); !ok) return ok.error();
    table.jobs.push_back({*job, *generation});
  }
  return ToAgent(std::move(table));
}

Result<ToAgent> parse_launch(const Json& json) {
  const auto found = json.find("launch");
  if (found == json.end()) return lacks("the start of a job", "launch", "an object");
  if (auto ok = only(json, {"launch"}, "the start of a job"); !ok) return ok.error();
  auto launch = parse_job_launch(*found);
  if (!launch) return launch.error();
  return ToAgent(LaunchJob{std::move(*launch)});
}

Json for_job(JobId job, const ToMaster& message) {
  Json json = to_json(message);
  json["job"] = job.value();
  return json;
}

// "place" and "stop": what its master will be told, and the job.
Result<ToAgent> parse_for_job(const Json& json) {
  const auto job = id_in<JobId>(json, "job", "a command for a job");
  if (!job) return job.error();
  auto message = parse_to_master(without(json, {"job"}));
  if (!message) return message.error();
  if (auto* place = std::get_if<Place>(&*message))
    return ToAgent(PlaceJob{*job, std::move(*place)});
  return ToAgent(HaltJob{*job, std::get<StopJob>(*message)});
}

Result<ToAgent> parse_forget(const Json& json) {
  const auto job = id_in<JobId>(json, "job", "the word to forget a job");
  if (!job) return job.error();
  if (auto ok = only(json, {"job"}, "the word to forget a job"); !ok) return ok.error();
  return ToAgent(ForgetJob{*job});
}

struct Writer {
  Json operator()(const AgentHello& hello) const { return to_json(hello); }
  Json operator()(const JobStatus& status) const { return status_message(status); }
  Json operator()(const AgentBeat& beat) const {
    Json json = {{"type", "beat"}};
    if (!beat.trouble.empty()) json["trouble"] = beat.trouble;
    return json;
  }
  Json operator()(const AgentSettled& /*settled*/) const { return {{"type", "settled"}}; }

  Json operator()(const AgentWelcome& /*welcome*/) const { return {{"type", "welcome"}}; }
  Json operator()(const NodeTable& table) const { return to_json(table); }
  Json operator()(const LaunchJob& start) const {
    return {{"type", "start"}, {"launch", to_json(start.launch)}};
  }
  Json operator()(const PlaceJob& place) const { return for_job(place.job, place.place); }
  Json operator()(const HaltJob& halt) const { return for_job(halt.job, halt.stop); }
  Json operator()(const ForgetJob& forget) const {
    return {{"type", "forget"}, {"job", forget.job.value()}};
  }
  Json operator()(const EngineBeat& /*beat*/) const { return {{"type", "beat"}}; }
  Json operator()(const DismissAgent& /*dismiss*/) const { return {{"type", "dismiss"}}; }
};

std::string type_of(const Json& message) {
  const auto found = message.is_object() ? message.find("type") : message.end();
  return found != message.end() && found->is_string() ? found->get<std::string>() : "";
}

// A message without fields.
template <class Message, class All>
Result<All> bare(const Json& message) {
  if (auto ok = only(message, {}, "a message"); !ok) return ok.error();
  return All(Message{});
}

Error unknown(const std::string& type) {
  return {fmt::format("unknown message {}; the daemon and its agents must be of one version",
                      base::quoted(type))};
}

}  // namespace

Json to_json(const FromAgent& message) { return std::visit(Writer{}, message); }
Json to_json(const ToAgent& message) { return std::visit(Writer{}, message); }

Result<FromAgent> parse_from_agent(const Json& message) {
  const std::string type = type_of(message);
  if (type == "hello") return parse_hello(message);
  if (type == "beat") return parse_beat(message);
  if (type == "settled") return bare<AgentSettled, FromAgent>(message);
  if (type != "status") return unknown(type);
  auto status = parse_job_status(message);
  if (!status) return status.error();
  return FromAgent(std::move(*status));
}

Result<ToAgent> parse_to_agent(const Json& message) {
  const std::string type = type_of(message);
  if (type == "table") return parse_table(message);
  if (type == "start") return parse_launch(message);
  if (type == "place" || type == "stop") return parse_for_job(message);
  if (type == "forget") return parse_forget(message);
  if (type == "welcome") return bare<AgentWelcome, ToAgent>(message);
  if (type == "beat") return bare<EngineBeat, ToAgent>(message);
  if (type == "dismiss") return bare<DismissAgent, ToAgent>(message);
  return unknown(type);
}

}  // namespace rubato::node
