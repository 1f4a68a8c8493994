#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <thread>
#include <unistd.h>

#include "cmd/command_line.h"
#include "rubato/base/text.h"
#include "rubato/launch/terminal_run.h"
#include "rubato/launch/warm_parent.h"

namespace rubato::cmd {
namespace {

constexpr int kMostWorkers = 4096;

struct RunFlags {
  TerminalOptions options;
  std::string workers, mode = "live";
  std::string hosts, remote_shell;
  std::optional<int> start;
  double heartbeat = 5, grace = 10;
};

std::optional<int> parse_count(std::string_view text) {
  const auto number = parse_integer(text);
  if (!number || *number < 1 || *number > kMostWorkers) return std::nullopt;
  return static_cast<int>(*number);
}

// "2:6", or "4" for 4:4. The default is 1 to the number of cores; with hosts, 1 to what they hold,
// and all at the start.
Result<void> set_workers(const RunFlags& flags, LaunchLimits& limits) {
  int on_hosts = 0;
  for (const HostPlace& host : flags.options.spec.hosts.hosts) on_hosts += host.workers;
  if (flags.workers.empty() && on_hosts > 0) {
    limits.most = on_hosts;
  } else if (flags.workers.empty()) {
    const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    limits.most = std::clamp(flags.start.value_or(1), cores, kMostWorkers);
  } else {
    const auto ends = split(flags.workers, ':');
    const auto least = parse_count(ends.front());
    const auto most = parse_count(ends.back());
    if (ends.size() > 2 || !least || !most || *least > *most) {
      return Error{fmt::format("--workers {}: write MIN:MAX or N with 1 <= MIN <= MAX <= {}",
                               base::quoted(flags.workers), kMostWorkers)};
    }
    limits.least = *least;
    limits.most = *most;
  }
  if (on_hosts > 0 && limits.most > on_hosts) {
    return Error{fmt::format("--workers {}: the hosts hold {} workers", base::quoted(flags.workers),
                             on_hosts)};
  }
  const bool all = on_hosts > 0 && flags.workers.empty();
  limits.start = flags.start.value_or(all ? limits.most : limits.least);
  if (limits.start < limits.least || limits.start > limits.most) {
    return Error{fmt::format("--start {}: not within {}:{}, the limits of --workers", limits.start,
                             limits.least, limits.most)};
  }
  return {};
}

Result<Duration> as_duration(const char* flag, double value) {
  constexpr double kShortest = 0.1;
  constexpr double kLongest = 1e6;
  if (!(value >= kShortest && value <= kLongest)) {
    return Error{fmt::format("{} {}: write seconds from {} to {}", flag, value, kShortest,
                             static_cast<long>(kLongest))};
  }
  return from_seconds(value);
}

Result<void> set_hosts(RunFlags& flags) {
  HostsSpec& spec = flags.options.spec.hosts;
  if (flags.hosts.empty()) return {};
  auto hosts = parse_hosts(flags.hosts);
  if (!hosts) return hosts.error();
  spec.hosts = std::move(*hosts);
  if (!flags.remote_shell.empty()) {
    spec.remote_shell.clear();
    for (const std::string_view word : split(flags.remote_shell, ' ')) {
      if (!word.empty()) spec.remote_shell.emplace_back(word);
    }
    if (spec.remote_shell.empty()) return Error{"--rsh: name a program"};
  }
  // The same place on all hosts, where `rubato run` starts its workers on one machine.
  std::array<char, PATH_MAX> here{};
  if (getcwd(here.data(), here.size()) != nullptr) flags.options.spec.directory = here.data();
  return check_remote_program(spec.program);
}

Result<std::unique_ptr<TerminalRun>> prepared(RunFlags& flags) {
  TerminalOptions& options = flags.options;
  if (auto ok = set_hosts(flags); !ok) return ok.error();
  if (auto ok = set_workers(flags, options.spec.limits); !ok) return ok.error();
  const auto heartbeat = as_duration("--heartbeat", flags.heartbeat);
  if (!heartbeat) return heartbeat.error();
  const auto grace = as_duration("--grace", flags.grace);
  if (!grace) return grace.error();
  options.spec.limits.heartbeat = *heartbeat;
  options.spec.limits.grace = *grace;
  if (options.spec.limits.max_failures < 0) {
    return Error{
        fmt::format("--max-failures {}: write 0 or more", options.spec.limits.max_failures)};
  }
  options.spec.live = flags.mode == "live";
  if (options.spec.warm && !options.spec.hosts.hosts.empty()) {
    return Error{"--warm works on this machine only, so it cannot be used with --hosts"};
  }
  if (options.spec.warm && !WarmParent::can_fork(options.spec.command)) {
    return Error{"--warm: the program must be a Python and a file, for example python3 train.py"};
  }
  if (options.spec.name.empty()) options.spec.name = fmt::format("run-{}", getpid());
  for (char** line = environ; *line != nullptr; ++line)
    options.spec.environment.emplace_back(*line);
  options.directory = run_directory();
  return TerminalRun::open(options);
}

int run(RunFlags& flags) {
  auto launcher = prepared(flags);
  return launcher ? (*launcher)->run() : bad_input(launcher.error());
}

}  // namespace

std::string run_directory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && access(runtime, W_OK | X_OK) == 0) {
    return std::string(runtime) + "/rubato";
  }
  return fmt::format("/tmp/rubato-{}", geteuid());
}

