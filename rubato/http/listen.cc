#include "rubato/http/listen.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rubato::http {
namespace {

// Descriptors for the rest of the daemon: the journal, agents, files.
constexpr std::size_t kOtherDescriptors = 256;

Error cannot_listen(const std::string& where, int problem) {
  const char* advice = problem == EADDRINUSE ? "; choose another port" : "";
  return {fmt::format("cannot listen on {}: {}{}", where, std::strerror(problem), advice)};
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in internet{};
    std::memcpy(&internet, address, sizeof internet);
    return ntohl(internet.sin_addr.s_addr) >> 24U == 127;
  }
  sockaddr_in6 internet{};
  std::memcpy(&internet, address, sizeof internet);
  return IN6_IS_ADDR_LOOPBACK(&internet.sin6_addr);
}

}  // namespace

Result<wire::Fd> listen_tcp(const std::string& host, int port, bool beyond_loopback) {
  const std::string where = fmt::format("{}:{}", host, port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return Error{fmt::format("cannot listen on {}: not a numeric address and a port", where)};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  if (!beyond_loopback && !is_loopback(found->ai_addr)) {
    return Error{
        fmt::format("{} is not on the loopback interface, and tokens would be sent without "
                    "encryption; give --tls-cert and --tls-key, or allow it explicitly with "
                    "--beyond-loopback",
                    where)};
  }
  wire::Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  // A daemon that restarts must not wait until the kernel has forgotten the connections of the last
  // one.
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd.get(), 1024) != 0) {
    return cannot_listen(where, errno);
  }
  return fd;
}

Result<wire::Fd> listen_unix(const std::filesystem::path& path) {
  const std::string address = "unix:" + path.string();
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return Error{
          fmt::format("cannot listen on {}: the file is there and is no socket", path.string())};
    }
    if (wire::connect_to(address)) {
      return Error{fmt::format("cannot listen on {}: somebody does already", path.string())};
    }
    ::unlink(path.c_str());
  }
  auto fd = wire::listen_on(address);
  if (!fd) return fd;
  // The kernel says who connects. The mode of the directory decides who can reach the socket.
  if (::chmod(path.c_str(), 0666) != 0) return cannot_listen(path.string(), errno);
  return fd;
}

Result<std::string> tcp_address(const wire::Fd& listener) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return Error{"cannot find out where the server listens"};
  }
  const bool colons = storage.ss_family == AF_INET6;
  return colons ? fmt::format("[{}]:{}", host.data(), port.data())
                : fmt::format("{}:{}", host.data(), port.data());
}

std::size_t allow_connections(std::size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const rlim_t enough = std::min<rlim_t>(limit.rlim_max, wanted + kOtherDescriptors);
  if (limit.rlim_cur < enough) {
    limit.rlim_cur = enough;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::getrlimit(RLIMIT_NOFILE, &limit);
  }
  const std::size_t most = limit.rlim_cur;
  return std::min(wanted, most > 2 * kOtherDescriptors ? most - kOtherDescriptors : most / 2);
}

}  // namespace rubato::http
