// One client of the HTTP server. It sends requests one after another, until one of them becomes a
// stream or the connection ends. An interface, because the code behind it includes Boost.Beast,
// which costs a compiler a quarter of a minute for each file.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <sys/types.h>

#include "rubato/http/change_feed.h"

namespace rubato::http {

class HttpThread;

class HttpConnection {
 public:
  using Time = std::chrono::steady_clock::time_point;

  HttpConnection() = default;
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  virtual ~HttpConnection() = default;

  virtual void begin() = 0;
  virtual void close() = 0;
  // Closes the socket when the server's thread has stopped.
  virtual void abandon() = 0;
  [[nodiscard]] virtual std::uint64_t number() const = 0;

  // Called every second.
  virtual void check_time(Time now) = 0;
  // Sends a watcher what is new for it. False if that has to wait.
  virtual bool deliver(SharedDeliveries& deliveries, std::uint64_t newest, Time now) = 0;
  // Checks whether the log that is followed has grown.
  virtual void check_log() = 0;
};

// Owns `fd`. `peer` is the user at the other end of a unix socket.
[[nodiscard]] std::shared_ptr<HttpConnection> make_connection(HttpThread& server, int fd,
                                                              bool on_unix,
                                                              std::optional<uid_t> peer,
                                                              std::uint64_t number);

}  // namespace rubato::http
