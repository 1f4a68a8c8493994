#include "rubato/jobfile/job_flags.h"

#include <algorithm>
#include <fmt/format.h>

#include "rubato/base/text.h"

namespace rubato::jobfile {
namespace {

Result<void> add_variables(Json& job, const char* field, const char* flag,
                           const std::vector<std::string>& given) {
  for (const std::string& text : given) {
    const auto equals = text.find('=');
    // Not repeated: a secret may stand there by mistake.
    if (equals == std::string::npos || equals == 0) {
      return Error{fmt::format("{} needs NAME=VALUE", flag)};
    }
    Json& variables = job[field];
    if (!variables.is_object() && !variables.is_null()) return {};  // read_job() says so
    variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return {};
}

Result<void> add_work(Json& job, const std::string& text) {
  if (text.empty()) return {};
  const auto equals = text.find('=');
  if (equals == std::string::npos) {
    return Error{
        fmt::format("--work is {}; write epochs=3, steps=1000 or samples=1e6", base::quoted(text))};
  }
  job["work"] = {{text.substr(0, equals), text.substr(equals + 1)}};
  return {};
}

Result<void> add_batch(Json& job, const std::string& text) {
  if (text.empty()) return {};
  const auto parts = split(text, ':');
  if (parts.size() > 3) {
    return Error{fmt::format("--batch is {}; write fixed, adaptive or adaptive:MIN:MAX",
                             base::quoted(text))};
  }
  job["batch"] = {{"mode", std::string(parts[0])}};
  if (parts.size() > 1) job["batch"]["min"] = std::string(parts[1]);
  if (parts.size() > 2) job["batch"]["max"] = std::string(parts[2]);
  return {};
}

Error bad_gpus(std::string_view text) {
  return {fmt::format("{} is no number of GPUs; write 4, 1:8 (from, to) or 1,2,4,8 (one of them)",
                      base::quoted(text))};
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
  const std::pair<const char*, const std::string*> texts[] = {
      {"name", &flags.name},
      {"profile", &flags.profile},
      {"directory", &flags.directory},
      {"learning_rate", &flags.learning_rate},
      {"weight", &flags.weight},
      {"max_failures", &flags.max_failures},
      {"notice", &flags.notice},
      {"cooldown", &flags.cooldown},
      {"stop_after", &flags.stop_after}};
  for (const auto& [field, text] : texts) {
    if (!text->empty()) job[field] = *text;
  }
  if (flags.deadline == "none") {
    job["goal"] = "asap";
  } else if (!flags.deadline.empty()) {
    job["goal"] = {{"deadline", flags.deadline}};
  }
  if (!flags.gpus.empty()) {
    auto gpus = parse_gpus(flags.gpus);
    if (!gpus) return gpus.error();
    job["gpus"] = std::move(*gpus);
  }
  if (flags.no_elastic) job["elastic"] = false;
  if (auto done = add_work(job, flags.work); !done) return done.error();
  if (auto done = add_batch(job, flags.batch); !done) return done.error();
  if (auto done = add_variables(job, "env", "--env", flags.env); !done) return done.error();
  if (auto done = add_variables(job, "secrets", "--secret", flags.secrets); !done) {
    return done.error();
  }
  return job;
}

}  // namespace rubato::jobfile
