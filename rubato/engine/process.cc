#include "rubato/engine/process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/base/text.h"

namespace rubato {
namespace {

constexpr int kNiced = 10;

struct Pipe {
  wire::Fd read_end, write_end;
};

Result<Pipe> new_pipe() {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return Error{fmt::format("cannot make a pipe for a worker: {}", std::strerror(errno))};
  }
  return Pipe{wire::Fd(ends[0]), wire::Fd(ends[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Whatever the launcher blocks or ignores for itself must not reach the program.
void default_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
}

// Between fork and exec: only calls that are safe there. Returns only if it failed.
void become(char* const* arguments, char* const* environment, const Pipe& out, const Pipe& err,
            bool niced) {
  setpgid(0, 0);
  default_signals();
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
      dup2(out.write_end.get(), STDOUT_FILENO) < 0 ||
      dup2(err.write_end.get(), STDERR_FILENO) < 0) {
    return;
  }
  if (niced) setpriority(PRIO_PROCESS, 0, kNiced);
  execvpe(arguments[0], arguments, environment);
}

bool has_capability(unsigned capability) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[capability / 32].effective & (1U << (capability % 32))) != 0;
}

void make_nonblocking(const wire::Fd& fd) {
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

}  // namespace

std::string to_text(const ProcessEnd& end) {
  if (!end.killed) return fmt::format("exited with code {}", end.code);
  return fmt::format("was killed by signal {} ({})", end.code, strsignal(end.code));
}

void set(Environment& environment, const std::string& name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& line) { return line.starts_with(name + "="); });
  environment.push_back(name + "=" + value);
}

void set_default(Environment& environment, const std::string& name, const std::string& value) {
  for (const std::string& line : environment) {
    if (line.starts_with(name + "=")) return;
  }
  environment.push_back(name + "=" + value);
}

Result<Process> spawn(const std::vector<std::string>& command, const Environment& environment,
                      bool niced) {
  CHECK(!command.empty());
  auto out = new_pipe();
  if (!out) return out.error();
  auto err = new_pipe();
  if (!err) return err.error();
  // Closed by a successful exec; otherwise it carries the reason.
  auto failure = new_pipe();
  if (!failure) return failure.error();
  const std::vector<char*> arguments = pointers(command);
  const std::vector<char*> variables = pointers(environment);

  const pid_t pid = fork();
  if (pid < 0) return Error{fmt::format("cannot start a worker: {}", std::strerror(errno))};
  if (pid == 0) {
    become(arguments.data(), variables.data(), *out, *err, niced);
    const int reason = errno;
    [[maybe_unused]] const auto size = write(failure->write_end.get(), &reason, sizeof(reason));
    _exit(127);
  }
  // Both sides do it, so that it is done whoever comes first.
  setpgid(pid, pid);
  failure->write_end.close();
  int reason = 0;
  ssize_t size = 0;
  do {
    size = read(failure->read_end.get(), &reason, sizeof(reason));
  } while (size < 0 && errno == EINTR);
  if (size == sizeof(reason)) {
    waitpid(pid, nullptr, 0);
    return Error{fmt::format("cannot start {}: {}", rubato::quoted(command.front(), 200),
                             std::strerror(reason))};
  }
  Process process{pid, wire::watch_process(pid), std::move(out->read_end),
                  std::move(err->read_end)};
  if (!process.ended.valid()) {
    const Error error{fmt::format("cannot watch a worker: {}", std::strerror(errno))};
    kill(-pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return error;
  }
  make_nonblocking(process.out);
  make_nonblocking(process.err);
  return process;
}

std::optional<ProcessEnd> reap(const Process& process) {
  siginfo_t info{};
  const auto id = static_cast<id_t>(process.pid);
  if (waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  // Before it is collected: until then nobody else can have its number.
  kill(-process.pid, SIGKILL);
  waitpid(process.pid, nullptr, 0);
  return ProcessEnd{info.si_code != CLD_EXITED, info.si_status};
}

void send_signal(const Process& process, int signal) {
  kill(signal == SIGKILL ? -process.pid : process.pid, signal);
}

bool may_undo_nice() {
  rlimit limit{};
  constexpr rlim_t kNiceZero = 20;  // the limit counts down from 20: see getrlimit(2)
  const bool allowed = getrlimit(RLIMIT_NICE, &limit) == 0 && limit.rlim_cur >= kNiceZero;
  return (allowed || has_capability(CAP_SYS_NICE)) && getpriority(PRIO_PROCESS, 0) < kNiced;
}

Result<int> free_port() {
  auto listener = wire::listen_on("tcp:127.0.0.1:0");
  if (!listener) return listener.error();
  const auto address = wire::address_of(*listener);
  if (!address) return address.error();
  const auto port = parse_integer(address->substr(address->rfind(':') + 1));
  CHECK(port.has_value());
  return static_cast<int>(*port);
}

}  // namespace rubato
