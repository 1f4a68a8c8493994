#include "rubato/http/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <string_view>
#include <sys/socket.h>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/api/routes.h"
#include "rubato/base/text.h"
#include "rubato/http/admission.h"
#include "rubato/http/event_stream.h"
#include "rubato/http/log_stream.h"
#include "rubato/http/server_thread.h"
#include "rubato/http/stream.h"

namespace rubato::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace beast_http = boost::beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Socket = HttpStream::Socket;
using std::chrono::milliseconds;

constexpr std::size_t kHeadPiece = std::size_t{4} << 10U;
// If a request is refused, a body of at most this size is read and dropped, so that the connection
// can be kept.
constexpr std::size_t kDroppedBody = std::size_t{64} << 10U;
constexpr milliseconds kDrain{2000};

std::string dump(const Json& body) {
  // Text that is not UTF-8 must not end the daemon.
  return body.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string lower(beast::string_view text) {
  std::string result(text.data(), text.size());
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

std::string_view plain(beast::string_view text) { return {text.data(), text.size()}; }

HttpHead head_of(const beast_http::request<beast_http::string_body>& message) {
  HttpHead head;
  head.verb = plain(message.method_string());
  head.target = plain(message.target());
  for (const auto& field : message) {
    head.headers.emplace_back(lower(field.name_string()), plain(field.value()));
  }
  return head;
}

std::optional<HttpRefusal> check_expectation(const HttpHead& head) {
  auto given = single_header(head, "expect");
  if (auto* refused = std::get_if<HttpRefusal>(&given)) return std::move(*refused);
  const auto& text = std::get<std::optional<std::string>>(given);
  if (!text || lower(*text) == "100-continue") return std::nullopt;
  return HttpRefusal{417, "the only Expect known is 100-continue", {}};
}

std::string stream_head(const char* type, bool chunked, std::string_view more = "") {
  return fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\n{}{}\r\n",
      type, more, chunked ? "Transfer-Encoding: chunked\r\n" : "Connection: close\r\n");
}

class BeastConnection final : public HttpConnection,
                              public std::enable_shared_from_this<BeastConnection> {
 public:
  BeastConnection(HttpThread& server, Socket socket, SSL_CTX* tls, std::optional<uid_t> peer,
                  std::uint64_t number)
      : server_(server),
        stream_(std::move(socket), tls),
        number_(number),
        identified_(peer.has_value()),
        admission_(server.options(), server.callers(), server.rates(), peer) {}

  void begin() override;
  void close() override;
  void abandon() override {
    error_code ignored;
    stream_.socket().close(ignored);
  }
  [[nodiscard]] std::uint64_t number() const override { return number_; }
  void check_time(Time now) override;
  bool deliver(SharedDeliveries& deliveries, std::uint64_t newest, Time now) override;
  void check_log() override;

 private:
  enum class Phase : std::uint8_t { idle, head, body, asking, writing, draining, watching, log };
  using Parser = beast_http::request_parser<beast_http::string_body>;
  using Response = beast_http::response<beast_http::string_body>;
  using Headers = std::vector<std::pair<const char*, std::string>>;

  void enter(Phase phase, milliseconds span) {
    phase_ = phase;
    within(span);
  }
  void within(milliseconds span) { deadline_ = Clock::now() + span; }
  [[nodiscard]] auto self() { return shared_from_this(); }
  [[nodiscard]] const HttpServerOptions& options() const { return server_.options(); }
  [[nodiscard]] const Caller& caller() const { return admission_.caller(); }

  void greeting_failed(error_code error);

  // Reading a request.
  void next_request();
  void wait_for_request();
  void read_head();
  void more_of_head();
  void parse_head(std::size_t size);
  void head_read();
  void head_failed(error_code error);
  void refuse_framing(const HttpRefusal& refusal);
  [[nodiscard]] std::variant<RoutedRequest, HttpRefusal> examine(const HttpHead& head);
  [[nodiscard]] std::optional<HttpRefusal> admit(const HttpHead& head);
  [[nodiscard]] bool expects_continue() const;
  [[nodiscard]] bool can_drop_body() const;
  void send_continue();
  void read_body();
  void body_read(error_code error);

  // Carrying it out.
  void carry_out();
  void perform(HttpTask task);
  template <class Question, class Reply>
  void ask(Question question, std::function<void(Reply)> then);
  void pass_on(Ask question);
  void read_metrics();
  void read_health();
  void read_page_file(const std::string& path);
  void make_page_code();
  void use_page_code(const std::string& code);

  // Answering.
  void refuse(const HttpRefusal& refusal);
  void answer(const Answer& answer);
  void respond(int status, const char* type, std::string body, const Headers& headers = {});
  void response_written(error_code error);
  void count(int status);
  void stop_sending();
  void drain();

  // Streams.
  void refuse_stream(std::size_t most, const char* what);
  void begin_watching(const WatchEvents& task);
  void listen_to_watcher();
  void send(EventStream::Bytes bytes);
  void heartbeat(Time now);
  void begin_log(const ReadLog& task);
  void log_found(const ReadLog& task, const Answer& found);
  void send_log(std::string before);
  void send_piece(LogStream::Piece piece);
  void ask_if_ended();

  HttpThread& server_;
  HttpStream stream_;
  const std::uint64_t number_;
  bool closed_ = false;
  bool identified_;  // by its peer, or once by a token
  Phase phase_ = Phase::idle;
  Time deadline_{};

  // Of a request. Requests that the client sends ahead wait in the buffer.
  beast::flat_buffer buffer_{kLargestHttpHead + kLargestHttpBody};
  std::size_t head_searched_ = 0;  // bytes of the buffer in which no head ends
  std::optional<Parser> parser_;
  Admission admission_;
  std::optional<RoutedRequest> routed_;
  std::optional<HttpRefusal> refusal_;  // known before the body was read
  bool head_only_ = false;              // HEAD: the answer has no body
  bool keep_ = true;                    // the connection, after the answer
  std::uint64_t serial_ = 0;            // of the question to the loop that is not answered yet
  Time begun_{};
  std::string label_;  // of the metrics
  double retry_after_ = 1;
  std::optional<Response> response_;
  std::array<char, 512> scratch_{};

  // Of a stream.
  StreamPlaces::Place place_;
  std::optional<EventStream> events_;
  std::optional<LogStream> log_;
  EventStream::Bytes sending_;
};

// --- greeting and leaving ------------------------------------------------------------------------

void BeastConnection::begin() {
  if (!stream_.encrypted()) return next_request();
  enter(Phase::head, options().head_time);
  stream_.async_handshake([me = self()](error_code error) {
    if (me->closed_) return;
    if (error) return me->greeting_failed(error);
    me->next_request();
  });
}

// A client that does not speak TLS is told so.
void BeastConnection::greeting_failed(error_code error) {
  static constexpr std::string_view kPlain =
      "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 66\r\n"
      "Connection: close\r\n\r\n"
      "{\"error\":\"this daemon speaks TLS; write https:// and its address\"}";
  const bool plain =
      error.category() == asio::error::get_ssl_category() &&
      ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST;
  if (!plain) return close();
  asio::async_write(stream_.socket(), asio::buffer(kPlain.data(), kPlain.size()),
                    [me = self()](error_code failed, std::size_t /*size*/) {
                      if (me->closed_) return;
                      if (failed) return me->close();
                      me->stop_sending();
                    });
}

void BeastConnection::close() {
  if (std::exchange(closed_, true)) return;
  const auto keep = self();
  error_code ignored;
  stream_.socket().close(ignored);
  place_.reset();
  server_.remove(this);
}

// --- reading a request ---------------------------------------------------------------------------

void BeastConnection::next_request() {
  // A client that has not said who it is may not stay idle for long.
  enter(Phase::idle, identified_ ? options().idle_time : options().head_time);
  server_.shares().set_idle(number_);
  parser_.reset();
  response_.reset();
  routed_.reset();
  refusal_.reset();
  place_.reset();
  if (buffer_.size() > 0) return read_head();
  wait_for_request();
}

// An idle connection keeps no buffer. Behind TLS, only a read says whether bytes have come.
void BeastConnection::wait_for_request() {
  buffer_.shrink_to_fit();
  if (stream_.encrypted()) {
    stream_.async_read_some(
        asio::buffer(scratch_), [me = self()](error_code error, std::size_t size) {
          if (me->closed_) return;
          if (error) return me->close();
          me->buffer_.commit(asio::buffer_copy(me->buffer_.prepare(size),
                                               asio::buffer(me->scratch_.data(), size)));
          me->read_head();
        });
    return;
  }
  stream_.socket().async_wait(Socket::wait_read, [me = self()](error_code error) {
    if (me->closed_) return;
    if (error) return me->close();
    me->read_head();
  });
}

void BeastConnection::read_head() {
  enter(Phase::head, options().head_time);
  parser_.emplace();
  parser_->header_limit(kLargestHttpHead);
  // The length of the body is checked with the head, where the answer can say what is wrong.
  parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
  head_searched_ = 0;
  head_only_ = false;
  more_of_head();
}

// Parses nothing before the whole head is here: Beast joins folded lines and does not say so.
void BeastConnection::more_of_head() {
  static constexpr std::string_view kEnd = "\r\n\r\n";
  constexpr char kTlsGreeting = 0x16;
  const std::string_view bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  if (bytes.starts_with(kTlsGreeting))
    return refuse_framing({400, "this daemon does not speak TLS; write http://", {}});
  const auto end = bytes.find(kEnd, head_searched_);
  if (std::min(end, bytes.size()) + kEnd.size() > kLargestHttpHead)
    return head_failed(beast_http::error::header_limit);
  if (end != std::string_view::npos) return parse_head(end + kEnd.size());
  head_searched_ = bytes.size() - std::min(bytes.size(), kEnd.size() - 1);
  stream_.async_read_some(buffer_.prepare(kHeadPiece),
                          [me = self()](error_code error, std::size_t size) {
                            if (me->closed_) return;
                            if (error) return me->head_failed(error);
                            me->buffer_.commit(size);
                            me->more_of_head();
                          });
}

void BeastConnection::parse_head(std::size_t size) {
  const std::string_view bytes(static_cast<const char*>(buffer_.data().data()), size);
  if (const auto refused = check_raw_head(bytes)) return refuse_framing(*refused);
  error_code error;
  buffer_.consume(parser_->put(buffer_.data(), error));
  if (error) return head_failed(error);
  head_read();
}

// Whatever follows on this connection is not read as a request.
void BeastConnection::refuse_framing(const HttpRefusal& refusal) {
  keep_ = false;
  label_ = "malformed";
  begun_ = Clock::now();
  refuse(refusal);
}

void BeastConnection::head_failed(error_code error) {
  keep_ = false;
  if (error == beast_http::error::header_limit || error == beast_http::error::buffer_overflow) {
    return refuse_framing(
        {431,
         fmt::format("the head of a request may have {} bytes at most", kLargestHttpHead),
         {}});
  }
  if (error.category() == make_error_code(beast_http::error::bad_method).category() &&
      error != beast_http::error::end_of_stream && error != beast_http::error::partial_message) {
    return refuse_framing(
        {400, fmt::format("this is no proper HTTP request: {}", error.message()), {}});
  }
  close();
}

// Identifies the caller, and checks whether they may ask something now.
std::optional<HttpRefusal> BeastConnection::admit(const HttpHead& head) {
  auto refused = admission_.admit(head, Clock::now());
  if (admission_.known()) {
    identified_ = true;
    server_.shares().identify(number_, caller().user);
  }
  if (!refused) return std::nullopt;
  if (!admission_.known() && !is_health(head) && !is_for_page(head)) keep_ = false;
  if (refused->too_often) ++server_.metrics().refused_rate;
  retry_after_ = refused->retry_after;
  return std::move(refused->refusal);
}

// Everything that can be checked before the body is read.
std::variant<RoutedRequest, HttpRefusal> BeastConnection::examine(const HttpHead& head) {
  admission_.forget();
  const char* const scheme = stream_.encrypted() ? "https://" : "http://";
  if (auto refused = check_origin(head, server_.hosts(), scheme)) return std::move(*refused);
  if (auto refused = admit(head)) return std::move(*refused);
  if (auto refused = check_expectation(head)) return std::move(*refused);
  return route(head, caller());
}

bool BeastConnection::expects_continue() const {
  const auto& message = parser_->get();
  return message.find(beast_http::field::expect) != message.end();
}

// Whether the body of a refused request is small enough to be read for the sake of the connection.
bool BeastConnection::can_drop_body() const {
  const auto length = parser_->content_length();
  const bool small = !parser_->chunked() && length && *length <= kDroppedBody;
  return keep_ && small && !expects_continue();
}

void BeastConnection::head_read() {
  const auto& message = parser_->get();
  HttpHead head = head_of(message);
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
    keep_ = keep_ && (!has_body || can_drop_body());
    if (!has_body || !keep_) return refuse(*refused);
    refusal_ = std::move(*refused);
  } else {
    routed_ = std::move(std::get<RoutedRequest>(examined));
    label_ = routed_->label();
  }
  if (!has_body) return carry_out();
  parser_->body_limit(kLargestHttpBody);
  if (expects_continue()) return send_continue();
  read_body();
}

