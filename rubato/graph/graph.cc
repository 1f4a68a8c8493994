#include "rubato/graph/graph.h"

#include <fmt/format.h>
#include <limits>
#include <optional>

#include "rubato/base/json.h"
#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"

namespace rubato::graph {
namespace {

constexpr std::size_t kMostOperators = 100'000;
constexpr std::size_t kLongestName = 200;
constexpr double kMostSeconds = 1e6;
constexpr double kMostBytes = 1e15;

using Names = std::map<std::string, std::size_t, std::less<>>;

std::map<std::string, double, std::less<>> read_seconds(const JsonValue& value) {
  if (value.json().is_number()) return {{"", value.number(0, kMostSeconds)}};
  std::map<std::string, double, std::less<>> seconds;
  value.each_field([&](const std::string& type, const JsonValue& one) {
    if (type.size() > kLongestName || type.empty())
      one.refuse("is of a type without a proper name");
    seconds[type] = one.number(0, kMostSeconds);
  });
  if (seconds.empty()) value.refuse("must have the seconds on at least one type of device");
  return seconds;
}

Input read_input(const JsonValue& value, const Names& known, const Graph& graph) {
  const auto find = [&](const JsonValue& name) -> std::size_t {
    const auto at = known.find(name.text(kLongestName));
    if (at != known.end()) return at->second;
    name.refuse(fmt::format("is {}, which is no operator before this one",
                            base::quoted(name.json().is_string() ? name.text() : "")));
    return 0;
  };
  Input input;
  if (value.json().is_object()) {
    JsonFields fields(value);
    input.from = find(fields["name"]);
    input.bytes = fields["bytes"].number(0, kMostBytes);
  } else {
    input.from = find(value);
    if (value.ok()) input.bytes = graph.operators[input.from].bytes;
  }
  return input;
}

Operator read_operator(const JsonValue& value, const Names& known, Names& groups, Graph& graph) {
  Operator op;
  JsonFields fields(value);
  op.name = fields["name"].text(kLongestName);
  if (op.name.empty() || known.contains(op.name))
    fields["name"].refuse("must be a name that no operator before this one has");
  op.seconds = read_seconds(fields["seconds"]);
  if (const auto bytes = fields.find("bytes")) op.bytes = bytes->number(0, kMostBytes);
  if (const auto memory = fields.find("memory")) op.memory = memory->number(0, kMostBytes);
  if (const auto inputs = fields.find("inputs")) {
    inputs->each([&](const JsonValue& one) { op.inputs.push_back(read_input(one, known, graph)); });
  }
  const auto group = fields.find("group");
  const std::string name = group ? group->text(kLongestName) : op.name;
  const auto [at, added] = groups.emplace(name, graph.groups.size());
  if (added) graph.groups.push_back(name);
  op.group = at->second;
  return op;
}

Json to_json(const Operator& op, const Graph& graph) {
  Json json = {{"name", op.name}};
  if (op.seconds.size() == 1 && op.seconds.begin()->first.empty()) {
    json["seconds"] = op.seconds.begin()->second;
  } else {
    json["seconds"] = op.seconds;
  }
  if (op.bytes > 0) json["bytes"] = op.bytes;
  if (op.memory > 0) json["memory"] = op.memory;
  if (graph.groups[op.group] != op.name) json["group"] = graph.groups[op.group];
  for (const Input& input : op.inputs) {
    const Operator& from = graph.operators[input.from];
    if (input.bytes == from.bytes) {
      json["inputs"].push_back(from.name);
    } else {
      json["inputs"].push_back({{"name", from.name}, {"bytes", input.bytes}});
    }
  }
  return json;
}

std::optional<std::vector<Device>> devices_of(std::string_view word) {
  const auto equals = word.find('=');
  const std::string type(trim(word.substr(0, equals)));
  if (type.empty() || equals == std::string_view::npos) return std::nullopt;
  const auto parts = split(word.substr(equals + 1), ':');
  const auto count = parse_integer(trim(parts[0]));
  if (!count || *count < 1 || *count > static_cast<long long>(kMostDevices) || parts.size() > 2)
    return std::nullopt;
  double memory = std::numeric_limits<double>::infinity();
  if (parts.size() == 2) {
    const auto bytes = parse_double(trim(parts[1]));
    if (!bytes || !(*bytes > 0)) return std::nullopt;
    memory = *bytes;
  }
  std::vector<Device> devices;
  for (long long i = 0; i < *count; ++i)
    devices.push_back({fmt::format("{} {}", type, i), type, memory});
  return devices;
}

}  // namespace

double Operator::seconds_on(std::string_view type) const {
  auto at = seconds.find(type);
  if (at == seconds.end()) at = seconds.find("");
  return at == seconds.end() ? -1 : at->second;
}

Result<Graph> parse_graph(std::string_view text, const std::string& source) {
  const auto json = parse_json(text, source);
  if (!json) return json.error();
  JsonTrouble trouble;
  const JsonValue root(*json, trouble);
  JsonFields fields(root);
  Graph graph;
  graph.name = fields["name"].text(kLongestName);
  Names known, groups;
  const JsonValue operators = fields["operators"];
  if (operators.is_list() && (operators.size() == 0 || operators.size() > kMostOperators))
    operators.refuse(fmt::format("must have 1 to {} operators", kMostOperators));
  operators.each([&](const JsonValue& value) {
    Operator op = read_operator(value, known, groups, graph);
    known.emplace(op.name, graph.operators.size());
    graph.operators.push_back(std::move(op));
  });
  fields.finish();
  if (!trouble.ok()) return trouble.error(source);
  return graph;
}

std::string to_text(const Graph& graph) {
  std::string text = fmt::format("{{\"name\": {},\n \"operators\": [", Json(graph.name).dump());
  const char* separator = "\n";
  for (const Operator& op : graph.operators) {
    text += fmt::format("{}  {}", separator, to_json(op, graph).dump());
    separator = ",\n";
  }
  return text + "\n]}\n";
}

Result<std::vector<Device>> parse_devices(std::string_view text) {
  std::vector<Device> devices;
  for (const auto word : split(text, ',')) {
    const auto more = devices_of(word);
    if (!more) {
      return Error{fmt::format("{}: must be TYPE=COUNT or TYPE=COUNT:BYTES, with 1 to {} devices",
                               base::quoted(word), kMostDevices)};
    }
    for (const Device& device : *more) {
      for (const Device& other : devices) {
        if (other.name == device.name)
          return Error{fmt::format("the type {} stands there twice", base::quoted(device.type))};
      }
    }
    devices.insert(devices.end(), more->begin(), more->end());
  }
  if (devices.size() > kMostDevices)
    return Error{fmt::format("at most {} devices are possible", kMostDevices)};
  return devices;
}

}  // namespace rubato::graph
