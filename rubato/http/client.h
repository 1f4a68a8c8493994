// A blocking HTTP/1.1 client for the daemon's API: what the command line needs and no more. One
// connection for each call, so a kept connection that the daemon has closed meanwhile is no case to
// think of. Answers are read strictly and within bounds, because what listens there need not be the
// daemon.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rubato/base/result.h"

namespace rubato::http {

struct HttpEndpoint {
  std::string unix_path;  // or, if empty:
  std::string host = "127.0.0.1";
  int port = 0;
  std::string token;  // shown as a bearer token unless empty; on a unix socket the peer is known

  [[nodiscard]] std::string text() const;  // for sentences: the path, or host:port
};

// "127.0.0.1:8080", "[::1]:8080", "http://host:port", "unix:PATH" or a path with a slash.
[[nodiscard]] Result<HttpEndpoint> parse_endpoint(std::string_view text);

struct HttpCall {
  std::string verb = "GET";
  std::string target = "/";  // path and query; escape() what people wrote
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::string content_type = "application/json";  // of the body, if there is one
};

struct HttpReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // empty if it was streamed
  [[nodiscard]] bool good() const { return status >= 200 && status < 300; }
};

// As a server sends it: id and event may be empty.
struct ServerEvent {
  std::string id;
  std::string event;
  std::string data;
};

// Makes events of the bytes of an event stream, wherever they are cut.
class EventReader {
 public:
  // False as soon as `each` returns false.
  bool take(std::string_view bytes, const std::function<bool(const ServerEvent&)>& each);
  // Bytes of the event that is not whole yet; whoever reads should bound it.
  [[nodiscard]] std::size_t held() const { return line_.size() + event_.data.size(); }

 private:
  bool take_line(const std::function<bool(const ServerEvent&)>& each);

  std::string line_;
  bool after_return_ = false;
  bool has_data_ = false;
  ServerEvent event_;
};

class HttpClient {
 public:
  struct Timeouts {
    std::chrono::milliseconds connect{5'000};
    std::chrono::milliseconds answer{30'000};  // all of it, or the head of a stream
  };

  explicit HttpClient(HttpEndpoint endpoint) : endpoint_(std::move(endpoint)) {}
  HttpClient(HttpEndpoint endpoint, Timeouts timeouts)
      : endpoint_(std::move(endpoint)), timeouts_(timeouts) {}

  // An error is that there is no whole answer; any status is an answer.
  [[nodiscard]] Result<HttpReply> send(const HttpCall& call) const;

  // A good answer's body in pieces as they come, until it ends or `each` returns false. Any other
  // status: as send(). `silence` is how long nothing may come; nullopt = for ever.
  [[nodiscard]] Result<HttpReply> stream(
      const HttpCall& call, const std::function<bool(std::string_view)>& each,
      std::optional<std::chrono::milliseconds> silence = std::nullopt) const;

  // The same for an event stream. The daemon says something every 15 seconds at least.
  [[nodiscard]] Result<HttpReply> watch(const HttpCall& call,
                                        const std::function<bool(const ServerEvent&)>& each) const;

  [[nodiscard]] const HttpEndpoint& endpoint() const { return endpoint_; }

 private:
  HttpEndpoint endpoint_;
  Timeouts timeouts_;
};

// Percent-encoded for a part of a path or a value of a query.
[[nodiscard]] std::string escape(std::string_view text);

}  // namespace rubato::http
