// ls, status, logs, cancel, hold, release, wait, explain and history: the commands about jobs.
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <fmt/format.h>
#include <unistd.h>

#include "cmd/client.h"
#include "rubato/api/job_verbs.h"
#include "rubato/base/text.h"
#include "rubato/base/unicode.h"
#include "rubato/client/log_filter.h"
#include "rubato/jobfile/job_file.h"
#include "rubato/launch/console.h"

namespace rubato::cmd {
namespace {

// For commands whose only arguments are jobs.
struct JobsFlags {
  ClientFlags client;
  std::vector<std::string> jobs;
};

void add_jobs(CLI::App& command, JobsFlags& flags) {
  command
      .add_option("job", flags.jobs,
                  "number or name of a job; a name means your newest job of that name")
      ->type_name("JOB ...")
      ->required();
  add_connection(command, flags.client);
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// --- ls ------------------------------------------------------------------------------------------

struct ListFlags {
  ClientFlags client;
  bool all = false;
  bool parsable = false;
  std::string states;
  std::string user;
  int most = 0;
};

int list_jobs(const ListFlags& flags) {
  constexpr const char* kLive = "PENDING,PROFILING,HELD,RUNNING,RESIZING,STOPPING";
  const std::string states = upper(flags.states.empty() && !flags.all ? kLive : flags.states);
  return with_client(flags.client, [&](const Client& client) {
    const Said said = client.list({states, flags.user, flags.most});
    return print(flags.client, said, [&](const Json& body, const render::Look& look) {
      if (!flags.parsable) return render::jobs(body, look);
      std::string ids;
      for (const Json& job : body["jobs"]) ids += render::count(job, "id") + "\n";
      return ids;
    });
  });
}

void add_ls(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "ls",
      "List the jobs that wait or run, as squeue does. The column ST is PD (pending), PF "
      "(profiling), "
      "HD (held), R (running), RS (resizing), CG (stopping), CD (completed), F (failed), CA "
      "(cancelled) or RF (refused). SLACK is the time that is left before the deadline when the "
      "job "
      "ends as planned.");
  auto flags = std::make_shared<ListFlags>();
  command->add_flag("-a,--all", flags->all, "also list jobs that have ended");
  command
      ->add_option("-t,--states", flags->states,
                   "only jobs in these states, by long or short name: running or R")
      ->type_name("STATE,...");
  command
      ->add_option("-u,--user", flags->user,
                   "only the jobs of this user; only admins see the jobs of others")
      ->type_name("NAME");
  command->add_option("-n,--limit", flags->most, "at most this many jobs")
      ->type_name("NUMBER")
      ->check(above_zero());
  command->add_flag("--parsable", flags->parsable,
                    "print only the numbers of the jobs, one per line");
  add_connection(*command, flags->client);
  command->footer(
      with_exit_codes("  rubato ls\n"
                      "  rubato ls -t running,resizing\n"
                      "  rubato ls -t CD,F\n"
                      "  rubato ls --all --json",
                      ""));
  command->callback([flags, &chosen] { chosen = [flags] { return list_jobs(*flags); }; });
}

// --- status, explain, hold, release -----------------------------------------------------------

int show_status(const ClientFlags& flags, const Client& client, const std::string& job) {
  constexpr const char* kNewest = "/v1/history?limit=200&job=";
  const Said said = client.get(job_target(job));
  if (!said.ok() || flags.json) return print(flags, said, {});
  // By number, because the name may belong to another job by now.
  const Said history = client.get(kNewest + render::count(said.body, "id"));
  const render::Look look = look_of_terminal();
  fmt::print("{}", render::job(said.body, history.body, look));
  return 0;
}

void add_status(CLI::App& app, Action& chosen) {
  auto* command =
      app.add_subcommand("status", "Show everything about a job, and what has happened to it.");
  auto flags = std::make_shared<JobsFlags>();
  add_jobs(*command, *flags);
  command->footer(with_exit_codes("  rubato status 7\n  rubato status resnet --json", ""));
  command->callback([flags, &chosen] {
    chosen = [flags] {
      return for_each_word(flags->client, flags->jobs,
                           [&](const Client& client, const std::string& job) {
                             return show_status(flags->client, client, job);
                           });
    };
  });
}

void add_explain(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "explain",
      "Explain why a job waits, or why it has the GPUs it has. The answer comes from the recorded "
      "decision. It says which jobs the job waits for, and what would change that.");
  auto flags = std::make_shared<JobsFlags>();
  add_jobs(*command, *flags);
  command->footer(with_exit_codes("  rubato explain 7\n  rubato explain resnet --json", ""));
  command->callback([flags, &chosen] {
    chosen = [flags] {
      return for_each_word(flags->client, flags->jobs,
                           [&](const Client& client, const std::string& job) {
                             return print(flags->client, client.get(job_target(job, "/explain")),
                                          render::explanation);
                           });
    };
  });
}

// Prints the number, the name and the new state of the job.
int tell(const ClientFlags& flags, const Client& client, const char* method,
         std::string_view suffix, const std::string& job) {
  const Said said = client.ask({method, job_target(job, suffix), {}, {}});
  return print(flags, said, [&](const Json& body, const render::Look& /*look*/) {
    const std::string reason = render::text(body, "reason");
    return fmt::format("job {} ({}): {}{}\n", render::count(body, "id"), render::text(body, "name"),
                       render::text(body, "state"), reason.empty() ? "" : " (" + reason + ")");
  });
}

void add_verb(CLI::App& app, Action& chosen, const JobVerb& verb) {
  auto* command = app.add_subcommand(verb.command, verb.help);
  auto flags = std::make_shared<JobsFlags>();
  add_jobs(*command, *flags);
  command->footer(with_exit_codes(verb.example, "the job's state does not allow it"));
  command->callback([flags, verb, &chosen] {
    chosen = [flags, verb] {
      return for_each_word(flags->client, flags->jobs,
                           [&](const Client& client, const std::string& job) {
                             return tell(flags->client, client, verb.method, verb.suffix(), job);
                           });
    };
  });
}

// --- cancel --------------------------------------------------------------------------------------

struct CancelFlags {
  ClientFlags client;
  std::vector<std::string> jobs;
  bool all = false;
  std::string states;
  std::string user;
  std::string name;
};

// One request for all jobs. With several, the next job would start on the GPUs that the first one
// releases.
Json cancel_body(const CancelFlags& flags) {
  Json body = Json::object();
  if (flags.all) body["all"] = true;
  if (!flags.jobs.empty()) body["jobs"] = flags.jobs;
  if (!flags.user.empty()) body["user"] = flags.user;
  if (!flags.name.empty()) body["name"] = flags.name;
  if (!flags.states.empty()) {
    const std::string states = upper(flags.states);
    for (const auto state : split(states, ',')) body["states"].push_back(std::string(state));
  }
  return body;
}

// The answer has an entry for each job that was named. The exit code is that of the first one that
// failed.
int print_each(const Json& body, bool quiet) {
  int code = 0;
  const Json jobs = body.is_object() ? body.value("jobs", Json::array()) : Json::array();
  for (const Json& job : jobs) {
    const std::string error = render::text(job, "error");
    if (!error.empty() && code == 0)
      code = static_cast<int>(exit_of_status(std::atoi(render::count(job, "status").c_str())));
    if (quiet) continue;
    if (!error.empty()) {
      fmt::print(stderr, "rubato: {}\n", error);
    } else {
      fmt::print("job {} ({}): {}\n", render::count(job, "id"), render::text(job, "name"),
                 render::text(job, "state"));
    }
  }
  return code;
}

std::string cancelled_text(const CancelFlags& flags, const Json& body) {
  const auto jobs = [&](const char* field) {
    const std::string count = render::count(body, field);
    return count + (count == "1" ? " job" : " jobs");
  };
  std::string text = "cancelled " + jobs("cancelled");
  if (render::count(body, "leaving") != "0")
    text += fmt::format("; {} stopping already", jobs("leaving"));
  // Not said for --all and for a user: most of those jobs ended long ago.
  if (!flags.name.empty() && render::count(body, "over") != "0")
    text += fmt::format("; {} had ended already", jobs("over"));
  return text + "\n";
}

int cancel_jobs(const CancelFlags& flags) {
  const bool named = !flags.jobs.empty();
  const bool filtered =
      flags.all || !flags.user.empty() || !flags.states.empty() || !flags.name.empty();
  if (!named && !filtered)
    return bad_input({"say which jobs to cancel: numbers, names, --all, -u, -t or --name"});
  return with_client(flags.client, [&](const Client& client) {
    if (!filtered && flags.jobs.size() == 1)
      return tell(flags.client, client, "DELETE", "", flags.jobs.front());
    const Said said = client.post("/v1/jobs/cancel", cancel_body(flags));
    if (said.ok() && named && !flags.client.json) return print_each(said.body, false);
    const int code = print(flags.client, said, [&](const Json& body, const render::Look& /*look*/) {
      return cancelled_text(flags, body);
    });
    return said.ok() && named ? print_each(said.body, true) : code;
  });
}

void add_cancel(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "cancel",
      "Cancel jobs. Running jobs write a checkpoint and stop. Name the jobs, or select them by "
      "user, "
      "state or name; a job must match all conditions. Waiting jobs are cancelled first, so that "
      "none of them starts on GPUs that become free.");
  auto flags = std::make_shared<CancelFlags>();
  command
      ->add_option("job", flags->jobs,
                   "number or name of a job; a name means your newest job of that name")
      ->type_name("[JOB ...]");
  command->add_flag(
      "--all", flags->all,
      "all jobs that `rubato ls` lists; for an admin these are the jobs of all users");
  command
      ->add_option("-u,--user", flags->user,
                   "only the jobs of this user; only admins may name another user")
      ->type_name("NAME");
  command
      ->add_option("-t,--states", flags->states, "only jobs in these states, by long or short name")
      ->type_name("STATE,...");
  command
      ->add_option("--name", flags->name,
                   "only jobs whose name matches: * is any text, ? is one character")
      ->type_name("GLOB");
  add_connection(*command, flags->client);
  command->footer(
      with_exit_codes("  rubato cancel 7\n"
                      "  rubato cancel -t pending\n"
                      "  rubato cancel --name 'sweep-*' -t pending,held\n"
                      "  rubato cancel --all -u ada",
                      "the job has ended already"));
  command->callback([flags, &chosen] { chosen = [flags] { return cancel_jobs(*flags); }; });
}

