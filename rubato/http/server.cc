#include "rubato/http/server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <map>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <set>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "rubato/api/metrics.h"
#include "rubato/api/routes.h"
#include "rubato/base/text.h"
#include "rubato/http/connection_shares.h"
#include "rubato/http/listen.h"
#include "rubato/http/log_file.h"
#include "rubato/wire/inode.h"

namespace rubato::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Socket = asio::generic::stream_protocol::socket;
using std::chrono::milliseconds;

constexpr std::size_t kLogPiece = std::size_t{64} << 10U;
constexpr std::size_t kHeadPiece = std::size_t{4} << 10U;
// A refused request's body of this size is read and dropped, so that the connection can be kept.
constexpr std::size_t kDroppedBody = std::size_t{64} << 10U;
constexpr milliseconds kSweep{1000};
constexpr milliseconds kFollow{250};
constexpr milliseconds kAskIfEnded{1000};
constexpr milliseconds kAfterResync{1000};
constexpr milliseconds kDrain{2000};
constexpr milliseconds kAcceptPause{100};
// Those who show no identity share one bucket, and those who ask how the daemon is another:
// guessing tokens must not keep anybody from learning that it lives. No user's name has a slash.
constexpr const char* kUnidentified = "/";
constexpr const char* kHealth = "/healthz";

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

class TokenBucket {
 public:
  TokenBucket(double rate, double burst, Clock::time_point now)
      : rate_(rate), burst_(burst), level_(burst), filled_(now) {}

  // Seconds to wait; 0 = go.
  double take(Clock::time_point now) {
    level_ = std::min(burst_, level_ + rate_ * seconds_between(filled_, now));
    filled_ = now;
    if (level_ < 1) return (1 - level_) / rate_;
    level_ -= 1;
    return 0;
  }

 private:
  double rate_;
  double burst_;
  double level_;
  Clock::time_point filled_;
};

struct RouteCounts {
  std::map<int, std::uint64_t> statuses;
  Histogram seconds{bucket_bounds(1e-4, 10)};
};

struct HttpMetrics {
  std::map<std::string, RouteCounts> routes;
  std::uint64_t refused_rate = 0;
  std::uint64_t refused_in_flight = 0;
  std::uint64_t refused_connections = 0;
  std::uint64_t refused_streams = 0;
  std::uint64_t evicted = 0;
  std::uint64_t accepted = 0;
  std::uint64_t timed_out = 0;
  std::uint64_t events = 0;
  std::uint64_t resyncs = 0;
};

double as_double(std::uint64_t count) { return static_cast<double>(count); }

std::string http_metrics_text(const HttpMetrics& metrics, const HttpServer::Counts& counts) {
  MetricsWriter out;
  out.family("rubato_http_requests_total", "counter", "Requests answered, by route and status.");
  for (const auto& [route, values] : metrics.routes) {
    for (const auto& [status, count] : values.statuses) {
      out.sample(as_double(count), {{"route", route}, {"status", std::to_string(status)}});
    }
  }
  out.family("rubato_http_request_seconds", "histogram",
             "Time from the head of a request to its answer; without streams.");
  for (const auto& [route, values] : metrics.routes) {
    if (values.seconds.count() > 0) out.histogram(values.seconds, {{"route", route}});
  }
  out.family("rubato_http_refused_total", "counter", "What was refused because of a limit.");
  out.sample(as_double(metrics.refused_rate), {{"limit", "rate"}});
  out.sample(as_double(metrics.refused_in_flight), {{"limit", "in_flight"}});
  out.sample(as_double(metrics.refused_connections), {{"limit", "connections"}});
  out.sample(as_double(metrics.refused_streams), {{"limit", "streams"}});
  out.sample(as_double(metrics.evicted), {{"limit", "share"}});
  out.counter("rubato_http_connections_total", "Connections accepted.",
              as_double(metrics.accepted));
  out.counter("rubato_http_timeouts_total", "Connections closed because they took too long.",
              as_double(metrics.timed_out));
  out.gauge("rubato_http_connections", "Open connections.", as_double(counts.connections));
  out.gauge("rubato_http_in_flight", "Requests that the loop has not answered yet.",
            as_double(counts.in_flight));
  out.gauge("rubato_watchers", "Open event streams.", as_double(counts.watchers));
  out.counter("rubato_events_sent_total", "Events sent to watchers.", as_double(metrics.events));
  out.counter("rubato_event_resyncs_total", "Times a watcher was told to read all anew.",
              as_double(metrics.resyncs));
  return out.text();
}

