#include "rubato/wire/launch.h"

#include <fmt/format.h>
#include <optional>
#include <utility>

#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"

namespace rubato::wire {

void to_json(Json& json, const MembershipGeneration& value) { json = {value.plan, value.revision}; }
void from_json(const Json& json, MembershipGeneration& value) {
  value = {json.at(0).get<std::int64_t>(), json.at(1).get<std::int64_t>()};
}
void to_json(Json& json, const MembershipPlan& value) {
  json = {{"number", value.number}, {"workers", value.workers}};
}
void from_json(const Json& json, MembershipPlan& value) {
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
Json numbered(Json message, std::int64_t number) {
  if (number != 0) message["number"] = number;
  return message;
}
Json encode(const Report& report) {
  return numbered({{"type", "report"}, {"content", report.content}}, report.number);
}
Json encode(const Notice& notice) {
  return numbered({{"type", "notice"}, {"kind", notice.kind}, {"content", notice.content}},
                  notice.number);
}
Json encode(const WorkerHello& hello) {
  return {{"type", "standing"},   {"connection", hello.connection}, {"round", hello.round},
          {"uid", hello.uid},     {"epoch", hello.epoch},           {"gone", hello.gone},
          {"works", hello.works}, {"generation", hello.generation}, {"applied", hello.applied}};
}
Json encode(const std::vector<Peer>& peers) {
  Json list = Json::array();
  for (const Peer& peer : peers) list.push_back({{"uid", peer.uid}, {"address", peer.address}});
  return list;
}
Json encode(const Welcome& welcome) {
  return {{"type", "welcome"},
          {"peers", encode(welcome.peers)},
          {"plan", welcome.plan},
          {"founder", welcome.founder}};
}
Json encode(const RosterWord& word) {
  return {{"type", "roster"},           {"round", word.round}, {"epoch", word.epoch},
          {"plan", word.plan},          {"gone", word.gone},   {"founder", word.founder},
          {"peers", encode(word.peers)}};
}
Json encode(const MasterBeat& beat) { return {{"type", "beat"}, {"heard", beat.heard}}; }
Json encode(const MembershipPlan& plan) { return {{"type", "plan"}, {"plan", plan}}; }
Json encode(const Stop&) { return {{"type", "stop"}}; }
Json encode(const Throttle& throttle) { return {{"type", "throttle"}, {"share", throttle.share}}; }

// One side may be newer, so unknown fields are always ignored.
constexpr auto kIgnored = JsonFields::Unknown::ignored;

void read_plan(const JsonValue& json, MembershipPlan& plan) {
  JsonFields fields(json, kIgnored);
  plan.number = fields["number"].whole<std::int64_t>();
  fields["workers"].each([&](const JsonValue& uid) { plan.workers.push_back(uid.whole<Uid>()); });
}

void read_peers(const JsonValue& list, std::vector<Peer>& peers) {
  list.each([&](const JsonValue& json) {
    JsonFields peer(json, kIgnored);
    peers.push_back({peer["uid"].whole<Uid>(), peer["address"].text()});
  });
}

Welcome read_welcome(JsonFields& fields) {
  Welcome welcome;
  read_peers(fields["peers"], welcome.peers);
  read_plan(fields["plan"], welcome.plan);
  welcome.founder = fields["founder"].boolean();
  return welcome;
}

RosterWord read_roster(JsonFields& fields) {
  RosterWord word;
  word.round = fields["round"].whole<std::int64_t>();
  word.epoch = fields["epoch"].whole<std::int64_t>();
  read_plan(fields["plan"], word.plan);
  fields["gone"].each([&](const JsonValue& uid) { word.gone.push_back(uid.whole<Uid>()); });
  word.founder = fields["founder"].whole<Uid>();
  read_peers(fields["peers"], word.peers);
  return word;
}

WorkerHello read_standing(JsonFields& fields) {
  WorkerHello hello;
  hello.connection = fields["connection"].whole<std::int64_t>();
  hello.round = fields["round"].whole<std::int64_t>();
  hello.uid = fields["uid"].whole<Uid>();
  hello.epoch = fields["epoch"].whole<std::int64_t>();
  hello.gone = fields["gone"].whole<std::int64_t>();
  hello.works = fields["works"].boolean();
  const JsonValue generation = fields["generation"];
  if (generation.is_row(2)) {
    hello.generation = {generation.at(0).whole<std::int64_t>(),
                        generation.at(1).whole<std::int64_t>()};
  }
  hello.applied = fields["applied"].whole<std::int64_t>();
  return hello;
}

std::int64_t read_number(JsonFields& fields) {
  const auto number = fields.find("number");
  return number ? number->whole<std::int64_t>() : 0;
}

Hello read_hello(JsonFields& fields) {
  return {fields["uid"].whole<Uid>(), fields["token"].text(), fields["pid"].whole<int>(),
          fields["address"].text()};
}

std::optional<FromWorker> read_from_worker(const std::string& type, JsonFields& fields) {
  if (type == "hello") return read_hello(fields);
  if (type == "beat") return Beat{fields["step"].whole<std::int64_t>()};
  if (type == "report") return Report{fields["content"].json(), read_number(fields)};
  if (type == "notice") {
    return Notice{fields["kind"].text(), fields["content"].json(), read_number(fields)};
  }
  if (type == "standing") return read_standing(fields);
  return std::nullopt;
}

std::optional<FromLauncher> read_from_launcher(const std::string& type, JsonFields& fields) {
  if (type == "welcome") return read_welcome(fields);
  if (type == "stop") return Stop{};
  if (type == "throttle") return Throttle{fields["share"].number(0, 1)};
  if (type == "roster") return read_roster(fields);
  if (type == "beat") return MasterBeat{fields["heard"].whole<std::int64_t>()};
  if (type != "plan") return std::nullopt;
  MembershipPlan plan;
  read_plan(fields["plan"], plan);
  return plan;
}

Error unknown(const std::string& type) {
  return {fmt::format("message of unknown type {}; both sides must be of one version",
                      base::quoted(type))};
}

template <class Message>
Result<Message> parse(const Json& json,
                      std::optional<Message> (*read)(const std::string&, JsonFields&)) {
  JsonTrouble trouble;
  JsonFields fields(JsonValue(json, trouble), kIgnored);
  const std::string& type = fields["type"].text();
  auto message = read(type, fields);
  if (trouble.ok() && !message) return unknown(type);
  if (!trouble.ok()) return trouble.error(type.empty() ? "message" : type);
  return std::move(*message);
}

}  // namespace

Json to_json(const FromWorker& message) {
  return std::visit([](const auto& m) { return encode(m); }, message);
}
Json to_json(const FromLauncher& message) {
  return std::visit([](const auto& m) { return encode(m); }, message);
}

Result<FromWorker> parse_from_worker(const Json& message) {
  return parse<FromWorker>(message, read_from_worker);
}
Result<FromLauncher> parse_from_launcher(const Json& message) {
  return parse<FromLauncher>(message, read_from_launcher);
}

}  // namespace rubato::wire
