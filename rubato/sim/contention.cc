#include "rubato/sim/contention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "rubato/base/json.h"
#include "rubato/base/text.h"
#include "rubato/sim/csv.h"
#include "rubato/sim/text_file.h"

namespace rubato::sim {
namespace {

constexpr int kMostGpus = 4096;
constexpr std::size_t kMostShapes = 2000;
// A link that others keep busy all the time still gives a job its share.
constexpr double kMostBusy = 1;

double spread_distance(const MeasuredShape& shape, const Allocation& gpus) {
  return std::abs(std::log2(static_cast<double>(shape.gpus) / gpus.gpus())) +
         std::abs(std::log2(static_cast<double>(shape.nodes) / gpus.nodes()));
}

// "MobileNetV3,4,2"
std::optional<MeasuredShape> parse_shape(std::string_view text) {
  const auto parts = split(text, ',');
  if (parts.size() != 3 || trim(parts[0]).empty()) return std::nullopt;
  const auto gpus = parse_integer(trim(parts[1])), nodes = parse_integer(trim(parts[2]));
  if (!gpus || !nodes || *gpus < 1 || *gpus > kMostGpus || *nodes < 1 || *nodes > *gpus)
    return std::nullopt;
  return MeasuredShape{std::string(trim(parts[0])), static_cast<int>(*gpus),
                       static_cast<int>(*nodes)};
}

Result<std::vector<MeasuredShape>> read_shapes(const CsvRow& header, const CsvReader& reader) {
  std::vector<MeasuredShape> shapes;
  std::set<std::string_view> seen;
  if (header.fields.size() - 1 > kMostShapes)
    return reader.error_at(header.line, fmt::format("more than {} columns", kMostShapes));
  for (std::size_t i = 1; i < header.fields.size(); ++i) {
    auto shape = parse_shape(header.fields[i]);
    if (!shape) {
      return reader.error_at(header.line, fmt::format("column {} is not \"model,GPUs,nodes\"",
                                                      base::quoted(header.fields[i])));
    }
    if (!seen.insert(header.fields[i]).second) {
      return reader.error_at(
          header.line, fmt::format("column {} stands there twice", base::quoted(header.fields[i])));
    }
    shapes.push_back(std::move(*shape));
  }
  if (shapes.empty()) return reader.error_at(header.line, "the table has no columns");
  return shapes;
}

Result<ReadContention> read_table(const CsvRow& header, CsvReader& reader) {
  auto shapes = read_shapes(header, reader);
  if (!shapes) return shapes.error();
  std::vector<std::vector<double>> kept;
  CsvRow row;
  for (;;) {
    const auto more = reader.next(row);
    if (!more) return more.error();
    if (!*more) break;
    if (kept.size() == shapes->size() || row.fields[0] != header.fields[kept.size() + 1]) {
      return reader.error_at(
          row.line, fmt::format("row {} is not in the order of the columns: the rows of a table "
                                "are its columns, in the same order",
                                base::quoted(row.fields[0])));
    }
    if (row.fields.size() != header.fields.size()) {
      return reader.error_at(row.line, fmt::format("{} fields, but the first row has {}",
                                                   row.fields.size(), header.fields.size()));
    }
    auto& entries = kept.emplace_back();
    for (std::size_t i = 1; i < row.fields.size(); ++i) {
      const auto value = parse_double(row.fields[i]);
      if (!value || !(*value > 0 && *value <= 1)) {
        return reader.error_at(row.line,
                               fmt::format("{} is not a share of the speed, above 0 and at most 1",
                                           base::quoted(row.fields[i])));
      }
      entries.push_back(*value);
    }
  }
  if (kept.size() != shapes->size()) {
    return Error{fmt::format("{}: {} rows for {} columns: a table has one row per column",
                             reader.source(), kept.size(), shapes->size())};
  }
  return ReadContention(std::make_shared<ContentionTable>(std::move(*shapes), std::move(kept)));
}

Result<ReadContention> read_pairs(const CsvRow& first, CsvReader& reader) {
  auto header = CsvHeader::of(first, reader);
  if (!header) return header.error();
  const auto model = header->find("model"), sensitivity = header->find("sensitivity"),
             pressure = header->find("pressure");
  if (!model || !sensitivity || !pressure) {
    return reader.error_at(first.line,
                           "this is neither a measured table, whose first field is empty, nor has "
                           "it the columns model, sensitivity and pressure");
  }
  PairLoss::Numbers numbers;
  CsvRow row;
  for (;;) {
    const auto more = reader.next(row);
    if (!more) return more.error();
    if (!*more) break;
    if (row.fields.size() != header->names().size()) {
      return reader.error_at(row.line, fmt::format("{} fields, but the first row has {}",
                                                   row.fields.size(), header->names().size()));
    }
    const auto number = [&](std::size_t column) {
      const auto value = parse_double(row.fields[column]);
      return value && *value >= 0 && *value <= 1000 ? value : std::nullopt;
    };
    const auto s = number(*sensitivity), p = number(*pressure);
    if (!s || !p)
      return reader.error_at(row.line, "sensitivity and pressure must be numbers from 0 to 1000");
    if (!numbers.emplace(row.fields[*model], PairNumbers{*s, *p}).second) {
      return reader.error_at(
          row.line, fmt::format("model {} stands there twice", base::quoted(row.fields[*model])));
    }
  }
  if (numbers.empty()) return Error{fmt::format("{}: has no rows", reader.source())};
  return ReadContention(std::make_shared<PairLoss>(std::move(numbers)));
}

std::optional<double> positive_number(const Json& object, const char* key) {
  if (!object.contains(key) || !object.at(key).is_number()) return std::nullopt;
  const double value = object.at(key).get<double>();
  return value > 0 && value <= 1e18 ? std::optional(value) : std::nullopt;
}

Result<ReadContention> read_links(std::string_view text, const std::string& source) {
  auto document = parse_json(text, source);
  if (!document) return document.error();
  const auto wrong = [&](std::string_view where, std::string_view what) {
    return Error{fmt::format("{}: {} {}", source, where, what)};
  };
  if (!document->is_object()) return wrong("the file", "is not an object");
  const auto interface = positive_number(*document, "interface_bytes_s");
  const auto uplink = positive_number(*document, "switch_bytes_s");
  const auto gpus = positive_number(*document, "gpus_per_switch");
  if (!interface) return wrong("interface_bytes_s", "must be bytes a second, above 0");
  if (!uplink) return wrong("switch_bytes_s", "must be bytes a second, above 0");
  if (!gpus || *gpus > kMaxGpusPerNode || *gpus != std::floor(*gpus))
    return wrong("gpus_per_switch", fmt::format("must be a number from 1 to {}", kMaxGpusPerNode));
  if (!document->contains("models") || !document->at("models").is_object())
    return wrong("models", "must be an object with a network for each key");
  LinkContention::Uses uses;
  for (const auto& [name, use] : document->at("models").items()) {
    const auto step = use.is_object() ? positive_number(use, "step_s") : std::nullopt;
    const bool sends = use.is_object() && use.contains("bytes") && use.at("bytes").is_number();
    const double bytes = sends ? use.at("bytes").get<double>() : -1;
    if (!step || !(bytes >= 0 && bytes <= 1e18)) {
      return wrong(fmt::format("model {}", base::quoted(name)),
                   "must have step_s, seconds above 0, and bytes, 0 or more");
    }
    uses.emplace(name, LinkUse{*step, bytes});
  }
  return ReadContention(std::make_shared<LinkContention>(
      LinkContention::Links{*interface, *uplink, static_cast<int>(*gpus)}, std::move(uses)));
}

// The part of a link that a transfer gets on average, if each of the others uses the link for such
// a share of the time, independently, and all that use it at a moment get equal parts.
double expected_part(const std::vector<double>& busy) {
  std::vector<double> chance = {1};  // [n]: n others use it
  for (const double b : busy) {
    chance.push_back(0);
    for (std::size_t n = chance.size(); n-- > 1;)
      chance[n] = chance[n] * (1 - b) + chance[n - 1] * b;
    chance[0] *= 1 - b;
  }
  double part = 0;
  for (std::size_t n = 0; n < chance.size(); ++n) part += chance[n] / static_cast<double>(n + 1);
  return part;
}

// The switches of a node on which a job has GPUs, as bits.
std::uint64_t switches_on(const Allocation& gpus, NodeId node, int gpus_per_switch) {
  std::uint64_t switches = 0;
  for (std::uint64_t left = gpus.mask_on(node); left != 0; left &= left - 1)
    switches |= std::uint64_t{1} << (std::countr_zero(left) / gpus_per_switch);
  return switches;
}

bool spans_switches(const Allocation& gpus, int gpus_per_switch) {
  return gpus.nodes() > 1 ||
         (gpus.nodes() == 1 &&
          std::popcount(switches_on(gpus, gpus.slices().front().node, gpus_per_switch)) > 1);
}

// The mean over the entries of each pair of networks.
struct PairMeans {
  std::vector<std::string> models;
  std::vector<std::vector<double>> sum;  // [victim][other]
  std::vector<std::vector<double>> count;
};

template <class Value>
PairMeans by_network(const ContentionTable& table, const Value& value) {
  PairMeans means;
  std::map<std::string, std::size_t> number;
  for (const auto& shape : table.shapes()) {
    if (number.emplace(shape.model, number.size()).second) means.models.push_back(shape.model);
  }
  const std::size_t n = means.models.size();
  means.sum.assign(n, std::vector<double>(n, 0));
  means.count = means.sum;
  for (std::size_t i = 0; i < table.shapes().size(); ++i) {
    for (std::size_t j = 0; j < table.shapes().size(); ++j) {
      const auto a = number[table.shapes()[i].model], b = number[table.shapes()[j].model];
      means.sum[a][b] += value(table.entries()[i][j]);
      means.count[a][b] += 1;
    }
  }
  return means;
}

// What one number of `own` gives beside one of `other` on a link.
double link_kept(double own, double other) { return 1 / (1 - own + own / expected_part({other})); }

// The error of all entries of these networks, up to a constant.
double link_error(const PairMeans& means, const std::vector<double>& busy) {
  double error = 0;
  for (std::size_t i = 0; i < busy.size(); ++i) {
    for (std::size_t j = 0; j < busy.size(); ++j) {
      const double kept = link_kept(busy[i], busy[j]);
      error += means.count[i][j] * kept * kept - 2 * kept * means.sum[i][j];
    }
  }
  return error;
}

}  // namespace

ContentionTable::ContentionTable(std::vector<MeasuredShape> shapes,
                                 std::vector<std::vector<double>> kept)
    : shapes_(std::move(shapes)), kept_(std::move(kept)) {
  for (std::size_t i = 0; i < shapes_.size(); ++i) rows_[shapes_[i].model].push_back(i);
}

std::optional<std::size_t> ContentionTable::nearest(const Tenant& tenant) const {
  const auto rows = rows_.find(tenant.model);
  if (rows == rows_.end()) return std::nullopt;
  return *std::min_element(rows->second.begin(), rows->second.end(), [&](auto a, auto b) {
    return spread_distance(shapes_[a], *tenant.gpus) < spread_distance(shapes_[b], *tenant.gpus);
  });
}

double ContentionTable::kept(const Tenant& job, std::span<const Tenant> others) const {
  double least = 1;
  if (job.gpus->nodes() < 2) return least;
  const auto row = nearest(job);
  if (!row) return least;
  for (const Tenant& other : others) {
    if (!both_span(job, other)) continue;
    if (const auto column = nearest(other)) least = std::min(least, kept_[*row][*column]);
  }
  return least;
}

ContentionTable ContentionTable::without(int gpus, int nodes) const {
  std::vector<MeasuredShape> shapes;
  std::vector<std::vector<double>> kept;
  const auto stays = [&](std::size_t i) {
    return shapes_[i].gpus != gpus || shapes_[i].nodes != nodes;
  };
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    if (!stays(i)) continue;
    shapes.push_back(shapes_[i]);
    auto& row = kept.emplace_back();
    for (std::size_t j = 0; j < shapes_.size(); ++j) {
      if (stays(j)) row.push_back(kept_[i][j]);
    }
  }
  return {std::move(shapes), std::move(kept)};
}

