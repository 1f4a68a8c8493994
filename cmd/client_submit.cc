#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <iterator>
#include <unistd.h>

#include "cmd/client.h"
#include "rubato/base/unicode.h"
#include "rubato/jobfile/job_fields.h"
#include "rubato/jobfile/job_flags.h"
#include "rubato/wire/random_hex.h"

namespace rubato::cmd {
namespace {

struct SubmitFlags {
  ClientFlags client;
  JobFlags job;
  std::vector<std::string> words;  // the file, then the command
  std::size_t behind_dashes = 0;   // how many of the words came after "--"
  std::string key;
  bool dry_run = false;
  bool wait = false;
  bool parsable = false;
};

// How long to wait for a daemon that is down. A restart takes much less.
constexpr std::chrono::minutes kPatience{5};

Result<std::string> read_all(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file) return Error{fmt::format("cannot read the job file {}", path)};
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) return Error{fmt::format("cannot read the job file {}", path)};
  return text;
}

// "NAME" without "=" takes the value from the environment of this process.
Result<void> expand_environment(std::vector<std::string>& variables) {
  for (std::string& variable : variables) {
    if (variable.find('=') != std::string::npos) continue;
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) {
      return Error{fmt::format("--env {}: there is no such variable here; write NAME=VALUE",
                               for_terminal(variable))};
    }
    variable += fmt::format("={}", value);
  }
  return {};
}

Result<std::string> absolute(const std::string& path) {
  std::error_code problem;
  const auto whole = std::filesystem::absolute(path, problem);
  if (problem) return Error{fmt::format("{}: {}", for_terminal(path), problem.message())};
  return whole.lexically_normal().string();
}

// Relative paths on the command line start from the present directory.
Result<void> absolute_paths(JobFlags& job) {
  for (std::string& directory : job.given["--directory"]) {
    if (directory.empty()) continue;
    auto whole = absolute(directory);
    if (!whole) return whole.error();
    directory = std::move(*whole);
  }
  for (std::string& secret : job.given["--secret"]) {
    const auto equals = secret.find('=');
    if (equals == std::string::npos) continue;
    auto whole = absolute(secret.substr(equals + 1));
    if (!whole) return whole.error();
    secret = secret.substr(0, equals + 1) + *whole;
  }
  return {};
}

// Checks secrets now if the daemon is on this machine. A missing file is better reported now than
// when the job starts.
Result<void> check_secrets(const JobFile& job) {
  for (const auto& [name, path] : job.secrets) {
    if (::access(path.c_str(), R_OK) == 0) continue;
    return Error{fmt::format("secrets.{} must name a file that you can read", name)};
  }
  return {};
}

Result<Json> job_of(SubmitFlags& flags) {
  const std::size_t before = flags.words.size() - std::min(flags.behind_dashes, flags.words.size());
  if (before > 1) {
    return Error{fmt::format("{} follows the job file; write -- before the command",
                             rubato::base::for_terminal(flags.words[1]))};
  }
  flags.job.command.assign(flags.words.begin() + static_cast<std::ptrdiff_t>(before),
                           flags.words.end());
  if (before == 0 && flags.job.command.empty()) {
    return Error{"what should run? Give a job file, or a command after --"};
  }
  if (auto done = expand_environment(flags.job.given["--env"]); !done) return done.error();
  if (auto done = absolute_paths(flags.job); !done) return done.error();
  Json file;
  std::string source = "the job";
  if (before == 1) {
    source = for_terminal(flags.words.front());
    const auto text = read_all(flags.words.front());
    if (!text) return text.error();
    auto parsed = parse_job_text(*text, source);
    if (!parsed) return parsed.error();
    if (parsed->is_null()) return Error{fmt::format("{} is empty", source)};
    file = std::move(*parsed);
  }
  auto json = with_flags(std::move(file), flags.job);
  if (!json) return json.error();
  auto job = read_job(*json, source);
  if (!job) return job.error();
  if (job->directory.empty()) {
    auto here = absolute(".");
    if (!here) return here.error();
    job->directory =
        here->size() > 1 && here->ends_with('/') ? here->substr(0, here->size() - 1) : *here;
  }
  if (!over_network(flags.client)) {
    if (auto done = check_secrets(*job); !done) return done.error();
  }
  return to_json(*job);
}