void BeastConnection::send_continue() {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  enter(Phase::body, options().body_time);
  asio::async_write(stream_, asio::buffer(kContinue.data(), kContinue.size()),
                    [me = self()](error_code error, std::size_t /*size*/) {
                      if (me->closed_) return;
                      if (error) return me->close();
                      me->read_body();
                    });
}

void BeastConnection::read_body() {
  enter(Phase::body, options().body_time);
  beast_http::async_read(stream_, buffer_, *parser_,
                         [me = self()](error_code error, std::size_t /*size*/) {
                           if (!me->closed_) me->body_read(error);
                         });
}

void BeastConnection::body_read(error_code error) {
  if (!error) return carry_out();
  keep_ = false;
  if (error == beast_http::error::body_limit) {
    return refuse({413, fmt::format("a body may have {} bytes at most", kLargestHttpBody), {}});
  }
  head_failed(error);
}

// --- carrying it out -----------------------------------------------------------------------------

void BeastConnection::carry_out() {
  if (refusal_) return refuse(*refusal_);
  auto task = routed_->with_body(parser_->get().body());
  if (auto* refused = std::get_if<HttpRefusal>(&task)) return refuse(*refused);
  perform(std::move(std::get<HttpTask>(task)));
}

void BeastConnection::perform(HttpTask task) {
  if (auto* question = std::get_if<Ask>(&task)) return pass_on(std::move(*question));
  if (auto* question = std::get_if<WhatIfAsk>(&task)) {
    return ask<WhatIfAsk, TextAnswer>(std::move(*question), [this](TextAnswer result) {
      respond(result.status, "application/json", std::move(result.json));
    });
  }
  const bool stream =
      std::holds_alternative<WatchEvents>(task) || std::holds_alternative<ReadLog>(task);
  if (stream && head_only_) return refuse({405, "HEAD is not possible for streams", "GET"});
  if (const auto* events = std::get_if<WatchEvents>(&task)) return begin_watching(*events);
  if (const auto* log = std::get_if<ReadLog>(&task)) return begin_log(*log);
  if (std::holds_alternative<ReadMetrics>(task)) return read_metrics();
  if (const auto* file = std::get_if<ReadPageFile>(&task)) return read_page_file(file->path);
  if (std::holds_alternative<MakePageCode>(task)) return make_page_code();
  if (const auto* page = std::get_if<UsePageCode>(&task)) return use_page_code(page->code);
  if (std::holds_alternative<ShowCaller>(task))
    return answer({200, {{"user", caller().user}, {"role", caller().admin ? "admin" : "user"}}});
  read_health();
}

