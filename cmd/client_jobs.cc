// ls, status, logs, cancel, hold, release, explain and history: what one asks of jobs.
#include <cctype>
#include <deque>
#include <fmt/format.h>
#include <unistd.h>

#include "cmd/client.h"
#include "rubato/engine/console.h"

namespace rubato {
namespace {

// For the commands that take jobs and nothing else.
struct JobsFlags {
  ClientFlags client;
  std::vector<std::string> jobs;
};

void add_jobs(CLI::App& command, JobsFlags& flags) {
  command.add_option("job", flags.jobs, "number or name; a name is your newest job of that name")
      ->type_name("JOB ...")
      ->required();
  add_connection(command, flags.client);
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
  std::string states = flags.states.empty() && !flags.all ? kLive : flags.states;
  for (char& c : states) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return with_client(flags.client, [&](const Client& client) {
    const Said said = client.list({states, flags.user, flags.most});
    return print(flags.client, said, [&](const Json& body, const show::Look& look) {
      if (!flags.parsable) return show::jobs(body, look);
      std::string ids;
      for (const Json& job : body["jobs"]) ids += show::count(job, "id") + "\n";
      return ids;
    });
  });
}

void add_ls(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "ls",
      "List the jobs that wait or run, as squeue does. ST is PD (pending), PF (profiling), HD "
      "(held), R (running), RS (resizing), CG (stopping), CD (completed), F (failed), CA "
      "(cancelled) or RF (refused); SLACK is the time to spare before the deadline.");
  auto flags = std::make_shared<ListFlags>();
  command->add_flag("-a,--all", flags->all, "those that have ended, too");
  command->add_option("-t,--states", flags->states, "only these states, with commas between")
      ->type_name("STATE,...");
  command->add_option("-u,--user", flags->user, "only this user's (others' are for admins to see)")
      ->type_name("NAME");
  command->add_option("-n,--limit", flags->most, "no more than so many")
      ->type_name("NUMBER")
      ->check(CLI::PositiveNumber);
  command->add_flag("--parsable", flags->parsable, "the numbers alone, one on a line");
  add_connection(*command, flags->client);
  command->footer(
      with_exit_codes("  rubato ls\n"
                      "  rubato ls -t running,resizing\n"
                      "  rubato ls --all --json"));
  command->callback([flags, &chosen] { chosen = [flags] { return list_jobs(*flags); }; });
}

// --- status, explain, cancel, hold, release
// -------------------------------------------------------

int show_status(const ClientFlags& flags, const Client& client, const std::string& job) {
  constexpr const char* kNewest = "/v1/history?limit=200&job=";
  const Said said = client.get(job_target(job));
  if (!said.ok() || flags.json) return print(flags, said, {});
  // By number: a name may be another job's by now.
  const Said history = client.get(kNewest + show::count(said.body, "id"));
  const show::Look look = look_of_terminal();
  fmt::print("{}", show::job(said.body, history.body, look));
  return 0;
}

void add_status(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "status", "Show all there is to know of a job, and what has happened to it.");
  auto flags = std::make_shared<JobsFlags>();
  add_jobs(*command, *flags);
  command->footer(with_exit_codes("  rubato status 7\n  rubato status resnet --json"));
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
      "Say why a job waits or has the GPUs it has, whom it waits for and what would change that, "
      "from the decision that was recorded.");
  auto flags = std::make_shared<JobsFlags>();
  add_jobs(*command, *flags);
  command->footer(with_exit_codes("  rubato explain 7"));
  command->callback([flags, &chosen] {
    chosen = [flags] {
      return for_each_word(
          flags->client, flags->jobs, [&](const Client& client, const std::string& job) {
            return print(flags->client, client.get(job_target(job, "/explain")), show::explanation);
          });
    };
  });
}

struct Verb {
  const char* name;
  const char* help;
  const char* method;
  const char* route;
  const char* example;
};

