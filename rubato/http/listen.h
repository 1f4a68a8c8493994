// The sockets that the HTTP server listens on. They are closed on exec, so that processes which the
// daemon starts and leaves behind do not keep its ports.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "rubato/base/result.h"
#include "rubato/wire/socket.h"

namespace rubato::http {

// `host` is a numeric address. An address outside the loopback interface is refused unless
// `beyond_loopback` is set.
[[nodiscard]] Result<wire::Fd> listen_tcp(const std::string& host, int port, bool beyond_loopback);
// Replaces a socket file on which nobody listens any more.
[[nodiscard]] Result<wire::Fd> listen_unix(const std::filesystem::path& path);

// "127.0.0.1:8080"
[[nodiscard]] Result<std::string> tcp_address(const wire::Fd& listener);

// Raises the limit of open files as far as `wanted` connections need and the system allows. Returns
// how many connections are possible.
[[nodiscard]] std::size_t allow_connections(std::size_t wanted);

}  // namespace rubato::http
