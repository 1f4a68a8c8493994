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
#include "rubato/engine/process.h"
#include "rubato/place/placement.h"

namespace rubato {
namespace {

struct UpFlags {
  std::string state;
  std::string cluster;
  std::string policy;
  std::string placement = "pack";
  std::string listen = "127.0.0.1:0";
  double interval = 0;
  double lease = 5;
  double measuring = 10;
  double lateness = 5;
  std::uint64_t log_limit = kLogLimit;
  std::vector<std::string> beyond_loopback;
  std::size_t most_jobs = CoreOptions().most_jobs;
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
  options.program = std::filesystem::read_symlink("/proc/self/exe").string();
  auto cluster = parse_cluster(flags.cluster);
  if (!cluster) return Error{"--cluster " + cluster.error().message};
  options.core.cluster = std::move(*cluster);
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
  for (const auto* span : {&interval, &lease, &measuring, &lateness}) {
    if (!*span) return span->error();
  }
  options.core.interval = *interval;
  options.core.measuring = *measuring;
  options.core.lateness = *lateness;
  options.core.most_jobs = flags.most_jobs;
  options.lease = *lease;
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
  flags->cluster = this_machine();
  auto* command = app.add_subcommand(
      "up",
      "Run the daemon of a cluster on this machine.\n"
      "\n"
      "It keeps all it knows in its state directory and can be stopped, killed and started again\n"
      "at any time: training goes on meanwhile. Only this machine can reach it unless --listen\n"
      "says otherwise, and over TCP only with a token.\n"
      "\n"
      "Example:\n"
      "  rubato up --cluster 2x4 --policy elasticflow &\n"
      "  rubato submit --deadline +2h --work epochs=3 --gpus 1:4 -- ./train\n");
  command->add_option("--state", flags->state,
                      "Directory of the journal, the jobs and the sockets;\n"
                      "by default $RUBATO_STATE or ~/.rubato");
  command
      ->add_option("--cluster", flags->cluster,
                   "Nodes x slots, as in 2x4: virtual nodes of this machine. A slot is a GPU if\n"
                   "there are any, else one worker on the CPU")
      ->capture_default_str();
  command->add_option("--policy", flags->policy,
                      "As in `rubato policies`; by default the one of the last time, or afs-l");
  command->add_option("--placement", flags->placement, "Which GPUs a job gets")
      ->capture_default_str();
  command->add_option("--listen", flags->listen, "Address of the HTTP API; port 0 is any free one")
      ->capture_default_str();
  command->add_option("--interval", flags->interval,
                      "Seconds between decisions; 0 decides whenever something happens");
  command->add_option("--lease", flags->lease,
                      "Seconds of silence after which a node's state is unknown");
  command->add_option("--measuring", flags->measuring,
                      "Seconds that a new job is measured at a GPU count; 0 tries no counts");
  command
      ->add_option("--lateness", flags->lateness,
                   "Seconds that a promised plan leaves spare before the deadline, because on a\n"
                   "real machine things come later than planned")
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
      ->add_option("--most-jobs", flags->most_jobs,
                   "Jobs that wait or run; beyond so many, submissions are answered 429")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--quiet", flags->quiet, "Say nothing when all is well");
  command->callback([flags, &chosen] { chosen = [flags] { return up(*flags); }; });
}

}  // namespace rubato