std::string dump(const Json& body) {
  // Text that is no UTF-8 must not take the daemon down.
  return body.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string lower(beast::string_view text) {
  std::string result(text.data(), text.size());
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

std::string_view plain(beast::string_view text) { return {text.data(), text.size()}; }

// A chunk of a body, framed.
std::string chunk(std::string_view bytes) {
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

}  // namespace

class HttpConnection;

// The server's thread. Everything belongs to it but what is said to be otherwise.
class HttpThread : public std::enable_shared_from_this<HttpThread> {
 public:
  HttpThread(const HttpServerOptions& options, Loop& loop, const Callers& callers,
             ChangeFeed& feed);

  // Before begin().
  void listen(const wire::Fd& listener, bool on_unix);
  void begin();
  // From another thread.
  void stop();
  [[nodiscard]] HttpServer::Counts counts() const { return {connections_, watchers_, in_flight_}; }

  [[nodiscard]] const HttpServerOptions& options() const { return options_; }
  [[nodiscard]] const Callers& callers() const { return callers_; }
  [[nodiscard]] const ChangeFeed& feed() const { return feed_; }
  [[nodiscard]] HttpMetrics& metrics() { return metrics_; }

  // Seconds that whoever shares this bucket must wait; 0 = go on.
  [[nodiscard]] double take_rate(const std::string& bucket, double rate, double burst);
  // The streams of one caller: as many as it has owners.
  struct Crowd {};
  // One of them, for as long as it is kept; nullptr: there are too many.
  using StreamPlace = std::shared_ptr<const Crowd>;
  [[nodiscard]] StreamPlace place_for_watcher(const std::string& user);
  [[nodiscard]] StreamPlace place_for_log(const std::string& user);
  // False if too much is in flight. `then` runs on this thread.
  [[nodiscard]] bool ask(Request request, std::function<void(Answer)> then);

  [[nodiscard]] ConnectionShares& shares() { return shares_; }
  void remove(HttpConnection* connection);
  void watch(HttpConnection* connection);
  void follow(HttpConnection* connection);
  void unfollow(HttpConnection* connection) { following_.erase(connection); }

 private:
  struct Listener {
    asio::posix::stream_descriptor descriptor;
    asio::steady_timer pause;
    bool on_unix;
  };
  using Crowds = std::map<std::string, std::weak_ptr<const Crowd>>;  // by user

  void wait_to_accept(const std::shared_ptr<Listener>& listener);
  // False if the system has no more descriptors for us.
  bool accept_all(Listener& listener);
  void take_connection(int fd, bool on_unix);
  [[nodiscard]] StreamPlace take_place(Crowds& crowds, const std::string& user, std::size_t most);
  void arm_sweep();
  void sweep();
  void keep_listening();
  void arm_delivery();
  void deliver();
  void arm_follow();

  HttpServerOptions options_;
  Loop& loop_;
  const Callers& callers_;
  ChangeFeed& feed_;
  HttpMetrics metrics_;
  std::map<std::string, TokenBucket> buckets_;
  Crowds watching_users_;
  Crowds reading_users_;
  ConnectionShares shares_;
  std::atomic<std::size_t> connections_ = 0;
  std::atomic<std::size_t> watchers_ = 0;
  std::atomic<std::size_t> in_flight_ = 0;
  bool delivery_armed_ = false;
  bool follow_armed_ = false;
  Clock::time_point delivered_{};

  // Handlers that wait in the context may own a connection, so the context is older than these.
  asio::io_context context_{1};
  std::map<ConnectionShares::Id, std::shared_ptr<HttpConnection>> open_;
  std::set<HttpConnection*> watching_;
  std::set<HttpConnection*> following_;
  std::vector<std::shared_ptr<Listener>> listeners_;
  std::optional<wire::Inode> unix_socket_;
  asio::steady_timer sweep_timer_{context_};
  asio::steady_timer delivery_timer_{context_};
  asio::steady_timer follow_timer_{context_};
  std::thread thread_;
};

// One client: requests one after another, until one of them becomes a stream or an end. Requests
// that were sent ahead wait in the buffer.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpThread& server, Socket socket, std::optional<uid_t> peer, std::uint64_t number)
      : server_(server),
        socket_(std::move(socket)),
        peer_(peer),
        number_(number),
        identified_(peer.has_value()) {}

  void begin() { next_request(); }
  void close();
  [[nodiscard]] std::uint64_t number() const { return number_; }
  // For the end of the server, whose thread has stopped.
  void abandon() {
    error_code ignored;
    socket_.close(ignored);
  }

  // Called every second.
  void look_at_time(Clock::time_point now);
  // Sends a watcher what is new for it; false if that has to wait.
  bool deliver(SharedDeliveries& deliveries, std::uint64_t newest, Clock::time_point now);
  // Looks whether the log that is followed has grown.
  void look_at_log();

 private:
  enum class Phase : std::uint8_t { idle, head, body, asking, writing, draining, watching, log };
  using Parser = http::request_parser<http::string_body>;
  using Response = http::response<http::string_body>;

  void within(milliseconds span) { deadline_ = Clock::now() + span; }
  [[nodiscard]] auto self() { return shared_from_this(); }

  // Reading a request.
  void next_request();
  void read_head();
  void more_of_head();
  void parse_head(std::size_t size);
  void head_read();
  void head_failed(error_code error);
  void refuse_framing(const HttpRefusal& refusal);
  [[nodiscard]] std::optional<HttpRefusal> identify(const HttpHead& head);
  [[nodiscard]] std::optional<HttpRefusal> check_rate(const std::string& bucket, double rate,
                                                      double burst);
  [[nodiscard]] std::optional<HttpRefusal> admit(const HttpHead& head);
  [[nodiscard]] std::variant<RoutedRequest, HttpRefusal> examine(const HttpHead& head);
  [[nodiscard]] std::optional<HttpRefusal> check_expectation(const HttpHead& head);
  void send_continue();
  void read_body();
  void body_read(error_code error);

  // Carrying it out.
  void carry_out();
  void perform(HttpTask task);
  void ask(Ask question, std::function<void(Answer)> then);
  void pass_on(Ask question);
  void read_metrics();
  void read_health();

  // Answering.
  void refuse(const HttpRefusal& refusal);
  void answer(const Answer& answer);
  void respond(int status, const char* type, std::string body, const std::string& allow = {});
  void response_written(error_code error);
  void count(int status);
  void drain();

  // Streams.
  [[nodiscard]] std::string stream_head(const char* type, bool chunked) const;
  void refuse_stream(std::size_t most, const char* what);
  void begin_watching(const WatchEvents& task);
  void listen_to_watcher();
  void send(std::shared_ptr<const std::string> bytes);
  void heartbeat(Clock::time_point now);
  [[nodiscard]] bool still_known() const;
  void begin_log(const ReadLog& task);
  void log_found(const ReadLog& task, const Answer& found);
  void send_log(std::string before);
  void send_piece(std::string text, bool last);
  void end_of_log();
  void ask_if_ended();

  HttpThread& server_;
  Socket socket_;
  const std::optional<uid_t> peer_;  // on a unix socket
  const std::uint64_t number_;
  bool closed_ = false;
  Phase phase_ = Phase::idle;
  Clock::time_point deadline_{};

  beast::flat_buffer buffer_{kLargestHttpHead + kLargestHttpBody};
  std::optional<Parser> parser_;
  Caller caller_;
  std::optional<Digest> token_;
  std::optional<RoutedRequest> routed_;
  std::optional<HttpRefusal> refusal_;  // known before the body was read
  std::size_t head_searched_ = 0;       // bytes of the buffer in which no head ends
  bool head_only_ = false;              // HEAD: the answer has no body
  bool identified_ = false;             // by its peer, or once by a token
  bool keep_ = true;
  std::uint64_t serial_ = 0;  // of the question to the loop whose answer is waited for
  Clock::time_point begun_{};
  std::string label_;
  std::optional<Response> response_;
  double retry_after_ = 1;
  std::array<char, 512> scratch_{};

  HttpThread::StreamPlace place_;  // of a stream

  // Of a watcher.
  std::uint64_t position_ = 0;
  std::shared_ptr<const std::string> sending_;
  Clock::time_point sent_{};
  Clock::time_point not_before_{};

  // Of a reader of a log.
  struct LogReading {
    JobRef job;
    LogFile file;
    bool follow;
    bool chunked;
    bool ended;
    std::int64_t left;  // of one that is not followed: what was there when it began
    bool waiting = false;
    Clock::time_point asked{};
  };
  std::optional<LogReading> log_;
  std::string piece_;
};

// --- connections: reading
// -------------------------------------------------------------------------

void HttpConnection::close() {
  if (std::exchange(closed_, true)) return;
  const auto keep = self();
  error_code ignored;
  socket_.close(ignored);
  place_.reset();
  server_.remove(this);
}

void HttpConnection::next_request() {
  phase_ = Phase::idle;
  server_.shares().set_idle(number_);
  // Who has not said who they are has no claim to stay.
  within(identified_ ? server_.options().idle_time : server_.options().head_time);
  parser_.reset();
  response_.reset();
  routed_.reset();
  refusal_.reset();
  place_.reset();
  if (buffer_.size() > 0) return read_head();
  // An idle connection has no buffer worth keeping.
  buffer_.shrink_to_fit();
  socket_.async_wait(Socket::wait_read, [me = self()](error_code error) {
    if (me->closed_) return;
    if (error) return me->close();
    me->read_head();
  });
}

void HttpConnection::read_head() {
  phase_ = Phase::head;
  within(server_.options().head_time);
  parser_.emplace();
  parser_->header_limit(kLargestHttpHead);
  // Lengths are checked with the head, in words; Beast would drop the connection's request whole.
  parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
  head_searched_ = 0;
  head_only_ = false;
  more_of_head();
}

// The whole of it before any is parsed: Beast joins lines that were folded and does not tell.
void HttpConnection::more_of_head() {
  static constexpr std::string_view kEnd = "\r\n\r\n";
  const std::string_view bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  const auto end = bytes.find(kEnd, head_searched_);
  if (std::min(end, bytes.size()) + kEnd.size() > kLargestHttpHead)
    return head_failed(http::error::header_limit);
  if (end != std::string_view::npos) return parse_head(end + kEnd.size());
  head_searched_ = bytes.size() - std::min(bytes.size(), kEnd.size() - 1);
  socket_.async_read_some(buffer_.prepare(kHeadPiece),
                          [me = self()](error_code error, std::size_t size) {
                            if (me->closed_) return;
                            if (error) return me->head_failed(error);
                            me->buffer_.commit(size);
                            me->more_of_head();
                          });
}

void HttpConnection::parse_head(std::size_t size) {
  const std::string_view bytes(static_cast<const char*>(buffer_.data().data()), size);
  if (const auto refused = check_raw_head(bytes)) return refuse_framing(*refused);
  error_code error;
  buffer_.consume(parser_->put(buffer_.data(), error));
  if (error) return head_failed(error);
  head_read();
}

// Nothing that follows on this connection is read as a request.
void HttpConnection::refuse_framing(const HttpRefusal& refusal) {
  keep_ = false;
  label_ = "malformed";
  begun_ = Clock::now();
  refuse(refusal);
}

void HttpConnection::head_failed(error_code error) {
  keep_ = false;
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return refuse_framing(
        {431,
         fmt::format("the head of a request may have {} bytes at most", kLargestHttpHead),
         {}});
  }
  if (error.category() == make_error_code(http::error::bad_method).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message) {
    return refuse_framing(
        {400, fmt::format("this is no proper HTTP request: {}", error.message()), {}});
  }
  close();
}