// --- wait ----------------------------------------------------------------------------------------

struct WaitFlags {
  JobsFlags jobs;
  std::string timeout;
};

// Uses the number after the first answer, because the name may belong to another job later.
Said wait_for_one(const Client& client, const std::string& job, bool quiet,
                  const std::function<bool()>& late) {
  constexpr std::chrono::minutes kPatience{5};
  const Said first = client.get(job_target(job));
  if (!first.ok()) return first;
  const auto changed = [&](const Json& now) {
    const std::string state = render::text(now, "state");
    if (quiet || !render::has_ended(state)) return;
    fmt::print("job {} ({}): {}\n", render::count(now, "id"), render::text(now, "name"), state);
    std::fflush(stdout);
  };
  return client.wait_for(render::count(first.body, "id"), changed, kPatience, late);
}

int wait_for_jobs(const WaitFlags& flags) {
  std::function<bool()> late;
  if (!flags.timeout.empty()) {
    const auto most = parse_span(flags.timeout);
    if (!most) {
      return bad_input({fmt::format("--timeout {}: write a time such as 90s, 15m or 2h",
                                    for_terminal(flags.timeout))});
    }
    const auto end = std::chrono::steady_clock::now() + *most;
    late = [end] { return std::chrono::steady_clock::now() >= end; };
  }
  return with_client(flags.jobs.client, [&](const Client& client) {
    const bool json = flags.jobs.client.json;
    Json ended = Json::array();
    int code = 0;
    for (const std::string& job : flags.jobs.jobs) {
      const Said said = wait_for_one(client, job, json, late);
      if (json && said.body.contains("id")) ended.push_back(said.body);
      if (said.ok()) continue;
      const int one = fail(said);
      if (code == 0) code = one;
    }
    if (json) print_json({{"jobs", std::move(ended)}});
    return code;
  });
}

