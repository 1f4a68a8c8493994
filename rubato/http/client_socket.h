// A connection of the HTTP client: connect, send and receive, each with a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

#include "rubato/base/result.h"
#include "rubato/http/endpoint.h"
#include "rubato/wire/socket.h"

namespace rubato::http {

// nullopt: wait for ever.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

[[nodiscard]] Deadline after(std::chrono::milliseconds span);

// The socket is non-blocking. The error is a sentence that names the endpoint.
[[nodiscard]] Result<wire::Fd> connect_within(const HttpEndpoint& endpoint,
                                              std::chrono::milliseconds limit);

// False if the deadline passes first. If the peer stops reading, that is not an error here: a
// daemon that refuses a request early closes its side, and its answer still counts.
[[nodiscard]] bool send_all(const wire::Fd& fd, std::string_view text, const Deadline& deadline);

// The number of bytes that arrived. 0 if the peer has closed the connection or it broke. nullopt if
// the deadline passes first.
[[nodiscard]] std::optional<std::size_t> receive_some(const wire::Fd& fd, char* bytes,
                                                      std::size_t size, const Deadline& deadline);

}  // namespace rubato::http