std::optional<HttpRefusal> HttpConnection::identify(const HttpHead& head) {
  auto given = bearer_token(head);
  if (auto* refused = std::get_if<HttpRefusal>(&given)) return std::move(*refused);
  const std::string& token = std::get<std::string>(given);
  token_.reset();
  if (token.empty() && peer_) {
    // Anew for each request: a user may have another role than when they connected.
    caller_ = server_.callers().by_peer(*peer_);
    return std::nullopt;
  }
  if (token.empty()) {
    return HttpRefusal{401, "show who you are with the header \"Authorization: Bearer TOKEN\"", {}};
  }
  token_ = token_hash(token);
  const auto caller = server_.callers().by_hash(*token_);
  if (!caller) return HttpRefusal{401, "this token is not known; ask an admin for another", {}};
  caller_ = *caller;
  return std::nullopt;
}

std::optional<HttpRefusal> HttpConnection::check_rate(const std::string& bucket, double rate,
                                                      double burst) {
  const double wait = server_.take_rate(bucket, rate, burst);
  if (wait <= 0) return std::nullopt;
  ++server_.metrics().refused_rate;
  retry_after_ = wait;
  return HttpRefusal{429, fmt::format("more than {} requests a second; slow down", rate), {}};
}

// Whether this caller may ask something now.
std::optional<HttpRefusal> HttpConnection::admit(const HttpHead& head) {
  const auto& options = server_.options();
  const double few = options.unidentified_per_second;
  if (is_health(head)) return check_rate(kHealth, few, few);
  if (auto unknown = identify(head)) {
    keep_ = false;
    auto too_often = check_rate(kUnidentified, few, few);
    return too_often ? too_often : unknown;
  }
  identified_ = true;
  server_.shares().identify(number_, caller_.user);
  return check_rate(caller_.user, options.requests_per_second, options.burst);
}

