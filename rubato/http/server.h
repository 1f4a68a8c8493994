// The daemon's HTTP server: one thread with Boost.Asio and Boost.Beast, on a TCP port of the
// loopback interface and on a unix socket. It identifies callers (callers.h), parses requests
// (routes.h), passes them to the Loop, and delivers changes (change_feed.h). It schedules nothing.
//
// Everything that callers can use is limited: connections, requests per second and streams of each
// caller, requests that the loop has not answered yet, and the bytes and the time of each request.
// Beyond a limit the answer is 429 (503 for connections), and nothing is queued. One timer checks
// the time limits of all connections every second. Another timer delivers changes to all watchers,
// at most four times a second. So a thousand idle watchers cost only a thousand small writes every
// 15 seconds.
//
// No Boost types are used here, because including Boost.Beast costs a compiler a quarter of a
// minute.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rubato/api/request.h"
#include "rubato/api/what_if.h"
#include "rubato/base/result.h"
#include "rubato/http/callers.h"
#include "rubato/http/certificate.h"
#include "rubato/http/change_feed.h"
#include "rubato/http/page_file.h"

namespace rubato::http {

struct HttpServerOptions {
  bool tcp = true;
  std::string host = "127.0.0.1";  // a numeric address
  int port = 0;                    // 0 = any free port
  bool beyond_loopback = false;    // if false, other addresses are refused, unless there is TLS
  CertificateFiles tls;            // if given, TCP connections speak TLS
  // Empty: no unix socket. Everybody who can reach the socket may connect.
  std::filesystem::path unix_path;
  WhatIfs* what_ifs = nullptr;  // answers requests about what-ifs; unset: there are none
  // Says that something is wrong, such as a new certificate that cannot be used. From any thread.
  std::function<void(const std::string&)> complain;
  // Names that clients may use in the Host header. Those of the certificate are added.
  std::vector<std::string> hosts{"localhost", "127.0.0.1", "[::1]"};

  // Fewer if the process may not open as many files. When all are in use, the caller with the most
  // makes room for others (connection_shares.h).
  std::size_t connections = 4096;
  std::size_t unidentified_connections = 1024;  // over TCP, before their first good request
  std::size_t in_flight = 1024;                 // requests that the loop has not answered yet
  double requests_per_second = 5000;            // per caller
  double burst = 10000;
  double unidentified_per_second = 50;  // of all callers without identity; as many of /healthz
  // Streams per caller, so that one caller cannot take all connections. Log readers are fewer,
  // because each is checked several times a second.
  std::size_t watchers_of_caller = 2048;
  std::size_t logs_of_caller = 64;

  // The files of the page; empty: there is no page.
  std::vector<PageFile> page;

  std::chrono::milliseconds idle_time{75'000};  // of a connection that is kept open
  std::chrono::milliseconds head_time{10'000};  // from the first byte of a request to its body
  std::chrono::milliseconds body_time{30'000};
  std::chrono::milliseconds answer_time{30'000};  // for the loop
  std::chrono::milliseconds write_time{30'000};   // for a client to read a piece
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

  // The server listens when this returns. The three objects must live as long as the server.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> start(const HttpServerOptions& options,
                                                                 Loop& loop, const Callers& callers,
                                                                 ChangeFeed& feed);
  // Closes all connections. Later answers of the loop are dropped.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // "127.0.0.1:8080", or with TLS "https://cluster.example.org:8443", by the first name of the
  // certificate; empty without TCP.
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] Counts counts() const;  // from any thread

 private:
  HttpServer(std::shared_ptr<HttpThread> thread, std::string address);

  std::shared_ptr<HttpThread> thread_;
  std::string address_;
};

}  // namespace rubato::http