template <class Question, class Reply>
void BeastConnection::ask(Question question, std::function<void(Reply)> then) {
  enter(Phase::asking, options().answer_time);
  server_.shares().set_busy(number_);
  const auto serial = ++serial_;
  const std::weak_ptr<BeastConnection> weak = self();
  std::function<void(Reply)> once = [weak, serial, then = std::move(then)](Reply answer) {
    const auto me = weak.lock();
    if (me && !me->closed_ && me->serial_ == serial) then(std::move(answer));
  };
  bool asked = false;
  if constexpr (std::is_same_v<Question, Ask>) {
    asked = server_.ask(Request{caller(), std::move(question)}, std::move(once));
  } else {
    asked = server_.ask(std::move(question), std::move(once));
  }
  if (asked) return;
  ++server_.metrics().refused_in_flight;
  answer(refusal(429, "the daemon has more requests than it can answer at once; try again"));
}

void BeastConnection::pass_on(Ask question) {
  // Tokens are made here. The core sees only their hashes.
  std::string token;
  const auto make_token = [&](auto& request) {
    token = new_token();
    request.token = token_hash(token);
  };
  if (auto* user = std::get_if<AddUser>(&question)) make_token(*user);
  if (auto* more = std::get_if<AddToken>(&question)) make_token(*more);
  if (auto* page = std::get_if<OpenPage>(&question)) make_token(*page);
  if (auto* page = std::get_if<ClosePage>(&question))
    page->token = admission_.token().value_or(Digest{});
  ask<Ask, Answer>(std::move(question), [this, token](Answer result) {
    const bool good = result.status >= 200 && result.status < 300;
    if (!token.empty() && good) result.body["token"] = token;
    answer(result);
  });
}