// Everything that can be said before the body is read.
std::variant<RoutedRequest, HttpRefusal> HttpConnection::examine(const HttpHead& head) {
  caller_ = Caller();
  if (auto refused = check_origin(head, server_.options().hosts)) return std::move(*refused);
  if (auto refused = admit(head)) return std::move(*refused);
  if (auto refused = check_expectation(head)) return std::move(*refused);
  return route(head, caller_);
}

std::optional<HttpRefusal> HttpConnection::check_expectation(const HttpHead& head) {
  auto given = single_header(head, "expect");
  if (auto* refused = std::get_if<HttpRefusal>(&given)) return std::move(*refused);
  const auto& text = std::get<std::optional<std::string>>(given);
  if (!text || lower(*text) == "100-continue") return std::nullopt;
  return HttpRefusal{417, "the only Expect known is 100-continue", {}};
}

void HttpConnection::head_read() {
  const auto& message = parser_->get();
  HttpHead head;
  head.verb = plain(message.method_string());
  head.target = plain(message.target());
  for (const auto& field : message) {
    head.headers.emplace_back(lower(field.name_string()), plain(field.value()));
  }
  head_only_ = head.verb == "HEAD";
  if (const auto refused = check_framing(head, message.version())) return refuse_framing(*refused);
  if (const auto refused = take_absolute_form(head)) return refuse_framing(*refused);
  begun_ = Clock::now();
  retry_after_ = 1;
  keep_ = message.keep_alive();
  label_ = "other";
  auto examined = examine(head);
  const bool has_body = !parser_->is_done();
  if (auto* refused = std::get_if<HttpRefusal>(&examined)) {
    // Small bodies are read and dropped; for others the connection ends here.
    const auto length = parser_->content_length();
    const bool small = !parser_->chunked() && length && *length <= kDroppedBody;
    const bool waits = message.find(http::field::expect) != message.end();
    if (!has_body) return refuse(*refused);
    if (!keep_ || waits || !small) {
      keep_ = false;
      return refuse(*refused);
    }
    refusal_ = std::move(*refused);
  } else {
    routed_ = std::move(std::get<RoutedRequest>(examined));
    label_ = routed_->label();
  }
  if (!has_body) return carry_out();
  parser_->body_limit(kLargestHttpBody);
  if (message.find(http::field::expect) != message.end()) return send_continue();
  read_body();
}

void HttpConnection::send_continue() {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  phase_ = Phase::body;
  within(server_.options().body_time);
  asio::async_write(socket_, asio::buffer(kContinue.data(), kContinue.size()),
                    [me = self()](error_code error, std::size_t /*size*/) {
                      if (me->closed_) return;
                      if (error) return me->close();
                      me->read_body();
                    });
}

void HttpConnection::read_body() {
  phase_ = Phase::body;
  within(server_.options().body_time);
  http::async_read(socket_, buffer_, *parser_,
                   [me = self()](error_code error, std::size_t /*size*/) {
                     if (!me->closed_) me->body_read(error);
                   });
}

void HttpConnection::body_read(error_code error) {
  if (!error) return carry_out();
  keep_ = false;
  if (error == http::error::body_limit) {
    return refuse({413, fmt::format("a body may have {} bytes at most", kLargestHttpBody), {}});
  }
  head_failed(error);
}

