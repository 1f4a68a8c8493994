// The address of a daemon, as users write it.
#pragma once

#include <string>
#include <string_view>

#include "rubato/base/result.h"

namespace rubato::http {

struct HttpEndpoint {
  std::string unix_path;  // of a unix socket; if it is empty, host and port are used
  std::string host = "127.0.0.1";
  int port = 0;
  bool tls = false;
  std::string ca;     // certificates that are trusted, PEM; empty: those of this machine
  std::string token;  // sent as a bearer token unless empty; not needed on a unix socket

  [[nodiscard]] std::string text() const;  // for messages: the path, or host:port
};

// Parses "127.0.0.1:8080", "[::1]:8080", "http://host:port", "https://host" (port 443),
// "https://host:port", "unix:PATH", or a path with a slash.
[[nodiscard]] Result<HttpEndpoint> parse_endpoint(std::string_view text);

// Percent-encoded, for a part of a path or a value of a query.
[[nodiscard]] std::string escape(std::string_view text);

}  // namespace rubato::http
