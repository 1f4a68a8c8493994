#include "rubato/http/client.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/wire/socket.h"

namespace rubato::http {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
using wire::Fd;

constexpr std::size_t kLargestHead = std::size_t{64} << 10U;
constexpr std::size_t kLargestBody = std::size_t{256} << 20U;
constexpr std::size_t kLargestEvent = std::size_t{16} << 20U;
constexpr Milliseconds kWatchSilence{45'000};  // three heartbeats

using Deadline = std::optional<Clock::time_point>;

Deadline after(Milliseconds span) { return Clock::now() + span; }

// False when the deadline passes first.
bool wait_for(int fd, short events, const Deadline& deadline) {
  while (true) {
    int timeout = -1;
    if (deadline) {
      const auto left = std::chrono::ceil<Milliseconds>(*deadline - Clock::now()).count();
      if (left <= 0) return false;
      timeout = static_cast<int>(std::min<long long>(left, 1'000'000));
    }
    pollfd wait{fd, events, 0};
    if (::poll(&wait, 1, timeout) > 0) return true;
  }
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

Error unreachable(const HttpEndpoint& endpoint, int problem) {
  if (problem == ENOENT || problem == ECONNREFUSED) {
    return {fmt::format("no daemon listens at {}; start one with `rubato up`", endpoint.text())};
  }
  return {fmt::format("cannot connect to the daemon at {}: {}", endpoint.text(),
                      std::strerror(problem))};
}

// 0 or an errno.
int connect_within(const Fd& fd, const sockaddr* address, socklen_t size, Milliseconds limit) {
  if (::connect(fd.get(), address, size) == 0) return 0;
  // A unix socket whose queue is full says EAGAIN and is not being connected: ask again.
  const auto deadline = after(limit);
  while (errno == EAGAIN) {
    if (Clock::now() >= *deadline) return ETIMEDOUT;
    ::poll(nullptr, 0, 10);
    if (::connect(fd.get(), address, size) == 0) return 0;
  }
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  if (!wait_for(fd.get(), POLLOUT, deadline)) return ETIMEDOUT;
  int problem = 0;
  socklen_t length = sizeof problem;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &problem, &length) != 0) return errno;
  return problem;
}

constexpr int kStream = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

Result<Fd> connect_unix(const HttpEndpoint& endpoint, Milliseconds limit) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (endpoint.unix_path.size() >= sizeof address.sun_path) {
    return Error{fmt::format("the socket path {} is longer than {} bytes", endpoint.unix_path,
                             sizeof address.sun_path - 1)};
  }
  std::memcpy(address.sun_path, endpoint.unix_path.data(), endpoint.unix_path.size());
  Fd fd(::socket(AF_UNIX, kStream, 0));
  if (!fd.valid()) return unreachable(endpoint, errno);
  const int problem =
      connect_within(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address, limit);
  if (problem != 0) return unreachable(endpoint, problem);
  return fd;
}

Result<Fd> connect_tcp(const HttpEndpoint& endpoint, Milliseconds limit) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (failed != 0) {
    return Error{fmt::format("{} is no host that can be found: {}", base::quoted(endpoint.host),
                             ::gai_strerror(failed))};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  int problem = EHOSTUNREACH;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Fd fd(::socket(one->ai_family, kStream, 0));
    if (!fd.valid()) {
      problem = errno;
      continue;
    }
    problem = connect_within(fd, one->ai_addr, one->ai_addrlen, limit);
    if (problem == 0) return fd;
  }
  return unreachable(endpoint, problem);
}

// A call's text; what a caller could have smuggled a line into is refused.
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

// Reads one answer from a connection.
class Exchange {
 public:
  using Each = std::function<bool(std::string_view)>;

  Exchange(const HttpEndpoint& endpoint, Fd fd) : endpoint_(endpoint), fd_(std::move(fd)) {}

