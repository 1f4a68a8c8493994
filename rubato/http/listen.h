// The sockets that the HTTP server listens on, closed on exec, so that the processes which the
// daemon starts and leaves behind do not keep its ports.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "rubato/base/result.h"
#include "rubato/wire/socket.h"

namespace rubato::http {

// `host` is a numeric address. Refuses one that is not of the loopback interface unless told
// otherwise.
[[nodiscard]] Result<wire::Fd> listen_tcp(const std::string& host, int port, bool beyond_loopback);
// Takes the place of a socket on which nobody listens any more.
[[nodiscard]] Result<wire::Fd> listen_unix(const std::filesystem::path& path);

// "127.0.0.1:8080"
[[nodiscard]] Result<std::string> tcp_address(const wire::Fd& listener);

// Raises the limit of open files as far as `wanted` connections need and the system lets us, and
// says how many connections there may be.
[[nodiscard]] std::size_t allow_connections(std::size_t wanted);

}  // namespace rubato::http
