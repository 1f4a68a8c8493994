#include <fmt/format.h>
#include <memory>

#include "cmd/client.h"
#include "rubato/base/text.h"
#include "rubato/jobfile/job_flags.h"
#include "rubato/launch/run_control.h"

namespace rubato::cmd {
namespace {

struct ControlFlags {
  std::vector<std::string> words;
  bool json = false;
};

Result<Json> ask(const std::optional<std::string>& name, const Json& request) {
  const auto path = find_run(run_directory(), name);
  if (!path) return path.error();
  return ask_run(*path, request);
}

std::optional<std::string> name_in(const std::vector<std::string>& words) {
  return words.empty() ? std::nullopt : std::optional(words.front());
}

int resize(const std::optional<std::string>& name, const std::string& to) {
  const auto answer = ask(name, {{"type", "resize"}, {"to", to}});
  if (!answer) return bad_input(answer.error());
  fmt::print("{}: from {} to {} workers\n", answer->value("name", ""), answer->value("from", 0),
             answer->value("to", 0));
  return 0;
}

// --- a job of the daemon -------------------------------------------------------------------------

struct ResizeFlags {
  ClientFlags client;
  std::vector<std::string> words;  // the job or run, and the new count
  bool job = false;
  bool run = false;
};

// The body of the request. "+1" and "-1" are relative to the GPUs that the job has now.
Result<Json> limits_of(const std::string& to, const Json& job) {
  if (!to.starts_with('+') && !to.starts_with('-')) {
    auto limits = parse_gpus(to);
    if (!limits) return limits;
    if (!limits->contains("max")) return Error{"write both ends of the range: MIN:MAX"};
    return limits;
  }
  const auto change = parse_integer(to.starts_with('+') ? to.substr(1) : to);
  const auto now = parse_integer(render::count(job, "gpus"));
  constexpr long long kMost = 1'000'000;
  if (!change || *change > kMost || *change < -kMost) {
    return Error{fmt::format("{} is not a number with a sign, such as +1 or -2", base::quoted(to))};
  }
  if (!now || *now < 1)
    return Error{"the job has no GPUs now, so + and - have no meaning; write a number or MIN:MAX"};
  return Json{{"gpus", std::max<long long>(*now + *change, 1)}};
}

int resize_job(const ResizeFlags& flags, const Client& client, const Json& job,
               const std::string& to) {
  const auto limits = limits_of(to, job);
  if (!limits) return bad_input(limits.error());
  // By number, because the name may belong to another job by now.
  const Said said = client.post(job_target(render::count(job, "id"), "/resize"), *limits);
  return print(flags.client, said, [](const Json& body, const render::Look& /*look*/) {
    const Json now = body.contains("limits") ? body["limits"] : Json();
    const std::string least = render::count(now, "min");
    const std::string most = render::count(now, "max");
    return fmt::format("job {} ({}): GPUs {} now, {} from here on\n", render::count(body, "id"),
                       render::text(body, "name"), render::count(body, "gpus"),
                       least == most ? "exactly " + most : least + " to " + most);
  });
}

// A name may be that of a run, of a job or of both. A number is always a job's.
int resize_any(const ResizeFlags& flags) {
  const std::string& to = flags.words.back();
  if (flags.words.size() == 1) {
    if (flags.job) return bad_input({"say which job: write its number or name before the count"});
    return resize(std::nullopt, to);
  }
  const std::string& name = flags.words.front();
  const bool number = parse_integer(name).has_value();
  const bool run = !number && !flags.job && find_run(run_directory(), name).ok();
  if (flags.run || (run && flags.client.state.empty() && flags.client.server.empty())) {
    if (!flags.run) {
      const auto client = connect(flags.client);
      if (client && client->get(job_target(name)).ok()) {
        return bad_input({fmt::format(
            "there is a run and a job with the name {}; add --run or --job", base::quoted(name))});
      }
    }
    return resize(name, to);
  }
  return with_client(flags.client, [&](const Client& client) {
    const bool any =
        !number && !flags.job && flags.client.state.empty() && flags.client.server.empty();
    Said there = client.get(job_target(name));
    if (any && there.exit == Exit::no_daemon) {
      // A user with runs and without a daemon means a run. The error then lists the runs that
      // exist.
      const auto runs = live_runs(run_directory());
      if (runs && !runs->empty()) return resize(name, to);
      there.error = fmt::format("there is no run of that name, and {}", there.error);
    }
    return there.ok() ? resize_job(flags, client, there.body, to) : fail(there);
  });
}

int kill_worker(const std::vector<std::string>& words) {
  // A single word that is a number is a worker, because the name of a run is never a number.
  std::optional<std::string> name = name_in(words);
  Json request = {{"type", "kill"}};
  const auto uid = words.empty() ? std::nullopt : parse_integer(words.back());
  if (uid) request["worker"] = *uid;
  if (uid && words.size() == 1) name.reset();
  if (words.size() == 2 && !uid) {
    return bad_input({fmt::format("{} is not the number of a worker; see rubato runs",
                                  base::quoted(words.back()))});
  }
  const auto answer = ask(name, request);
  if (!answer) return bad_input(answer.error());
  fmt::print("{}: worker {} killed\n", answer->value("name", ""), answer->value("worker", 0));
  return 0;
}

int list(bool json) {
  const auto runs = live_runs(run_directory());
  if (!runs) return bad_input(runs.error());
  if (json) {
    Json all = Json::array();
    for (const LiveRunInfo& run : *runs) all.push_back(run.info);
    fmt::print("{}\n", Json{{"runs", all}}.dump(2, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  if (runs->empty()) fmt::print("you have no runs\n");
  for (const LiveRunInfo& run : *runs) {
    const Json& info = run.info;
    const std::string step =
        info.contains("step") ? fmt::format(", step {}", info["step"].dump()) : "";
    fmt::print("{:<20} {} workers of {}:{}{}, {:.0f} s\n", info.value("name", ""),
               info.value("wanted", 0), info.value("least", 0), info.value("most", 0), step,
               info.value("seconds", 0.0));
  }
  return 0;
}

}  // namespace

void add_resize(CLI::App& app, Action& chosen) {
  auto* resize_command = app.add_subcommand("resize",
                                            "Change how many GPUs a job may have, or how many "
                                            "workers a run of `rubato run` has. N sets the "
                                            "number, and +K and -K change the present number. For "
                                            "a job, MIN:MAX and 1,2,4 let the policy "
                                            "choose. Training continues during the resize.");
  auto resizing = std::make_shared<ResizeFlags>();
  resize_command
      ->add_option(
          "which", resizing->words,
          "number or name of a job, or name of a run, and the new count. Without a name, the "
          "count is for your only run")
      ->type_name("[JOB|RUN] COUNT")
      ->required()
      ->expected(1, 2);
  auto* job = resize_command->add_flag("--job", resizing->job, "the name is that of a job");
  resize_command->add_flag("--run", resizing->run, "the name is that of a run")->excludes(job);
  add_connection(*resize_command, resizing->client);
  resize_command->footer(
      with_exit_codes("  rubato resize 7 2:8      job 7 may have 2 to 8 GPUs\n"
                      "  rubato resize resnet +1  exactly one GPU more than now\n"
                      "  rubato resize 3          your only run gets 3 workers",
                      "the job's state or the cluster does not allow it"));
  resize_command->callback(
      [resizing, &chosen] { chosen = [resizing] { return resize_any(*resizing); }; });

  auto flags = std::make_shared<ControlFlags>();
  auto* join = app.add_subcommand("join", "Add one worker to a run of `rubato run`.");
  join->add_option("name", flags->words, "name of the run; needed if you have several")
      ->type_name("[RUN]")
      ->expected(0, 1);
  const std::string codes = "\n\nExit code: 0 ok, 2 there is no such run, or bad input.";
  join->footer("Examples:\n  rubato join\n  rubato join demo" + codes);
  join->callback(
      [flags, &chosen] { chosen = [flags] { return resize(name_in(flags->words), "+1"); }; });

  auto* kill = app.add_subcommand(
      "kill", "Kill one worker of a run with SIGKILL, to see how training survives a failure.");
  kill->add_option(
          "worker", flags->words,
          "name of the run, needed if you have several, and number of the worker (default: the "
          "newest worker)")
      ->type_name("[RUN] [WORKER]")
      ->expected(0, 2);
  kill->footer("Examples:\n  rubato kill\n  rubato kill demo 2" + codes);
  kill->callback([flags, &chosen] { chosen = [flags] { return kill_worker(flags->words); }; });

  auto* runs = app.add_subcommand("runs",
                                  "List your runs of `rubato run`: name, number of workers and its "
                                  "limits, step, and age in seconds.");
  runs->add_flag("--json", flags->json, "print one JSON object instead of text");
  runs->footer(
      "Examples:\n  rubato runs\n  rubato runs --json\n\nExit code: 0 ok, 2 the runs cannot be "
      "read.");
  runs->callback([flags, &chosen] { chosen = [flags] { return list(flags->json); }; });
}

}  // namespace rubato::cmd