// --- connections: carrying out
// --------------------------------------------------------------------

void HttpConnection::carry_out() {
  if (refusal_) return refuse(*refusal_);
  auto task = routed_->with_body(parser_->get().body());
  if (auto* refused = std::get_if<HttpRefusal>(&task)) return refuse(*refused);
  perform(std::move(std::get<HttpTask>(task)));
}

void HttpConnection::perform(HttpTask task) {
  if (auto* question = std::get_if<Ask>(&task)) return pass_on(std::move(*question));
  const bool stream =
      std::holds_alternative<WatchEvents>(task) || std::holds_alternative<ReadLog>(task);
  if (stream && head_only_)
    return refuse({405, "HEAD is not for streams, which end nobody knows when", "GET"});
  if (const auto* events = std::get_if<WatchEvents>(&task)) return begin_watching(*events);
  if (const auto* log = std::get_if<ReadLog>(&task)) return begin_log(*log);
  if (std::holds_alternative<ReadMetrics>(task)) return read_metrics();
  read_health();
}

void HttpConnection::ask(Ask question, std::function<void(Answer)> then) {
  phase_ = Phase::asking;
  server_.shares().set_busy(number_);
  within(server_.options().answer_time);
  const auto serial = ++serial_;
  const std::weak_ptr<HttpConnection> weak = self();
  const bool asked = server_.ask({caller_, std::move(question)},
                                 [weak, serial, then = std::move(then)](Answer answer) {
                                   const auto me = weak.lock();
                                   if (me && !me->closed_ && me->serial_ == serial)
                                     then(std::move(answer));
                                 });
  if (asked) return;
  ++server_.metrics().refused_in_flight;
  answer(refusal(429, "the daemon has more requests than it can answer at once; try again"));
}

void HttpConnection::pass_on(Ask question) {
  // Tokens are made here: the core sees the hash alone.
  std::string token;
  const auto make_token = [&](auto& request) {
    token = new_token();
    request.token = token_hash(token);
  };
  if (auto* user = std::get_if<AddUser>(&question)) make_token(*user);
  if (auto* more = std::get_if<AddToken>(&question)) make_token(*more);
  ask(std::move(question), [this, token](Answer result) {
    const bool good = result.status >= 200 && result.status < 300;
    if (!token.empty() && good) result.body["token"] = token;
    answer(result);
  });
}

void HttpConnection::read_metrics() {
  ask(ShowMetrics{}, [this](const Answer& result) {
    if (result.status != 200) return answer(result);
    respond(200, "text/plain; version=0.0.4; charset=utf-8",
            result.body.value("text", "") + http_metrics_text(server_.metrics(), server_.counts()));
  });
}

void HttpConnection::read_health() {
  ask(ShowHealth{}, [this](const Answer& result) {
    const bool well = result.status >= 200 && result.status < 300;
    respond(well ? 200 : 503, "text/plain; charset=utf-8", well ? "ok\n" : "not ok\n");
  });
}

// --- connections: answering
// -----------------------------------------------------------------------

void HttpConnection::refuse(const HttpRefusal& refusal) {
  respond(refusal.status, "application/json", dump(Json{{"error", refusal.sentence}}),
          refusal.allow);
}

void HttpConnection::answer(const Answer& answer) {
  respond(answer.status, "application/json", dump(answer.body));
}

void HttpConnection::count(int status) {
  auto& counts = server_.metrics().routes[label_];
  ++counts.statuses[status];
  counts.seconds.observe(seconds_between(begun_, Clock::now()));
}

void HttpConnection::respond(int status, const char* type, std::string body,
                             const std::string& allow) {
  ++serial_;
  count(status);
  phase_ = Phase::writing;
  server_.shares().set_idle(number_);
  within(server_.options().write_time);
  const unsigned version = parser_ ? parser_->get().version() : 11;
  response_.emplace(static_cast<http::status>(status), version);
  auto& response = *response_;
  response.set(http::field::content_type, type);
  response.set(http::field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  if (!allow.empty()) response.set(http::field::allow, allow);
  if (status == 401) response.set(http::field::www_authenticate, "Bearer");
  if (status == 429 || status == 503) {
    response.set(http::field::retry_after, fmt::format("{:.0f}", std::ceil(retry_after_)));
  }
  response.keep_alive(keep_);
  response.body() = std::move(body);
  response.prepare_payload();
  if (head_only_) response.body().clear();  // the length is that of the body it would have
  http::async_write(socket_, response, [me = self()](error_code error, std::size_t /*size*/) {
    if (!me->closed_) me->response_written(error);
  });
}

void HttpConnection::response_written(error_code error) {
  if (error) return close();
  if (keep_) return next_request();
  socket_.shutdown(Socket::shutdown_send, error);
  phase_ = Phase::draining;
  within(kDrain);
  drain();
}

// Closing with bytes unread would make the kernel take the answer back from a client that is still
// sending.
void HttpConnection::drain() {
  socket_.async_read_some(asio::buffer(scratch_), [me = self()](error_code error, std::size_t) {
    if (me->closed_) return;
    if (error) return me->close();
    me->drain();
  });
}

// --- connections: events
// --------------------------------------------------------------------------

std::string HttpConnection::stream_head(const char* type, bool chunked) const {
  return fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\n{}\r\n",
      type, chunked ? "Transfer-Encoding: chunked\r\n" : "Connection: close\r\n");
}

