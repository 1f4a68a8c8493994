#include "rubato/http/client.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace rubato::http {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kLargestBody = std::size_t{256} << 20U;
constexpr std::size_t kLargestEvent = std::size_t{16} << 20U;
constexpr std::size_t kPiece = std::size_t{16} << 10U;
constexpr milliseconds kWatchSilence{45'000};  // three heartbeats

// The text of a call. A line break in a token, header or path is refused, because it could add a
// header line.
Result<std::string> request_text(const HttpEndpoint& endpoint, const HttpCall& call) {
  const std::string host = endpoint.unix_path.empty() ? endpoint.text() : "localhost";
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", call.verb,
                                 call.target, host);
  std::size_t lines = 3;
  const auto add = [&](std::string_view name, std::string_view value) {
    text += fmt::format("{}: {}\r\n", name, value);
    ++lines;
  };
  if (!endpoint.token.empty()) add("Authorization", "Bearer " + endpoint.token);
  if (!call.body.empty()) add("Content-Type", call.content_type);
  if (!call.body.empty() || call.verb != "GET") {
    add("Content-Length", std::to_string(call.body.size()));
  }
  for (const auto& [name, value] : call.headers) add(name, value);
  if (std::count(text.begin(), text.end(), '\n') != static_cast<std::ptrdiff_t>(lines) ||
      std::count(text.begin(), text.end(), '\r') != static_cast<std::ptrdiff_t>(lines) ||
      std::count(call.target.begin(), call.target.end(), ' ') != 0) {
    return Error{"a token, header or path of a request has a line break or a space in it"};
  }
  return text + "\r\n" + call.body;
}

Error late(const HttpEndpoint& endpoint) {
  return {
      fmt::format("the daemon at {} does not answer; see its log, or try again", endpoint.text())};
}

Error cut_off(const HttpEndpoint& endpoint) {
  return {
      fmt::format("the daemon at {} closed the connection before its answer was whole; "
                  "see whether it still runs and try again",
                  endpoint.text())};
}

Error strange(const HttpEndpoint& endpoint, const std::string& problem) {
  return {
      fmt::format("the answer from {} is not what a daemon of Rubato sends ({}); "
                  "see what listens there",
                  endpoint.text(), problem)};
}

}  // namespace

// Feeds bytes to the reader until `step` is done. `deadline` is called again before each wait.
Result<void> HttpExchange::read(const std::function<AnswerReader::State()>& step,
                                const std::function<Deadline()>& deadline) {
  using State = AnswerReader::State;
  std::array<char, kPiece> bytes;
  for (;;) {
    const State state = step();
    if (state == State::malformed) return strange(endpoint_, reader_.problem());
    lost_ = state == State::cut_off;
    if (lost_) return cut_off(endpoint_);
    if (state != State::hungry) return {};
    const auto got = socket_.receive_some(bytes.data(), bytes.size(), deadline());
    if (!got) return late(endpoint_);
    if (*got == 0) {
      reader_.give_end();
    } else {
      reader_.give({bytes.data(), *got});
    }
  }
}

Result<HttpReply> HttpExchange::read_head(const HttpCall& call, const Deadline& deadline) {
  const auto text = request_text(endpoint_, call);
  if (!text) return text.error();
  if (!socket_.send_all(*text, deadline)) return late(endpoint_);
  auto read = this->read([&] { return reader_.read_head(); }, [&] { return deadline; });
  if (!read) return read.error();
  return reader_.head();
}

Result<HttpReply> HttpExchange::read_whole(HttpReply reply, const Deadline& deadline) {
  bool too_long = false;
  const AnswerReader::Each keep = [&](std::string_view bytes) {
    too_long = reply.body.size() + bytes.size() > kLargestBody;
    if (!too_long) reply.body += bytes;
    return !too_long;
  };
  const auto read = this->read([&] { return reader_.read_body(keep); }, [&] { return deadline; });
  if (!read) return read.error();
  if (too_long) return Error{"the daemon's answer is longer than 256 MiB; ask for less"};
  return reply;
}

Result<HttpReply> HttpExchange::send(const HttpCall& call) {
  const auto deadline = after(limit_);
  auto reply = read_head(call, deadline);
  return reply ? read_whole(std::move(*reply), deadline) : reply;
}

Result<HttpReply> HttpExchange::stream(const HttpCall& call, const AnswerReader::Each& each,
                                       std::optional<milliseconds> silence) {
  const auto deadline = after(limit_);
  auto reply = read_head(call, deadline);
  if (!reply) return reply;
  if (!reply->good()) return read_whole(std::move(*reply), deadline);
  const auto read = this->read([&] { return reader_.read_body(each); },
                               [&] { return silence ? after(*silence) : Deadline(); });
  if (!read) return read.error();
  return reply;
}

Result<HttpExchange> HttpClient::connect() const {
  auto socket = ClientSocket::connect(endpoint_, timeouts_.connect);
  if (!socket) return socket.error();
  return HttpExchange(endpoint_, std::move(*socket), timeouts_.answer);
}

Result<HttpReply> HttpClient::send(const HttpCall& call) const {
  auto exchange = connect();
  if (!exchange) return exchange.error();
  return exchange->send(call);
}

Result<HttpReply> HttpClient::stream(const HttpCall& call, const AnswerReader::Each& each,
                                     std::optional<milliseconds> silence) const {
  auto exchange = connect();
  if (!exchange) return exchange.error();
  return exchange->stream(call, each, silence);
}

Result<HttpReply> HttpClient::watch(const HttpCall& call,
                                    const std::function<bool(const ServerEvent&)>& each) const {
  EventReader reader;
  bool too_long = false;
  auto reply = stream(
      call,
      [&](std::string_view bytes) {
        const bool more = reader.take(bytes, each);
        too_long = reader.buffered() > kLargestEvent;
        return more && !too_long;
      },
      kWatchSilence);
  if (too_long) return Error{"the daemon sent an event without an end"};
  return reply;
}

}  // namespace rubato::http
