#include "rubato/wire/socket.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

namespace rubato::wire {

namespace {

constexpr int kBacklog = 512;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] int family() const { return storage.ss_family; }
};

Result<SocketAddress> unix_address(const std::string& path) {
  SocketAddress result;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Error{fmt::format("socket path '{}' has {} bytes; use one of 1 to {}", path, path.size(),
                             sizeof(address.sun_path) - 1)};
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  result.length = static_cast<socklen_t>(sizeof(address));
  std::memcpy(&result.storage, &address, sizeof(address));
  return result;
}

// "HOST:PORT", where an IPv6 host is in brackets.
Result<SocketAddress> tcp_address(const std::string& rest, const std::string& whole) {
  const Error wrong{fmt::format(
      "address '{}' is not tcp:IP:PORT, such as tcp:127.0.0.1:7000 or tcp:[::1]:7000", whole)};
  const auto colon = rest.rfind(':');
  unsigned port = 0;
  char surplus = 0;
  if (colon == std::string::npos ||
      std::sscanf(rest.c_str() + colon + 1, "%u%c", &port, &surplus) != 1 || port > 65535) {
    return wrong;
  }
  const std::string host = rest.substr(0, colon);
  const std::uint16_t network_port = htons(static_cast<std::uint16_t>(port));
  SocketAddress result;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = network_port;
    if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address.sin6_addr) != 1) {
      return wrong;
    }
    result.length = sizeof(address);
    std::memcpy(&result.storage, &address, sizeof(address));
    return result;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = network_port;
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return wrong;
  result.length = sizeof(address);
  std::memcpy(&result.storage, &address, sizeof(address));
  return result;
}

Result<SocketAddress> parse(const std::string& address) {
  if (address.starts_with("unix:")) return unix_address(address.substr(5));
  if (address.starts_with("tcp:")) return tcp_address(address.substr(4), address);
  return Error{fmt::format("address '{}' begins neither with unix: nor with tcp:", address)};
}

Fd new_socket(const SocketAddress& address) {
  Fd fd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (fd.valid() && address.family() != AF_UNIX) {
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return fd;
}

Error failed(const char* verb, const std::string& address) {
  return {fmt::format("cannot {} {}: {}", verb, address, std::strerror(errno))};
}

}  // namespace

void Fd::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<Fd> listen_on(const std::string& address) {
  Result<SocketAddress> parsed = parse(address);
  if (!parsed) return parsed.error();
  Fd fd = new_socket(*parsed);
  if (!fd.valid() || bind(fd.get(), parsed->get(), parsed->length) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return failed("listen on", address);
  }
  return fd;
}

Result<std::string> address_of(const Fd& listener) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(listener.get(), address.get(), &address.length) != 0) {
    return failed("ask for the address of", "a socket");
  }
  if (address.family() == AF_UNIX) {
    sockaddr_un unix_path{};
    std::memcpy(&unix_path, &address.storage, sizeof(unix_path));
    return std::string("unix:") + unix_path.sun_path;
  }
  if (address.family() == AF_INET6) {
    sockaddr_in6 internet{};
    std::memcpy(&internet, &address.storage, sizeof(internet));
    char host[INET6_ADDRSTRLEN] = {};
    inet_ntop(AF_INET6, &internet.sin6_addr, host, sizeof(host));
    return fmt::format("tcp:[{}]:{}", host, ntohs(internet.sin6_port));
  }
  sockaddr_in internet{};
  std::memcpy(&internet, &address.storage, sizeof(internet));
  char host[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &internet.sin_addr, host, sizeof(host));
  return fmt::format("tcp:{}:{}", host, ntohs(internet.sin_port));
}

Result<Fd> connect_to(const std::string& address) {
  Result<SocketAddress> parsed = parse(address);
  if (!parsed) return parsed.error();
  Fd fd = new_socket(*parsed);
  if (!fd.valid() ||
      (connect(fd.get(), parsed->get(), parsed->length) != 0 && errno != EINPROGRESS)) {
    return failed("connect to", address);
  }
  return fd;
}

Fd accept_from(const Fd& listener) {
  Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const int on = 1;
  // Fails for unix sockets, which have no such delay.
  if (fd.valid()) setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

Fd watch_process(int pid) { return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

std::optional<uid_t> user_at(const Fd& connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

std::optional<ProcessState> look_at_process(int pid) {
  const Fd fd(open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  char line[1024] = {};
  const ssize_t size = fd.valid() ? read(fd.get(), line, sizeof(line) - 1) : -1;
  if (size < 0 && (errno == ENOENT || errno == ESRCH)) return ProcessState{};
  // The name in brackets may contain anything, so fields are counted from the last bracket. The
  // state is the first field after it, the parent the second, and the start time (field 22 of the
  // line) the 20th.
  const char* field = size > 0 ? std::strrchr(line, ')') : nullptr;
  if (field == nullptr || field[1] != ' ') return std::nullopt;
  const bool ended = field[2] == 'Z' || field[2] == 'X';
  const int parent = std::atoi(field + 3);
  for (int i = 0; field != nullptr && i < 20; ++i) field = std::strchr(field + 1, ' ');
  if (field == nullptr) return std::nullopt;
  return ProcessState{std::atoll(field + 1), ended, parent};
}

long long start_time_of(int pid) {
  return look_at_process(pid).value_or(ProcessState{}).start_time;
}

}  // namespace rubato::wire