void HttpConnection::refuse_stream(std::size_t most, const char* what) {
  refuse({429, fmt::format("you have {} {} already; close one first", most, what), {}});
}

void HttpConnection::begin_watching(const WatchEvents& task) {
  place_ = server_.place_for_watcher(caller_.user);
  if (!place_) return refuse_stream(server_.options().watchers_of_caller, "event streams");
  count(200);
  phase_ = Phase::watching;
  // The stream ends with the connection: what was sent ahead is not read any more.
  buffer_.clear();
  buffer_.shrink_to_fit();
  parser_.reset();
  routed_.reset();
  const ChangeFeed& feed = server_.feed();
  std::string text = stream_head("text/event-stream", false) + ": changes\n\n";
  position_ = feed.newest();
  if (!task.last_event_id.empty()) {
    const auto position = feed.position_of(task.last_event_id, caller_);
    const auto missed = position ? feed.since(*position, caller_) : feed.resync();
    position_ = missed.position;
    if (missed.bytes) text += *missed.bytes;
    server_.metrics().events += missed.events;
    server_.metrics().resyncs += missed.resync ? 1 : 0;
  }
  server_.watch(this);
  send(std::make_shared<const std::string>(std::move(text)));
  listen_to_watcher();
}

// To learn that it has left; what it says is of no interest.
void HttpConnection::listen_to_watcher() {
  socket_.async_read_some(asio::buffer(scratch_), [me = self()](error_code error, std::size_t) {
    if (me->closed_) return;
    if (error) return me->close();
    me->listen_to_watcher();
  });
}

void HttpConnection::send(std::shared_ptr<const std::string> bytes) {
  sending_ = std::move(bytes);
  within(server_.options().write_time);
  asio::async_write(socket_, asio::buffer(*sending_),
                    [me = self()](error_code error, std::size_t /*size*/) {
                      if (me->closed_) return;
                      if (error) return me->close();
                      me->sending_.reset();
                      me->sent_ = Clock::now();
                    });
}

bool HttpConnection::deliver(SharedDeliveries& deliveries, std::uint64_t newest,
                             Clock::time_point now) {
  if (closed_ || position_ >= newest) return true;
  // One that has not read the last delivery keeps its place; when it has fallen too far behind, it
  // is told so.
  if (sending_ || now < not_before_) return false;
  const auto& delivery = deliveries.since(position_, caller_);
  position_ = delivery.position;
  if (!delivery.bytes) return true;
  server_.metrics().events += delivery.events;
  if (delivery.resync) {
    ++server_.metrics().resyncs;
    not_before_ = now + kAfterResync;
  }
  send(delivery.bytes);
  return true;
}

// Whether the caller is still who they were when the stream began.
bool HttpConnection::still_known() const {
  if (token_) return server_.callers().by_hash(*token_) == caller_;
  return peer_ && server_.callers().by_peer(*peer_) == caller_;
}

void HttpConnection::heartbeat(Clock::time_point now) {
  // Spread, as those who were last sent something together would all be due in one second.
  const auto early = kSweep * static_cast<int>(1 + number_ % 4);
  if (now - sent_ < server_.options().heartbeat - early) return;
  // An id without data moves the place from which the client would resume.
  send(std::make_shared<const std::string>(
      fmt::format(":\nid: {}\n\n", server_.feed().id_of(position_))));
}

void HttpConnection::look_at_time(Clock::time_point now) {
  // Here and not when something is sent, which may be often or never.
  const bool streams = phase_ == Phase::watching || phase_ == Phase::log;
  if (streams && !still_known()) return close();
  if (phase_ == Phase::watching && !sending_) return heartbeat(now);
  if (phase_ == Phase::log && log_->waiting) return;
  if (now < deadline_) return;
  if (phase_ == Phase::asking) {
    return answer(refusal(503,
                          "the daemon is too busy to answer in time; look whether it was done "
                          "before you try again"));
  }
  if (phase_ != Phase::idle && phase_ != Phase::draining) ++server_.metrics().timed_out;
  close();
}

// --- connections: logs
// ----------------------------------------------------------------------------

void HttpConnection::begin_log(const ReadLog& task) {
  place_ = server_.place_for_log(caller_.user);
  if (!place_) return refuse_stream(server_.options().logs_of_caller, "readers of logs");
  ask(FindLog{task.job}, [this, task](const Answer& found) { log_found(task, found); });
}

void HttpConnection::log_found(const ReadLog& task, const Answer& found) {
  if (found.status != 200) return answer(found);
  auto file = LogFile::open(found.body.at("directory").get<std::string>());
  if (!file) return answer(refusal(500, file.error().message));
  // By number from now on: a name may come to mean another job.
  const JobRef job = JobId(found.body.at("id").get<JobId::rep>());
  file->seek(task.from);
  const std::int64_t left = file->size() - file->position();
  const bool chunked = parser_->get().version() == 11;
  keep_ = keep_ && chunked;
  log_.emplace(LogReading{job, std::move(*file), task.follow, chunked,
                          found.body.at("ended").get<bool>(), left});
  count(200);
  phase_ = Phase::log;
  server_.shares().set_idle(number_);
  send_log(stream_head("text/plain; charset=utf-8", chunked));
}

