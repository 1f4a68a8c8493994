#include "rubato/sim/sacct_json.h"

#include <fmt/format.h>
#include <initializer_list>
#include <optional>
#include <utility>

#include "rubato/base/text.h"

namespace rubato::sim {
namespace {

// The value below these keys; nullptr if one of them is missing.
const Json* find(const Json& object, std::initializer_list<const char*> keys) {
  const Json* value = &object;
  for (const char* key : keys) {
    if (!value->is_object()) return nullptr;
    const auto at = value->find(key);
    if (at == value->end()) return nullptr;
    value = &*at;
  }
  return value;
}

// "" if it is not set.
std::string number_text(const Json* value) {
  if (value == nullptr) return "";
  if (value->is_number_integer()) return value->dump();
  if (value->is_number_float()) return shortest(value->get<double>());
  const Json* set = find(*value, {"set"});
  const Json* number = find(*value, {"number"});
  if (set == nullptr || number == nullptr || !number->is_number()) return "";
  return *set == true ? number_text(number) : "";
}

// Slurm writes 0 for an id or a time that is not there.
std::string nonzero_text(const Json* value) {
  auto text = number_text(value);
  return text == "0" ? "" : text;
}

std::string plain_text(const Json* value) {
  if (value != nullptr && value->is_array() && !value->empty()) value = &value->front();
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

// As `sacct -P` writes it: "12", "12_3" or "12+0".
std::string id_of(const Json& job) {
  const auto array = nonzero_text(find(job, {"array", "job_id"}));
  const auto task = number_text(find(job, {"array", "task_id"}));
  if (!array.empty()) return fmt::format("{}_{}", array, task.empty() ? "[]" : task);
  const auto whole = nonzero_text(find(job, {"het", "job_id"}));
  const auto part = number_text(find(job, {"het", "job_offset"}));
  if (!whole.empty()) return fmt::format("{}+{}", whole, part);
  return number_text(find(job, {"job_id"}));
}

// As `sacct -P` writes it: "gres/gpu=4,gres/gpu:v100=4". Other resources are left out.
std::string gpus_text(const Json* resources) {
  std::string list;
  if (resources == nullptr || !resources->is_array()) return list;
  for (const auto& item : *resources) {
    const auto name = plain_text(find(item, {"name"}));
    if (plain_text(find(item, {"type"})) != "gres" || name.substr(0, 3) != "gpu") continue;
    list += fmt::format("{}gres/{}={}", list.empty() ? "" : ",", name,
                        number_text(find(item, {"count"})));
  }
  return list;
}

}  // namespace

bool is_sacct(const Json& document) {
  return document.is_object() && document.contains("meta") && document.contains("jobs");
}

SacctCells sacct_cells(const Json& job) {
  if (!job.is_object()) return {{}, "is not an object"};
  SacctCells read;
  const auto need = [&](TraceField field, std::string_view key, std::string text) {
    if (text.empty() && !read.bad) read.bad = fmt::format("{} is missing", key);
    read.cells.push_back({field, key, std::move(text)});
  };
  const auto take = [&](TraceField field, std::string_view key, std::string text) {
    if (!text.empty()) read.cells.push_back({field, key, std::move(text)});
  };
  need(TraceField::slurm_id, "job_id", id_of(job));
  need(TraceField::state, "state.current", plain_text(find(job, {"state", "current"})));
  need(TraceField::timestamp, "time.submission", number_text(find(job, {"time", "submission"})));
  take(TraceField::started, "time.start", nonzero_text(find(job, {"time", "start"})));
  take(TraceField::ended, "time.end", nonzero_text(find(job, {"time", "end"})));
  take(TraceField::elapsed, "time.elapsed", number_text(find(job, {"time", "elapsed"})));
  take(TraceField::user, "user", plain_text(find(job, {"user"})));
  take(TraceField::allocated, "tres.allocated", gpus_text(find(job, {"tres", "allocated"})));
  take(TraceField::asked_for, "tres.requested", gpus_text(find(job, {"tres", "requested"})));
  return read;
}

}  // namespace rubato::sim