  // A daemon that refuses a request early may stop reading it: its answer counts, so a broken pipe
  // is no error yet.
  Result<void> write(std::string_view text, const Deadline& deadline) {
    while (!text.empty()) {
      const auto sent = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        text.remove_prefix(static_cast<std::size_t>(sent));
      } else if (errno == EAGAIN || errno == EINTR) {
        if (!wait_for(fd_.get(), POLLOUT, deadline)) return late();
      } else {
        return {};
      }
    }
    return {};
  }

  Result<HttpReply> read_head(const Deadline& deadline) {
    while (true) {
      std::size_t end = 0;
      while ((end = input_.find("\r\n\r\n")) == std::string::npos) {
        if (input_.size() > kLargestHead) return strange("its head is too long");
        if (auto read = read_some(deadline); !read) return read.error();
        if (ended_) return ended();
      }
      auto reply = parse_head(std::string_view{input_}.substr(0, end + 2));
      input_.erase(0, end + 4);
      if (!reply || reply->status >= 200) return reply;
    }
  }

  // `deadline` is asked for anew before each wait.
  Result<void> read_body(const HttpReply& reply, const std::function<Deadline()>& deadline,
                         const Each& each) {
    if (reply.status == 204 || reply.status == 304) return {};
    const auto coding = reply.headers.find("transfer-encoding");
    if (coding != reply.headers.end()) {
      if (lower(coding->second) != "chunked") return strange("its transfer encoding is unknown");
      return read_chunks(deadline, each);
    }
    const auto length = reply.headers.find("content-length");
    if (length == reply.headers.end()) return read_to_end(deadline, each);
    const auto size = parse_integer(length->second);
    if (!size || *size < 0) return strange("its length is no number");
    bool more = true;
    return pass(static_cast<std::uint64_t>(*size), deadline, each, more);
  }

 private:
  Error late() const {
    return {fmt::format("the daemon at {} does not answer; see its log, or try again",
                        endpoint_.text())};
  }
  Error ended() const {
    return {
        fmt::format("the daemon at {} closed the connection before its answer was whole; "
                    "see whether it still runs and try again",
                    endpoint_.text())};
  }
  Error strange(const char* what) const {
    return {
        fmt::format("the answer from {} is not what a daemon of Rubato sends ({}); "
                    "see what listens there",
                    endpoint_.text(), what)};
  }

  Result<void> read_some(const Deadline& deadline) {
    char bytes[16384];
    while (true) {
      const auto got = ::recv(fd_.get(), bytes, sizeof bytes, 0);
      if (got > 0) {
        input_.append(bytes, static_cast<std::size_t>(got));
        return {};
      }
      if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        ended_ = true;
        return {};
      }
      if (!wait_for(fd_.get(), POLLIN, deadline)) return late();
    }
  }

  Result<HttpReply> parse_head(std::string_view head) const {
    HttpReply reply;
    bool first = true;
    while (!head.empty()) {
      const auto end = head.find("\r\n");
      const auto line = head.substr(0, end);
      head.remove_prefix(end + 2);
      if (first) {
        const bool http = line.size() >= 12 && line.substr(0, 7) == "HTTP/1." && line[8] == ' ';
        const auto status = http ? parse_integer(line.substr(9, 3)) : std::nullopt;
        if (!status || *status < 100 || *status > 599) return strange("it is no HTTP");
        reply.status = static_cast<int>(*status);
        first = false;
        continue;
      }
      const auto colon = line.find(':');
      if (colon == std::string_view::npos) return strange("a header has no colon");
      reply.headers[lower(line.substr(0, colon))] = std::string(trim(line.substr(colon + 1)));
    }
    if (first) return strange("it is empty");
    return reply;
  }

  // Exactly `size` bytes to `each`; sets `more` to false where it wants no more.
  Result<void> pass(std::uint64_t size, const std::function<Deadline()>& deadline, const Each& each,
                    bool& more) {
    while (size > 0 && more) {
      if (input_.empty()) {
        if (auto read = read_some(deadline()); !read) return read;
        if (ended_) return ended();
      }
      const auto piece = std::min<std::uint64_t>(size, input_.size());
      more = each(std::string_view{input_}.substr(0, piece));
      input_.erase(0, piece);
      size -= piece;
    }
    return {};
  }

  Result<std::string> read_line(const std::function<Deadline()>& deadline) {
    std::size_t end = 0;
    while ((end = input_.find("\r\n")) == std::string::npos) {
      if (input_.size() > kLargestHead) return strange("a line is too long");
      if (auto read = read_some(deadline()); !read) return read.error();
      if (ended_) return ended();
    }
    std::string line = input_.substr(0, end);
    input_.erase(0, end + 2);
    return line;
  }

  Result<void> read_chunks(const std::function<Deadline()>& deadline, const Each& each) {
    bool more = true;
    while (more) {
      const auto line = read_line(deadline);
      if (!line) return line.error();
      const auto size = chunk_size(*line);
      if (!size) return strange("the size of a chunk is no number");
      if (auto passed = pass(*size, deadline, each, more); !passed || !more) return passed;
      // After the last chunk there may be trailers, up to an empty line.
      while (true) {
        const auto rest = read_line(deadline);
        if (!rest) return rest.error();
        if (rest->empty()) break;
        if (*size != 0) return strange("a chunk is longer than it says");
      }
      if (*size == 0) return {};
    }
    return {};
  }

  static std::optional<std::uint64_t> chunk_size(std::string_view line) {
    line = trim(line.substr(0, line.find(';')));
    if (line.empty() || line.size() > 8) return std::nullopt;
    std::uint64_t size = 0;
    for (const char c : line) {
      if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return std::nullopt;
      const int digit = std::isdigit(static_cast<unsigned char>(c)) != 0
                            ? c - '0'
                            : std::tolower(static_cast<unsigned char>(c)) - 'a' + 10;
      size = size * 16 + static_cast<std::uint64_t>(digit);
    }
    return size;
  }

  Result<void> read_to_end(const std::function<Deadline()>& deadline, const Each& each) {
    while (true) {
      if (!input_.empty()) {
        const bool more = each(input_);
        input_.clear();
        if (!more) return {};
      }
      if (ended_) return {};
      if (auto read = read_some(deadline()); !read) return read;
    }
  }

  const HttpEndpoint& endpoint_;
  Fd fd_;
  std::string input_;
  bool ended_ = false;
};