void add_run(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "run",
      "Train on this machine or on several hosts, without a daemon, with a number of workers that "
      "can change while "
      "training "
      "runs. If a worker dies, the others continue, and a new one takes its place.");
  auto flags = std::make_shared<RunFlags>();
  TerminalOptions& o = flags->options;
  command
      ->add_option("--workers", flags->workers,
                   "smallest and largest number of workers, or one number for both (default: 1 to "
                   "the number "
                   "of cores)")
      ->type_name("MIN:MAX");
  command->add_option("--start", flags->start, "number of workers at the start (default: MIN)")
      ->type_name("NUMBER");
  command
      ->add_option("--name", o.spec.name,
                   "name for `rubato resize` and other commands (default: run-PID)")
      ->type_name("NAME");
  command
      ->add_option("--max-failures", o.spec.limits.max_failures,
                   "how many workers may fail and be replaced; resizes do not count")
      ->type_name("NUMBER")
      ->capture_default_str();
  command
      ->add_option("--heartbeat", flags->heartbeat,
                   "a worker that sends nothing for this time is killed and replaced")
      ->type_name("SECONDS")
      ->capture_default_str();
  command
      ->add_option("--grace", flags->grace,
                   "time that a worker has to end by itself before it is killed with SIGKILL")
      ->type_name("SECONDS")
      ->capture_default_str();
  command
      ->add_option(
          "--mode", flags->mode,
          "live: the program uses Rubato's training library and continues through a resize. "
          "restart: any program that torchrun can start; at a resize it starts again from "
          "its own checkpoint")
      ->type_name("NAME")
      ->check(one_of({"live", "restart"}))
      ->capture_default_str();
  command
      ->add_option("--hosts", flags->hosts,
                   "train on these hosts, each with at most so many workers (default: 1). The "
                   "program, its data and this directory must be at the same place on all of them. "
                   "Without --workers, all start at once")
      ->type_name("HOST:WORKERS,...");
  command
      ->add_option("--rsh", flags->remote_shell,
                   "with --hosts: the program that starts a command on a host; the host and the "
                   "command follow as its arguments (default: ssh -o BatchMode=yes)")
      ->type_name("PROGRAM");
  command
      ->add_option("--remote-program", o.spec.hosts.program,
                   "with --hosts: where rubato is on the hosts")
      ->type_name("PATH")
      ->capture_default_str();
  command
      ->add_option("--address", o.spec.hosts.address,
                   "with --hosts: the numeric address of this machine for the hosts (default: the "
                   "one from which this machine reaches them)")
      ->type_name("IP");
  command->add_flag("--warm", o.spec.warm,
                    "of a Python program: keep a process that has imported torch, and fork new "
                    "workers from it, so that they need not import it again");
  command->add_flag("--replace-stragglers", o.spec.limits.replace_stragglers,
                    "replace a worker that slows down the others");
  command->add_option("--log", o.log, "append every event to this file, one JSON object per line")
      ->type_name("FILE");
  command->add_flag(
      "--json", o.json,
      "print a summary as JSON at the end; the output of the workers goes to standard error");
  command->add_flag("--quiet", o.quiet, "print no progress and no notices");
  command->add_option("command", o.spec.command, "the training program and its arguments")
      ->type_name("-- PROGRAM [ARGUMENT ...]")
      ->required();
  command->footer(
      "Examples:\n"
      "  rubato run --workers 1:4 -- ./train --epochs 10\n"
      "  rubato run --workers 2:8 --mode restart --name ddp -- python3 train.py\n"
      "  rubato resize ddp 4\n"
      "  rubato run --hosts a:4,b:4 --name two -- ./train --checkpoint /shared/two.ckpt\n"
      "\n"
      "Exit code: 0 finished, 1 failed, 2 could not run, 128 + signal if stopped.");
  command->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace rubato::cmd
