#include "rubato/launch/share_messages.h"

#include <fmt/format.h>
#include <limits>
#include <openssl/evp.h>
#include <optional>
#include <utility>

#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"
#include "rubato/wire/frames.h"

namespace rubato::launch {
namespace {

constexpr auto kIgnored = JsonFields::Unknown::ignored;

// The content of a file need not be UTF-8.
std::string to_base64(const std::string& bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), data,
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::optional<std::string> from_base64(const std::string& text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const auto* data = reinterpret_cast<const unsigned char*>(text.data());
  if (text.empty()) return bytes;
  const int size = text.size() % 4 != 0
                       ? -1
                       : EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()), data,
                                         static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  bytes.resize(static_cast<std::size_t>(size) - padding);
  return bytes;
}

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
          {"inherits", start.inherits},
          {"world", start.world},
          {"device", start.device},
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
Json encode(const ShareSecret& secret) {
  return {{"type", "secret"}, {"name", secret.name}, {"content", to_base64(secret.content)}};
}
Json encode(const ShareAskPort& ask) { return {{"type", "port"}, {"round", ask.round}}; }
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
          {"native", status.hello.native},
          {"instance", status.hello.instance},
          {"leaving", status.leaving},
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

Json encode(const SharePort& port) {
  return {{"type", "port"}, {"round", port.round}, {"address", port.address}, {"port", port.port}};
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
  if (const auto inherits = fields.find("inherits")) message.start.inherits = inherits->boolean();
  if (const auto world = fields.find("world"))
    message.start.world = world->whole(0, std::numeric_limits<int>::max());
  if (const auto device = fields.find("device"))
    message.start.device = device->whole(WorkerStart::kAllDevices, kMaxGpusPerNode);
  const JsonValue key = fields["key"];
  if (auto read = wire::parse_job_key(key.json())) {
    message.key = std::move(*read);
  } else {
    key.refuse("must be the key of a round");
  }
  return message;
}

ShareSecret read_secret(JsonFields& fields) {
  ShareSecret secret;
  secret.name = fields["name"].system_text();
  const JsonValue content = fields["content"];
  auto decoded = from_base64(content.text(wire::kLargestFrame));
  (void)content.must_be(decoded.has_value(), "in base64");
  if (decoded) secret.content = std::move(*decoded);
  return secret;
}

std::optional<ToShare> read_to_share(const std::string& type, JsonFields& fields) {
  if (type == "start") return read_start(fields);
  if (type == "signal") {
    return ShareSignal{read_order<wire::KillOrder>(fields), fields["signal"].whole<int>(1, 64)};
  }
  if (type == "kept") {
    return wire::EndsKept{fields["epoch"].whole<std::int64_t>(), read_uids(fields["uids"])};
  }
  if (type == "secret") return read_secret(fields);
  if (type == "port") return ShareAskPort{fields["round"].whole<std::int64_t>()};
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
  if (const auto native = fields.find("native")) status.hello.native = native->text();
  if (const auto instance = fields.find("instance")) status.hello.instance = instance->text();
  if (const auto leaving = fields.find("leaving")) status.leaving = leaving->boolean();
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
  if (type == "port") {
    return SharePort{fields["round"].whole<std::int64_t>(), fields["address"].system_text(),
                     fields["port"].whole<int>(0, 65535)};
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
  if (config.ended) return {{"name", config.name}, {"ended", true}};
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
  const auto ended = fields.find("ended");
  config.ended = ended && ended->boolean();
  if (config.ended) {
    config.name = fields["name"].text();
    if (!trouble.ok()) return trouble.error("share");
    return config;
  }
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
