#include "rubato/jobfile/job_flags.h"

#include <algorithm>
#include <fmt/format.h>

#include "rubato/base/text.h"
#include "rubato/jobfile/job_fields.h"

namespace rubato::jobfile {
namespace {

Error bad_gpus(std::string_view text) {
  return {fmt::format("{} is no number of GPUs; write 4, 1:8 (from, to) or 1,2,4,8 (one of them)",
                      base::quoted(text))};
}

Result<void> put(Json& job, const JobField& field, const std::string& value) {
  using Kind = JobFlag::Kind;
  if (field.flag.kind == Kind::off) {
    job[std::string(field.name)] = false;
  } else if (value.empty() && field.flag.kind == Kind::one) {
    return {};  // as if it were not there
  } else if (field.flag.put != nullptr) {
    return field.flag.put(job, value);
  } else {
    job[std::string(field.name)] = value;
  }
  return {};
}

}  // namespace

Result<Json> parse_gpus(std::string_view text) {
  constexpr long long kMost = 1'000'000;
  std::vector<long long> counts;
  const char separator = text.find(':') != std::string_view::npos ? ':' : ',';
  const bool open = separator == ':' && text.ends_with(':');
  if (open) text.remove_suffix(1);
  for (const auto part : split(text, separator)) {
    const auto count = parse_integer(part);
    if (!count || *count < 1 || *count > kMost) return bad_gpus(text);
    counts.push_back(*count);
  }
  if (open && counts.size() == 1) return Json{{"min", counts.front()}};
  if (open || (separator == ':' && counts.size() != 2)) return bad_gpus(text);
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  if (separator == ':' && counts.front() > counts.back()) {
    return Error{fmt::format("{}: the first number is the least", base::quoted(text))};
  }
  Json json = {{"min", *least}, {"max", *most}};
  if (separator == ',' && counts.size() > 1) {
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    json["allowed"] = counts;
  }
  return json;
}

Result<Json> with_flags(Json file, const JobFlags& flags) {
  Json job = file.is_null() ? Json::object() : std::move(file);
  if (!job.is_object()) return job;  // read_job() says what is wrong with it
  if (!flags.command.empty()) job["command"] = flags.command;
  for (const JobField& field : job_fields()) {
    const auto given = flags.given.find(field.flag.name);
    if (given == flags.given.end()) continue;
    for (const std::string& value : given->second) {
      if (auto done = put(job, field, value); !done) return done.error();
    }
  }
  return job;
}

}  // namespace rubato::jobfile