void BeastConnection::read_metrics() {
  ask<Ask, Answer>(ShowMetrics{}, [this](const Answer& result) {
    if (result.status != 200) return answer(result);
    respond(200, "text/plain; version=0.0.4; charset=utf-8",
            result.body.value("text", "") + http_metrics_text(server_.metrics(), server_.counts()));
  });
}

void BeastConnection::read_health() {
  ask<Ask, Answer>(ShowHealth{}, [this](const Answer& result) {
    const bool well = result.status >= 200 && result.status < 300;
    respond(well ? 200 : 503, "text/plain; charset=utf-8", well ? "ok\n" : "not ok\n");
  });
}

// --- the page ------------------------------------------------------------------------------------

// The name of an asset has its hash, so a browser may keep it for ever.
void BeastConnection::read_page_file(const std::string& path) {
  const auto& files = options().page;
  const auto file = std::find_if(files.begin(), files.end(),
                                 [&](const PageFile& one) { return one.path == path; });
  if (file == files.end())
    return refuse({404, fmt::format("the page has no file {}", base::quoted(path)), {}});
  const bool asset = path != "/";
  respond(200, file->type.c_str(), std::string(file->bytes),
          {{"Cache-Control", asset ? "public, max-age=31536000, immutable" : "no-cache"},
           {"Content-Security-Policy", kPagePolicy},
           {"Referrer-Policy", "no-referrer"},
           {"Cross-Origin-Opener-Policy", "same-origin"}});
}

