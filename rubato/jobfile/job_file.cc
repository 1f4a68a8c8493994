#include "rubato/jobfile/job_file.h"

#include <fmt/format.h>

#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"
#include "rubato/jobfile/job_fields.h"
#include "rubato/jobfile/yaml.h"

namespace rubato::jobfile {
namespace {

constexpr int kMostDepth = 16;

// Says what the reader found.
std::string sentence(const JsonProblem& problem) {
  const auto& [kind, path, why, field, known] = problem;
  if (kind != JsonProblem::Kind::unknown)
    return path.empty() ? why : fmt::format("{} {}", path, why);
  constexpr std::size_t kWorthGuessing = 40;
  const auto meant = field.size() <= kWorthGuessing ? closest(field, known) : std::nullopt;
  const std::vector<std::string_view> fields(known.begin(), known.end());
  return fmt::format("{} has no field {}{}; it can have {}", path.empty() ? "a job" : path,
                     base::quoted(field), meant ? fmt::format(" (did you mean {}?)", *meant) : "",
                     alternatives(fields));
}

void read_fields(const JsonValue& json, JobFile& job) {
  if (!json.json().is_object()) return json.refuse("a job has named fields, such as command");
  JsonFields fields(json);
  if (look_for(json.json(), "user") != nullptr)
    fields.refuse("user cannot be given: who submits a job is known from the connection");
  for (const JobField& field : job_fields()) field.read(fields, field.name, job);
}

}  // namespace

Result<JobFile> read_job(const Json& json, const std::string& source) {
  JobFile job;
  JsonTrouble trouble;
  read_fields(JsonValue(json, trouble), job);
  if (!trouble.ok()) return Error{fmt::format("{}: {}", source, sentence(*trouble.problem()))};
  return job;
}

Result<Json> parse_job_text(std::string_view text, const std::string& source) {
  const bool looks_like_json = trim(text).starts_with('{');
  return looks_like_json ? parse_json(text, source, {kLargestJobFile, kMostDepth})
                         : parse_yaml(text, source, {kLargestJobFile, kMostDepth});
}

Result<JobFile> parse_job_file(std::string_view text, const std::string& source) {
  const auto json = parse_job_text(text, source);
  if (!json) return json.error();
  return read_job(*json, source);
}

Json to_json(const JobFile& job) {
  Json json = Json::object();
  for (const JobField& field : job_fields()) {
    Json value = field.write(job);
    if (!value.is_null()) json[std::string(field.name)] = std::move(value);
  }
  return json;
}

void tell_scheduler(const JobFile& job, JobSpec& spec) {
  for (const JobField& field : job_fields()) {
    if (field.tell != nullptr) field.tell(job, spec);
  }
}

}  // namespace rubato::jobfile