void add_wait(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("wait",
                                     "Wait until all of these jobs have ended. If the daemon is "
                                     "down, wait tries again for up to five "
                                     "minutes.");
  auto flags = std::make_shared<WaitFlags>();
  add_jobs(*command, flags->jobs);
  command
      ->add_option("--timeout", flags->timeout,
                   "wait at most this long, such as 90s, 15m or 2h (default: for ever)")
      ->type_name("SPAN");
  command->footer(
      with_exit_codes("  rubato wait 7 8\n"
                      "  rubato wait --timeout 2h resnet && rubato submit next.yaml",
                      "a job did not complete", "6 the timeout came first"));
  command->callback([flags, &chosen] { chosen = [flags] { return wait_for_jobs(*flags); }; });
}

// --- logs ----------------------------------------------------------------------------------------

struct LogFlags {
  ClientFlags client;
  std::string job;
  bool follow = false;
  bool raw = false;
  int lines = 0;  // 0: all
};

class LogPrinter {
 public:
  explicit LogPrinter(const LogFlags& flags)
      : json_(flags.client.json), filtered_(!flags.raw && ::isatty(STDOUT_FILENO) != 0) {}

  // False if nobody reads the output any more.
  bool print(std::string_view bytes) {
    if (json_) {
      cutter_.feed(bytes, [](const std::string& line) { print_line(line); });
    } else {
      const std::string text = filtered_ ? filter_.pass(bytes) : std::string(bytes);
      std::fwrite(text.data(), 1, text.size(), stdout);
    }
    return std::fflush(stdout) == 0;
  }
  void finish() {
    if (json_) cutter_.finish([](const std::string& line) { print_line(line); });
    if (filtered_) fmt::print("{}", filter_.finish());
  }