double LinkContention::busy(const LinkUse& use, double bytes_s) {
  return std::min(kMostBusy, use.bytes / bytes_s / use.step_s);
}

double LinkContention::kept(const Tenant& job, std::span<const Tenant> others) const {
  const auto own = uses_.find(job.model);
  if (own == uses_.end() || !spans_switches(*job.gpus, links_.gpus_per_switch)) return 1;
  double alone = 0, beside = 0;  // the time on the slowest link, in steps
  struct Others {
    std::vector<double> equal;  // how long each uses the link
    double free = 1;            // the share of time in which none that goes first uses it
  };
  const auto consider = [&](double bytes_s, const Others& there) {
    const double need = busy(own->second, bytes_s);
    alone = std::max(alone, need);
    beside = std::max(beside, need / (there.free * expected_part(there.equal)));
  };
  const auto meets = [&](Others& there, const Tenant& other, double use) {
    if (other.turn == job.turn) there.equal.push_back(use);
    if (other.turn < job.turn) there.free *= 1 - use;
  };
  for (const Slice& slice : job.gpus->slices()) {
    Others interface;
    std::map<int, Others> uplinks;
    const auto mine = switches_on(*job.gpus, slice.node, links_.gpus_per_switch);
    for (std::uint64_t left = mine; left != 0; left &= left - 1) uplinks[std::countr_zero(left)];
    for (const Tenant& other : others) {
      const auto use = uses_.find(other.model);
      const auto theirs = switches_on(*other.gpus, slice.node, links_.gpus_per_switch);
      if (use == uses_.end() || theirs == 0 || !spans_switches(*other.gpus, links_.gpus_per_switch))
        continue;
      if (other.gpus->nodes() > 1)
        meets(interface, other, busy(use->second, links_.interface_bytes_s));
      for (auto& [number, there] : uplinks) {
        if ((theirs >> static_cast<unsigned>(number) & 1U) != 0)
          meets(there, other, busy(use->second, links_.switch_bytes_s));
      }
    }
    if (job.gpus->nodes() > 1) consider(links_.interface_bytes_s, interface);
    for (const auto& [number, there] : uplinks) consider(links_.switch_bytes_s, there);
  }
  return 1 / (1 - alone + beside);
}

