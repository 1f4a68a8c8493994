#include "rubato/launch/process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/base/text.h"

namespace rubato::launch {
namespace {

constexpr int kNiced = 10;

struct Pipe {
  wire::Fd read_end, write_end;
};

bool is_shortage(int error) {
  return error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE;
}

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

// The program must not inherit signals that the launcher blocks or ignores. A shell lets the
// programs that it starts in the background ignore some, too.
void default_signals() {
  // In this order, because a handler of the launcher would not let the signals end us. SIGKILL and
  // SIGSTOP cannot be changed, which does no harm.
  for (int signal = 1; signal < NSIG; ++signal) std::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// The functions from here to exec run in a child process. They make only calls that are safe there.

// Closed by exec, not now, because the pipe that reports why exec failed is one of them.
bool keep_standard_only() {
  return syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) == 0;
}

bool enter(const std::string& directory) {
  return directory.empty() || chdir(directory.c_str()) == 0;
}

bool enter_first_of(const std::vector<std::string>& directories) {
  for (const std::string& directory : directories) {
    if (enter(directory)) return true;
  }
  return directories.empty();
}

// Uses system calls directly, because the functions of the C library take locks to inform other
// threads.
bool become_user(const RunAs& user) {
  umask(S_IWGRP | S_IWOTH);
  return syscall(SYS_setgroups, user.groups.size(), user.groups.data()) == 0 &&
         syscall(SYS_setresgid, user.gid, user.gid, user.gid) == 0 &&
         syscall(SYS_setresuid, user.uid, user.uid, user.uid) == 0 &&
         prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

// Returns only if it failed.
void become_worker(char* const* arguments, char* const* environment, const Pipe& in,
                   const Pipe& out, const Pipe& err, const SpawnOptions& options) {
  setpgid(0, 0);
  default_signals();
  if (options.dies_with_us) prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int input =
      in.read_end.valid() ? in.read_end.get() : open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(out.write_end.get(), STDOUT_FILENO) < 0 ||
      dup2(err.write_end.get(), STDERR_FILENO) < 0) {
    return;
  }
  if (options.user && !become_user(*options.user)) return;
  if (options.close_others && !keep_standard_only()) return;
  if (!enter(options.directory)) return;
  if (options.niced) setpriority(PRIO_PROCESS, 0, kNiced);
  execvpe(arguments[0], arguments, environment);
}

bool set_output(const std::string& path) {
  const int fd = path.empty()
                     ? open("/dev/null", O_WRONLY | O_CLOEXEC)
                     : open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
                            S_IRUSR | S_IWUSR);
  return fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0;
}

// Returns only if it failed.
void become_detached(char* const* arguments, char* const* environment, const Detached& detached) {
  default_signals();
  if (setsid() < 0) return;
  if (detached.cgroup >= 0) {
    [[maybe_unused]] const auto entered = write(detached.cgroup, "0", 1);
  }
  if (detached.user && !become_user(*detached.user)) return;
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || !set_output(detached.output)) return;
  if (!keep_standard_only() || !enter_first_of(detached.directories)) return;
  execvpe(detached.image.empty() ? arguments[0] : detached.image.c_str(), arguments, environment);
}

std::string why_not_started(const std::string& program, int reason) {
  const char* why = reason == ENOENT
                        ? "the program was not found (of a script: or what its first line names)"
                        : std::strerror(reason);
  return fmt::format("cannot start {}: {}", base::quoted(program, 200), why);
}

