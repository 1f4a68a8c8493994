// whatif: how would the past of a cluster have gone under other policies?
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <memory>
#include <sys/prctl.h>
#include <thread>
#include <unistd.h>

#include "cmd/client.h"
#include "cmd/progress_bar.h"
#include "cmd/report_page.h"
#include "rubato/base/text.h"
#include "rubato/client/what_if.h"
#include "rubato/daemon/what_if.h"
#include "rubato/jobfile/times.h"

namespace rubato::cmd {
namespace {

struct WhatIfFlags {
  ClientFlags client;
  std::string since = "24h";
  std::string until;
  std::string policies;
  std::string html;
  std::string journal;
  bool lines = false;
};

constexpr std::size_t kProgressSteps = 1000;

std::optional<Moment> moment_of(const std::string& text) {
  if (const auto time = jobfile::parse_wall_time(text)) return *time;
  if (const auto ago = jobfile::parse_span(text)) return *ago;
  return std::nullopt;
}

Error bad_moment(const char* flag, const std::string& text) {
  return {
      fmt::format("{} must be a time such as 2026-11-18T09:00:00Z, or how long ago, such as 24h, "
                  "not {}",
                  flag, base::quoted(text))};
}

int show(const WhatIfFlags& flags, const Json& result) {
  if (!flags.html.empty()) {
    const auto data = client::render::what_if_report(result, "rubato " RUBATO_VERSION);
    if (!data) return bad_input(data.error());
    if (auto ok = write_file(flags.html, report_page(*data)); !ok) return bad_input(ok.error());
  }
  if (flags.client.json) {
    print_json(result);
  } else {
    fmt::print("{}", client::render::what_if(result, look_of_terminal()));
  }
  if (!flags.html.empty()) fmt::print(stderr, "report written to {}\n", flags.html);
  return 0;
}

volatile std::sig_atomic_t told_to_end = 0;

// Leaves the simulation, so that it removes its files.
struct ToldToEnd {};

void end_if_told() {
  if (told_to_end != 0) throw ToldToEnd();
}

// In this process, on a journal. For a daemon, with lines that it reads.
int simulate_here(const WhatIfFlags& flags) {
  daemon::WhatIfOrder order;
  order.directory = flags.journal;
  order.range.now = std::chrono::time_point_cast<Duration>(std::chrono::system_clock::now());
  order.range.since = *moment_of(flags.since);
  if (!flags.until.empty()) order.range.until = *moment_of(flags.until);
  order.policies = {flags.policies};
  order.state.inputs.numbers = read_numbers;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    static_cast<void>(std::signal(signal, [](int) { told_to_end = 1; }));
  if (!flags.lines) {
    const auto result = [&] {
      ProgressBar bar("simulating", kProgressSteps);
      return daemon::what_if(order, [&](double share) {
        end_if_told();
        bar.done() = static_cast<std::size_t>(share * kProgressSteps);
      });
    }();
    return result ? show(flags, *result) : bad_input(result.error());
  }
  static_cast<void>(::nice(19));
  static_cast<void>(::prctl(PR_SET_PDEATHSIG, SIGTERM));
  int told = -1;
  const auto result = daemon::what_if(order, [&](double share) {
    end_if_told();
    const int now = static_cast<int>(share * 100);
    if (now == std::exchange(told, now)) return;
    fmt::print("progress {}\n", share);
    std::fflush(stdout);
  });
  if (!result) return bad_input(result.error());
  fmt::print("result {}\n", result->dump(-1, ' ', true, Json::error_handler_t::replace));
  return 0;
}

int ask_daemon(const WhatIfFlags& flags) {
  return with_client(flags.client, [&](const Client& client) {
    Json policies = Json::array();
    policies.push_back(flags.policies);
    Json order = {{"since", flags.since}, {"policies", std::move(policies)}};
    if (!flags.until.empty()) order["until"] = flags.until;
    Said said = client.post("/v1/whatif", order);
    if (!said.ok()) return fail(said);
    const std::string path = fmt::format("/v1/whatif/{}", said.body.value("id", std::uint64_t{0}));
    {
      ProgressBar bar("simulating", kProgressSteps);
      while (said.ok() && said.body.value("state", "") == "running") {
        bar.done() = static_cast<std::size_t>(said.body.value("progress", 0.0) * kProgressSteps);
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        said = client.get(path);
      }
    }
    if (!said.ok()) return fail(said);
    if (said.body.value("state", "") == "done") return show(flags, said.body["result"]);
    return bad_input({said.body.value("error", "the what-if was cancelled")});
  });
}

int run_what_if(const WhatIfFlags& flags) {
  if (!moment_of(flags.since)) return bad_input(bad_moment("--since", flags.since));
  if (!flags.until.empty() && !moment_of(flags.until))
    return bad_input(bad_moment("--until", flags.until));
  if (flags.journal.empty()) return ask_daemon(flags);
  try {
    return simulate_here(flags);
  } catch (const ToldToEnd&) {
    constexpr int kInterrupted = 130;
    return kInterrupted;
  }
}

}  // namespace

void add_whatif(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<WhatIfFlags>();
  auto* command = app.add_subcommand(
      "whatif",
      "Simulate how the past of the cluster would have gone under other policies (admin). The "
      "daemon takes what users and machines really did, and how fast jobs really trained, from its "
      "journal, and lets each policy decide again, in a process of low priority. It changes "
      "nothing. The result says what is taken as truth and what is unknown.");
  command->add_option("--since", flags->since, "begin: a time, or how long ago")
      ->type_name("TIME")
      ->capture_default_str();
  command->add_option("--until", flags->until, "end: a time, or how long ago; now by default")
      ->type_name("TIME");
  command
      ->add_option(
          "--policy", flags->policies,
          "policies, separated by commas, as `rubato policies` lists them; `as-run` is the "
          "one that really ran, with all its switches: it shows how exact the simulation is")
      ->type_name("LIST")
      ->required();
  command
      ->add_option("--html", flags->html,
                   "write a report page, one HTML file that needs no other files")
      ->type_name("FILE");
  command
      ->add_option("--journal", flags->journal,
                   "simulate in this process, on the journal in this state directory; no daemon "
                   "needs to run")
      ->type_name("DIR");
  command->add_flag("--lines", flags->lines)->group("");  // for the daemon
  add_connection(*command, flags->client);
  command->footer(
      with_exit_codes("  rubato whatif --since 24h --policy afs-l,pollux\n"
                      "  rubato whatif --since 7d --policy as-run,elasticflow --html w.html\n"
                      "  rubato whatif --journal ~/.rubato --policy srtf --json",
                      ""));
  command->callback([flags, &chosen] { chosen = [flags] { return run_what_if(*flags); }; });
}

}  // namespace rubato::cmd
