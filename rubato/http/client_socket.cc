#include "rubato/http/client_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <netdb.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>

#include "rubato/base/text.h"

namespace rubato::http {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using wire::Fd;

// False if the deadline passes first.
bool wait_for(int fd, short events, const Deadline& deadline) {
  while (true) {
    int timeout = -1;
    if (deadline) {
      const auto left = std::chrono::ceil<milliseconds>(*deadline - Clock::now()).count();
      if (left <= 0) return false;
      timeout = static_cast<int>(std::min<long long>(left, 1'000'000));
    }
    pollfd wait{fd, events, 0};
    if (::poll(&wait, 1, timeout) > 0) return true;
  }
}

Error unreachable(const HttpEndpoint& endpoint, int problem) {
  if (problem == ENOENT || problem == ECONNREFUSED) {
    return {fmt::format("no daemon listens at {}; start one with `rubato up`", endpoint.text())};
  }
  return {fmt::format("cannot connect to the daemon at {}: {}", endpoint.text(),
                      std::strerror(problem))};
}

// Returns 0 or an errno.
int connect_socket(const Fd& fd, const sockaddr* address, socklen_t size, milliseconds limit) {
  if (::connect(fd.get(), address, size) == 0) return 0;
  // If the queue of a unix socket is full, connect() fails with EAGAIN and must be called again.
  const auto deadline = after(limit);
  while (errno == EAGAIN) {
    if (Clock::now() >= *deadline) return ETIMEDOUT;
    ::poll(nullptr, 0, 10);
    if (::connect(fd.get(), address, size) == 0) return 0;
  }
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  if (!wait_for(fd.get(), POLLOUT, deadline)) return ETIMEDOUT;
  int problem = 0;
  socklen_t length = sizeof problem;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &problem, &length) != 0) return errno;
  return problem;
}

constexpr int kStream = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

Result<Fd> connect_unix(const HttpEndpoint& endpoint, milliseconds limit) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (endpoint.unix_path.size() >= sizeof address.sun_path) {
    return Error{fmt::format("the socket path {} is longer than {} bytes", endpoint.unix_path,
                             sizeof address.sun_path - 1)};
  }
  std::memcpy(address.sun_path, endpoint.unix_path.data(), endpoint.unix_path.size());
  Fd fd(::socket(AF_UNIX, kStream, 0));
  if (!fd.valid()) return unreachable(endpoint, errno);
  const int problem =
      connect_socket(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address, limit);
  if (problem != 0) return unreachable(endpoint, problem);
  return fd;
}

Result<Fd> connect_tcp(const HttpEndpoint& endpoint, milliseconds limit) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (failed != 0) {
    return Error{fmt::format("{} is no host that can be found: {}", base::quoted(endpoint.host),
                             ::gai_strerror(failed))};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  int problem = EHOSTUNREACH;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Fd fd(::socket(one->ai_family, kStream, 0));
    if (!fd.valid()) {
      problem = errno;
      continue;
    }
    problem = connect_socket(fd, one->ai_addr, one->ai_addrlen, limit);
    if (problem == 0) return fd;
  }
  return unreachable(endpoint, problem);
}

}  // namespace

Deadline after(milliseconds span) { return Clock::now() + span; }

Result<ClientSocket> ClientSocket::connect(const HttpEndpoint& endpoint, milliseconds limit) {
  auto fd =
      endpoint.unix_path.empty() ? connect_tcp(endpoint, limit) : connect_unix(endpoint, limit);
  if (!fd) return fd.error();
  ClientSocket socket(std::move(*fd));
  if (!endpoint.tls) return socket;
  auto tls = ClientTls::make(socket.fd_.get(), endpoint);
  if (!tls) return tls.error();
  socket.tls_ = std::move(*tls);
  const auto deadline = after(limit);
  for (;;) {
    const auto wait = socket.tls_->greet();
    if (!wait) return wait.error();
    if (*wait == ClientTls::Wait::none) return socket;
    if (!socket.wait(*wait, deadline)) {
      return Error{fmt::format("{} does not answer a greeting of TLS; see whether it speaks TLS",
                               endpoint.text())};
    }
  }
}

bool ClientSocket::wait(ClientTls::Wait what, const Deadline& deadline) const {
  return wait_for(fd_.get(), what == ClientTls::Wait::out ? POLLOUT : POLLIN, deadline);
}

bool ClientSocket::send_all(std::string_view text, const Deadline& deadline) {
  while (!text.empty()) {
    if (tls_) {
      const auto moved = tls_->write(text);
      text.remove_prefix(moved.bytes);
      if (moved.bytes > 0) continue;
      if (moved.wait == ClientTls::Wait::none) return true;
      if (!wait(moved.wait, deadline)) return false;
      continue;
    }
    const auto sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      text.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return true;
    } else if (!wait(ClientTls::Wait::out, deadline)) {
      return false;
    }
  }
  return true;
}

std::optional<std::size_t> ClientSocket::receive_some(char* bytes, std::size_t size,
                                                      const Deadline& deadline) {
  for (;;) {
    if (tls_) {
      const auto moved = tls_->read(bytes, size);
      if (moved.bytes > 0 || moved.wait == ClientTls::Wait::none) return moved.bytes;
      if (!wait(moved.wait, deadline)) return std::nullopt;
      continue;
    }
    const auto got = ::recv(fd_.get(), bytes, size, 0);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EAGAIN && errno != EINTR) return 0;
    if (!wait(ClientTls::Wait::in, deadline)) return std::nullopt;
  }
}

}  // namespace rubato::http
