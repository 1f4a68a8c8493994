#include "rubato/sim/trace.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <span>
#include <utility>

#include "rubato/base/json.h"
#include "rubato/base/text.h"
#include "rubato/sim/csv.h"
#include "rubato/sim/sacct_json.h"
#include "rubato/sim/text_file.h"
#include "rubato/sim/trace_fields.h"
#include "rubato/sim/trace_gather.h"

namespace rubato::sim {
namespace {

// ---- The formats, as data ----

enum class Need : std::uint8_t { column_and_value, column, none };

struct Column {
  std::string_view names;  // accepted spellings, separated by "|"
  TraceField field = TraceField::unused;
  Need need = Need::column_and_value;

  [[nodiscard]] std::string_view first_name() const { return names.substr(0, names.find('|')); }
};

struct Layout {
  TraceFormat format;
  std::string_view name;
  std::span<const Column> columns;
  char separator = ',';
  bool header = true;
  bool numbered = false;  // as in GatherOptions
  bool stamped = false;
  bool logged = false;
  bool json = false;

  [[nodiscard]] GatherOptions gathering() const {
    return {format, numbered, stamped, logged, json};
  }
};

using enum TraceField;

// Also the keys of a job in rubato-json.
constexpr auto kRubato = std::to_array<Column>({
    {"job_id", name},
    {"submit_s", submit},
    {"gpus", gpus},
    {"duration_s", duration, Need::column},
    {"user", user, Need::none},
    {"model", model, Need::none},
    {"batch", batch, Need::none},
    {"steps", steps, Need::none},
    {"deadline_s", deadline, Need::none},
    {"weight", weight, Need::none},
    {"min_gpus", min_gpus, Need::none},
    {"max_gpus", max_gpus, Need::none},
    {"allowed_gpus", allowed_gpus, Need::none},
    {"restart_s", restart, Need::none},
    {"utility", utility, Need::none},
    {"class", job_class, Need::none},
    {"search", search, Need::none},
    {"skew", skew, Need::none},
});
constexpr auto kMicrosoft = std::to_array<Column>({
    {"job_id", name},
    {"submission_time", submit},
    {"duration", duration},
    {"num_gpu", gpus},
});
constexpr auto kPhilly = std::to_array<Column>({
    {"timestamp", timestamp},
    {"duration", duration},
    {"num_gpus", gpus},
    {"gpu_time", unused, Need::none},
    {"cluster", user},
});
constexpr auto kTiresias = std::to_array<Column>({
    {"job_id", name},
    {"num_gpu", gpus},
    {"submit_time", submit},
    {"iterations", steps},
    {"model_name", model},
    {"duration", duration},
    {"interval", unused, Need::none},
});
constexpr auto kElasticflow = std::to_array<Column>({
    {"job_id", name},
    {"submission_time|submit_time", submit},
    {"num_iteration|iteration", steps},
    {"model_name", model},
    {"deadline|ddl", deadline},
    {"batch_size", batch},
    {"num_gpu", gpus},
    {"duration", duration},
});
constexpr auto kPollux = std::to_array<Column>({
    {"name", name},
    {"time", submit},
    {"application", model},
    {"num_replicas", gpus},
    {"batch_size", batch},
});
constexpr auto kGavel = std::to_array<Column>({
    {"job type", job_type},
    {"command", unused, Need::column},
    {"directory", unused, Need::column},
    {"argument", unused, Need::column},
    {"flag", unused, Need::column},
    {"total steps", steps},
    {"scale factor", gpus},
    {"weight", weight},
    {"SLO", slo},
    {"arrival", submit},
});
constexpr auto kShockwave = std::to_array<Column>({
    {"job type", job_type},
    {"command", unused, Need::column},
    {"directory", unused, Need::column},
    {"argument", unused, Need::column},
    {"flag", unused, Need::column},
    {"total steps", steps},
    {"scale factor", gpus},
    {"mode", mode},
    {"weight", weight},
    {"SLO", slo},
    {"duration", duration},
    {"arrival", submit},
});

// Logs of real jobs (trace_record.h).
constexpr auto kHelios = std::to_array<Column>({
    {"job_id", name},
    {"user", user, Need::column},
    {"vc", unused},
    {"gpu_num", recorded_gpus},
    {"cpu_num", unused, Need::none},
    {"node_num", unused, Need::none},
    {"state", state},
    {"submit_time", timestamp},
    {"start_time", started, Need::column},
    {"end_time", ended, Need::column},
    {"duration", stated_duration, Need::none},
    {"queue", unused, Need::none},
});
constexpr auto kAcme = std::to_array<Column>({
    {"job_id", name},
    {"user", user, Need::column},
    {"node_num", unused, Need::none},
    {"gpu_num", recorded_gpus},
    {"cpu_num", unused, Need::none},
    {"mem_per_pod_gb", unused, Need::none},
    {"shared_mem_per_pod", unused, Need::none},
    {"type", unused},
    {"state", state},
    {"submit_time", timestamp},
    {"start_time", started, Need::column},
    {"end_time", ended, Need::column},
    {"fail_time", unused, Need::none},
    {"stop_time", unused, Need::none},
    {"duration", stated_duration, Need::none},
    {"queue", unused, Need::none},
    {"gpu_time", unused, Need::none},
});
constexpr auto kSacct = std::to_array<Column>({
    {"jobid", slurm_id},
    {"state", TraceField::state},
    {"submit", timestamp},
    {"start", started},
    {"end", ended},
    {"alloctres", allocated, Need::column},
    {"reqtres", asked_for, Need::none},
    {"elapsedraw|elapsed", elapsed, Need::none},
    {"user", user, Need::none},
    {"jobidraw", unused, Need::none},
    {"jobname", unused, Need::none},
    {"account", unused, Need::none},
    {"partition", unused, Need::none},
});

// In the order of TraceFormat. The detection breaks ties in this order, too.
constexpr auto kLayouts = std::to_array<Layout>({
    {TraceFormat::rubato_csv, "rubato-csv", kRubato},
    {.format = TraceFormat::rubato_json, .name = "rubato-json", .columns = kRubato, .json = true},
    {TraceFormat::microsoft, "microsoft", kMicrosoft},
    {.format = TraceFormat::philly,
     .name = "philly",
     .columns = kPhilly,
     .numbered = true,
     .stamped = true},
    {TraceFormat::tiresias, "tiresias", kTiresias},
    {TraceFormat::elasticflow, "elasticflow", kElasticflow},
    {TraceFormat::pollux, "pollux", kPollux},
    {TraceFormat::gavel, "gavel", kGavel, '\t', false, true},
    {TraceFormat::shockwave, "shockwave", kShockwave, '\t', false, true},
    {.format = TraceFormat::helios,
     .name = "helios",
     .columns = kHelios,
     .stamped = true,
     .logged = true},
    {.format = TraceFormat::acme,
     .name = "acme",
     .columns = kAcme,
     .stamped = true,
     .logged = true},
    {.format = TraceFormat::sacct,
     .name = "sacct",
     .columns = kSacct,
     .separator = '|',
     .stamped = true,
     .logged = true},
    {.format = TraceFormat::sacct_json,
     .name = "sacct-json",
     .columns = kSacct,
     .stamped = true,
     .logged = true,
     .json = true},
});

const Layout& layout_of(TraceFormat format) { return kLayouts[static_cast<std::size_t>(format)]; }

// "job_id,submission_time,duration,num_gpu"
std::string needed_columns(const Layout& layout) {
  std::string out;
  for (const auto& column : layout.columns) {
    if (column.need == Need::none) continue;
    if (!out.empty()) out += layout.separator;
    out += column.first_name();
  }
  return out;
}

// ---- Detection ----

Error no_known_format(const CsvReader& reader, std::size_t line) {
  std::string known = "a JSON object (rubato-json), that of sacct --json (sacct-json)";
  for (const auto& layout : kLayouts) {
    if (layout.json) continue;
    known += layout.header ? fmt::format("; {} ({})", needed_columns(layout), layout.name)
                           : fmt::format("; {} columns separated by tabs ({})",
                                         layout.columns.size(), layout.name);
  }
  return reader.error_at(
      line, fmt::format("this is none of the trace formats, which begin with: {}", known));
}

// The fraction of a format's required columns that the header has, from 0 to 1.
double likeness(const Layout& layout, const CsvHeader& header) {
  int needed = 0;
  int found = 0;
  for (const auto& column : layout.columns) {
    if (column.need == Need::none) continue;
    ++needed;
    if (header.find(column.names)) ++found;
  }
  return static_cast<double>(found) / needed;
}

// The format of a header is the one whose required columns it has. Of several, it is the one that
// requires most (ElasticFlow's columns include Microsoft's). If there is none, the most similar
// format is assumed, if at least half of its columns are there: its reader can then name the
// missing column.
Result<TraceFormat> detect_by_header(const CsvRow& row, const CsvReader& reader, char separator) {
  auto header = CsvHeader::of(row, reader);
  if (!header) return header.error();
  const Layout* best = nullptr;
  double best_likeness = 0.5;
  for (const auto& layout : kLayouts) {
    if (layout.separator != separator || layout.json) continue;
    const double alike = likeness(layout, *header);
    const bool needs_more = best != nullptr && layout.columns.size() > best->columns.size();
    const bool better = best == nullptr ? alike >= best_likeness : alike > best_likeness;
    if (better || (alike == 1 && best_likeness == 1 && needs_more)) {
      best = &layout;
      best_likeness = alike;
    }
  }
  if (best == nullptr) return no_known_format(reader, row.line);
  return best->format;
}

Result<TraceFormat> detect(std::string_view text, const std::string& source) {
  const auto first = text.find_first_not_of("\xEF\xBB\xBF \t\r\n");
  if (first == std::string_view::npos)
    return Error{fmt::format("{}: no jobs: the file is empty", source)};
  if (text[first] == '{') return TraceFormat::rubato_json;

  CsvRow row;
  CsvReader tabs(text, source, '\t');
  if (auto got = tabs.next(row); !got) return got.error();
  if (row.fields.size() > 1) {
    for (const auto& layout : kLayouts) {
      if (layout.separator == '\t' && layout.columns.size() == row.fields.size())
        return layout.format;
    }
    return no_known_format(tabs, row.line);
  }
  CsvReader bars(text, source, '|');
  if (auto got = bars.next(row); !got) return got.error();
  if (row.fields.size() > 1) return detect_by_header(row, bars, '|');
  CsvReader commas(text, source);
  if (auto got = commas.next(row); !got) return got.error();
  return detect_by_header(row, commas, ',');
}

// ---- Tables ----

// A column of the layout that was found in the file.
struct Found {
  std::size_t index = 0;
  std::string_view name;
  TraceField field = TraceField::unused;
  Need need = Need::none;
};

Result<std::vector<Found>> find_columns(const Layout& layout, const CsvHeader& header,
                                        const CsvReader& reader, std::size_t line) {
  std::vector<Found> found;
  for (const auto& column : layout.columns) {
    const auto at = header.find(column.names);
    if (at) {
      found.push_back({*at, header.names()[*at], column.field, column.need});
    } else if (column.need != Need::none) {
      return reader.error_at(line, fmt::format("no column {}; the {} format needs {}",
                                               base::quoted(column.first_name()), layout.name,
                                               needed_columns(layout)));
    }
  }
  return found;
}

std::vector<std::string> unread(const CsvHeader& header, const std::vector<Found>& found) {
  std::vector<bool> read(header.names().size(), false);
  for (const auto& column : found) read[column.index] = true;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (!read[i] && !header.names()[i].empty()) names.push_back(header.names()[i]);
  }
  return names;
}

std::vector<Found> columns_by_position(const Layout& layout) {
  std::vector<Found> found;
  for (const auto& column : layout.columns) {
    found.push_back({found.size(), column.first_name(), column.field, column.need});
  }
  return found;
}

TraceProblem read_row(const std::vector<Found>& columns, const CsvRow& row, TraceDraft& draft) {
  for (const auto& column : columns) {
    const auto text = row.fields[column.index];
    if (column.field == TraceField::unused) continue;
    if (text.empty()) {
      if (column.need == Need::column_and_value) return fmt::format("{} is empty", column.name);
      continue;
    }
    if (auto bad = set_trace_field(column.field, column.name, text, draft)) return bad;
  }
  return std::nullopt;
}

Result<Trace> parse_table(std::string_view text, const std::string& source, const Layout& layout) {
  Gathered gathered(layout.gathering(), source);
  CsvReader reader(text, source, layout.separator);
  CsvRow row;
  CsvHeader header;  // the columns' names are views into it
  std::vector<Found> columns;
  std::size_t width = layout.columns.size();
  if (!layout.header) {
    columns = columns_by_position(layout);
  } else {
    auto got = reader.next(row);
    if (!got) return got.error();
    if (!*got) return Error{fmt::format("{}: no jobs: the file is empty", source)};
    auto names = CsvHeader::of(row, reader);
    if (!names) return names.error();
    header = std::move(*names);
    auto found = find_columns(layout, header, reader, row.line);
    if (!found) return found.error();
    columns = std::move(*found);
    width = header.names().size();
    gathered.warn_ignored(unread(header, columns), "columns");
  }
  for (;;) {
    auto got = reader.next(row);
    if (!got) return got.error();
    if (!*got) break;
    if (row.fields.size() != width) {
      return reader.error_at(row.line,
                             fmt::format("{} fields where {} has {}", row.fields.size(),
                                         layout.header ? "the header" : "the format", width));
    }
    TraceDraft draft = gathered.draft();
    auto bad = read_row(columns, row, draft);
    if (!bad) bad = gathered.add(std::move(draft), row.line);
    if (bad) return reader.error_at(row.line, *bad);
  }
  return std::move(gathered).finish();
}

// ---- JSON ----

bool is_label(TraceField field) {
  return field == TraceField::name || field == TraceField::user || field == TraceField::model;
}

bool is_text(TraceField field) {
  return is_label(field) || field == TraceField::job_class || field == TraceField::search;
}

// The value as the text of a CSV cell; nullopt if its type does not fit the field.
std::optional<std::string> as_text(const Json& value, TraceField field) {
  if (value.is_string() && is_text(field)) return value.get<std::string>();
  if (value.is_number_integer() && field != TraceField::user && field != TraceField::model) {
    return value.dump();
  }
  if (value.is_number_float() && !is_label(field)) return shortest(value.get<double>());
  const bool is_list = field == TraceField::allowed_gpus || field == TraceField::utility;
  if (!value.is_array() || !is_list) return std::nullopt;
  std::string list;
  for (const auto& item : value) {
    if (!item.is_number()) return std::nullopt;
    if (!list.empty()) list += '/';
    list += item.dump();
  }
  return list;
}

const Column* rubato_column(std::string_view key) {
  const auto at = std::find_if(kRubato.begin(), kRubato.end(),
                               [&](const Column& column) { return column.names == key; });
  return at == kRubato.end() ? nullptr : &*at;
}

TraceProblem read_json_job(const Json& object, TraceDraft& draft,
                           std::vector<std::string>& ignored) {
  if (!object.is_object()) return "is not an object";
  for (const auto& [key, value] : object.items()) {
    const Column* column = rubato_column(key);
    if (column == nullptr) {
      // The same keys repeat in each job. Only the first few are shown.
      const bool seen = std::find(ignored.begin(), ignored.end(), key) != ignored.end();
      if (!seen && ignored.size() < 1000) ignored.push_back(key);
      continue;
    }
    if (value.is_null() && column->need != Need::column_and_value) continue;
    const auto text = as_text(value, column->field);
    if (!text) return fmt::format("{} has a value of the wrong type", key);
    if (text->empty()) continue;
    if (auto bad = set_trace_field(column->field, key, *text, draft)) return bad;
  }
  for (const auto& column : kRubato) {
    if (column.need != Need::column_and_value) continue;
    if (!object.contains(std::string(column.names)))
      return fmt::format("{} is missing", column.names);
  }
  if (draft.job.name.empty()) return "job_id is empty";
  return std::nullopt;
}

// The array "jobs" of a document in Rubato's own format; nullptr if it is not in this format.
const Json* rubato_jobs(const Json& document) {
  const auto version = document.find("rubato_trace");
  const auto jobs = document.find("jobs");
  const bool ours = version != document.end() && *version == 1 && jobs != document.end();
  return ours && jobs->is_array() ? &*jobs : nullptr;
}

Result<Trace> parse_rubato_json(const Json& document, const std::string& source,
                                const Layout& layout) {
  const Json* jobs = rubato_jobs(document);
  if (jobs == nullptr) {
    return Error{
        fmt::format(R"({}: not of the form {{"rubato_trace": 1, "jobs": [...]}})", source)};
  }
  Gathered gathered(layout.gathering(), source);
  std::vector<std::string> ignored;
  for (const auto& [key, value] : document.items()) {
    if (key != "rubato_trace" && key != "jobs") ignored.push_back(key);
  }
  std::size_t index = 0;
  for (const auto& object : *jobs) {
    TraceDraft draft;
    auto bad = read_json_job(object, draft, ignored);
    if (!bad) bad = gathered.add(std::move(draft), index);
    if (bad) return Error{fmt::format("{}: jobs[{}]: {}", source, index, *bad)};
    ++index;
  }
  gathered.warn_ignored(std::move(ignored), "keys");
  return std::move(gathered).finish();
}

TraceProblem read_sacct_job(const Json& object, TraceDraft& draft) {
  const auto read = sacct_cells(object);
  if (read.bad) return read.bad;
  for (const auto& cell : read.cells) {
    if (auto bad = set_trace_field(cell.field, cell.key, cell.text, draft)) return bad;
  }
  return std::nullopt;
}

Result<Trace> parse_sacct_json(const Json& document, const std::string& source,
                               const Layout& layout) {
  if (!is_sacct(document) || !document["jobs"].is_array()) {
    return Error{
        fmt::format("{}: not the output of sacct --json, which has meta and jobs", source)};
  }
  Gathered gathered(layout.gathering(), source);
  std::size_t index = 0;
  for (const auto& object : document["jobs"]) {
    TraceDraft draft;
    auto bad = read_sacct_job(object, draft);
    if (!bad) bad = gathered.add(std::move(draft), index);
    if (bad) return Error{fmt::format("{}: jobs[{}]: {}", source, index, *bad)};
    ++index;
  }
  return std::move(gathered).finish();
}

// `format` is empty if it is to be detected.
Result<Trace> parse_json_trace(std::string_view text, const std::string& source,
                               std::optional<TraceFormat> format) {
  auto document = parse_json(text, source);
  if (!document) return document.error();
  if (!format) {
    const bool sacct = is_sacct(*document) && !document->contains("rubato_trace");
    format = sacct ? TraceFormat::sacct_json : TraceFormat::rubato_json;
  }
  const Layout& layout = layout_of(*format);
  return *format == TraceFormat::sacct_json ? parse_sacct_json(*document, source, layout)
                                            : parse_rubato_json(*document, source, layout);
}

}  // namespace

