#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cmd/client.h"
#include "cmd/command_line.h"
#include "rubato/base/text.h"
#include "rubato/daemon/daemon.h"
#include "rubato/launch/process.h"
#include "rubato/place/placement.h"

namespace rubato::cmd {
namespace {

struct UpFlags {
  std::string state;
  std::string cluster;  // empty: the one of the last time, or this machine
  std::string policy;
  std::string placement = "pack";
  std::string listen = "127.0.0.1:0";
  double interval = 0;
  double lease = 5;
  double measuring = 10;
  double lateness = 5;
  double hello = seconds(kHelloWithin);
  std::uint64_t log_limit = kLogLimit;
  std::vector<std::string> beyond_loopback;
  std::string keep_journal;
  std::size_t most_jobs = CoreOptions().most_jobs;
  std::size_t most_jobs_per_user = 0;  // 0: a quarter of them
  bool restored = false;
  bool quiet = false;
};

constexpr std::uint64_t kLeastLog = std::uint64_t{64} << 10U;
constexpr std::uint64_t kMostLog = std::uint64_t{1} << 40U;

// All signals are for the loop's thread, which reads them; threads inherit what is blocked here.
void block_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

// One node with a slot for each GPU; a machine without any has a slot for each core.
std::string this_machine() {
  const int gpus = gpus_of_this_machine();
  if (gpus > 0) return fmt::format("1x{}", std::min(gpus, kMaxGpusPerNode));
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return fmt::format("1x{}", std::min(cores, kMaxGpusPerNode));
}

Result<Duration> span_of(const char* flag, double seconds) {
  if (seconds >= 0 && seconds <= 1e6) return from_seconds(seconds);
  return Error{fmt::format("{} {}: write seconds from 0 to a million", flag, seconds)};
}

Result<void> set_address(const std::string& text, HttpServerOptions& http) {
  const auto colon = text.rfind(':');
  const auto port =
      colon == std::string::npos ? std::nullopt : parse_integer(text.substr(colon + 1));
  constexpr int kLastPort = 65535;
  if (!port || *port < 0 || *port > kLastPort)
    return Error{fmt::format("--listen {}: write ADDRESS:PORT, such as 127.0.0.1:8080", text)};
  http.host = text.substr(0, colon);
  if (http.host.starts_with('[') && http.host.ends_with(']'))  // an address that has colons itself
    http.host = http.host.substr(1, http.host.size() - 2);
  http.port = static_cast<int>(*port);
  return {};
}

Result<DaemonOptions> options_of(const UpFlags& flags) {
  DaemonOptions options;
  const auto state = state_directory(flags.state);
  if (!state) return state.error();
  options.state_directory = std::filesystem::absolute(*state).lexically_normal().string();
  auto cluster = parse_cluster(flags.cluster.empty() ? this_machine() : flags.cluster);
  if (!cluster) return Error{"--cluster " + cluster.error().message};
  options.core.cluster = std::move(*cluster);
  options.core.cluster_of_journal = flags.cluster.empty();
  auto placement = parse_placement(flags.placement);
  if (!placement) return Error{"--placement " + placement.error().message};
  options.core.placement = *placement;
  if (!flags.policy.empty()) {
    options.core.policy = flags.policy;
    options.core.switch_policy = true;
  }
  if (auto set = set_address(flags.listen, options.http); !set) return set.error();
  options.http.beyond_loopback = !flags.beyond_loopback.empty();
  for (const std::string& name : flags.beyond_loopback) options.http.hosts.push_back(name);
  if (flags.log_limit < kLeastLog || flags.log_limit > kMostLog)
    return Error{fmt::format("--log-limit {}: write 64K to 1T", flags.log_limit)};
  options.core.log_limit = static_cast<std::int64_t>(flags.log_limit);
  const auto interval = span_of("--interval", flags.interval);
  const auto lease = span_of("--lease", flags.lease);
  const auto measuring = span_of("--measuring", flags.measuring);
  const auto lateness = span_of("--lateness", flags.lateness);
  const auto hello = span_of("--hello-within", flags.hello);
  for (const auto* span : {&interval, &lease, &measuring, &lateness, &hello}) {
    if (!*span) return span->error();
  }
  options.core.interval = *interval;
  options.core.measuring = *measuring;
  options.core.lateness = *lateness;
  options.core.hello = *hello;
  options.core.most_jobs = flags.most_jobs;
  options.core.most_jobs_of_user = flags.most_jobs_per_user > 0
                                       ? flags.most_jobs_per_user
                                       : std::max<std::size_t>(1, flags.most_jobs / 4);
  if (!flags.keep_journal.empty()) {
    const auto keep = parse_span(flags.keep_journal);
    if (!keep || *keep == Duration(0)) {
      return Error{
          fmt::format("--keep-journal {}: write a time such as 90d or 12h", flags.keep_journal)};
    }
    options.core.keep_journal = *keep;
  }
  options.lease = *lease;
  options.restored = flags.restored;
  return options;
}

int up(const UpFlags& flags) {
  block_signals();
  auto options = options_of(flags);
  if (!options) return bad_input(options.error());
  const std::string state = options->state_directory;
  auto daemon = Daemon::open(std::move(*options));
  if (!daemon) return bad_input(daemon.error());
  if (!(*daemon)->dropped().empty())
    fmt::print(stderr, "rubato: the journal was repaired: {}\n", (*daemon)->dropped());
  if (!flags.quiet) {
    const bool chosen = !flags.cluster.empty();
    fmt::print(stderr, "rubato: cluster {}{}\n", machines_text((*daemon)->cluster()),
               chosen                   ? ""
               : (*daemon)->continues() ? ", as the journal says"
                                        : ", this machine");
    fmt::print(stderr,
               "rubato: http://{} and {}/api.sock, admin token in {}/admin.token\n"
               "rubato: ctrl-C ends the daemon; jobs go on and the next `rubato up` takes them "
               "over\n",
               (*daemon)->address(), state, state);
  }
  if (auto ended = (*daemon)->run(); !ended) {
    fmt::print(stderr, "rubato: {}\n", ended.error().message);
    return 1;
  }
  return 0;
}

}  // namespace

void add_up(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<UpFlags>();
  auto* command = app.add_subcommand(
      "up",
      "Run the daemon of a cluster on this machine.\n"
      "\n"
      "It keeps all it knows in its state directory and can be stopped, killed and started again\n"
      "at any time: training goes on meanwhile. Only this machine can reach it unless --listen\n"
      "and --beyond-loopback say otherwise, and over TCP only with a token.\n"
      "\n"
      "Example:\n"
      "  rubato up --cluster 2x4 &\n"
      "  rubato submit --deadline +2h --work epochs=3 --gpus 1:4 -- ./train\n");
  command->add_option("--state", flags->state,
                      "Directory of the journal, the jobs and the sockets;\n"
                      "by default $RUBATO_STATE or ~/.rubato");
  command->add_option("--cluster", flags->cluster,
                      "Nodes x slots, as in 2x4: virtual nodes of this machine. A slot is a GPU\n"
                      "if there are any, else one worker on the CPU. By default the one of the\n"
                      "last time, else " +
                          this_machine());
  command->add_option("--policy", flags->policy,
                      "As in `rubato policies`; by default the one of the last time, or rubato");
  command->add_option("--placement", flags->placement, "Which GPUs a job gets")
      ->capture_default_str();
  command->add_option("--listen", flags->listen, "Address of the HTTP API; port 0 is any free one")
      ->capture_default_str();
  command
      ->add_option("--interval", flags->interval,
                   "Seconds between decisions; 0 decides whenever something happens")
      ->capture_default_str();
  command
      ->add_option("--lease", flags->lease,
                   "Seconds of silence after which a node's state is unknown")
      ->capture_default_str();
  command
      ->add_option("--measuring", flags->measuring,
                   "Seconds that a new job is measured at a GPU count; 0 tries no counts")
      ->capture_default_str();
  command
      ->add_option("--lateness", flags->lateness,
                   "Seconds that a promised plan leaves spare before the deadline, because on a\n"
                   "real machine things come later than planned")
      ->capture_default_str();
  command
      ->add_option("--hello-within", flags->hello,
                   "Seconds after which a program that has not spoken to Rubato is taken for a\n"
                   "plain one, which runs as one process on one GPU")
      ->capture_default_str();
  command
      ->add_option("--log-limit", flags->log_limit,
                   "Size that a job's log never exceeds; its older half goes then")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("64M");
  command
      ->add_option("--beyond-loopback", flags->beyond_loopback,
                   "Let --listen name an address that other machines can reach, and answer to\n"
                   "these names. Tokens are sent as they are: put TLS in front of it")
      ->type_name("NAME,...")
      ->transform([](std::string name) { return CLI::detail::to_lower(std::move(name)); })
      ->delimiter(',');
  command
      ->add_option("--keep-journal", flags->keep_journal,
                   "How long rows of the journal are kept once they are archived, as 90d; by\n"
                   "default for ever. history and replay see no further back")
      ->type_name("SPAN");
  command
      ->add_option("--most-jobs", flags->most_jobs,
                   "Jobs that wait or run; beyond so many, submissions are answered 429")
      ->check(above_zero())
      ->capture_default_str();
  command
      ->add_option(
          "--most-jobs-per-user", flags->most_jobs_per_user,
          "Jobs of one user that wait or run; by default a quarter of --most-jobs. Admins\n"
          "may have as many as there may be")
      ->check(CLI::PositiveNumber);
  command->add_flag("--restored", flags->restored,
                    "The state directory is a copy of another one, or a backup that you have\n"
                    "restored: jobs that were running start again, and nothing of the original is\n"
                    "touched. Needed once");
  command->add_flag("--quiet", flags->quiet, "Say nothing when all is well");
  command->callback([flags, &chosen] { chosen = [flags] { return up(*flags); }; });
}

}  // namespace rubato::cmd