struct Begun {
  Exchange exchange;
  HttpReply reply;
};

Result<Begun> begin(const HttpEndpoint& endpoint, const HttpCall& call, Milliseconds connect,
                    const Deadline& deadline) {
  const auto text = request_text(endpoint, call);
  if (!text) return text.error();
  auto fd =
      endpoint.unix_path.empty() ? connect_tcp(endpoint, connect) : connect_unix(endpoint, connect);
  if (!fd) return fd.error();
  Exchange exchange(endpoint, std::move(*fd));
  if (auto written = exchange.write(*text, deadline); !written) return written.error();
  auto reply = exchange.read_head(deadline);
  if (!reply) return reply.error();
  return Begun{std::move(exchange), std::move(*reply)};
}

Result<HttpReply> finish(Begun begun, const Deadline& deadline) {
  bool too_long = false;
  std::string& body = begun.reply.body;
  const auto read = begun.exchange.read_body(
      begun.reply, [&] { return deadline; },
      [&](std::string_view bytes) {
        too_long = body.size() + bytes.size() > kLargestBody;
        if (!too_long) body += bytes;
        return !too_long;
      });
  if (!read) return read.error();
  if (too_long) return Error{"the daemon's answer is longer than 256 MiB; ask for less"};
  return std::move(begun.reply);
}

bool plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ||
         c == '~';
}

}  // namespace