 private:
  static void print_line(const std::string& line) {
    fmt::print("{}\n", Json{{"line", line}}.dump(-1, ' ', true, Json::error_handler_t::replace));
  }

  bool json_;
  bool filtered_;
  LogFilter filter_;
  LineCutter cutter_;
};

// The last lines of `text`.
std::string last_lines(const std::string& text, int lines) {
  std::size_t at = text.size();
  if (at > 0 && text[at - 1] == '\n') --at;
  for (int i = 0; i < lines && at != std::string::npos; ++i) {
    at = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
  }
  return at == std::string::npos ? text : text.substr(at + 1);
}

int show_logs(const LogFlags& flags) {
  return with_client(flags.client, [&](const Client& client) {
    LogPrinter printer(flags);
    Client::LogWish wish;
    wish.follow = flags.follow;
    Said said;
    if (flags.lines > 0) {
      // Reads the whole log once, so that following can begin at its end.
      std::string text;
      said = client.log(flags.job, {0, false}, [&](std::string_view bytes) {
        text += bytes;
        return true;
      });
      wish.from = static_cast<std::int64_t>(text.size());
      if (said.ok()) printer.print(last_lines(text, flags.lines));
    }
    if (said.ok() && (flags.lines == 0 || flags.follow)) {
      said =
          client.log(flags.job, wish, [&](std::string_view bytes) { return printer.print(bytes); });
    }
    printer.finish();
    return said.ok() ? 0 : fail(said);
  });
}