// Starts a child that calls `become`, which must not return. Returns the pid after exec has
// succeeded. Otherwise returns 0, and the reason in `error`.
template <class Become>
int fork_and(const Become& become, int& error) {
  // A successful exec closes it. Otherwise it carries the reason.
  auto failure = new_pipe();
  const pid_t pid = failure ? fork() : -1;
  if (pid < 0) {
    error = errno;
    return 0;
  }
  if (pid == 0) {
    become();
    const int reason = errno;
    [[maybe_unused]] const auto size = write(failure->write_end.get(), &reason, sizeof(reason));
    _exit(127);
  }
  failure->write_end.close();
  int reason = 0;
  ssize_t size = 0;
  do {
    size = read(failure->read_end.get(), &reason, sizeof(reason));
  } while (size < 0 && errno == EINTR);
  if (size != sizeof(reason)) return pid;
  waitpid(pid, nullptr, 0);
  error = reason;
  return 0;
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

// A child whose output goes into these pipes.
Result<Process> watched(int pid, Pipe& out, Pipe& err) {
  Process process{pid, wire::watch_process(pid), std::move(out.read_end), std::move(err.read_end)};
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
                      const SpawnOptions& options, bool* shortage) {
  CHECK(!command.empty());
  if (shortage != nullptr) *shortage = true;
  auto out = new_pipe();
  if (!out) return out.error();
  auto err = new_pipe();
  if (!err) return err.error();
  auto in = options.input.empty() ? Result<Pipe>(Pipe()) : new_pipe();
  if (!in) return in.error();
  // So that the process can also open it by its name, /dev/stdin.
  if (options.user && in->read_end.valid()) {
    [[maybe_unused]] const int given = fchown(in->read_end.get(), options.user->uid, -1);
  }
  const std::vector<char*> arguments = pointers(command);
  const std::vector<char*> variables = pointers(environment);
  int failure = 0;
  const int pid =
      fork_and([&] { become_worker(arguments.data(), variables.data(), *in, *out, *err, options); },
               failure);
  if (pid == 0) {
    if (shortage != nullptr) *shortage = is_shortage(failure);
    const std::string& directory = options.directory;
    if (!directory.empty() && access(directory.c_str(), X_OK) != 0) {
      return Error{fmt::format("cannot enter the directory {}: {}", base::quoted(directory, 200),
                               std::strerror(failure))};
    }
    return Error{why_not_started(command.front(), failure)};
  }
  auto process = watched(pid, *out, *err);
  if (!process) return process;
  // A pipe takes so few bytes at once, also if nobody reads them.
  if (in->write_end.valid()) {
    [[maybe_unused]] const auto size =
        write(in->write_end.get(), options.input.data(), options.input.size());
  }
  return process;
}

Result<Process> adopt(const std::function<int(int out, int err)>& make) {
  auto out = new_pipe();
  if (!out) return out.error();
  auto err = new_pipe();
  if (!err) return err.error();
  const int pid = make(out->write_end.get(), err->write_end.get());
  if (pid <= 0 || waitpid(pid, nullptr, WNOHANG) != 0) return Error{"no process was made"};
  return watched(pid, *out, *err);
}

Result<RunAs> look_up_user(const std::string& name) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(std::size_t{64} << 10U);
  const int error = getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found == nullptr) {
    return Error{fmt::format("this machine has no user {}{}", base::quoted(name),
                             error == 0 ? "" : fmt::format(" ({})", std::strerror(error)))};
  }
  RunAs user{entry.pw_name, entry.pw_uid, entry.pw_gid, {}, entry.pw_dir, entry.pw_shell};
  int number = 64;
  do {
    user.groups.resize(static_cast<std::size_t>(number));
  } while (getgrouplist(entry.pw_name, entry.pw_gid, user.groups.data(), &number) < 0);
  user.groups.resize(static_cast<std::size_t>(number));
  return user;
}

Environment clean_environment(const RunAs& user) {
  return {"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + user.home, "USER=" + user.name,
          "LOGNAME=" + user.name, "SHELL=" + (user.shell.empty() ? "/bin/sh" : user.shell)};
}

Environment own_environment() {
  Environment environment;
  for (char** line = environ; *line != nullptr; ++line) environment.emplace_back(*line);
  return environment;
}

Result<std::optional<RunAs>> run_as(const std::string& user) {
  if (user.empty()) return std::optional<RunAs>();
  auto found = look_up_user(user);
  if (!found) return found.error();
  if (found->uid == geteuid()) return std::optional<RunAs>();
  if (geteuid() == 0) return std::optional<RunAs>(std::move(*found));
  return Error{fmt::format("a job of {} can be run only by a daemon that root has started",
                           base::quoted(user))};
}

Result<int> start_detached(const Detached& detached) {
  CHECK(!detached.command.empty());
  const std::vector<char*> arguments = pointers(detached.command);
  const std::vector<char*> variables = pointers(detached.environment);
  int failure = 0;
  const int pid =
      fork_and([&] { become_detached(arguments.data(), variables.data(), detached); }, failure);
  if (pid == 0) return Error{why_not_started(detached.command.front(), failure)};
  return pid;
}

void collect_child(int pid) { waitpid(pid, nullptr, WNOHANG); }

void end_child(int pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

std::optional<ProcessEnd> reap(const Process& process) {
  siginfo_t info{};
  const auto id = static_cast<id_t>(process.pid);
  if (waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  // Before it is collected, because until then its pid cannot be reused.
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

int gpus_of_this_machine() {
  int gpus = 0;
  while (access(fmt::format("/dev/nvidia{}", gpus).c_str(), F_OK) == 0) ++gpus;
  return gpus;
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

}  // namespace rubato::launch
