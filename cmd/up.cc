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
#include "cmd/pages.h"
#include "rubato/base/text.h"
#include "rubato/daemon/daemon.h"
#include "rubato/engine/slurm_manager.h"
#include "rubato/launch/process.h"
#include "rubato/place/placement.h"

namespace rubato::cmd {
namespace {

struct UpFlags {
  std::string state;
  std::string cluster;  // empty: the cluster of the last start, or this machine
  std::string engine = "local";
  ManagedBy managed{"Slurm", {}, "SLURM_JOB_ID", "", "", ""};
  SlurmOptions slurm;
  std::string slurm_rest;
  std::string time_limit;
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
  CertificateFiles tls;
  std::string keep_journal;
  std::size_t most_jobs = CoreOptions().most_jobs;
  std::size_t most_jobs_per_user = 0;  // 0: a quarter of most_jobs
  bool restored = false;
  bool quiet = false;
};

constexpr std::uint64_t kLeastLog = std::uint64_t{64} << 10U;
constexpr std::uint64_t kMostLog = std::uint64_t{1} << 40U;

// Only the thread of the loop reads signals. Threads that start later inherit the blocked set.
void block_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

// One node with a slot for each GPU. If the machine has no GPU, it has a slot for each core.
std::string this_machine() {
  const int gpus = gpus_of_this_machine();
  if (gpus > 0) return fmt::format("1x{}", std::min(gpus, kMaxGpusPerNode));
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return fmt::format("1x{}", std::min(cores, kMaxGpusPerNode));
}

Result<Duration> span_of(const char* flag, double seconds) {
  if (seconds >= 0 && seconds <= 1e6) return from_seconds(seconds);
  return Error{fmt::format("{} {}: write seconds from 0 to 1000000", flag, seconds)};
}

Result<void> set_address(const std::string& text, HttpServerOptions& http) {
  const auto colon = text.rfind(':');
  const auto port =
      colon == std::string::npos ? std::nullopt : parse_integer(text.substr(colon + 1));
  constexpr int kLastPort = 65535;
  if (!port || *port < 0 || *port > kLastPort)
    return Error{fmt::format("--listen {}: write ADDRESS:PORT, such as 127.0.0.1:8080", text)};
  http.host = text.substr(0, colon);
  if (http.host.starts_with('[') && http.host.ends_with(']'))  // an IPv6 address
    http.host = http.host.substr(1, http.host.size() - 2);
  http.port = static_cast<int>(*port);
  return {};
}

Result<ManagedBy> slurm_of(const UpFlags& flags) {
  SlurmOptions slurm = flags.slurm;
  if (const char* configuration = std::getenv("SLURM_CONF")) slurm.configuration = configuration;
  slurm.prefix = "any";
  if (!flags.slurm_rest.empty()) {
    auto address = slurm_rest_address(flags.slurm_rest);
    if (!address) return address.error();
    slurm.rest = std::move(*address);
  }
  if (!flags.time_limit.empty()) {
    const auto limit = parse_span(flags.time_limit);
    if (!limit || *limit < kLeastSlurmLimit || *limit > std::chrono::hours(24 * 366)) {
      return Error{fmt::format(
          "--time-limit {}: write a time such as 12h or 2d, at least {} minutes", flags.time_limit,
          std::chrono::floor<std::chrono::minutes>(kLeastSlurmLimit).count())};
    }
    slurm.minutes = static_cast<int>(std::chrono::floor<std::chrono::minutes>(*limit).count());
  }
  if (auto fine = check(slurm); !fine) return fine.error();
  ManagedBy managed = flags.managed;
  managed.manager = [slurm](const std::string& prefix) {
    SlurmOptions own = slurm;
    own.prefix = prefix;
    return std::make_unique<SlurmManager>(std::move(own));
  };
  if (managed.shared.empty()) return managed;
  std::error_code cannot;
  managed.shared = std::filesystem::canonical(managed.shared, cannot).string();
  if (cannot || !std::filesystem::is_directory(managed.shared, cannot)) {
    return Error{fmt::format("--shared {}: write a directory that this machine and all nodes see",
                             flags.managed.shared)};
  }
  return managed;
}

Result<void> set_machines(const UpFlags& flags, DaemonOptions& options) {
  options.core.cluster_of_journal = flags.cluster.empty();
  if (flags.engine == "slurm") {
    if (!flags.cluster.empty())
      return Error{"--cluster: with --engine slurm the nodes are those of Slurm; leave it out"};
    auto managed = slurm_of(flags);
    if (!managed) return managed.error();
    options.managed = std::move(*managed);
    return {};
  }
  for (const auto& [name, value] :
       {std::pair("--partition", &flags.slurm.partition),
        std::pair("--account", &flags.slurm.account), std::pair("--shared", &flags.managed.shared),
        std::pair("--slurm-rest", &flags.slurm_rest),
        std::pair("--slurm-token", &flags.slurm.token),
        std::pair("--time-limit", &flags.time_limit),
        std::pair("--address", &flags.managed.host_address),
        std::pair("--remote-program", &flags.managed.share_program)}) {
    if (!value->empty()) return Error{fmt::format("{} {}: add --engine slurm", name, *value)};
  }
  auto cluster = parse_cluster(flags.cluster.empty() ? this_machine() : flags.cluster);
  if (!cluster) return Error{"--cluster " + cluster.error().message};
  options.core.cluster = std::move(*cluster);
  return {};
}

Result<DaemonOptions> options_of(const UpFlags& flags) {
  DaemonOptions options;
  const auto state = state_directory(flags.state);
  if (!state) return state.error();
  options.state_directory = std::filesystem::absolute(*state).lexically_normal().string();
  if (auto set = set_machines(flags, options); !set) return set.error();
  auto placement = parse_placement(flags.placement);
  if (!placement) return Error{"--placement " + placement.error().message};
  options.core.placement = *placement;
  if (!flags.policy.empty()) {
    options.core.policy = flags.policy;
    options.core.switch_policy = true;
  }
  if (auto set = set_address(flags.listen, options.http); !set) return set.error();
  options.http.page = daemon_page();
  options.http.tls = flags.tls;
  options.http.complain = [](const std::string& problem) {
    fmt::print(stderr, "rubato: {}\n", problem);
  };
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
  const bool managed = options->managed.has_value();
  auto daemon = Daemon::open(std::move(*options));
  if (!daemon) return bad_input(daemon.error());
  if (!(*daemon)->dropped().empty())
    fmt::print(stderr, "rubato: the journal was repaired: {}\n", (*daemon)->dropped());
  if (!flags.quiet) {
    const bool chosen = !flags.cluster.empty();
    fmt::print(stderr, "rubato: cluster {}{}\n", machines_text((*daemon)->cluster()),
               chosen                   ? ""
               : (*daemon)->continues() ? ", as the journal says"
               : managed                ? ", as Slurm says"
                                        : ", this machine");
    fmt::print(
        stderr,
        "rubato: {}{} and {}/api.sock, admin token in {}/admin.token\n"
        "rubato: `rubato page` opens the web page\n"
        "rubato: ctrl-C stops the daemon; jobs continue, and the next `rubato up` takes them "
        "over\n",
        flags.tls.given() ? "" : "http://", (*daemon)->address(), state, state);
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
      "Run the daemon of a cluster: of this machine, or of nodes that Slurm manages.\n"
      "\n"
      "The daemon keeps everything in its state directory. You can stop or kill it at any time. "
      "Jobs "
      "keep training, and the next daemon takes them over. Only this machine can reach the daemon, "
      "unless --listen with --tls-cert and --tls-key allows more. Over TCP, every request needs a "
      "token.\n"
      "\n"
      "The daemon remembers the cluster and the policy. Give all other options again at each "
      "start. "
      "The nodes of a state directory cannot change, but new nodes of Slurm join. For another "
      "cluster, use another state directory.");
  const auto option = [&](const char* name, auto& value, const char* type,
                          const std::string& help) {
    return command->add_option(name, value, help)->type_name(type);
  };
  option("--state", flags->state, "DIR",
         "directory of the journal, the jobs and the sockets (default: RUBATO_STATE, else "
         "~/.rubato)");
  option(
      "--cluster", flags->cluster, "NODESxSLOTS",
      "virtual nodes of this machine, and slots per node (at most 64): 2x4 is 2 nodes with 4 "
      "slots each. A slot is a GPU, or one worker on the CPU if this machine has no GPU (default: "
      "the cluster of the last start, else one node with a slot for each GPU or, without GPUs, "
      "for each core)");
  option("--engine", flags->engine, "NAME",
         "what runs the workers: local, which is this machine, or slurm: a Slurm cluster, whose "
         "commands this machine has; see docs/slurm.md")
      ->check(CLI::IsMember({"local", "slurm"}).description(""))
      ->capture_default_str();
  const auto of_slurm = [&](const char* name, std::string& value, const char* type,
                            const std::string& help) {
    option(name, value, type, "with --engine slurm: " + help);
  };
  of_slurm("--partition", flags->slurm.partition, "NAME",
           "the partition whose nodes are used (default: Slurm's default partition)");
  of_slurm("--account", flags->slurm.account, "NAME",
           "the account that Slurm charges (default: that of the user of a job)");
  of_slurm("--time-limit", flags->time_limit, "SPAN",
           "the time limit of each share, such as 12h; workers move to another share before it "
           "(default: the partition's)");
  of_slurm("--slurm-rest", flags->slurm_rest, "SOCKET",
           "ask slurmrestd, and not Slurm's commands: the path of its socket, or "
           "http://127.0.0.1:PORT");
  of_slurm("--slurm-token", flags->slurm.token, "FILE",
           "the file with the token for --slurm-rest, as `scontrol token` prints it; with a token "
           "of root or SlurmUser, shares belong to the users of the jobs");
  of_slurm(
      "--shared", flags->managed.shared, "DIR",
      "a directory that this machine and all nodes see, for checkpoints and for what the nodes "
      "must know (default: the state directory)");
  of_slurm(
      "--address", flags->managed.host_address, "ADDRESS",
      "the numeric address of this machine for the nodes (default: the one that leads to them)");
  of_slurm("--remote-program", flags->managed.share_program, "PATH",
           "where rubato is on the nodes (default: where it is on this machine)");
  option("--policy", flags->policy, "POLICY",
         fmt::format("the scheduling policy, as `rubato policies` lists them: NAME or "
                     "NAME:key=value,... (default: the policy of the last start, else {})",
                     CoreOptions().policy));
  option("--placement", flags->placement, "NAME",
         "which GPUs a job gets: count, pack, emptiest, spread, even, buddy, netpack, quiet, gaps "
         "or skew; `rubato simulate --help` describes them")
      ->capture_default_str();
  option("--listen", flags->listen, "ADDRESS:PORT",
         "numeric address of the HTTP API. Port 0 is any free port; the file api.address in the "
         "state directory has its number")
      ->capture_default_str();
  option(
      "--beyond-loopback", flags->beyond_loopback, "NAME,...",
      "answer requests for these host names and addresses, too. Without TLS, this also allows an "
      "address of --listen that other machines can reach: tokens are then sent without encryption")
      ->transform([](std::string name) { return CLI::detail::to_lower(std::move(name)); })
      ->delimiter(',');
  option("--tls-cert", flags->tls.certificate, "FILE",
         "speak TLS over TCP, with this certificate: PEM, followed by those between it and its "
         "authority. --listen may then be any address of this machine. The daemon answers requests "
         "for the names in the certificate, and reads the file again when it has changed");
  option("--tls-key", flags->tls.key, "FILE",
         "the key of --tls-cert: PEM, without a password, not readable by everybody");
  option("--interval", flags->interval, "SECONDS",
         "shortest time between two decisions; 0 means that the policy decides whenever something "
         "happens")
      ->capture_default_str();
  option("--lease", flags->lease, "SECONDS",
         "if a node's agent sends nothing for this time, the node is unknown: no job starts there")
      ->capture_default_str();
  option("--measuring", flags->measuring, "SECONDS",
         "how long the speed of a new job is measured on one number of GPUs; 0 means that no other "
         "numbers are tried")
      ->capture_default_str();
  option(
      "--lateness", flags->lateness, "SECONDS",
      "spare time before the deadline in a promised plan, because steps on a real machine can be "
      "late")
      ->capture_default_str();
  option("--hello-within", flags->hello, "SECONDS",
         "a program that has not used Rubato's library after this time runs as one process on one "
         "GPU")
      ->capture_default_str();
  option("--log-limit", flags->log_limit, "SIZE",
         "largest size of a job's log, from 64K to 1T. A log at its limit drops its older half")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->default_str("64M");
  option(
      "--keep-journal", flags->keep_journal, "SPAN",
      "how long archived rows of the journal are kept, such as 90d or 12h. history and replay do "
      "not see older rows (default: for ever)");
  option("--most-jobs", flags->most_jobs, "NUMBER",
         "how many jobs may wait or run. Beyond that, submissions are answered with 429")
      ->check(above_zero())
      ->capture_default_str();
  option("--most-jobs-per-user", flags->most_jobs_per_user, "NUMBER",
         "the same limit for one user who is not an admin (default: a quarter of --most-jobs)")
      ->check(above_zero());
  command->add_flag(
      "--restored", flags->restored,
      "the state directory is a copy or a restored backup. Jobs that were running "
      "start again, and the jobs of the original are not touched. Needed at the first "
      "start only");
  command->add_flag("--quiet", flags->quiet, "print nothing unless there is a problem");
  command->footer(
      "Examples:\n"
      "  rubato up\n"
      "  rubato up --cluster 2x4 &\n"
      "  rubato up --state /var/lib/rubato --listen 127.0.0.1:8080\n"
      "  rubato up --engine slurm --partition gpu --shared /nfs/rubato\n"
      "  rubato up --listen 0.0.0.0:8443 --tls-cert cluster.pem --tls-key cluster.key\n"
      "\n"
      "Exit code: 0 stopped by a signal, 1 ended by an error, 2 could not start.");
  command->callback([flags, &chosen] { chosen = [flags] { return up(*flags); }; });
}

}  // namespace rubato::cmd
