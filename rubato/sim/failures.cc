#include "rubato/sim/failures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fmt/format.h>
#include <optional>

#include "rubato/base/random.h"
#include "rubato/base/text.h"
#include "rubato/sim/csv.h"
#include "rubato/sim/text_file.h"

namespace rubato::sim {
namespace {

constexpr double kDay = 86400;
constexpr double kMostEvents = 2e7;

void sort_events(std::vector<NodeEvent>& events) {
  std::stable_sort(events.begin(), events.end(), [](const NodeEvent& a, const NodeEvent& b) {
    return a.at != b.at ? a.at < b.at : a.node < b.node;
  });
}

struct FailureColumns {
  std::size_t time = 0;
  std::size_t node = 0;
  std::size_t event = 0;
};

Result<FailureColumns> find_columns(const CsvRow& row, const CsvReader& reader) {
  auto header = CsvHeader::of(row, reader);
  if (!header) return header.error();
  FailureColumns columns;
  const auto find = [&](std::string_view name, std::size_t& out) -> std::optional<Error> {
    const auto at = header->find(name);
    out = at.value_or(0);
    if (at) return std::nullopt;
    return reader.error_at(
        row.line,
        fmt::format("no column {}; a failures file needs time_s,node,event", base::quoted(name)));
  };
  if (auto bad = find("time_s", columns.time)) return *bad;
  if (auto bad = find("node", columns.node)) return *bad;
  if (auto bad = find("event", columns.event)) return *bad;
  return columns;
}

Result<NodeEvent> read_event(const CsvRow& row, const FailureColumns& columns,
                             const CsvReader& reader, const Cluster& cluster) {
  const auto time_text = row.fields[columns.time];
  const auto time = parse_double(time_text);
  if (!time || !(*time >= 0 && *time <= kLongestSeconds)) {
    return reader.error_at(row.line,
                           fmt::format("time_s {} is not a number of seconds from 0 to {}",
                                       base::quoted(time_text), kLongestSeconds));
  }
  const auto node_text = row.fields[columns.node];
  const auto node = parse_integer(node_text);
  const auto nodes = static_cast<long long>(cluster.nodes().size());
  if (!node || *node < 0 || *node >= nodes) {
    return reader.error_at(row.line,
                           fmt::format("node {} is not one of the cluster's {} nodes, which "
                                       "are counted from 0",
                                       base::quoted(node_text), nodes));
  }
  const auto event = row.fields[columns.event];
  if (event != "down" && event != "up") {
    return reader.error_at(row.line,
                           fmt::format("event {} is neither down nor up", base::quoted(event)));
  }
  return NodeEvent{time_at(*time), NodeId(static_cast<NodeId::rep>(*node)),
                   event == "up" ? NodeState::up : NodeState::down};
}

}  // namespace

Result<std::vector<NodeEvent>> read_failures(const std::string& path, const Cluster& cluster) {
  auto text = read_text_file(path);
  if (!text) return text.error();
  return parse_failures(*text, path, cluster);
}

Result<std::vector<NodeEvent>> parse_failures(std::string_view text, const std::string& source,
                                              const Cluster& cluster) {
  CsvReader reader(text, source);
  CsvRow row;
  auto got = reader.next(row);
  if (!got) return got.error();
  if (!*got)
    return Error{
        fmt::format("{}: the file is empty; it needs at least the header "
                    "time_s,node,event",
                    source)};
  const auto columns = find_columns(row, reader);
  if (!columns) return columns.error();
  const auto width = row.fields.size();
  std::vector<NodeEvent> events;
  for (;;) {
    got = reader.next(row);
    if (!got) return got.error();
    if (!*got) break;
    if (row.fields.size() != width) {
      return reader.error_at(
          row.line, fmt::format("{} fields where the header has {}", row.fields.size(), width));
    }
    auto event = read_event(row, *columns, reader, cluster);
    if (!event) return event.error();
    events.push_back(*event);
  }
  sort_events(events);
  return events;
}

Result<std::vector<NodeEvent>> random_failures(const Cluster& cluster, double failures_per_node_day,
                                               double mean_repair_s, Duration horizon,
                                               std::uint64_t seed) {
  if (!(failures_per_node_day >= 0) || !std::isfinite(failures_per_node_day)) {
    return Error{"failures: the rate must be 0 or more failures per node and day"};
  }
  if (!(mean_repair_s >= 0 && mean_repair_s <= kLongestSeconds)) {
    return Error{"failures: the mean repair time must be 0 or more seconds"};
  }
  std::vector<NodeEvent> events;
  if (failures_per_node_day == 0) return events;
  const double expected = 2 * failures_per_node_day * seconds(horizon) / kDay *
                          static_cast<double>(cluster.nodes().size());
  if (expected > kMostEvents) {
    return Error{
        fmt::format("failures: this rate means about {:.0f} failures and repairs, more than "
                    "the {:.0f} that make sense",
                    expected, kMostEvents)};
  }
  const Random root(seed);
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    const NodeId node(static_cast<NodeId::rep>(i));
    Random random = root.split(i);
    double now = random.exponential(kDay / failures_per_node_day);
    while (now < seconds(horizon)) {
      events.push_back({time_at(now), node, NodeState::down});
      now += random.exponential(mean_repair_s);
      events.push_back({time_at(now), node, NodeState::up});
      now += random.exponential(kDay / failures_per_node_day);
    }
  }
  sort_events(events);
  return events;
}

}  // namespace rubato::sim
