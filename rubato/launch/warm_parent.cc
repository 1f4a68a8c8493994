#include "rubato/launch/warm_parent.h"

#include <array>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "rubato/base/json.h"

namespace rubato::launch {
namespace {

constexpr const char* kDescriptor = "RUBATO_WARM";  // the variable that names the parent's socket
constexpr int kForkPatienceMs = 10'000;             // a fork takes milliseconds

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

WarmParent::~WarmParent() { end(); }

bool WarmParent::can_fork(const std::vector<std::string>& command) {
  return command.size() >= 2 && file_name(command[0]).starts_with("python") &&
         command[1].ends_with(".py");
}

void WarmParent::begin(const std::vector<std::string>& command, const Environment& environment,
                       bool niced) {
  if (std::exchange(begun_, true)) return;
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  socket_ = wire::Fd(ends[0]);
  const wire::Fd theirs(ends[1]);
  fcntl(theirs.get(), F_SETFD, 0);
  Environment own = environment;
  set(own, kDescriptor, std::to_string(theirs.get()));
  SpawnOptions options;
  options.niced = niced;
  options.dies_with_us = true;
  auto process = spawn({command[0], "-m", "rubato.warm"}, own, options);
  if (process) process_ = std::move(*process);
}

std::optional<Process> WarmParent::fork_worker(const std::vector<std::string>& command,
                                               const Environment& environment,
                                               const SpawnOptions& options) {
  if (!is_ready()) return std::nullopt;
  const std::string request = Json{{"command", command},
                                   {"environment", environment},
                                   {"directory", options.directory},
                                   {"niced", options.niced},
                                   {"dies_with", options.dies_with_us ? getpid() : 0}}
                                  .dump(-1, ' ', false, Json::error_handler_t::replace);
  int pid = 0;
  auto worker = adopt([&](int out, int err) {
    if (!ask(request, out, err)) return 0;
    const std::string text = answer(kForkPatienceMs);
    std::from_chars(text.data(), text.data() + text.size(), pid);
    return pid;
  });
  if (worker) return std::move(*worker);
  end();  // what it does is unknown
  return std::nullopt;
}

bool WarmParent::is_ready() {
  if (!process_) return false;
  if (!ready_) ready_ = answer(0) == "ready";
  return ready_;
}

bool WarmParent::ask(const std::string& request, int out, int err) const {
  iovec content{const_cast<char*>(request.data()), request.size()};
  const std::array<int, 2> descriptors = {out, err};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(descriptors))> control{};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(descriptors));
  std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof(descriptors));
  return sendmsg(socket_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(request.size());
}

// Empty if there is none.
std::string WarmParent::answer(int patience_ms) {
  pollfd readable{socket_.get(), POLLIN, 0};
  if (poll(&readable, 1, patience_ms) != 1) return {};
  std::array<char, 64> buffer;  // NOLINT: filled by recv
  const ssize_t size = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (size == 0) end();
  return {buffer.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

void WarmParent::end() {
  if (!process_) return;
  end_child(process_->pid);
  process_.reset();
  socket_.close();
}

}  // namespace rubato::launch