// Each prints the job's number, name and what it is now.
int tell(const ClientFlags& flags, const Client& client, const Verb& verb, const std::string& job) {
  const Said said = client.ask({verb.method, job_target(job, verb.route), {}, {}});
  return print(flags, said, [&](const Json& body, const show::Look& /*look*/) {
    const std::string reason = show::text(body, "reason");
    return fmt::format("job {} ({}): {}{}\n", show::count(body, "id"), show::text(body, "name"),
                       show::text(body, "state"), reason.empty() ? "" : " (" + reason + ")");
  });
}

void add_verb(CLI::App& app, Action& chosen, const Verb& verb) {
  auto* command = app.add_subcommand(verb.name, verb.help);
  auto flags = std::make_shared<JobsFlags>();
  add_jobs(*command, *flags);
  command->footer(with_exit_codes(verb.example));
  command->callback([flags, verb, &chosen] {
    chosen = [flags, verb] {
      return for_each_word(flags->client, flags->jobs,
                           [&](const Client& client, const std::string& job) {
                             return tell(flags->client, client, verb, job);
                           });
    };
  });
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

  // False when nobody reads any more.
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
  show::LogFilter filter_;
  LineCutter cutter_;
};

// The end of what is there now, and the byte it ends at.
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
      // All of it once, so that it is known where to go on.
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
      "Print what the workers of a job wrote. On a terminal, colours pass and whatever else would "
      "command it is spelled out.");
  auto flags = std::make_shared<LogFlags>();
  command->add_option("job", flags->job, "number or name")->type_name("JOB")->required();
  command->add_flag("-f,--follow", flags->follow, "go on until the job has ended");
  command->add_option("-n,--lines", flags->lines, "only the last so many")
      ->type_name("NUMBER")
      ->check(CLI::PositiveNumber);
  command->add_flag("--raw", flags->raw, "every byte as it is, also on a terminal");
  add_connection(*command, flags->client);
  command->footer(with_exit_codes("  rubato logs 7\n  rubato logs -n 20 -f resnet"));
  command->callback([flags, &chosen] { chosen = [flags] { return show_logs(*flags); }; });
}

// --- history -------------------------------------------------------------------------------------

struct HistoryFlags {
  ClientFlags client;
  std::string job;
  long long after = -1;  // the newest
  int most = 100;
};

Said ask_history(const Client& client, const HistoryFlags& flags, long long after,
                 std::size_t most) {
  std::string target = fmt::format("/v1/history?limit={}", most);
  if (after >= 0) target += fmt::format("&after={}", after);
  if (!flags.job.empty()) target += "&job=" + escape(flags.job);
  return client.get(target);
}

// One answer looks at a part of a long past only, and says where to go on.
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
    return print(flags.client, read_history(client, flags), show::history);
  });
}

void add_history(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "history", "List what has happened: submissions, starts, resizes, ends, nodes, policies.");
  auto flags = std::make_shared<HistoryFlags>();
  command->add_option("job", flags->job, "only what concerns this job")->type_name("[JOB]");
  command->add_option("--after", flags->after, "only what came after the event of this number")
      ->type_name("NUMBER")
      ->check(CLI::NonNegativeNumber);
  command->add_option("-n,--limit", flags->most, "the newest so many, or with --after the first")
      ->type_name("NUMBER")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add_connection(*command, flags->client);
  command->footer(
      with_exit_codes("  rubato history\n  rubato history 7\n"
                      "  rubato history --after 120 --json"));
  command->callback([flags, &chosen] { chosen = [flags] { return show_history(*flags); }; });
}

}  // namespace

void add_client_jobs(CLI::App& app, Action& chosen) {
  add_ls(app, chosen);
  add_status(app, chosen);
  add_logs(app, chosen);
  add_verb(app, chosen,
           {"cancel", "Cancel jobs: those that run write a checkpoint and stop.", "DELETE", "",
            "  rubato cancel 7\n  rubato cancel $(rubato ls --parsable)"});
  add_verb(app, chosen,
           {"hold", "Hold jobs back: those that run write a checkpoint, stop and keep their place.",
            "POST", "/hold", "  rubato hold 7"});
  add_verb(app, chosen,
           {"release", "Let jobs go on that were held.", "POST", "/release", "  rubato release 7"});
  add_explain(app, chosen);
  add_history(app, chosen);
}

}  // namespace rubato
