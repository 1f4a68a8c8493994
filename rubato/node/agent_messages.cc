#include "rubato/node/agent_messages.h"

#include <algorithm>
#include <fmt/format.h>
#include <initializer_list>
#include <optional>

#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"

namespace rubato::node {
namespace {

constexpr int kMostProtocol = 1'000'000;

// --- writing ---

Json to_json(const AgentHello& hello) {
  Json json = {{"type", "hello"}, {"node", hello.node.value()}, {"token", hello.token}};
  json.update(to_json(hello.process));
  Json jobs = Json::array();
  for (const JobStatus& status : hello.jobs) jobs.push_back(to_json(status));
  json["jobs"] = std::move(jobs);
  json["protocol"] = hello.protocol;
  return json;
}

Json to_json(const NodeTable& table) {
  Json jobs = Json::array();
  for (const NodeTable::Entry& entry : table.jobs) {
    jobs.push_back({{"job", entry.job.value()}, {"generation", entry.generation.value()}});
  }
  return {{"type", "table"}, {"jobs", std::move(jobs)}};
}

Json for_job(JobId job, const ToMaster& message) {
  Json json = to_json(message);
  json["job"] = job.value();
  return json;
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

// --- reading ---

AgentHello read_hello(JsonFields& fields) {
  AgentHello hello;
  hello.node = fields["node"].id<NodeId>();
  hello.token = fields["token"].text();
  hello.process = read_process_name(fields);
  fields["jobs"].each(
      [&](const JsonValue& job) { read_job_status(job, hello.jobs.emplace_back()); });
  const auto protocol = fields.find("protocol");
  hello.protocol = protocol ? protocol->whole(0, kMostProtocol) : 1;
  return hello;
}

AgentBeat read_beat(JsonFields& fields) {
  const auto trouble = fields.find("trouble");
  return {trouble ? trouble->text() : ""};
}

NodeTable read_table(JsonFields& fields) {
  NodeTable table;
  fields["jobs"].each([&](const JsonValue& job) {
    JsonFields entry(job);
    table.jobs.push_back({entry["job"].id<JobId>(), entry["generation"].id<Generation>()});
  });
  return table;
}

LaunchJob read_launch(JsonFields& fields) {
  LaunchJob start;
  read_job_launch(fields["launch"], start.launch);
  return start;
}

FromAgent read_from_agent(const std::string& type, const JsonValue& message) {
  if (type == "status") {
    JobStatus status;
    read_job_status(message, status);
    return status;
  }
  JsonFields fields(message);
  fields.leave("type");
  if (type == "hello") return read_hello(fields);
  if (type == "beat") return read_beat(fields);
  return AgentSettled{};
}

ToAgent read_to_agent(const std::string& type, const JsonValue& message) {
  JsonFields fields(message);
  fields.leave("type");
  if (type == "table") return read_table(fields);
  if (type == "start") return read_launch(fields);
  // What its master will be told, and the job.
  if (type == "place") return PlaceJob{fields["job"].id<JobId>(), read_place(fields)};
  if (type == "stop") return HaltJob{fields["job"].id<JobId>(), read_stop_job(fields)};
  if (type == "forget") return ForgetJob{fields["job"].id<JobId>()};
  if (type == "welcome") return AgentWelcome{};
  if (type == "beat") return EngineBeat{};
  return DismissAgent{};
}

template <class Message>
Result<Message> parse(const Json& json, std::initializer_list<std::string_view> types,
                      Message (*read)(const std::string&, const JsonValue&)) {
  const std::string type = look_for_text(json, "type");
  if (std::find(types.begin(), types.end(), type) == types.end()) {
    return Error{fmt::format("unknown message {}; the daemon and its agents must be of one version",
                             base::quoted(type))};
  }
  JsonTrouble trouble;
  Message message = read(type, JsonValue(json, trouble));
  if (!trouble.ok()) return trouble.error(type);
  return message;
}

}  // namespace

Json to_json(const FromAgent& message) { return std::visit(Writer{}, message); }
Json to_json(const ToAgent& message) { return std::visit(Writer{}, message); }

Result<FromAgent> parse_from_agent(const Json& message) {
  return parse<FromAgent>(message, {"hello", "beat", "settled", "status"}, read_from_agent);
}

Result<ToAgent> parse_to_agent(const Json& message) {
  return parse<ToAgent>(message,
                        {"table", "start", "place", "stop", "forget", "welcome", "beat", "dismiss"},
                        read_to_agent);
}

}  // namespace rubato::node