std::map<std::size_t, double> LinkContention::demand(const Tenant& job) const {
  std::map<std::size_t, double> links;
  const auto own = uses_.find(job.model);
  if (own == uses_.end() || !spans_switches(*job.gpus, links_.gpus_per_switch)) return links;
  for (const Slice& slice : job.gpus->slices()) {
    const std::size_t first = slice.node.index() * (kMaxGpusPerNode + 1);
    if (job.gpus->nodes() > 1) links[first] = busy(own->second, links_.interface_bytes_s);
    const auto mine = switches_on(*job.gpus, slice.node, links_.gpus_per_switch);
    for (std::uint64_t left = mine; left != 0; left &= left - 1)
      links[first + 1 + static_cast<std::size_t>(std::countr_zero(left))] =
          busy(own->second, links_.switch_bytes_s);
  }
  return links;
}

Result<ReadContention> read_contention(const std::string& path) {
  const auto text = read_text_file(path);
  if (!text) return text.error();
  return parse_contention(*text, path);
}

Result<ReadContention> parse_contention(std::string_view text, const std::string& source) {
  if (trim(text).starts_with('{')) return read_links(text, source);
  CsvReader reader(text, source);
  CsvRow row;
  const auto first = reader.next(row);
  if (!first) return first.error();
  if (!*first) return Error{fmt::format("{}: the file is empty", source)};
  return row.fields[0].empty() ? read_table(row, reader) : read_pairs(row, reader);
}

