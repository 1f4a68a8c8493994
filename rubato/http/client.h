// A blocking HTTP/1.1 client for the daemon's API, for the command line. It opens one connection
// per call, so it never uses a kept connection that the daemon has closed in the meantime. Answers
// are read strictly and within limits of size and time (answer_reader.h).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/http/answer_reader.h"
#include "rubato/http/client_socket.h"
#include "rubato/http/endpoint.h"
#include "rubato/http/event_reader.h"

namespace rubato::http {

struct HttpCall {
  std::string verb = "GET";
  std::string target = "/";  // path and query; escape() texts of users
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::string content_type = "application/json";  // of the body, if there is one
};

// One open connection, for one call.
class HttpExchange {
 public:
  HttpExchange(HttpEndpoint endpoint, ClientSocket socket, std::chrono::milliseconds limit)
      : endpoint_(std::move(endpoint)), socket_(std::move(socket)), limit_(limit) {}

  [[nodiscard]] Result<HttpReply> send(const HttpCall& call);
  [[nodiscard]] Result<HttpReply> stream(const HttpCall& call, const AnswerReader::Each& each,
                                         std::optional<std::chrono::milliseconds> silence);
  // Whether a call failed because the connection ended before the answer did.
  [[nodiscard]] bool lost() const { return lost_; }

 private:
  [[nodiscard]] Result<void> read(const std::function<AnswerReader::State()>& step,
                                  const std::function<Deadline()>& deadline);
  [[nodiscard]] Result<HttpReply> read_head(const HttpCall& call, const Deadline& deadline);
  [[nodiscard]] Result<HttpReply> read_whole(HttpReply reply, const Deadline& deadline);

  HttpEndpoint endpoint_;
  ClientSocket socket_;
  std::chrono::milliseconds limit_;
  AnswerReader reader_;
  bool lost_ = false;
};

class HttpClient {
 public:
  struct Timeouts {
    std::chrono::milliseconds connect{5'000};
    std::chrono::milliseconds answer{30'000};  // for the whole answer, or the head of a stream
  };

  explicit HttpClient(HttpEndpoint endpoint) : endpoint_(std::move(endpoint)) {}
  HttpClient(HttpEndpoint endpoint, Timeouts timeouts)
      : endpoint_(std::move(endpoint)), timeouts_(timeouts) {}

  // Fails if nobody listens. The connection is for one call.
  [[nodiscard]] Result<HttpExchange> connect() const;

  // Fails if there is no complete answer. An answer with any status is an answer.
  [[nodiscard]] Result<HttpReply> send(const HttpCall& call) const;

  // Passes on the body of a good answer (status 2xx) in pieces as they arrive, until it ends or
  // `each` returns false. For any other status it works like send(). `silence` is the longest time
  // without data; nullopt: no limit.
  [[nodiscard]] Result<HttpReply> stream(
      const HttpCall& call, const AnswerReader::Each& each,
      std::optional<std::chrono::milliseconds> silence = std::nullopt) const;

  // The same for an event stream. The daemon sends something at least every 15 seconds.
  [[nodiscard]] Result<HttpReply> watch(const HttpCall& call,
                                        const std::function<bool(const ServerEvent&)>& each) const;

  [[nodiscard]] const HttpEndpoint& endpoint() const { return endpoint_; }

 private:
  HttpEndpoint endpoint_;
  Timeouts timeouts_;
};

}  // namespace rubato::http
