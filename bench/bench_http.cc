// A load test of submissions to a running daemon: keep-alive connections submit as fast as they get
// answers, while idle clients watch the event stream.
//
//   bench_http [ADDRESS] [--token-file FILE] [--connections 64] [--requests 10000]
//              [--watchers 1000] [--job FILE] [--ids FILE] [--method GET --target /v1/nodes]
//              [--json]
//
// ADDRESS is as for the command line: 127.0.0.1:8080 or the path of a unix socket. Without ADDRESS
// it measures its own server, whose loop answers at once: the cost of HTTP without a daemon. It
// prints the rate of answers, percentiles of their times, counts by status, and what the watchers
// received. --ids writes the numbers of the acknowledged jobs to a file. It uses one thread with
// epoll, so that on a small machine it takes little time from the daemon. It exits with 1 if a
// request was not answered or a watcher was lost.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/text.h"
#include "rubato/http/client.h"
#include "rubato/http/server.h"
#include "rubato/wire/poller.h"
#include "rubato/wire/socket.h"

namespace {

using namespace rubato::bench;
namespace wire = rubato::wire;
using Clock = std::chrono::steady_clock;

struct Options {
  HttpEndpoint endpoint;
  int connections = 64;
  int requests = 10'000;
  int watchers = 1000;
  std::string verb = "POST";
  std::string target = "/v1/jobs";
  std::string body = R"({"command":["true"],"work":{"steps":1000},"gpus":{"min":1,"max":1}})";
  std::string ids;
  bool json = false;
};

[[noreturn]] void fail(const std::string& sentence) {
  fmt::print(stderr, "bench_http: {}\n", sentence);
  std::exit(2);
}

wire::Fd connect_or_fail(const HttpEndpoint& endpoint) {
  const std::string address = endpoint.unix_path.empty()
                                  ? fmt::format("tcp:{}:{}", endpoint.host, endpoint.port)
                                  : "unix:" + endpoint.unix_path;
  // A unix socket with a full queue refuses connections for a moment.
  for (int attempt = 0; attempt < 1000; ++attempt) {
    auto fd = wire::connect_to(address);
    if (fd) return std::move(*fd);
    if (errno != EAGAIN) fail(fd.error().message);
    ::usleep(5000);
  }
  fail("the daemon takes no more connections");
}

// One connection: data to send, and data received.
class Line {
 public:
  Line(wire::Poller& poller, const HttpEndpoint& endpoint)
      : poller_(poller), fd_(connect_or_fail(endpoint)) {}
  virtual ~Line() { poller_.remove(fd_.get()); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void begin() {
    poller_.add(fd_.get(), [this](wire::Poller::Ready ready) { on_ready(ready); });
  }
  [[nodiscard]] bool lost() const { return lost_; }

 protected:
  void send(const std::string& text) {
    output_ += text;
    flush();
  }
  virtual void received(std::string& input) = 0;
  void lose() {
    lost_ = true;
    poller_.remove(fd_.get());
  }

 private:
  void flush() {
    while (!output_.empty()) {
      const auto sent = ::send(fd_.get(), output_.data(), output_.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;
      output_.erase(0, static_cast<std::size_t>(sent));
    }
    poller_.want_out(fd_.get(), !output_.empty());
  }
  void on_ready(wire::Poller::Ready ready) {
    if (ready.out) flush();
    if (!ready.in) return;
    char bytes[65536];
    const auto got = ::recv(fd_.get(), bytes, sizeof bytes, 0);
    if (got > 0) {
      input_.append(bytes, static_cast<std::size_t>(got));
      received(input_);
    } else if (got == 0 || errno != EAGAIN) {
      lose();
    }
  }

  wire::Poller& poller_;
  wire::Fd fd_;
  std::string output_;
  std::string input_;
  bool lost_ = false;
};

struct Totals {
  int sent = 0;
  int answered = 0;
  std::map<int, int> statuses;
  int retry_after = 0;  // answers with such a header
  std::vector<double> milliseconds;
  std::vector<long> ids;
  std::string first_refusal;
};

std::string head_text(const Options& options, const std::string& verb, const std::string& target) {
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n", verb, target);
  if (!options.endpoint.token.empty()) {
    text += fmt::format("Authorization: Bearer {}\r\n", options.endpoint.token);
  }
  return text;
}

class Submitter : public Line {
 public:
  Submitter(wire::Poller& poller, const Options& options, Totals& totals, std::string run)
      : Line(poller, options.endpoint), options_(options), totals_(totals), run_(std::move(run)) {}

  void next() {
    if (totals_.sent == options_.requests) return;
    ++totals_.sent;
    std::string text = head_text(options_, options_.verb, options_.target);
    if (options_.verb != "GET") {
      text += fmt::format(
          "Idempotency-Key: bench-{}-{}\r\nContent-Type: application/json\r\n"
          "Content-Length: {}\r\n\r\n{}",
          run_, totals_.sent, options_.body.size(), options_.body);
    } else {
      text += "\r\n";
    }
    sent_ = Clock::now();
    send(text);
  }

 protected:
  void received(std::string& input) override {
    const auto head = input.find("\r\n\r\n");
    if (head == std::string::npos) return;
    const auto length = input.find("Content-Length: ");
    if (length == std::string::npos || length > head) return lose();
    const auto size = head + 4 + static_cast<std::size_t>(std::atoi(input.c_str() + length + 16));
    if (input.size() < size) return;
    const int status = std::atoi(input.c_str() + 9);
    if (status >= 300 && totals_.first_refusal.empty()) {
      totals_.first_refusal = input.substr(head + 4, size - head - 4);
    }
    const auto retry = input.find("Retry-After: ");
    totals_.retry_after += retry < head ? 1 : 0;
    if (const auto id = input.find("\"id\":", head); status == 201 && id < size)
      totals_.ids.push_back(std::atol(input.c_str() + id + 5));
    input.erase(0, size);
    ++totals_.answered;
    ++totals_.statuses[status];
    totals_.milliseconds.push_back(
        std::chrono::duration<double, std::milli>(Clock::now() - sent_).count());
    next();
  }

 private:
  const Options& options_;
  Totals& totals_;
  std::string run_;
  Clock::time_point sent_{};
};

class Watcher : public Line {
 public:
  Watcher(wire::Poller& poller, const Options& options) : Line(poller, options.endpoint) {
    request_ = head_text(options, "GET", "/v1/events") + "\r\n";
  }
  void ask() { send(request_); }

  [[nodiscard]] bool begun() const { return begun_; }
  int deliveries = 0;
  int events = 0;
  int resyncs = 0;
  std::size_t bytes = 0;
  std::string refused;

 protected:
  void received(std::string& input) override {
    if (!begun_) {
      const auto head = input.find("\r\n\r\n");
      if (head == std::string::npos) return;
      if (input.compare(0, 12, "HTTP/1.1 200") != 0) {
        refused = input;
        return lose();
      }
      begun_ = true;
      input.erase(0, head + 4);
    }
    bytes += input.size();
    const int before = events;
    reader_.take(input, [this](const ServerEvent& event) {
      ++events;
      resyncs += event.event == "resync" ? 1 : 0;
      return true;
    });
    deliveries += events > before ? 1 : 0;
    input.clear();
  }

 private:
  std::string request_;
  EventReader reader_;
  bool begun_ = false;
};

double percentile(std::vector<double>& sorted, double part) {
  if (sorted.empty()) return 0;
  const auto index = static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1));
  return sorted[index];
}

int number_or_fail(const std::string& text) {
  const auto number = parse_integer(text);
  if (!number || *number < 0 || *number > 10'000'000) fail(text + " is no count");
  return static_cast<int>(*number);
}

std::string read_or_fail(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) fail("cannot read " + path);
  return text.str();
}

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (i == 1 && name.substr(0, 2) != "--") {
      auto endpoint = parse_endpoint(name);
      if (!endpoint) fail(endpoint.error().message);
      options.endpoint = *endpoint;
      continue;
    }
    if (name == "--json") {
      options.json = true;
      continue;
    }
    if (i + 1 == count) fail(name + " needs a value");
    const std::string value = arguments[++i];
    if (name == "--token-file") {
      options.endpoint.token = trim(read_or_fail(value));
    } else if (name == "--connections") {
      options.connections = number_or_fail(value);
    } else if (name == "--requests") {
      options.requests = number_or_fail(value);
    } else if (name == "--watchers") {
      options.watchers = number_or_fail(value);
    } else if (name == "--method") {
      options.verb = value;
    } else if (name == "--target") {
      options.target = value;
    } else if (name == "--ids") {
      options.ids = value;
    } else if (name == "--job") {
      options.body = read_or_fail(value);
    } else {
      fail("there is no option " + name);
    }
  }
  return options;
}