std::string HttpEndpoint::text() const {
  if (!unix_path.empty()) return unix_path;
  const bool colons = host.find(':') != std::string::npos;
  return colons ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<HttpEndpoint> parse_endpoint(std::string_view text) {
  HttpEndpoint endpoint;
  const std::string_view whole = text;
  if (text.starts_with("https://")) {
    return Error{fmt::format(
        "{}: TLS is not spoken here; forward the port by ssh and write HOST:PORT of this end",
        base::quoted(whole))};
  }
  if (text.substr(0, 5) == "unix:") {
    endpoint.unix_path = text.substr(5);
  } else if (text.substr(0, 7) == "http://") {
    text.remove_prefix(7);
    if (!text.empty() && text.back() == '/') text.remove_suffix(1);
  } else if (text.find('/') != std::string_view::npos) {
    endpoint.unix_path = text;
  }
  if (!endpoint.unix_path.empty()) return endpoint;
  const auto colon = text.rfind(':');
  const auto port =
      colon == std::string_view::npos ? std::nullopt : parse_integer(text.substr(colon + 1));
  endpoint.host = text.substr(0, std::min(colon, text.size()));
  // Brackets are for the text alone; an address in them has colons of its own.
  if (endpoint.host.size() > 2 && endpoint.host.front() == '[' && endpoint.host.back() == ']') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  } else if (endpoint.host.find(':') != std::string::npos) {
    endpoint.host.clear();
  }
  if (endpoint.host.empty() || !port || *port < 1 || *port > 65535) {
    return Error{
        fmt::format("{} is no address of a daemon; write HOST:PORT, or the path of a "
                    "unix socket",
                    base::quoted(whole))};
  }
  endpoint.port = static_cast<int>(*port);
  return endpoint;
}

bool EventReader::take(std::string_view bytes,
                       const std::function<bool(const ServerEvent&)>& each) {
  for (const char c : bytes) {
    const bool second_half = after_return_ && c == '\n';
    after_return_ = c == '\r';
    if (second_half) continue;
    if (c != '\n' && c != '\r') {
      line_ += c;
    } else if (!take_line(each)) {
      return false;
    }
  }
  return true;
}

bool EventReader::take_line(const std::function<bool(const ServerEvent&)>& each) {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    const ServerEvent event = std::exchange(event_, {});
    return !std::exchange(has_data_, false) || each(event);
  }
  const auto colon = line.find(':');
  const std::string_view name = std::string_view{line}.substr(0, colon);
  std::string_view value =
      colon == std::string::npos ? std::string_view() : std::string_view{line}.substr(colon + 1);
  if (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  if (name == "id") event_.id = value;
  if (name == "event") event_.event = value;
  if (name == "data") {
    if (has_data_) event_.data += '\n';
    event_.data += value;
    has_data_ = true;
  }
  return true;
}

Result<HttpReply> HttpClient::send(const HttpCall& call) const {
  const auto deadline = after(timeouts_.answer);
  auto begun = begin(endpoint_, call, timeouts_.connect, deadline);
  if (!begun) return begun.error();
  return finish(std::move(*begun), deadline);
}

Result<HttpReply> HttpClient::stream(const HttpCall& call,
                                     const std::function<bool(std::string_view)>& each,
                                     std::optional<std::chrono::milliseconds> silence) const {
  const auto deadline = after(timeouts_.answer);
  auto begun = begin(endpoint_, call, timeouts_.connect, deadline);
  if (!begun) return begun.error();
  if (!begun->reply.good()) return finish(std::move(*begun), deadline);
  const auto read = begun->exchange.read_body(
      begun->reply, [&] { return silence ? after(*silence) : Deadline(); }, each);
  if (!read) return read.error();
  return std::move(begun->reply);
}

Result<HttpReply> HttpClient::watch(const HttpCall& call,
                                    const std::function<bool(const ServerEvent&)>& each) const {
  EventReader reader;
  bool too_long = false;
  auto reply = stream(
      call,
      [&](std::string_view bytes) {
        const bool more = reader.take(bytes, each);
        too_long = reader.held() > kLargestEvent;
        return more && !too_long;
      },
      kWatchSilence);
  if (too_long) return Error{"the daemon sent an event without an end"};
  return reply;
}

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (plain(c)) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return result;
}

}  // namespace rubato::http
