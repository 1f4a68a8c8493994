#include "rubato/engine/slurm_json.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <optional>

#include "rubato/base/json.h"
#include "rubato/base/text.h"
#include "rubato/base/unicode.h"

namespace rubato::engine {
namespace {

// The words of a job come by its environment: slurmrestd 22.05 dies of the field argv. Only numbers
// of our own are evaluated.
constexpr std::string_view kRestScript =
    "#!/bin/sh\n"
    "set --\n"
    "i=0\n"
    "while test $i -lt \"$RUBATO_WORDS\"; do\n"
    "  eval \"set -- \\\"\\$@\\\" \\\"\\$RUBATO_WORD_$i\\\"; unset RUBATO_WORD_$i\"\n"
    "  i=$((i+1))\n"
    "done\n"
    "unset RUBATO_WORDS\n";

// Names of jobs may contain any bytes.
std::string as_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto one = base::first_code_point(text);
    const std::size_t bytes = one ? one->bytes : 1;
    if (one) {
      result += text.substr(0, bytes);
    } else {
      result += '?';
    }
    text.remove_prefix(bytes);
  }
  return result;
}

Result<Json> parse_answer(std::string_view text) {
  return base::is_utf8(text) ? parse_json(text, "the answer of slurmrestd")
                             : parse_json(as_utf8(text), "the answer of slurmrestd");
}