FitError error_of(const ContentionModel& model, const ContentionTable& table) {
  // Two jobs with the measured numbers of GPUs that meet on every node of the smaller one.
  const auto place = [](const MeasuredShape& shape) {
    Allocation gpus;
    for (int n = 0; n < shape.nodes; ++n) {
      const int here = shape.gpus / shape.nodes + (n < shape.gpus % shape.nodes ? 1 : 0);
      const int fits = std::min(here, kMaxGpusPerNode);
      gpus.add({NodeId(static_cast<NodeId::rep>(n)),
                ~std::uint64_t{0} >> (64U - static_cast<unsigned>(fits))});
    }
    return gpus;
  };
  std::vector<Allocation> places;
  for (const auto& shape : table.shapes()) places.push_back(place(shape));
  FitError error;
  double sum = 0, squares = 0, residual = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t j = 0; j < places.size(); ++j) {
      const Tenant other{table.shapes()[j].model, &places[j]};
      const double truth = table.entries()[i][j];
      const double off =
          std::abs(model.kept({table.shapes()[i].model, &places[i]}, {&other, 1}) - truth);
      error.mean += off;
      error.worst = std::max(error.worst, off);
      residual += off * off;
      sum += truth;
      squares += truth * truth;
      ++error.entries;
    }
  }
  const auto n = static_cast<double>(error.entries);
  if (n == 0) return error;
  error.mean /= n;
  const double variance = squares - sum * sum / n;
  error.r_squared = variance > 0 ? 1 - residual / variance : 0;
  return error;
}

