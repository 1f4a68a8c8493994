#include "rubato/launch/share_messages.h"

#include <fmt/format.h>
#include <optional>
#include <utility>

#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"

namespace rubato::launch {
namespace {

constexpr auto kIgnored = JsonFields::Unknown::ignored;

Json encode(const ShareStart& message) {
  const WorkerStart& start = message.start;
  return {{"type", "start"},
          {"round", message.order.round},
          {"epoch", message.order.epoch},
          {"uid", message.order.uid},
          {"command", start.command},
          {"environment", start.environment},
          {"directory", start.directory},
          {"low_priority", start.low_priority},
          {"key", wire::to_json(message.key)}};
}
Json encode(const ShareSignal& message) {
  return {{"type", "signal"},
          {"round", message.order.round},
          {"epoch", message.order.epoch},
          {"uid", message.order.uid},
          {"signal", message.signal}};
}
Json encode(const wire::EndsKept& kept) {
  return {{"type", "kept"}, {"epoch", kept.epoch}, {"uids", kept.uids}};
}
Json encode(const ShareEnd&) { return {{"type", "end"}}; }
Json encode(const ShareBeat&) { return {{"type", "beat"}}; }

Json encode(const ShareStatus& status) {
  Json ended = Json::array();
  for (const Uid uid : status.hello.ended) {
    const auto found = status.ends.find(uid);
    const ProcessEnd end = found == status.ends.end() ? ProcessEnd() : found->second;
    ended.push_back({{"uid", uid}, {"killed", end.killed}, {"code", end.code}});
  }
  return {{"type", "share"},
          {"connection", status.hello.connection},
          {"share", status.hello.share},
          {"epoch", status.hello.epoch},
          {"running", status.hello.running},
          {"ended", ended}};
}
Json encode(const ShareStarted& started) {
  return {{"type", "started"}, {"uid", started.uid}, {"process", to_json(started.process)}};
}
Json encode(const ShareTrouble& trouble) {
  return {{"type", "trouble"},
          {"uid", trouble.uid},
          {"why", trouble.why},
          {"shortage", trouble.shortage}};
}
Json encode(const ShareOutput& output) {
  return {{"type", "output"}, {"uid", output.uid}, {"err", output.is_err}, {"line", output.line}};
}

template <class Order>
Order read_order(JsonFields& fields) {
  return {fields["round"].whole<std::int64_t>(), fields["epoch"].whole<std::int64_t>(),
          fields["uid"].whole<Uid>()};
}

std::vector<Uid> read_uids(const JsonValue& list) {
  std::vector<Uid> uids;
  list.each([&](const JsonValue& uid) { uids.push_back(uid.whole<Uid>()); });
  return uids;
}

std::vector<std::string> read_texts(const JsonValue& list) {
  std::vector<std::string> texts;
  list.each([&](const JsonValue& text) { texts.push_back(text.system_text()); });
  return texts;
}

ShareStart read_start(JsonFields& fields) {
  ShareStart message;
  message.order = read_order<wire::StartOrder>(fields);
  message.start.uid = message.order.uid;
  message.start.command = read_texts(fields["command"]);
  (void)fields["command"].must_be(!message.start.command.empty(), "a program and its arguments");
  message.start.environment = read_texts(fields["environment"]);
  message.start.directory = fields["directory"].system_text();
  message.start.low_priority = fields["low_priority"].boolean();
  const JsonValue key = fields["key"];
  if (auto read = wire::parse_job_key(key.json())) {
    message.key = std::move(*read);
  } else {
    key.refuse("must be the key of a round");
  }
  return message;
}

std::optional<ToShare> read_to_share(const std::string& type, JsonFields& fields) {
  if (type == "start") return read_start(fields);
  if (type == "signal") {
    return ShareSignal{read_order<wire::KillOrder>(fields), fields["signal"].whole<int>(1, 64)};
  }
  if (type == "kept") {
    return wire::EndsKept{fields["epoch"].whole<std::int64_t>(), read_uids(fields["uids"])};
  }
  if (type == "end") return ShareEnd{};
  if (type == "beat") return ShareBeat{};
  return std::nullopt;
}

ShareStatus read_status(JsonFields& fields) {
  ShareStatus status;
  status.hello.connection = fields["connection"].whole<std::int64_t>();
  status.hello.share = fields["share"].text();
  status.hello.epoch = fields["epoch"].whole<std::int64_t>();
  status.hello.running = read_uids(fields["running"]);
  fields["ended"].each([&](const JsonValue& json) {
    JsonFields one(json, kIgnored);
    const Uid uid = one["uid"].whole<Uid>();
    status.hello.ended.push_back(uid);
    status.ends[uid] = {one["killed"].boolean(), one["code"].whole<int>()};
  });
  return status;
}

std::optional<FromShare> read_from_share(const std::string& type, JsonFields& fields) {
  if (type == "share") return read_status(fields);
  if (type == "trouble") {
    return ShareTrouble{fields["uid"].whole<Uid>(), fields["why"].text(),
                        fields["shortage"].boolean()};
  }
  if (type == "output") {
    return ShareOutput{fields["uid"].whole<Uid>(), fields["err"].boolean(), fields["line"].text()};
  }
  if (type == "beat") return ShareBeat{};
  if (type != "started") return std::nullopt;
  ShareStarted started{fields["uid"].whole<Uid>(), {}};
  const JsonValue process = fields["process"];
  if (const auto name = parse_process_name(process.json())) {
    started.process = *name;
  } else {
    process.refuse("must name a process");
  }
  return started;
}

template <class Message>
Result<Message> parse(const Json& json,
                      std::optional<Message> (*read)(const std::string&, JsonFields&)) {
  JsonTrouble trouble;
  JsonFields fields(JsonValue(json, trouble), kIgnored);
  const std::string& type = fields["type"].text();
  auto message = read(type, fields);
  if (!trouble.ok()) return trouble.error(type.empty() ? "message" : type);
  if (!message) {
    return Error{fmt::format("message of unknown type {}; master and shares must be of one version",
                             base::quoted(type))};
  }
  return std::move(*message);
}

}  // namespace

Json to_json(const ShareConfig& config) {
  return {{"master", config.master},
          {"identity", config.identity},
          {"name", config.name},
          {"secret", config.secret},
          {"address", config.address}};
}

Result<ShareConfig> parse_share_config(const Json& json) {
  ShareConfig config;
  JsonTrouble trouble;
  JsonFields fields(JsonValue(json, trouble), kIgnored);
  config.master = fields["master"].system_text();
  config.identity = fields["identity"].text(128);
  (void)fields["identity"].must_be(!config.identity.empty(), "not empty");
  config.name = fields["name"].text();
  config.secret = fields["secret"].text();
  config.address = fields["address"].system_text();
  if (!trouble.ok()) return trouble.error("share");
  return config;
}

Json to_json(const ToShare& message) {
  return std::visit([](const auto& one) { return encode(one); }, message);
}
Json to_json(const FromShare& message) {
  return std::visit([](const auto& one) { return encode(one); }, message);
}

Result<ToShare> parse_to_share(const Json& json) { return parse<ToShare>(json, read_to_share); }
Result<FromShare> parse_from_share(const Json& json) {
  return parse<FromShare>(json, read_from_share);
}

}  // namespace rubato::launch