const Json& at(const Json& object, const char* key) {
  static const Json nothing;
  if (!object.is_object()) return nothing;
  const auto found = object.find(key);
  return found == object.end() ? nothing : *found;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

// 17, or {"set": true, "infinite": false, "number": 17}.
std::optional<std::int64_t> number_in(const Json& value) {
  constexpr double kMost = 1e15;
  if (value.is_object()) {
    const bool set = at(value, "set").is_boolean() && at(value, "set").get<bool>();
    const bool infinite = at(value, "infinite").is_boolean() && at(value, "infinite").get<bool>();
    const Json& number = at(value, "number");
    return set && !infinite && number.is_number() ? number_in(number) : std::nullopt;
  }
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (!(number >= 0 && number <= kMost)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

// A list of texts, or one text in which commas separate them.
std::vector<std::string> list_in(const Json& value) {
  std::vector<std::string> words;
  if (value.is_array()) {
    for (const Json& one : value) {
      if (one.is_string()) words.push_back(one.get<std::string>());
    }
  } else {
    const std::string text = text_of(value);
    for (const auto word : split(text, ',')) {
      if (!word.empty()) words.emplace_back(word);
    }
  }
  return words;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

Result<Json> list_of(std::string_view text, const char* what) {
  auto answer = parse_answer(text);
  if (!answer) return answer.error();
  const Json& list = at(*answer, what);
  if (!list.is_array()) return Error{fmt::format("the answer of slurmrestd has no {}", what)};
  return list;
}

// Minutes; none if there is no limit.
std::optional<Duration> minutes_in(const Json& value) {
  constexpr std::int64_t kMostMinutes = std::int64_t{1} << 31U;
  const auto minutes = number_in(value);
  if (!minutes || *minutes >= kMostMinutes) return std::nullopt;
  return std::chrono::minutes(*minutes);
}

// "RUNNING", or ["CANCELLED", "COMPLETING"]: one word, as squeue says it.
std::string job_state_in(const Json& value) {
  const auto words = list_in(value);
  for (const std::string_view first : {"COMPLETING", "CONFIGURING"}) {
    if (std::find(words.begin(), words.end(), first) != words.end()) return std::string(first);
  }
  return words.empty() ? "" : words.front();
}

SlurmJob job_in(const Json& one, std::int64_t id, const std::string& name, WallTime now) {
  SlurmJob job;
  job.id = id;
  job.name = name;
  job.state = job_state_in(at(one, "job_state"));
  job.user = text_of(at(one, "user_name"));
  const std::string nodes = text_of(at(one, "nodes"));
  job.placed = !nodes.empty();
  job.node = job.placed ? nodes : text_of(at(one, "required_nodes"));
  const SlurmGpus gpus = parse_slurm_gpus(text_of(at(one, "tres_per_node")));
  job.gpus = gpus.number;
  job.type = gpus.type;
  job.reason = text_of(at(one, "state_reason"));
  const auto limit = minutes_in(at(one, "time_limit"));
  const auto start = number_in(at(one, "start_time"));
  if (limit && start && *start > 0 &&
      slurm_share_state(job.state) == ManagedShare::State::running) {
    const auto since = now.time_since_epoch() - std::chrono::seconds(*start);
    job.left = std::max(Duration(0), *limit - std::chrono::duration_cast<Duration>(since));
  }
  return job;
}

}  // namespace

Result<std::vector<SlurmPartition>> read_slurm_partitions(std::string_view text) {
  const auto list = list_of(text, "partitions");
  if (!list) return list.error();
  std::vector<SlurmPartition> partitions;
  for (const Json& one : *list) {
    SlurmPartition partition;
    partition.name = text_of(at(one, "name"));
    const auto flags = list_in(at(one, "flags"));
    partition.is_default = std::any_of(flags.begin(), flags.end(), [](const std::string& flag) {
      return upper(flag) == "DEFAULT";
    });
    const auto usual = minutes_in(at(one, "default_time_limit"));
    const auto later = minutes_in(at(at(one, "defaults"), "time"));
    const auto most = minutes_in(at(one, "max_time_limit"));
    partition.limit = usual   ? usual
                      : later ? later
                      : most  ? most
                              : minutes_in(at(at(one, "maximums"), "time"));
    partition.settings = one.dump();
    if (!partition.name.empty()) partitions.push_back(std::move(partition));
  }
  return partitions;
}

Result<std::vector<SlurmNode>> read_slurm_nodes(std::string_view text) {
  const auto list = list_of(text, "nodes");
  if (!list) return list.error();
  std::vector<SlurmNode> nodes;
  for (const Json& one : *list) {
    const std::string name = text_of(at(one, "name"));
    std::string state;
    for (const char* key : {"state", "state_flags"}) {
      for (const std::string& flag : list_in(at(one, key)))
        state += (state.empty() ? "" : "+") + upper(flag);
    }
    if (name.empty() || state.empty()) {
      return Error{fmt::format("slurmrestd describes a node without {}",
                               name.empty() ? "a name" : "a state")};
    }
    const std::string reason = text_of(at(one, "reason"));
    const std::string gres = text_of(at(one, "gres"));
    const std::string used = text_of(at(one, "gres_used"));
    SlurmNodeWords words;
    words.name = name;
    words.state = state;
    words.reason = reason;
    words.gres = gres;
    words.gres_used = used;
    const auto cpus = number_in(at(one, "effective_cpus"));
    words.cpus = cpus ? *cpus : number_in(at(one, "cpus")).value_or(0);
    words.memory = number_in(at(one, "real_memory")).value_or(0);
    words.partitions = list_in(at(one, "partitions"));
    words.features = list_in(at(one, "active_features"));
    add_slurm_nodes(words, nodes);
  }
  return nodes;
}

Result<std::vector<SlurmJob>> read_slurm_jobs(std::string_view text, std::string_view prefix,
                                              WallTime now) {
  const auto list = list_of(text, "jobs");
  if (!list) return list.error();
  std::vector<SlurmJob> jobs;
  for (const Json& one : *list) {
    const std::string name = text_of(at(one, "name"));
    const auto id = number_in(at(one, "job_id"));
    if (!name.starts_with(prefix) || !id || *id <= 0) continue;
    jobs.push_back(job_in(one, *id, name, now));
  }
  return jobs;
}

std::string read_submitted_slurm_job(std::string_view text) {
  const auto answer = parse_answer(text);
  if (!answer) return "";
  const auto id = number_in(at(*answer, "job_id"));
  return id && *id > 0 ? std::to_string(*id) : "";
}

std::string read_slurm_errors(std::string_view text) {
  const auto answer = parse_answer(text);
  if (!answer) return "";
  std::string all;
  const Json& errors = at(*answer, "errors");
  if (!errors.is_array()) return "";
  for (const Json& one : errors) {
    std::string words = text_of(at(one, "error"));
    if (words.empty()) words = text_of(at(one, "description"));
    if (words.empty()) words = "slurmrestd reports an error without words";
    if (all.find(words) == std::string::npos) all += words + "\n";
  }
  return slurm_complaint(all);
}

Result<std::string> slurm_job_json(const SlurmRequest& request,
                                   const launch::Environment& environment,
                                   const SlurmOptions& options, int version) {
  constexpr int kOld = 38;
  const ShareSpec& share = request.share;
  std::vector<std::string> words{share.directory, share.log};
  words.insert(words.end(), share.command.begin(), share.command.end());
  launch::Environment variables = environment;
  variables.push_back(fmt::format("RUBATO_WORDS={}", words.size()));
  for (std::size_t i = 0; i < words.size(); ++i)
    variables.push_back(fmt::format("RUBATO_WORD_{}={}", i, words[i]));
  for (const std::string& variable : variables) {
    if (!base::is_utf8(variable)) {
      return Error{
          fmt::format("slurmrestd takes only UTF-8, and {} is not; rename it, or use "
                      "Slurm's commands",
                      base::quoted(variable))};
    }
  }
  const std::string of_type = request.type.empty() ? "" : request.type + ":";
  Json job = {{"name", share.name},
              {"comment", as_utf8(slurm_comment(share.comment))},
              {"tasks", 1},
              {"current_working_directory", "/"},
              {"standard_input", "/dev/null"},
              {"standard_output", "/dev/null"},
              {"standard_error", "/dev/null"}};
  if (version <= kOld) {
    job["nodelist"] = request.host;
    job["nodes"] = 1;
    job["gres"] = fmt::format("gpu:{}{}", of_type, share.gpus);
    job["no_requeue"] = true;
    job["cpus_per_gpu"] = request.cpus_per_gpu;
    job["memory_per_gpu"] = request.memory_per_gpu;
    Json object = Json::object();
    for (const std::string& variable : variables) {
      const auto equals = variable.find('=');
      object[variable.substr(0, equals)] = variable.substr(equals + 1);
    }
    job["environment"] = std::move(object);
  } else {
    job["required_nodes"] = {request.host};
    job["nodes"] = "1";
    job["tres_per_node"] = fmt::format("gres/gpu:{}{}", of_type, share.gpus);
    job["requeue"] = false;
    job["cpus_per_tres"] = fmt::format("gres/gpu:{}", request.cpus_per_gpu);
    job["memory_per_tres"] = fmt::format("gres/gpu:{}", request.memory_per_gpu);
    job["environment"] = variables;
  }
  if (!request.partition.empty()) job["partition"] = request.partition;
  if (!options.account.empty()) job["account"] = options.account;
  if (options.minutes > 0) job["time_limit"] = options.minutes;
  const Json body = {{"script", fmt::format("{}{}", kRestScript, kSlurmScript)}, {"job", job}};
  return body.dump();
}

}  // namespace rubato::engine