void HttpConnection::send_log(std::string before) {
  log_->waiting = false;
  const auto most = log_->follow ? kLogPiece
                                 : static_cast<std::size_t>(std::clamp<std::int64_t>(
                                       log_->left, 0, static_cast<std::int64_t>(kLogPiece)));
  auto bytes = most == 0 ? Result<std::string>(std::string()) : log_->file.read(most);
  // The head is sent: all that can be done now is to break off where the client notices.
  if (!bytes) return close();
  log_->left -= static_cast<std::int64_t>(bytes->size());
  if (!bytes->empty()) {
    before += log_->chunked ? chunk(*bytes) : *bytes;
    return send_piece(std::move(before), false);
  }
  if (!before.empty()) return send_piece(std::move(before), false);
  if (!log_->follow || log_->ended) return end_of_log();
  log_->waiting = true;
  server_.follow(this);
}

void HttpConnection::send_piece(std::string text, bool last) {
  within(server_.options().write_time);
  piece_ = std::move(text);
  asio::async_write(socket_, asio::buffer(piece_),
                    [me = self(), last](error_code error, std::size_t /*size*/) {
                      if (me->closed_) return;
                      if (error) return me->close();
                      if (!last) return me->send_log({});
                      me->log_.reset();
                      me->response_written({});
                    });
}

void HttpConnection::end_of_log() { send_piece(log_->chunked ? "0\r\n\r\n" : "", true); }