void write_ids(const std::string& path, const std::vector<long>& ids) {
  std::ofstream file(path);
  for (const long id : ids) file << id << '\n';
  if (!file.flush()) fail("cannot write " + path);
}

void allow_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

struct Watched {
  int lost = 0;
  long long deliveries = 0;
  int most_deliveries = 0;  // to one of them
  long long events = 0;
  long long resyncs = 0;
  long long bytes = 0;
};

Watched sum(const std::vector<std::unique_ptr<Watcher>>& watchers) {
  Watched all;
  for (const auto& one : watchers) {
    all.lost += one->lost() ? 1 : 0;
    all.deliveries += one->deliveries;
    all.most_deliveries = std::max(all.most_deliveries, one->deliveries);
    all.events += one->events;
    all.resyncs += one->resyncs;
    all.bytes += static_cast<long long>(one->bytes);
  }
  return all;
}

void report(const Options& options, Totals& totals, double seconds, const Watched& watched) {
  auto& times = totals.milliseconds;
  std::sort(times.begin(), times.end());
  Json json{{"requests", options.requests},
            {"connections", options.connections},
            {"answered", totals.answered},
            {"seconds", seconds},
            {"per_second", totals.answered / seconds},
            {"p50_ms", percentile(times, 0.5)},
            {"p90_ms", percentile(times, 0.9)},
            {"p99_ms", percentile(times, 0.99)},
            {"max_ms", times.empty() ? 0 : times.back()},
            {"statuses", Json::object()},
            {"retry_after", totals.retry_after},
            {"watchers", options.watchers},
            {"watchers_lost", watched.lost},
            {"watcher_deliveries", watched.deliveries},
            {"watcher_deliveries_most", watched.most_deliveries},
            {"watcher_events", watched.events},
            {"watcher_resyncs", watched.resyncs},
            {"watcher_bytes", watched.bytes}};
  for (const auto& [status, number] : totals.statuses) {
    json["statuses"][std::to_string(status)] = number;
  }
  if (options.json) {
    fmt::print("{}\n", json.dump());
    return;
  }
  for (const auto& [name, value] : json.items()) fmt::print("{:24} {}\n", name, value.dump());
  if (!totals.first_refusal.empty()) {
    fmt::print("{:24} {}\n", "first refusal", totals.first_refusal);
  }
}

