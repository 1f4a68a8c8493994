#include "rubato/wire/launch.h"

#include <fmt/format.h>

namespace rubato::wire {

void to_json(Json& json, const Generation& value) { json = {value.plan, value.revision}; }
void from_json(const Json& json, Generation& value) {
  value = {json.at(0).get<std::int64_t>(), json.at(1).get<std::int64_t>()};
}
void to_json(Json& json, const Plan& value) {
  json = {{"number", value.number}, {"workers", value.workers}};
}
void from_json(const Json& json, Plan& value) {
  json.at("number").get_to(value.number);
  json.at("workers").get_to(value.workers);
}

namespace {

Json encode(const Hello& hello) {
  return {{"type", "hello"},
          {"uid", hello.uid},
          {"token", hello.token},
          {"pid", hello.pid},
          {"address", hello.address}};
}
Json encode(const Beat& beat) { return {{"type", "beat"}, {"step", beat.step}}; }
Json encode(const Report& report) { return {{"type", "report"}, {"content", report.content}}; }
Json encode(const Notice& notice) {
  return {{"type", "notice"}, {"kind", notice.kind}, {"content", notice.content}};
}
Json encode(const Welcome& welcome) {
  Json peers = Json::array();
  for (const Peer& peer : welcome.peers) {
    peers.push_back({{"uid", peer.uid}, {"address", peer.address}});
  }
  return {
      {"type", "welcome"}, {"peers", peers}, {"plan", welcome.plan}, {"founder", welcome.founder}};
}
Json encode(const Plan& plan) { return {{"type", "plan"}, {"plan", plan}}; }
Json encode(const Stop&) { return {{"type", "stop"}}; }

Welcome decode_welcome(const Json& json) {
  Welcome welcome;
  for (const Json& peer : json.at("peers")) {
    welcome.peers.push_back({peer.at("uid").get<Uid>(), peer.at("address").get<std::string>()});
  }
  json.at("plan").get_to(welcome.plan);
  json.at("founder").get_to(welcome.founder);
  return welcome;
}

Hello decode_hello(const Json& json) {
  return {json.at("uid").get<Uid>(), json.at("token").get<std::string>(), json.at("pid").get<int>(),
          json.at("address").get<std::string>()};
}

Error unknown(const std::string& type) {
  return {fmt::format("message of unknown type '{}'; both sides must be of one version", type)};
}

}  // namespace

Json to_json(const FromWorker& message) {
  return std::visit([](const auto& m) { return encode(m); }, message);
}
Json to_json(const FromLauncher& message) {
  return std::visit([](const auto& m) { return encode(m); }, message);
}

Result<FromWorker> parse_from_worker(const Json& message) {
  try {
    const auto type = message.at("type").get<std::string>();
    if (type == "hello") return FromWorker(decode_hello(message));
    if (type == "beat") return FromWorker(Beat{message.at("step").get<std::int64_t>()});
    if (type == "report") return FromWorker(Report{message.at("content")});
    if (type == "notice") {
      return FromWorker(Notice{message.at("kind").get<std::string>(), message.at("content")});
    }
    return unknown(type);
  } catch (const Json::exception& error) {
    return Error{fmt::format("message from a worker: {}", error.what())};
  }
}

Result<FromLauncher> parse_from_launcher(const Json& message) {
  try {
    const auto type = message.at("type").get<std::string>();
    if (type == "welcome") return FromLauncher(decode_welcome(message));
    if (type == "plan") return FromLauncher(message.at("plan").get<Plan>());
    if (type == "stop") return FromLauncher(Stop{});
    return unknown(type);
  } catch (const Json::exception& error) {
    return Error{fmt::format("message from the launcher: {}", error.what())};
  }
}

}  // namespace rubato::wire
