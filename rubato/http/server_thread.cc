#include "rubato/http/server_thread.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rubato/http/listen.h"

namespace rubato::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// The time between two checks of followed logs.
constexpr std::chrono::milliseconds kFollow{250};

// The user at the other end of a unix socket.
std::optional<uid_t> peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return credentials.uid;
}

void refuse_connection(wire::Fd fd) {
  static constexpr std::string_view kFull =
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
      "Content-Length: 52\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
      "{\"error\":\"the daemon has too many open connections\"}";
  ::send(fd.get(), kFull.data(), kFull.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

HttpThread::HttpThread(const HttpServerOptions& options, std::optional<Certificate> certificate,
                       Loop& loop, const Callers& callers, ChangeFeed& feed)
    : options_(options),
      certificate_(std::move(certificate)),
      loop_(loop),
      callers_(callers),
      feed_(feed),
      shares_(allow_connections(options.connections), options.unidentified_connections) {
  set_hosts();
}

void HttpThread::set_hosts() {
  hosts_ = options_.hosts;
  if (certificate_)
    hosts_.insert(hosts_.end(), certificate_->names().begin(), certificate_->names().end());
}

void HttpThread::listen(const wire::Fd& listener, bool on_unix) {
  const int fd = ::fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
  auto acceptor = std::make_shared<Acceptor>(
      context_, fd, [this, on_unix](int accepted) { take_connection(accepted, on_unix); });
  acceptor->begin();
  listeners_.push_back({std::move(acceptor), on_unix});
  if (on_unix) unix_socket_ = wire::inode_at(options_.unix_path);
}

void HttpThread::begin() {
  feed_.on_change([weak = weak_from_this()] {
    const auto server = weak.lock();
    if (server) asio::post(server->context_, [raw = server.get()] { raw->arm_delivery(); });
  });
  arm_sweep();
  thread_ = std::thread([this] { context_.run(); });
}

void HttpThread::stop() {
  feed_.on_change(nullptr);
  context_.stop();
  if (thread_.joinable()) thread_.join();
  // The thread has ended. Handlers that wait in the context own connections, too.
  for (const auto& [number, connection] : open_) connection->abandon();
  open_.clear();
  listeners_.clear();
  if (unix_socket_ && !wire::leads_elsewhere(options_.unix_path, *unix_socket_))
    ::unlink(options_.unix_path.c_str());
}

// --- connections ---------------------------------------------------------------------------------

void HttpThread::take_connection(int fd, bool on_unix) {
  const int on = 1;
  if (!on_unix) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto peer = on_unix ? peer_of(fd) : std::nullopt;
  const std::uint64_t number = ++metrics_.accepted;
  const auto verdict = shares_.enter(number, peer ? callers_.by_peer(*peer).user : "");
  if (verdict.evicted) {
    ++metrics_.evicted;
    if (const auto evicted = open_.find(*verdict.evicted); evicted != open_.end())
      evicted->second->close();
  }
  if (!verdict.admitted) {
    ++metrics_.refused_connections;
    wire::Fd refused(fd);
    // Over TLS, the keys would have to be exchanged first.
    if (on_unix || !certificate_) refuse_connection(std::move(refused));
    return;
  }
  auto connection = make_connection(*this, fd, on_unix, peer, number);
  open_.emplace(number, connection);
  connections_ = open_.size();
  connection->begin();
}

void HttpThread::remove(HttpConnection* connection) {
  watching_.erase(connection);
  following_.erase(connection);
  shares_.leave(connection->number());
  open_.erase(connection->number());
  watchers_ = watching_.size();
  connections_ = open_.size();
}

bool HttpThread::ask(Request request, std::function<void(Answer)> then) {
  if (in_flight_ >= options_.in_flight) return false;
  loop_.ask(std::move(request), in_this_thread(std::move(then)));
  return true;
}

bool HttpThread::ask(WhatIfAsk question, std::function<void(TextAnswer)> then) {
  if (in_flight_ >= options_.in_flight) return false;
  auto back = in_this_thread(std::move(then));
  if (options_.what_ifs == nullptr) {
    back({404, R"({"error":"this server has no what-ifs"})"});
  } else {
    options_.what_ifs->ask(std::move(question), std::move(back));
  }
  return true;
}

// Counts a question that is not answered yet. Its answer may come on any thread.
template <class T>
std::function<void(T)> HttpThread::in_this_thread(std::function<void(T)> then) {
  ++in_flight_;
  return [weak = weak_from_this(), then = std::move(then)](T answer) {
    const auto server = weak.lock();
    if (!server) return;
    // A plain pointer, because a handler that waits in the context must not keep the context alive.
    asio::post(server->context_, [raw = server.get(), then, answer = std::move(answer)]() mutable {
      --raw->in_flight_;
      then(std::move(answer));
    });
  };
}

// --- time limits ---------------------------------------------------------------------------------

void HttpThread::arm_sweep() {
  sweep_timer_.expires_after(kSweep);
  sweep_timer_.async_wait([this](error_code error) {
    if (error) return;
    sweep();
    arm_sweep();
  });
}

void HttpThread::sweep() {
  keep_listening();
  keep_certificate();
  const auto now = Clock::now();
  std::vector<std::shared_ptr<HttpConnection>> all;
  all.reserve(open_.size());
  for (const auto& [number, connection] : open_) all.push_back(connection);
  for (const auto& connection : all) connection->check_time(now);
}

// If somebody has deleted the unix socket, it is created again. If that fails, the next sweep tries
// again.
void HttpThread::keep_listening() {
  if (!unix_socket_ || !wire::leads_elsewhere(options_.unix_path, *unix_socket_)) return;
  const auto listener = listen_unix(options_.unix_path);
  if (!listener) return;
  const auto old = std::find_if(listeners_.begin(), listeners_.end(),
                                [](const Listener& one) { return one.on_unix; });
  if (old != listeners_.end()) {
    old->acceptor->close();
    listeners_.erase(old);
  }
  listen(*listener, true);
}

// Certificates are renewed while the daemon runs.
void HttpThread::keep_certificate() {
  if (!certificate_) return;
  const auto problem = certificate_->refresh();
  if (problem && options_.complain) options_.complain(problem->message);
  set_hosts();
}

// --- watchers of events --------------------------------------------------------------------------

void HttpThread::watch(HttpConnection* connection) {
  watching_.insert(connection);
  watchers_ = watching_.size();
}

// At once after a quiet time, then at the pace of the options.
void HttpThread::arm_delivery() {
  if (std::exchange(delivery_armed_, true)) return;
  delivery_timer_.expires_at(std::max(Clock::now(), delivered_ + options_.pace));
  delivery_timer_.async_wait([this](error_code error) {
    if (!error) deliver();
  });
}

void HttpThread::deliver() {
  delivery_armed_ = false;
  delivered_ = Clock::now();
  // First, so that everything that is published after this wakes the thread again.
  feed_.deliveries_begin();
  SharedDeliveries deliveries(feed_);
  const auto newest = feed_.newest();
  bool again = false;
  for (HttpConnection* watcher : watching_) {
    if (!watcher->deliver(deliveries, newest, delivered_)) again = true;
  }
  if (again) arm_delivery();
}

// --- followed logs -------------------------------------------------------------------------------

void HttpThread::follow(HttpConnection* connection) {
  following_.insert(connection);
  arm_follow();
}

void HttpThread::arm_follow() {
  if (following_.empty() || std::exchange(follow_armed_, true)) return;
  follow_timer_.expires_after(kFollow);
  follow_timer_.async_wait([this](error_code error) {
    if (!error) check_logs();
  });
}

void HttpThread::check_logs() {
  follow_armed_ = false;
  const auto all = following_;
  for (HttpConnection* connection : all) {
    // A connection that was closed in the meantime is no longer in the set.
    if (following_.count(connection) > 0) connection->check_log();
  }
  arm_follow();
}

}  // namespace rubato::http
