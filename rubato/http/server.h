// The daemon's HTTP server: one thread with Boost.Asio and Boost.Beast, on a TCP port of the
// loopback interface and on a unix socket. It knows who asks (callers.h), what is asked (routes.h),
// whom to pass it to (Loop) and what has changed (change_feed.h); it schedules nothing.
//
// What people may do to it is bounded: connections, requests a second and streams of each caller,
// requests that the loop has not answered yet, bytes and seconds of each request. Beyond a bound
// the answer is 429 (503 for connections) and nothing is queued. One timer each second looks after
// the time limits of all connections, another delivers changes to all watchers at most four times a
// second, so a thousand idle watchers cost a thousand small writes every 15 seconds and nothing
// else.
//
// Nothing here has a Boost type: including Boost.Beast costs a compiler a quarter of a minute.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "rubato/api/request.h"
#include "rubato/base/result.h"
#include "rubato/http/callers.h"
#include "rubato/http/change_feed.h"

namespace rubato::http {

struct HttpServerOptions {
  bool tcp = true;
  std::string host = "127.0.0.1";   // a numeric address
  int port = 0;                     // 0 = any free one
  bool beyond_loopback = false;     // else any other address is refused
  std::filesystem::path unix_path;  // empty = none; whoever can reach it may connect
  // Names it answers to, as in the Host header.
  std::vector<std::string> hosts{"localhost", "127.0.0.1", "[::1]"};

  // Fewer if the process may not open as many files. When all are taken, whoever has the most makes
  // room for others (connection_shares.h).
  std::size_t connections = 4096;
  std::size_t unidentified_connections = 1024;  // over TCP, before their first good request
  std::size_t in_flight = 1024;                 // asked of the loop and not answered yet
  double requests_per_second = 5000;            // of each caller
  double burst = 10000;
  double unidentified_per_second = 50;  // of all who show no identity; as many of /healthz
  // Streams of each caller, so that one cannot have all connections. Readers of logs are fewer, as
  // each is looked after several times a second.
  std::size_t watchers_of_caller = 2048;
  std::size_t logs_of_caller = 64;

  std::chrono::milliseconds idle_time{75'000};  // of a kept connection
  std::chrono::milliseconds head_time{10'000};  // from the first byte of a request to its body
  std::chrono::milliseconds body_time{30'000};
  std::chrono::milliseconds answer_time{30'000};  // that the loop may take
  std::chrono::milliseconds write_time{30'000};   // that a client may take to read a piece
  std::chrono::milliseconds heartbeat{15'000};    // of event streams
  std::chrono::milliseconds pace{250};            // between deliveries of changes
};

class HttpThread;

class HttpServer {
 public:
  struct Counts {
    std::size_t connections = 0;
    std::size_t watchers = 0;
    std::size_t in_flight = 0;
  };

  // Listens when it returns. The three must live as long as the server.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> start(const HttpServerOptions& options,
                                                                 Loop& loop, const Callers& callers,
                                                                 ChangeFeed& feed);
  // Closes all connections. Answers that the loop gives later are dropped.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // "127.0.0.1:8080"; empty without TCP.
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] Counts counts() const;  // from any thread

 private:
  HttpServer(std::shared_ptr<HttpThread> thread, std::string address);

  std::shared_ptr<HttpThread> thread_;
  std::string address_;
};

}  // namespace rubato::http