void HttpConnection::look_at_log() {
  if (closed_ || !log_ || !log_->waiting) return;
  // A client that has left can be read from: it never says anything else.
  char byte = 0;
  if (::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return close();
  auto bytes = log_->file.read(kLogPiece);
  if (!bytes) return close();
  if (!bytes->empty()) {
    log_->waiting = false;
    server_.unfollow(this);
    return send_piece(log_->chunked ? chunk(*bytes) : *bytes, false);
  }
  if (Clock::now() - log_->asked >= kAskIfEnded) ask_if_ended();
}

void HttpConnection::ask_if_ended() {
  log_->asked = Clock::now();
  const std::weak_ptr<HttpConnection> weak = self();
  // If the loop has too much to do, it is asked again later.
  (void)server_.ask({caller_, FindLog{log_->job}}, [weak](const Answer& found) {
    const auto me = weak.lock();
    if (!me || me->closed_ || !me->log_ || !me->log_->waiting) return;
    if (found.status == 503) return;
    me->log_->ended = found.status != 200 || found.body.at("ended").get<bool>();
    if (!me->log_->ended) return;
    me->server_.unfollow(me.get());
    me->send_log({});
  });
}

// --- the thread
// -----------------------------------------------------------------------------------

HttpThread::HttpThread(const HttpServerOptions& options, Loop& loop, const Callers& callers,
                       ChangeFeed& feed)
    : options_(options),
      loop_(loop),
      callers_(callers),
      feed_(feed),
      shares_(allow_connections(options.connections), options.unidentified_connections) {}

void HttpThread::listen(const wire::Fd& listener, bool on_unix) {
  const int fd = ::fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
  listeners_.push_back(std::make_shared<Listener>(Listener{
      asio::posix::stream_descriptor(context_, fd), asio::steady_timer(context_), on_unix}));
  if (on_unix) unix_socket_ = wire::inode_at(options_.unix_path);
  wait_to_accept(listeners_.back());
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
  // Now everything is ours. Handlers that wait in the context own connections, too.
  for (const auto& [raw, connection] : open_) connection->abandon();
  open_.clear();
  listeners_.clear();
  if (unix_socket_ && !wire::leads_elsewhere(options_.unix_path, *unix_socket_))
    ::unlink(options_.unix_path.c_str());
}

void HttpThread::wait_to_accept(const std::shared_ptr<Listener>& listener) {
  listener->descriptor.async_wait(
      asio::posix::stream_descriptor::wait_read, [this, listener](error_code error) {
        if (error) return;
        if (accept_all(*listener)) return wait_to_accept(listener);
        // Otherwise the descriptor would be ready again at once, and again.
        listener->pause.expires_after(kAcceptPause);
        listener->pause.async_wait([this, listener](error_code cancelled) {
          if (!cancelled) wait_to_accept(listener);
        });
      });
}

bool HttpThread::accept_all(Listener& listener) {
  // Bounded, so that a crowd at the door does not keep those inside waiting.
  for (int i = 0; i < 64; ++i) {
    const int fd = ::accept4(listener.descriptor.native_handle(), nullptr, nullptr,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      take_connection(fd, listener.on_unix);
    } else if (errno == EAGAIN) {
      return true;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return false;
    }
  }
  return true;
}

void HttpThread::take_connection(int fd, bool on_unix) {
  Socket socket(context_, asio::generic::stream_protocol(on_unix ? AF_UNIX : AF_INET, 0), fd);
  std::optional<uid_t> peer;
  const int on = 1;
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (!on_unix) {
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  } else if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0) {
    peer = credentials.uid;
  }
  const std::uint64_t number = ++metrics_.accepted;
  const auto verdict = shares_.enter(number, peer ? callers_.by_peer(*peer).user : "");
  if (verdict.evicted) {
    ++metrics_.evicted;
    if (const auto evicted = open_.find(*verdict.evicted); evicted != open_.end())
      evicted->second->close();
  }
  if (!verdict.admitted) {
    ++metrics_.refused_connections;
    static constexpr std::string_view kFull =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Content-Length: 52\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
        "{\"error\":\"the daemon has too many open connections\"}";
    ::send(fd, kFull.data(), kFull.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  auto connection = std::make_shared<HttpConnection>(*this, std::move(socket), peer, number);
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

double HttpThread::take_rate(const std::string& bucket, double rate, double burst) {
  const auto now = Clock::now();
  return buckets_.try_emplace(bucket, rate, burst, now).first->second.take(now);
}

HttpThread::StreamPlace HttpThread::take_place(Crowds& crowds, const std::string& user,
                                               std::size_t most) {
  auto& crowd = crowds[user];
  if (static_cast<std::size_t>(crowd.use_count()) >= most) {
    ++metrics_.refused_streams;
    return nullptr;
  }
  auto place = crowd.lock();
  if (!place) place = std::make_shared<const Crowd>();
  crowd = place;
  return place;
}

HttpThread::StreamPlace HttpThread::place_for_watcher(const std::string& user) {
  return take_place(watching_users_, user, options_.watchers_of_caller);
}

HttpThread::StreamPlace HttpThread::place_for_log(const std::string& user) {
  return take_place(reading_users_, user, options_.logs_of_caller);
}

bool HttpThread::ask(Request request, std::function<void(Answer)> then) {
  if (in_flight_ >= options_.in_flight) return false;
  ++in_flight_;
  loop_.ask(std::move(request), [weak = weak_from_this(), then = std::move(then)](Answer answer) {
    const auto server = weak.lock();
    if (!server) return;
    // A pointer, not a share: what waits in the context must not keep the context alive.
    asio::post(server->context_, [raw = server.get(), then, answer = std::move(answer)]() mutable {
      --raw->in_flight_;
      then(std::move(answer));
    });
  });
  return true;
}

void HttpThread::arm_sweep() {
  sweep_timer_.expires_after(kSweep);
  sweep_timer_.async_wait([this](error_code error) {
    if (error) return;
    sweep();
    arm_sweep();
  });
}

// A unix socket that somebody has deleted is made again; if that fails, it is tried again.
void HttpThread::keep_listening() {
  if (!unix_socket_ || !wire::leads_elsewhere(options_.unix_path, *unix_socket_)) return;
  const auto listener = listen_unix(options_.unix_path);
  if (!listener) return;
  const auto old = std::find_if(listeners_.begin(), listeners_.end(),
                                [](const auto& one) { return one->on_unix; });
  if (old != listeners_.end()) {
    error_code ignored;
    (*old)->descriptor.close(ignored);
    (*old)->pause.cancel();
    listeners_.erase(old);
  }
  listen(*listener, true);
}

void HttpThread::sweep() {
  keep_listening();
  const auto now = Clock::now();
  std::vector<std::shared_ptr<HttpConnection>> all;
  all.reserve(open_.size());
  for (const auto& [raw, connection] : open_) all.push_back(connection);
  for (const auto& connection : all) connection->look_at_time(now);
}

void HttpThread::watch(HttpConnection* connection) {
  watching_.insert(connection);
  watchers_ = watching_.size();
}

// At once after a quiet time, and at the pace of the options from then on.
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
  // First, so that what is published from here on wakes us again.
  feed_.deliveries_begin();
  SharedDeliveries deliveries(feed_);
  const auto newest = feed_.newest();
  bool again = false;
  for (HttpConnection* watcher : watching_) {
    if (!watcher->deliver(deliveries, newest, delivered_)) again = true;
  }
  if (again) arm_delivery();
}

void HttpThread::follow(HttpConnection* connection) {
  following_.insert(connection);
  arm_follow();
}

void HttpThread::arm_follow() {
  if (following_.empty() || std::exchange(follow_armed_, true)) return;
  follow_timer_.expires_after(kFollow);
  follow_timer_.async_wait([this](error_code error) {
    if (error) return;
    follow_armed_ = false;
    const auto all = following_;
    for (HttpConnection* connection : all) {
      // An earlier one cannot have ended a later one, but let us not depend on it.
      if (following_.count(connection) > 0) connection->look_at_log();
    }
    arm_follow();
  });
}

// --- the server
// -----------------------------------------------------------------------------------

HttpServer::HttpServer(std::shared_ptr<HttpThread> thread, std::string address)
    : thread_(std::move(thread)), address_(std::move(address)) {}

HttpServer::~HttpServer() { thread_->stop(); }

HttpServer::Counts HttpServer::counts() const { return thread_->counts(); }

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpServerOptions& options, Loop& loop,
                                                      const Callers& callers, ChangeFeed& feed) {
  auto thread = std::make_shared<HttpThread>(options, loop, callers, feed);
  std::string address;
  if (options.tcp) {
    auto listener = listen_tcp(options.host, options.port, options.beyond_loopback);
    if (!listener) return listener.error();
    auto where = tcp_address(*listener);
    if (!where) return where.error();
    address = std::move(*where);
    thread->listen(*listener, false);
  }
  if (!options.unix_path.empty()) {
    auto listener = listen_unix(options.unix_path);
    if (!listener) return listener.error();
    thread->listen(*listener, true);
  }
  thread->begin();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(thread), std::move(address)));
}

}  // namespace rubato::http