// Alternating least squares: with the pressures fixed, the best sensitivities are known, and the
// other way round.
PairLoss::Numbers fit_pairs(const ContentionTable& table) {
  const auto means = by_network(table, [](double kept) { return 1 / kept - 1; });
  const std::size_t n = means.models.size();
  std::vector<double> s(n, 1), p(n, 0);
  const auto best = [&](const std::vector<double>& fixed, std::size_t i, bool rows) {
    double top = 0, bottom = 0;
    for (std::size_t j = 0; j < n; ++j) {
      top += fixed[j] * (rows ? means.sum[i][j] : means.sum[j][i]);
      bottom += fixed[j] * fixed[j] * (rows ? means.count[i][j] : means.count[j][i]);
    }
    return bottom > 0 ? std::max(0.0, top / bottom) : 0;
  };
  for (int round = 0; round < 200; ++round) {
    for (std::size_t i = 0; i < n; ++i) p[i] = best(s, i, false);
    for (std::size_t i = 0; i < n; ++i) s[i] = best(p, i, true);
  }
  const double scale = *std::max_element(s.begin(), s.end());
  PairLoss::Numbers numbers;
  for (std::size_t i = 0; i < n; ++i) {
    numbers[means.models[i]] = scale > 0 ? PairNumbers{s[i] / scale, p[i] * scale} : PairNumbers{};
  }
  return numbers;
}

// Coordinate descent on a grid that gets finer.
LinkContention::Uses fit_links(const ContentionTable& table, double interface_bytes_s) {
  const auto means = by_network(table, [](double kept) { return kept; });
  std::vector<double> busy(means.models.size(), 0.5);
  for (double step = 0.25; step > 1e-4; step /= 2) {
    for (int round = 0; round < 20; ++round) {
      bool better = false;
      for (double& b : busy) {
        for (const double to : {b - step, b + step}) {
          const double from = b, before = link_error(means, busy);
          b = std::clamp(to, 0.0, kMostBusy);
          if (link_error(means, busy) < before) {
            better = true;
          } else {
            b = from;
          }
        }
      }
      if (!better) break;
    }
  }
  LinkContention::Uses uses;
  for (std::size_t i = 0; i < busy.size(); ++i)
    uses[means.models[i]] = {1, busy[i] * interface_bytes_s};
  return uses;
}

std::string to_csv(const PairLoss::Numbers& numbers) {
  std::string text = "model,sensitivity,pressure\n";
  for (const auto& [model, pair] : numbers)
    text += fmt::format("{},{:.4f},{:.4f}\n", csv_field(model), pair.sensitivity, pair.pressure);
  return text;
}

std::string to_json_text(const LinkContention& links) {
  Json models = Json::object();
  for (const auto& [model, use] : links.uses())
    models[model] = {{"step_s", use.step_s}, {"bytes", std::round(use.bytes)}};
  const Json document = {{"interface_bytes_s", links.links().interface_bytes_s},
                         {"switch_bytes_s", links.links().switch_bytes_s},
                         {"gpus_per_switch", links.links().gpus_per_switch},
                         {"models", models}};
  return document.dump(2) + "\n";
}

}  // namespace rubato::sim