// Our own server: each submission is a job, and a change that all watchers may see.
class Instant : public Loop {
 public:
  explicit Instant(ChangeFeed& feed) : feed_(feed) {}

  void ask(Request request, std::function<void(Answer)> callback) override {
    const Json job{{"id", ++jobs_}, {"user", request.caller.user}, {"state", "PENDING"}};
    feed_.publish({request.caller.user, "job", jobs_, job});
    callback({201, job});
  }

 private:
  ChangeFeed& feed_;
  std::uint32_t jobs_ = 0;
};

struct OwnServer {
  ChangeFeed feed;
  Instant loop{feed};
  Callers callers;
  std::unique_ptr<HttpServer> server;
};

std::unique_ptr<OwnServer> start_server(Options& options) {
  auto own = std::make_unique<OwnServer>();
  options.endpoint.token = new_token();
  own->callers.publish({{{token_hash(options.endpoint.token), {"bench", true}}}, {}});
  HttpServerOptions limits;
  limits.burst = 1e9;
  auto server = HttpServer::start(limits, own->loop, own->callers, own->feed);
  if (!server) fail(server.error().message);
  own->server = std::move(*server);
  options.endpoint.port = parse_endpoint(own->server->address())->port;
  return own;
}

}  // namespace

int main(int count, char** arguments) {
  Options options = parse(count, arguments);
  allow_descriptors();
  std::unique_ptr<OwnServer> own;
  if (options.endpoint.unix_path.empty() && options.endpoint.port == 0) {
    own = start_server(options);
  }
  wire::Poller poller;
  Totals totals;
  totals.milliseconds.reserve(static_cast<std::size_t>(options.requests));

  std::vector<std::unique_ptr<Watcher>> watchers;
  watchers.reserve(static_cast<std::size_t>(options.watchers));
  for (int i = 0; i < options.watchers; ++i) {
    watchers.push_back(std::make_unique<Watcher>(poller, options));
    watchers.back()->begin();
    watchers.back()->ask();
    if (i % 64 == 0) poller.wait(std::chrono::milliseconds(1));
  }
  const auto patience = Clock::now() + std::chrono::seconds(60);
  while (!std::all_of(watchers.begin(), watchers.end(),
                      [](const auto& one) { return one->begun() || one->lost(); })) {
    if (Clock::now() > patience) fail("the daemon does not let all watchers watch");
    poller.wait(std::chrono::milliseconds(100));
  }
  for (const auto& one : watchers) {
    if (!one->refused.empty()) fail("a watcher was refused: " + one->refused);
  }

  const std::string run = std::to_string(Clock::now().time_since_epoch().count());
  std::vector<std::unique_ptr<Submitter>> submitters;
  submitters.reserve(static_cast<std::size_t>(options.connections));
  for (int i = 0; i < options.connections; ++i) {
    submitters.push_back(std::make_unique<Submitter>(poller, options, totals, run));
    submitters.back()->begin();
  }
  const auto begun = Clock::now();
  for (const auto& one : submitters) one->next();
  auto last = Clock::now();
  int answered = 0;
  while (totals.answered < options.requests) {
    poller.wait(std::chrono::milliseconds(1000));
    if (totals.answered > answered) {
      answered = totals.answered;
      last = Clock::now();
    }
    const bool all_lost = std::all_of(submitters.begin(), submitters.end(),
                                      [](const auto& one) { return one->lost(); });
    if (all_lost || Clock::now() - last > std::chrono::seconds(60)) break;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  // The last changes need a moment to arrive.
  const auto rest = Clock::now() + std::chrono::seconds(2);
  while (options.watchers > 0 && Clock::now() < rest) {
    poller.wait(std::chrono::milliseconds(100));
  }
  const Watched watched = sum(watchers);
  report(options, totals, seconds, watched);
  if (!options.ids.empty()) write_ids(options.ids, totals.ids);
  return totals.answered == options.requests && watched.lost == 0 ? 0 : 1;
}
