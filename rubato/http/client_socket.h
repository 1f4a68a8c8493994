// A connection of the HTTP client, plain or TLS: connect, send and receive, each with a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

#include "rubato/base/result.h"
#include "rubato/http/client_tls.h"
#include "rubato/http/endpoint.h"
#include "rubato/wire/socket.h"

namespace rubato::http {

// nullopt: wait for ever.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

[[nodiscard]] Deadline after(std::chrono::milliseconds span);

class ClientSocket {
 public:
  // With TLS, the keys are exchanged and the server is verified when this returns. The error is a
  // sentence that names the endpoint.
  [[nodiscard]] static Result<ClientSocket> connect(const HttpEndpoint& endpoint,
                                                    std::chrono::milliseconds limit);

  // False if the deadline passes first. If the peer stops reading, that is not an error here: a
  // daemon that refuses a request early closes its side, and its answer still counts.
  [[nodiscard]] bool send_all(std::string_view text, const Deadline& deadline);

  // The number of bytes that arrived. 0 if the peer has closed the connection or it broke. nullopt
  // if the deadline passes first.
  [[nodiscard]] std::optional<std::size_t> receive_some(char* bytes, std::size_t size,
                                                        const Deadline& deadline);

 private:
  explicit ClientSocket(wire::Fd fd) : fd_(std::move(fd)) {}
  // False if the deadline passes first.
  [[nodiscard]] bool wait(ClientTls::Wait what, const Deadline& deadline) const;

  wire::Fd fd_;  // non-blocking
  std::optional<ClientTls> tls_;
};

}  // namespace rubato::http