void BeastConnection::make_page_code() {
  // Otherwise whoever has got hold of a token of the page could renew it for ever.
  if (admission_.token() && server_.callers().ends(*admission_.token()))
    return refuse({403, "a page cannot open another page; run `rubato page`", {}});
  const std::string code = server_.page_codes().make(caller(), Clock::now());
  answer({201, {{"code", code}, {"seconds", PageCodes::kHolds.count()}}});
}

void BeastConnection::use_page_code(const std::string& code) {
  auto user = server_.page_codes().take(code, Clock::now());
  if (!user) {
    return refuse(
        {401, "this code was used already, or is older than two minutes; run `rubato page`", {}});
  }
  admission_.act_for(std::move(*user));
  pass_on(OpenPage{});
}

// --- answering -----------------------------------------------------------------------------------

void BeastConnection::refuse(const HttpRefusal& refusal) {
  Headers headers;
  if (!refusal.allow.empty()) headers.emplace_back("Allow", refusal.allow);
  respond(refusal.status, "application/json", dump(Json{{"error", refusal.sentence}}), headers);
}

void BeastConnection::answer(const Answer& answer) {
  respond(answer.status, "application/json", dump(answer.body));
}

void BeastConnection::count(int status) {
  auto& counts = server_.metrics().routes[label_];
  ++counts.statuses[status];
  counts.seconds.observe(std::chrono::duration<double>(Clock::now() - begun_).count());
}

