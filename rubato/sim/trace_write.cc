// Writes traces in Rubato's own formats. trace.cc reads them.
#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/sim/csv.h"
#include "rubato/sim/trace.h"

namespace rubato::sim {
namespace {

// An optional column: it is written only if some job has a value for it.
struct Optional {
  std::string_view name;
  bool (*used)(const TraceJob&);
  void (*write)(const TraceJob&, fmt::memory_buffer&);
};

void put(std::string_view text, fmt::memory_buffer& out) { out.append(text); }
void put(const std::optional<double>& value, fmt::memory_buffer& out) {
  if (value) fmt::format_to(std::back_inserter(out), "{}", *value);
}
void put(const std::optional<int>& value, fmt::memory_buffer& out) {
  if (value) fmt::format_to(std::back_inserter(out), "{}", *value);
}

std::string text_of(const Utility& utility) {
  return fmt::format("{}/{}/{}", utility.value, utility.decay, seconds(utility.target));
}

using Job = const TraceJob&;
using Out = fmt::memory_buffer&;

const Optional kOptional[] = {
    {"user", [](Job j) { return !j.user.empty(); },
     [](Job j, Out o) { put(csv_field(j.user), o); }},
    {"model", [](Job j) { return !j.model.empty(); },
     [](Job j, Out o) { put(csv_field(j.model), o); }},
    {"batch", [](Job j) { return j.batch != 0; },
     [](Job j, Out o) { put(j.batch == 0 ? std::nullopt : std::optional(j.batch), o); }},
    {"steps", [](Job j) { return j.steps.has_value(); }, [](Job j, Out o) { put(j.steps, o); }},
    {"deadline_s", [](Job j) { return j.deadline_s.has_value(); },
     [](Job j, Out o) { put(j.deadline_s, o); }},
    {"weight", [](Job j) { return j.weight != 1; },
     [](Job j, Out o) { put(std::optional(j.weight), o); }},
    {"min_gpus", [](Job j) { return j.min_gpus.has_value(); },
     [](Job j, Out o) { put(j.min_gpus, o); }},
    {"max_gpus", [](Job j) { return j.max_gpus.has_value(); },
     [](Job j, Out o) { put(j.max_gpus, o); }},
    {"allowed_gpus", [](Job j) { return !j.allowed_gpus.empty(); },
     [](Job j, Out o) { put(fmt::format("{}", fmt::join(j.allowed_gpus, "/")), o); }},
    {"restart_s", [](Job j) { return j.restart_s.has_value(); },
     [](Job j, Out o) { put(j.restart_s, o); }},
    {"utility", [](Job j) { return j.utility.has_value(); },
     [](Job j, Out o) { put(j.utility ? text_of(*j.utility) : "", o); }},
    {"class", [](Job j) { return j.opportunistic; },
     [](Job j, Out o) { put(j.opportunistic ? "opportunistic" : "", o); }},
    {"search", [](Job j) { return j.search.has_value(); },
     [](Job j, Out o) { put(j.search ? csv_field(to_text(*j.search)) : "", o); }},
    {"skew", [](Job j) { return j.skew.has_value(); }, [](Job j, Out o) { put(j.skew, o); }},
};

Json to_json(const TraceJob& job) {
  Json object;
  object["job_id"] = job.name;
  object["submit_s"] = job.submit_s;
  object["gpus"] = job.gpus;
  if (job.duration_s) object["duration_s"] = *job.duration_s;
  if (!job.user.empty()) object["user"] = job.user;
  if (!job.model.empty()) object["model"] = job.model;
  if (job.batch != 0) object["batch"] = job.batch;
  if (job.steps) object["steps"] = *job.steps;
  if (job.deadline_s) object["deadline_s"] = *job.deadline_s;
  if (job.weight != 1) object["weight"] = job.weight;
  if (job.min_gpus) object["min_gpus"] = *job.min_gpus;
  if (job.max_gpus) object["max_gpus"] = *job.max_gpus;
  if (!job.allowed_gpus.empty()) object["allowed_gpus"] = job.allowed_gpus;
  if (job.restart_s) object["restart_s"] = *job.restart_s;
  if (job.opportunistic) object["class"] = "opportunistic";
  if (job.search) object["search"] = to_text(*job.search);
  if (const auto& u = job.utility) object["utility"] = {u->value, u->decay, seconds(u->target)};
  if (job.skew) object["skew"] = *job.skew;
  return object;
}

}  // namespace

std::string to_csv(const Trace& trace) {
  std::vector<const Optional*> columns;
  for (const auto& column : kOptional) {
    if (std::any_of(trace.jobs.begin(), trace.jobs.end(), column.used)) columns.push_back(&column);
  }
  fmt::memory_buffer out;
  put("job_id,submit_s,gpus,duration_s", out);
  for (const auto* column : columns) fmt::format_to(std::back_inserter(out), ",{}", column->name);
  for (const auto& job : trace.jobs) {
    fmt::format_to(std::back_inserter(out), "\n{},{},{},", csv_field(job.name), job.submit_s,
                   job.gpus);
    put(job.duration_s, out);
    for (const auto* column : columns) {
      out.push_back(',');
      column->write(job, out);
    }
  }
  out.push_back('\n');
  return fmt::to_string(out);
}

std::string to_json_text(const Trace& trace) {
  std::string out = "{\"rubato_trace\":1,\"jobs\":[";
  for (const auto& job : trace.jobs) {
    out += &job == trace.jobs.data() ? "\n" : ",\n";
    out += to_json(job).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return out + "\n]}\n";
}

}  // namespace rubato::sim