void add_logs(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "logs",
      "Print what the workers of a job wrote. On a terminal, colours are kept, and other control "
      "characters are shown as text.");
  auto flags = std::make_shared<LogFlags>();
  command->add_option("job", flags->job, "number or name of the job")->type_name("JOB")->required();
  command->add_flag("-f,--follow", flags->follow, "print new lines until the job has ended");
  command->add_option("-n,--lines", flags->lines, "only this many last lines")
      ->type_name("NUMBER")
      ->check(above_zero());
  command->add_flag("--raw", flags->raw, "print every byte unchanged, also on a terminal");
  add_connection(*command, flags->client);
  command->footer(with_exit_codes("  rubato logs 7\n  rubato logs -n 20 -f resnet",
                                  "the job's directory is not its own"));
  command->callback([flags, &chosen] { chosen = [flags] { return show_logs(*flags); }; });
}

// --- history -------------------------------------------------------------------------------------

struct HistoryFlags {
  ClientFlags client;
  std::string job;
  long long after = -1;  // -1: print the newest events
  int most = 100;
};

Said ask_history(const Client& client, const HistoryFlags& flags, long long after,
                 std::size_t most) {
  std::string target = fmt::format("/v1/history?limit={}", most);
  if (after >= 0) target += fmt::format("&after={}", after);
  if (!flags.job.empty()) target += "&job=" + escape(flags.job);
  return client.get(target);
}

// One answer covers only a part of a long history. It says where the next request should begin.
Said read_history(const Client& client, const HistoryFlags& flags) {
  const auto most = static_cast<std::size_t>(flags.most);
  Said said = ask_history(client, flags, flags.after, most);
  Json events = Json::array();
  while (said.ok() && said.body["events"].is_array()) {
    for (const Json& event : said.body["events"]) events.push_back(event);
    const Json next = said.body["next"];
    said.body["events"] = events;
    if (events.size() >= most || !next.is_number_integer()) break;
    said = ask_history(client, flags, next.get<long long>(), most - events.size());
  }
  return said;
}

int show_history(const HistoryFlags& flags) {
  return with_client(flags.client, [&](const Client& client) {
    const Said said = read_history(client, flags);
    const std::int64_t first = said.ok() ? said.body.value("first", std::int64_t{1}) : 1;
    if (flags.after >= 0 && flags.after + 1 < first)
      fmt::print(stderr, "rubato: events before number {} are no longer kept\n", first);
    return print(flags.client, said, render::history);
  });
}

void add_history(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("history",
                                     "List what has happened: submissions, starts, resizes, ends, "
                                     "nodes, policies. Each event has a "
                                     "number.");
  auto flags = std::make_shared<HistoryFlags>();
  command->add_option("job", flags->job, "only events of this job")->type_name("[JOB]");
  command
      ->add_option("--after", flags->after,
                   "only events after the one with this number; 0 begins with the oldest event")
      ->type_name("NUMBER")
      ->check(zero_or_more());
  command
      ->add_option(
          "-n,--limit", flags->most,
          "at most this many events, 1 to 1000: the newest ones, or with --after the first ones")
      ->type_name("NUMBER")
      ->check(from_to(1, 1000))
      ->capture_default_str();
  add_connection(*command, flags->client);
  command->footer(
      with_exit_codes("  rubato history\n  rubato history 7\n"
                      "  rubato history --after 120 --json",
                      ""));
  command->callback([flags, &chosen] { chosen = [flags] { return show_history(*flags); }; });
}

}  // namespace

void add_client_jobs(CLI::App& app, Action& chosen) {
  add_ls(app, chosen);
  add_status(app, chosen);
  add_logs(app, chosen);
  add_cancel(app, chosen);
  for (const JobVerb& verb : job_verbs()) add_verb(app, chosen, verb);
  add_wait(app, chosen);
  add_explain(app, chosen);
  add_history(app, chosen);
}

}  // namespace rubato::cmd