void BeastConnection::respond(int status, const char* type, std::string body,
                              const Headers& headers) {
  ++serial_;
  count(status);
  enter(Phase::writing, options().write_time);
  server_.shares().set_idle(number_);
  const unsigned version = parser_ ? parser_->get().version() : 11;
  response_.emplace(static_cast<beast_http::status>(status), version);
  auto& response = *response_;
  response.set(beast_http::field::content_type, type);
  response.set(beast_http::field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : headers) response.set(name, value);
  if (status == 401) response.set(beast_http::field::www_authenticate, "Bearer");
  if (status == 429 || status == 503) {
    response.set(beast_http::field::retry_after, fmt::format("{:.0f}", std::ceil(retry_after_)));
  }
  response.keep_alive(keep_);
  response.body() = std::move(body);
  response.prepare_payload();
  if (head_only_) response.body().clear();  // the length is that of the body it would have
  beast_http::async_write(stream_, response, [me = self()](error_code error, std::size_t /*size*/) {
    if (!me->closed_) me->response_written(error);
  });
}

void BeastConnection::response_written(error_code error) {
  if (error) return close();
  if (keep_) return next_request();
  enter(Phase::draining, kDrain);
  if (!stream_.encrypted()) return stop_sending();
  stream_.async_shutdown([me = self()](error_code /*ignored*/) {
    if (!me->closed_) me->stop_sending();
  });
}

void BeastConnection::stop_sending() {
  error_code ignored;
  stream_.socket().shutdown(Socket::shutdown_send, ignored);
  enter(Phase::draining, kDrain);
  drain();
}

// If a socket is closed while bytes are unread, the kernel resets the connection, and a client that
// is still sending loses the answer.
void BeastConnection::drain() {
  stream_.socket().async_read_some(asio::buffer(scratch_),
                                   [me = self()](error_code error, std::size_t) {
                                     if (me->closed_) return;
                                     if (error) return me->close();
                                     me->drain();
                                   });
}

void BeastConnection::check_time(Time now) {
  // Here and not when something is sent, which may be often or never.
  const bool streams = phase_ == Phase::watching || phase_ == Phase::log;
  if (streams && !admission_.still_known()) return close();
  if (phase_ == Phase::watching && !events_->is_sending()) return heartbeat(now);
  if (phase_ == Phase::log && log_->waiting()) return;
  if (now < deadline_) return;
  if (phase_ == Phase::asking) {
    return answer(refusal(503,
                          "the daemon is too busy to answer in time; check whether it was done "
                          "before you try again"));
  }
  if (phase_ != Phase::idle && phase_ != Phase::draining) ++server_.metrics().timed_out;
  close();
}

// --- streams of events ---------------------------------------------------------------------------

void BeastConnection::refuse_stream(std::size_t most, const char* what) {
  ++server_.metrics().refused_streams;
  refuse({429, fmt::format("you have {} {} already; close one first", most, what), {}});
}

void BeastConnection::begin_watching(const WatchEvents& task) {
  const std::size_t most = options().watchers_of_caller;
  place_ = server_.watchers_of_users().take(caller().user, most);
  if (!place_) return refuse_stream(most, "event streams");
  count(200);
  phase_ = Phase::watching;
  // The stream ends with the connection: what the client has sent ahead is not read any more.
  buffer_.clear();
  buffer_.shrink_to_fit();
  parser_.reset();
  routed_.reset();
  events_.emplace(server_.feed(), caller(), server_.metrics());
  server_.watch(this);
  send(std::make_shared<const std::string>(stream_head("text/event-stream", false) +
                                           events_->begin(task.last_event_id)));
  listen_to_watcher();
}

// To learn that the client has left. What it sends is ignored.
void BeastConnection::listen_to_watcher() {
  stream_.async_read_some(asio::buffer(scratch_), [me = self()](error_code error, std::size_t) {
    if (me->closed_) return;
    if (error) return me->close();
    me->listen_to_watcher();
  });
}

void BeastConnection::send(EventStream::Bytes bytes) {
  sending_ = std::move(bytes);
  events_->sending();
  within(options().write_time);
  asio::async_write(stream_, asio::buffer(*sending_),
                    [me = self()](error_code error, std::size_t /*size*/) {
                      if (me->closed_) return;
                      if (error) return me->close();
                      me->sending_.reset();
                      me->events_->written(Clock::now());
                    });
}

