// The thread of the HTTP server. It owns the connections, the limits that they share, and three
// timers. One timer checks all time limits, one delivers changes to all watchers, and one checks
// all logs that are followed. Everything is for this thread only, unless a comment says otherwise.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "rubato/http/acceptor.h"
#include "rubato/http/connection.h"
#include "rubato/http/connection_shares.h"
#include "rubato/http/limits.h"
#include "rubato/http/page_codes.h"
#include "rubato/http/server.h"
#include "rubato/http/server_metrics.h"
#include "rubato/wire/inode.h"
#include "rubato/wire/socket.h"

namespace rubato::http {

// The time between two checks of the time limits.
inline constexpr std::chrono::milliseconds kSweep{1000};

class HttpThread : public std::enable_shared_from_this<HttpThread> {
 public:
  HttpThread(const HttpServerOptions& options, std::optional<Certificate> certificate, Loop& loop,
             const Callers& callers, ChangeFeed& feed);

  // Call it before begin().
  void listen(const wire::Fd& listener, bool on_unix);
  void begin();
  // May be called from another thread.
  void stop();
  // May be called from any thread.
  [[nodiscard]] HttpServer::Counts counts() const { return {connections_, watchers_, in_flight_}; }

  // --- for connections ---
  [[nodiscard]] boost::asio::io_context& context() { return context_; }
  [[nodiscard]] const HttpServerOptions& options() const { return options_; }
  // How TCP connections speak TLS; unset: they are plain.
  [[nodiscard]] const std::optional<Certificate>& certificate() const { return certificate_; }
  // All names that clients may use in the Host header.
  [[nodiscard]] const std::vector<std::string>& hosts() const { return hosts_; }
  [[nodiscard]] const Callers& callers() const { return callers_; }
  [[nodiscard]] const ChangeFeed& feed() const { return feed_; }
  [[nodiscard]] HttpMetrics& metrics() { return metrics_; }
  [[nodiscard]] RateLimits& rates() { return rates_; }
  [[nodiscard]] StreamPlaces& watchers_of_users() { return watchers_of_users_; }
  [[nodiscard]] StreamPlaces& logs_of_users() { return logs_of_users_; }
  [[nodiscard]] ConnectionShares& shares() { return shares_; }
  [[nodiscard]] PageCodes& page_codes() { return page_codes_; }

  // Sends a request to the scheduling loop. False if too many are waiting for it already. `then`
  // runs on this thread.
  [[nodiscard]] bool ask(Request request, std::function<void(Answer)> then);
  [[nodiscard]] bool ask(WhatIfAsk question, std::function<void(TextAnswer)> then);
  void remove(HttpConnection* connection);
  void watch(HttpConnection* connection);
  void follow(HttpConnection* connection);
  void unfollow(HttpConnection* connection) { following_.erase(connection); }

 private:
  template <class T>
  [[nodiscard]] std::function<void(T)> in_this_thread(std::function<void(T)> then);
  using Clock = std::chrono::steady_clock;

  struct Listener {
    std::shared_ptr<Acceptor> acceptor;
    bool on_unix;
  };

  void take_connection(int fd, bool on_unix);
  void arm_sweep();
  void sweep();
  void keep_listening();
  void keep_certificate();
  void set_hosts();
  void arm_delivery();
  void deliver();
  void arm_follow();
  void check_logs();

  HttpServerOptions options_;
  std::optional<Certificate> certificate_;
  std::vector<std::string> hosts_;
  Loop& loop_;
  const Callers& callers_;
  ChangeFeed& feed_;
  HttpMetrics metrics_;
  RateLimits rates_;
  StreamPlaces watchers_of_users_;
  StreamPlaces logs_of_users_;
  ConnectionShares shares_;
  PageCodes page_codes_;
  std::atomic<std::size_t> connections_ = 0;
  std::atomic<std::size_t> watchers_ = 0;
  std::atomic<std::size_t> in_flight_ = 0;
  bool delivery_armed_ = false;
  bool follow_armed_ = false;
  Clock::time_point delivered_{};

  // Destroyed after the members below, because handlers that wait in the context may own a
  // connection.
  boost::asio::io_context context_{1};
  std::map<ConnectionShares::Id, std::shared_ptr<HttpConnection>> open_;
  std::set<HttpConnection*> watching_;
  std::set<HttpConnection*> following_;
  std::vector<Listener> listeners_;
  std::optional<wire::Inode> unix_socket_;
  boost::asio::steady_timer sweep_timer_{context_};
  boost::asio::steady_timer delivery_timer_{context_};
  boost::asio::steady_timer follow_timer_{context_};
  std::thread thread_;
};

}  // namespace rubato::http