void print_submission(const SubmitFlags& flags, const Said& said) {
  if (flags.client.json) return print_json(said.body);
  if (flags.parsable) return fmt::print("{}\n", render::count(said.body, "id"));
  fmt::print("{}", render::submission(said.body, look_of_terminal()));
}

int wait_for_end(const SubmitFlags& flags, const Client& client, const std::string& id) {
  const bool quiet = flags.parsable || flags.client.json;
  std::fflush(stdout);
  const Said end = client.wait_for(
      id,
      [&](const Json& job) {
        if (quiet) return;
        fmt::print(stderr, "job {}: {}\n", id, render::text(job, "state"));
      },
      kPatience);
  if (flags.client.json && !end.body.is_null()) print_json(end.body);
  return end.ok() ? 0 : fail(end);
}

int submit(SubmitFlags& flags) {
  const auto job = job_of(flags);
  if (!job) return bad_input(job.error());
  // 128 random bits, so two submissions never have the same key.
  const std::string key = flags.key.empty() ? wire::random_hex(16) : flags.key;
  return with_client(flags.client, [&](const Client& client) {
    const Said said = client.submit(*job, key, flags.dry_run);
    const bool judged = said.body.is_object() && said.body.contains("verdict");
    if (!said.ok() && !judged) return fail(said);
    // A refusal of the job is an answer, too. With --wait, only the last JSON value is printed.
    const bool waits = flags.wait && said.ok() && !flags.dry_run;
    if (!(waits && flags.client.json)) print_submission(flags, said);
    if (!said.ok()) return static_cast<int>(said.exit);
    const bool refused = judged && said.body["verdict"].is_object() &&
                         said.body["verdict"].value("admitted", Json()) == Json(false);
    if (refused) return static_cast<int>(Exit::refused);
    return waits ? wait_for_end(flags, client, render::count(said.body, "id")) : 0;
  });
}

void add_job_flags(CLI::App& command, JobFlags& job) {
  using Kind = JobFlag::Kind;
  for (const JobField& field : job_fields()) {
    const JobFlag& flag = field.flag;
    if (flag.kind == Kind::none) continue;
    const std::string name(flag.name);
    const std::string help(flag.help);
    CLI::Option* option = nullptr;
    if (flag.kind == Kind::off) {
      option = command.add_flag_callback(
          name, [&job, name] { job.given[name] = {""}; }, help);
    } else if (flag.kind == Kind::many) {
      option = command.add_option(name, job.given[name], help)->allow_extra_args(false);
    } else {
      option = command.add_option_function<std::string>(
          name, [&job, name](const std::string& value) { job.given[name] = {value}; }, help);
    }
    if (!flag.value.empty()) option->type_name(std::string(flag.value));
    option->group("Job");
  }
}

}  // namespace

void add_submit(CLI::App& app, Action& chosen, std::size_t behind_dashes) {
  auto* command = app.add_subcommand(
      "submit",
      "Submit a job to the daemon: a file (JSON or YAML), a command after --, or both. A flag "
      "overrides the same field of the file. The answer says at once whether the job can meet its "
      "deadline.");
  auto flags = std::make_shared<SubmitFlags>();
  flags->behind_dashes = behind_dashes;
  command
      ->add_option("job", flags->words,
                   "the job file (- is standard input); after --, the program and its arguments")
      ->type_name("[FILE] [-- PROGRAM ...]");
  command->add_flag("--dry-run", flags->dry_run, "say what would happen, but submit nothing");
  command->add_flag("--wait", flags->wait,
                    "wait until the job has ended; exit with 0 if it completed");
  command->add_flag("--parsable", flags->parsable, "print only the number of the job");
  command
      ->add_option("--key", flags->key,
                   "idempotency key: jobs with the same key are accepted once (default: random)")
      ->type_name("TEXT");
  add_job_flags(*command, flags->job);
  add_connection(*command, flags->client);
  command->footer(with_exit_codes(
      "  rubato submit job.yaml\n"
      "  rubato submit --name x --deadline +2h --work epochs=3 --gpus 1:8 -- python train.py\n"
      "  rubato submit job.yaml --deadline +30m --dry-run\n"
      "  id=$(rubato submit --parsable job.yaml)"));
  command->callback([flags, &chosen] { chosen = [flags] { return submit(*flags); }; });
}

}  // namespace rubato::cmd