bool BeastConnection::deliver(SharedDeliveries& deliveries, std::uint64_t newest, Time now) {
  if (closed_) return true;
  auto [bytes, wait] = events_->next(deliveries, newest, now);
  if (bytes) send(std::move(bytes));
  return !wait;
}

void BeastConnection::heartbeat(Time now) {
  // Up to four seconds early, by number: otherwise watchers that were last sent something together
  // would all be due in the same second.
  const auto early = kSweep * static_cast<int>(1 + number_ % 4);
  auto bytes = events_->heartbeat(options().heartbeat - early, now);
  if (bytes) send(std::move(bytes));
}

// --- streams of logs -----------------------------------------------------------------------------

void BeastConnection::begin_log(const ReadLog& task) {
  const std::size_t most = options().logs_of_caller;
  place_ = server_.logs_of_users().take(caller().user, most);
  if (!place_) return refuse_stream(most, "readers of logs");
  ask<Ask, Answer>(FindLog{task.job},
                   [this, task](const Answer& found) { log_found(task, found); });
}

void BeastConnection::log_found(const ReadLog& task, const Answer& found) {
  if (found.status != 200) return answer(found);
  auto file = LogFile::open(found.body.at("directory").get<std::string>());
  if (!file) return answer(refusal(500, file.error().message));
  file->seek(task.from);
  const bool chunked = parser_->get().version() == 11;
  keep_ = keep_ && chunked;
  // By number from now on: a name may come to mean another job.
  const JobRef job = JobId(found.body.at("id").get<JobId::rep>());
  const bool ended = found.body.at("ended").get<bool>();
  const std::string from = fmt::format("Rubato-Log-From: {}\r\n", file->position());
  log_.emplace(job, std::move(*file), LogStream::Options{task.follow, chunked, ended});
  count(200);
  phase_ = Phase::log;
  server_.shares().set_idle(number_);
  send_log(stream_head("text/plain; charset=utf-8", chunked, from));
}

void BeastConnection::send_log(std::string before) {
  auto piece = log_->next(std::move(before));
  // The head is sent already, so the only way to tell the client is to break off.
  if (!piece) return close();
  if (!*piece) return server_.follow(this);
  server_.unfollow(this);
  send_piece(std::move(**piece));
}

void BeastConnection::send_piece(LogStream::Piece piece) {
  within(options().write_time);
  sending_ = std::make_shared<const std::string>(std::move(piece.text));
  asio::async_write(stream_, asio::buffer(*sending_),
                    [me = self(), last = piece.last](error_code error, std::size_t /*size*/) {
                      if (me->closed_) return;
                      if (error) return me->close();
                      me->sending_.reset();
                      if (!last) return me->send_log({});
                      me->log_.reset();
                      me->response_written({});
                    });
}

void BeastConnection::check_log() {
  if (closed_ || !log_ || !log_->waiting()) return;
  // A client that waits for a log sends nothing.
  if (stream_.peer_left()) return close();
  send_log({});
  if (!closed_ && log_->waiting() && log_->ask_now(Clock::now())) ask_if_ended();
}

void BeastConnection::ask_if_ended() {
  const std::weak_ptr<BeastConnection> weak = self();
  // If the loop has too many questions, it is asked again later.
  (void)server_.ask({caller(), FindLog{log_->job()}}, [weak](const Answer& found) {
    const auto me = weak.lock();
    if (!me || me->closed_ || !me->log_ || !me->log_->waiting()) return;
    if (found.status == 503) return;
    if (found.status == 200 && !found.body.at("ended").get<bool>()) return;
    me->log_->job_has_ended();
    me->send_log({});
  });
}

}  // namespace

std::shared_ptr<HttpConnection> make_connection(HttpThread& server, int fd, bool on_unix,
                                                std::optional<uid_t> peer, std::uint64_t number) {
  const asio::generic::stream_protocol protocol(on_unix ? AF_UNIX : AF_INET, 0);
  SSL_CTX* const tls = on_unix || !server.certificate() ? nullptr : server.certificate()->context();
  return std::make_shared<BeastConnection>(server, Socket(server.context(), protocol, fd), tls,
                                           peer, number);
}

}  // namespace rubato::http