Result<TraceFormat> parse_trace_format(std::string_view name) {
  for (const auto& layout : kLayouts) {
    if (layout.name == name) return layout.format;
  }
  const auto names = trace_format_names();
  const auto meant = closest(name, names);
  return Error{fmt::format("unknown trace format {}{}; known are {}", base::quoted(name),
                           meant ? fmt::format(", did you mean {}?", *meant) : "",
                           fmt::join(names, ", "))};
}

std::vector<std::string> trace_format_names() {
  std::vector<std::string> names;
  names.reserve(std::size(kLayouts));
  for (const auto& layout : kLayouts) names.emplace_back(layout.name);
  return names;
}

Result<Trace> read_trace(const std::string& path, std::optional<TraceFormat> format) {
  auto text = read_text_file(path);
  if (!text) return text.error();
  return parse_trace(*text, path, format);
}

Result<Trace> parse_trace(std::string_view text, const std::string& source,
                          std::optional<TraceFormat> format) {
  if (!format) {
    auto detected = detect(text, source);
    if (!detected) return detected.error();
    if (layout_of(*detected).json) return parse_json_trace(text, source, std::nullopt);
    format = *detected;
  }
  const Layout& layout = layout_of(*format);
  return layout.json ? parse_json_trace(text, source, *format) : parse_table(text, source, layout);
}

}  // namespace rubato::sim
