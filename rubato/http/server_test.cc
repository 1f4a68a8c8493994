// The server and its sockets are real. Only the loop behind it belongs to the test.
#include "rubato/http/server.h"

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <mutex>
#include <poll.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "rubato/api/metrics.h"
#include "rubato/base/text.h"
#include "rubato/http/client.h"
#include "rubato/wire/socket.h"

namespace rubato::http {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using wire::Fd;

// Generous, for busy machines. No test waits until it is over.
constexpr auto kPatience = 60s;

template <class Condition>
bool eventually(const Condition& condition) {
  const auto limit = Clock::now() + kPatience;
  while (!condition()) {
    if (Clock::now() > limit) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

// Answers on its own thread, as the daemon's loop does.
class TestLoop : public Loop {
 public:
  TestLoop() : thread_([this] { run(); }) {}
  ~TestLoop() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      held_ = false;
    }
    changed_.notify_all();
    thread_.join();
  }

  void ask(Request request, std::function<void(Answer)> callback) override {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(request), std::move(callback)});
    changed_.notify_all();
  }
  // While held, nothing is answered.
  void hold(bool on) {
    const std::lock_guard lock(mutex_);
    held_ = on;
    changed_.notify_all();
  }
  [[nodiscard]] std::size_t waiting() {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }
  [[nodiscard]] Request last() {
    const std::lock_guard lock(mutex_);
    return last_;
  }

  std::atomic<int> submitted = 0;
  std::atomic<bool> job_ended = false;
  std::filesystem::path log_directory;

 private:
  struct Asked {
    Request request;
    std::function<void(Answer)> callback;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ended_ || (!held_ && !waiting_.empty()); });
      if (waiting_.empty()) return;
      Asked asked = std::move(waiting_.front());
      waiting_.pop_front();
      last_ = asked.request;
      lock.unlock();
      asked.callback(answer(asked.request));
      lock.lock();
    }
  }

  Answer answer(const Request& request) {
    const auto& [caller, ask] = request;
    if (const auto* submit = std::get_if<SubmitJob>(&ask)) {
      return {201, Json{{"id", ++submitted}, {"name", submit->file.name}, {"user", caller.user}}};
    }
    if (const auto* show = std::get_if<ShowJob>(&ask)) {
      if (!caller.admin && caller.user != "ada") return no_such_job(show->job);
      return {200, Json{{"id", 1}, {"user", caller.user}}};
    }
    if (const auto* log = std::get_if<FindLog>(&ask)) {
      if (!caller.admin && caller.user != "ada") return no_such_job(log->job);
      return {200,
              Json{{"id", 1}, {"directory", log_directory.string()}, {"ended", job_ended.load()}}};
    }
    if (std::holds_alternative<ShowMetrics>(ask)) {
      return {200, Json{{"text", metrics_text(Metrics(), caller)}}};
    }
    if (std::holds_alternative<AddUser>(ask)) return {201, Json{{"name", "new"}}};
    if (std::holds_alternative<OpenPage>(ask)) return {201, Json{{"user", caller.user}}};
    return {200, Json{{"user", caller.user}, {"admin", caller.admin}}};
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Asked> waiting_;
  Request last_;
  bool held_ = false;
  bool ended_ = false;
  std::thread thread_;
};

// Sends and receives raw bytes, without following the protocol.
class Raw {
 public:
  explicit Raw(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0)
        << std::strerror(errno);
  }
  explicit Raw(Fd connected) : fd_(std::move(connected)) {}

  // False after the server has closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void finish() { ::shutdown(fd_.get(), SHUT_WR); }

  // Reads until `enough` returns true. False at the end of the stream.
  template <class Enough>
  bool read_until(const Enough& enough) {
    const auto limit = Clock::now() + kPatience;
    while (!enough(text_)) {
      pollfd wait{fd_.get(), POLLIN, 0};
      if (Clock::now() > limit) return false;
      if (::poll(&wait, 1, 100) <= 0) continue;
      char bytes[65536];
      const auto got = ::recv(fd_.get(), bytes, sizeof bytes, 0);
      if (got <= 0) return false;
      text_.append(bytes, static_cast<std::size_t>(got));
    }
    return true;
  }
  bool read_text(const std::string& text) {
    return read_until([&](const std::string& all) { return all.find(text) != std::string::npos; });
  }
  // True if the server closes the connection, whatever it sends before.
  bool read_to_end() {
    const auto begun = Clock::now();
    read_until([](const std::string&) { return false; });
    return Clock::now() - begun < kPatience;
  }
  // Takes one answer with a Content-Length from the received text.
  std::string take_answer() {
    std::size_t size = 0;
    const bool whole = read_until([&](const std::string& all) {
      const auto head = all.find("\r\n\r\n");
      if (head == std::string::npos) return false;
      const auto length = all.find("Content-Length: ");
      if (length == std::string::npos || length > head) return false;
      size = head + 4 + static_cast<std::size_t>(std::atoi(all.c_str() + length + 16));
      return all.size() >= size;
    });
    if (!whole) return "";
    std::string answer = text_.substr(0, size);
    text_.erase(0, size);
    return answer;
  }
  [[nodiscard]] std::string& text() { return text_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  Fd fd_;
  std::string text_;
};

int status_of(const std::string& answer) {
  if (answer.substr(0, 9) != "HTTP/1.1 " && answer.substr(0, 9) != "HTTP/1.0 ") return 0;
  return std::atoi(answer.c_str() + 9);
}

// Connects to a unix socket as another user, which needs root. The system call changes only this
// thread. The function of the C library would change the whole process.
Fd connect_as(uid_t user, const std::filesystem::path& path) {
  Fd fd;
  std::thread([&] {
    if (::syscall(SYS_setresuid, user, user, user) != 0) return;
    if (auto connected = wire::connect_to("unix:" + path.string())) fd = std::move(*connected);
  }).join();
  return fd;
}

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

class HttpServerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "rubato-http-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    options_.unix_path = directory_ / "api.sock";
    loop_.log_directory = directory_;
    Callers::Table table;
    table.tokens[token_hash("rub_ada")] = {"ada", false};
    table.tokens[token_hash("rub_bo")] = {"bo", false};
    table.tokens[token_hash("rub_root")] = {"root", true};
    callers_.publish(table);
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  void start() {
    auto started = HttpServer::start(options_, loop_, callers_, feed_);
    ASSERT_TRUE(started.ok()) << started.error().message;
    server_ = std::move(*started);
    port_ = std::atoi(server_->address().c_str() + server_->address().rfind(':') + 1);
  }

  [[nodiscard]] HttpClient client(const std::string& token) const {
    HttpEndpoint endpoint;
    endpoint.port = port_;
    endpoint.token = token;
    return HttpClient(endpoint, {5s, 60s});
  }
  [[nodiscard]] HttpReply get(const std::string& target,
                              const std::string& token = "rub_ada") const {
    HttpCall call;
    call.target = target;
    return reply(call, token);
  }
  [[nodiscard]] HttpReply reply(const HttpCall& call, const std::string& token = "rub_ada") const {
    auto result = client(token).send(call);
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? *result : HttpReply();
  }
  // A whole request as text.
  static std::string request(const std::string& line, const std::string& more = "",
                             const std::string& token = "rub_ada") {
    return line + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token + "\r\n" + more +
           "\r\n";
  }
  static News change(const std::string& user, std::uint32_t id, int value) {
    return {user, "job", id, Json{{"id", id}, {"value", value}}};
  }
  // Through the unix socket, as the user who runs the test.
  [[nodiscard]] Fd connect_here() const {
    auto connected = wire::connect_to("unix:" + options_.unix_path.string());
    EXPECT_TRUE(connected.ok());
    return connected ? std::move(*connected) : Fd();
  }
  void expect_alive() const { EXPECT_EQ(get("/v1/jobs/1").status, 200); }

  std::filesystem::path directory_;
  HttpServerOptions options_;
  TestLoop loop_;
  Callers callers_;
  ChangeFeed feed_{{"e", 256, 16}};
  std::unique_ptr<HttpServer> server_;
  int port_ = 0;
};

TEST_F(HttpServerTest, AnswersOverTcpAndUnix) {
  start();
  const auto reply = get("/v1/jobs/1");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(Json::parse(reply.body)["user"], "ada");
  EXPECT_EQ(reply.headers.at("content-type"), "application/json");

  HttpEndpoint endpoint;
  endpoint.unix_path = options_.unix_path;
  HttpCall call;
  call.target = "/v1/nodes";
  auto peer = HttpClient(endpoint).send(call);
  ASSERT_TRUE(peer.ok()) << peer.error().message;
  EXPECT_EQ(Json::parse(peer->body)["user"], callers_.by_peer(::geteuid()).user);
  EXPECT_EQ(Json::parse(peer->body)["admin"], true) << "the daemon's own user";

  endpoint.token = "rub_bo";
  peer = HttpClient(endpoint).send(call);
  EXPECT_EQ(Json::parse(peer->body)["user"], "bo") << "a token that is shown counts";
}

// Roles are checked at each request, and for streams every second.
TEST_F(HttpServerTest, WhoIsNoAdminAnyMoreIsNoneOnConnectionsThatWereKept) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to connect as somebody else";
  constexpr uid_t kSomebody = 54321;
  const std::string name = callers_.by_peer(kSomebody).user;
  std::filesystem::permissions(directory_, std::filesystem::perms(0755));
  callers_.publish({{}, {name}});
  start();
  Raw kept(connect_as(kSomebody, options_.unix_path));
  Raw stream(connect_as(kSomebody, options_.unix_path));
  const std::string head = " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  kept.send("GET /v1/nodes" + head);
  EXPECT_NE(kept.take_answer().find("\"admin\":true"), std::string::npos);
  stream.send("GET /v1/events" + head);
  ASSERT_TRUE(stream.read_text(": changes"));
  callers_.publish({});
  kept.send("GET /v1/nodes" + head);
  EXPECT_NE(kept.take_answer().find("\"admin\":false"), std::string::npos);
  kept.send("GET /v1/users" + head);
  EXPECT_EQ(status_of(kept.take_answer()), 403);
  EXPECT_TRUE(stream.read_to_end());
}

TEST_F(HttpServerTest, NothingButHealthWithoutAnIdentity) {
  start();
  const auto health = get("/healthz", "");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.body, "ok\n");
  for (const char* target : {"/v1/jobs", "/metrics", "/v1/events", "/nothing", "/v1/health"}) {
    const auto reply = get(target, "");
    EXPECT_EQ(reply.status, 401) << target;
    EXPECT_EQ(reply.headers.at("www-authenticate"), "Bearer");
    EXPECT_EQ(get(target, "rub_wrong").status, 401) << target;
  }
  for (const char* verb : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    Raw raw(port_);
    raw.send(fmt::format("{} /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", verb));
    raw.read_to_end();
    EXPECT_EQ(status_of(raw.text()), 401) << verb;
  }
}

TEST_F(HttpServerTest, ChecksHostAndOrigin) {
  start();
  const auto status = [&](const std::string& headers) {
    Raw raw(port_);
    raw.send("GET /v1/jobs/1 HTTP/1.1\r\nAuthorization: Bearer rub_ada\r\nConnection: close\r\n" +
             headers + "\r\n");
    raw.read_to_end();
    return status_of(raw.text());
  };
  EXPECT_EQ(status("Host: localhost:1\r\n"), 200);
  EXPECT_EQ(status("Host: evil.example\r\n"), 403);
  EXPECT_EQ(status(""), 400);
  EXPECT_EQ(status("Host: localhost\r\nOrigin: http://localhost\r\n"), 200);
  EXPECT_EQ(status("Host: localhost\r\nOrigin: http://evil.example\r\n"), 403);
  EXPECT_EQ(status("Host: localhost\r\nOrigin: null\r\n"), 403);
}

TEST_F(HttpServerTest, KeepsConnectionsAndAnswersWhatWasSentAhead) {
  start();
  Raw raw(port_);
  raw.send(request("GET /v1/jobs/1") + request("GET /nothing") + request("GET /v1/nodes"));
  EXPECT_EQ(status_of(raw.take_answer()), 200);
  EXPECT_EQ(status_of(raw.take_answer()), 404);
  EXPECT_EQ(status_of(raw.take_answer()), 200);
  raw.send(request("GET /v1/jobs/1", "Connection: close\r\n"));
  EXPECT_TRUE(raw.read_to_end());
  EXPECT_EQ(status_of(raw.text()), 200);
}

TEST_F(HttpServerTest, RefusesWhatIsNoHttp) {
  start();
  for (const std::string& bytes : std::vector<std::string>{
           "\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\nHost\r\n\r\n",
           "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", std::string(100, '\0'),
           "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
           "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
           "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           "GET /\x01 HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n: x\r\n\r\n",
           "GET / HTTP/1.1\r\nA\x80: x\r\n\r\n", "GET  / HTTP/1.1\r\n\r\n",
           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}) {
    Raw raw(port_);
    raw.send(bytes);
    raw.finish();
    EXPECT_TRUE(raw.read_to_end()) << bytes;
    if (!raw.text().empty()) {
      EXPECT_GE(status_of(raw.text()), 400) << bytes << raw.text();
      EXPECT_EQ(count_of(raw.text(), "HTTP/1."), 1U) << "the connection ends there";
    }
  }
  expect_alive();
}

TEST_F(HttpServerTest, RefusesBrokenChunks) {
  start();
  for (const char* body : {"zz\r\nhello\r\n0\r\n\r\n", "5\r\nhelloX\r\n0\r\n\r\n",
                           "FFFFFFFFFFFFFFFF1\r\n", "-5\r\nhello\r\n0\r\n\r\n"}) {
    Raw raw(port_);
    raw.send(request("POST /v1/jobs",
                     "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n") +
             body);
    raw.finish();
    EXPECT_TRUE(raw.read_to_end());
    EXPECT_TRUE(raw.text().empty() || status_of(raw.text()) >= 400) << body;
  }
  expect_alive();
}

TEST_F(HttpServerTest, TheEndOfAChunkedBodyMayComeInPieces) {
  start();
  auto connected = wire::connect_to("unix:" + (directory_ / "api.sock").string());
  ASSERT_TRUE(connected.ok()) << connected.error().message;
  const int fd = connected->get();
  // Bytes that the server has not read yet.
  const auto unread = [fd] {
    int bytes = 0;
    EXPECT_EQ(::ioctl(fd, SIOCOUTQ, &bytes), 0);
    return bytes;
  };
  Raw raw(std::move(*connected));
  raw.send(
      request("POST /v1/jobs", "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"));
  for (const char* piece : {"0", "\r", "\n", "\r", "\n"}) {
    ASSERT_TRUE(eventually([&] { return unread() == 0; }));
    raw.send(piece);
  }
  ASSERT_TRUE(raw.read_text("\r\n\r\n"));
  EXPECT_EQ(status_of(raw.text()), 422) << "an empty body is no job";
  expect_alive();
}

// If the end of a body is not known, nothing after it may be read as the next request.
TEST_F(HttpServerTest, NothingIsReadAfterARequestThatIsFramedBadly) {
  start();
  const std::string hidden =
      request("POST /v1/nodes/0", "Content-Length: 2\r\n") + "{}" + request("GET /v1/jobs/1");
  const std::string json = "Content-Type: application/json\r\n";
  for (const std::string& framing : std::vector<std::string>{
           "Transfer-Encoding: gzip\r\n", "Transfer-Encoding: gzip, chunked\r\n",
           "Transfer-Encoding: chunked, identity\r\n", "Transfer-Encoding: chunked;q=1\r\n",
           "Transfer-Encoding: xchunked\r\n", "Transfer-Encoding: \r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
           "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
           "Content-Length: 5\r\nContent-Length: 6\r\n",
           "Content-Length: 5\r\nContent-Length: 5\r\n", "Content-Length: 5, 5\r\n",
           "Content-Length: +5\r\n", "Content-Length: 0x5\r\n", "X: a\r\n Content-Length: 5\r\n",
           "X: a\r\n\tb\r\n"}) {
    for (const char* verb : {"POST /v1/jobs", "GET /v1/jobs/1", "DELETE /v1/jobs/1"}) {
      Raw raw(port_);
      raw.send(request(verb, json + framing) + hidden);
      EXPECT_TRUE(raw.read_to_end()) << framing;
      EXPECT_EQ(status_of(raw.text()), 400) << verb << " " << framing << raw.text();
      EXPECT_EQ(count_of(raw.text(), "HTTP/1."), 1U) << verb << " " << framing << raw.text();
      EXPECT_NE(raw.text().find("Connection: close"), std::string::npos) << framing;
    }
  }
  // Also a bad chunk, after the head was read.
  Raw raw(port_);
  raw.send(request("POST /v1/jobs", json + "Transfer-Encoding: chunked\r\n") + "zz\r\n" + hidden);
  EXPECT_TRUE(raw.read_to_end());
  EXPECT_EQ(status_of(raw.text()), 400);
  EXPECT_EQ(count_of(raw.text(), "HTTP/1."), 1U);
  // HTTP/1.0 has no chunks.
  Raw old(port_);
  old.send("POST /v1/jobs HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
           hidden);
  EXPECT_TRUE(old.read_to_end());
  EXPECT_EQ(status_of(old.text()), 400);
  EXPECT_EQ(count_of(old.text(), "HTTP/1."), 1U);
  expect_alive();
}

TEST_F(HttpServerTest, AHeadMayComeByteByByte) {
  start();
  Raw raw(port_);
  const std::string two = request("GET /v1/jobs/1") + request("GET /nothing");
  for (const char byte : two) ASSERT_TRUE(raw.send(std::string_view(&byte, 1)));
  EXPECT_EQ(status_of(raw.take_answer()), 200);
  EXPECT_EQ(status_of(raw.take_answer()), 404);
}

// The answer has the headers of GET and no body. The next answer follows directly.
TEST_F(HttpServerTest, AnswersToHeadHaveNoBody) {
  start();
  for (const auto& [target, status] :
       std::vector<std::pair<std::string, int>>{{"/v1/jobs/1", 200},
                                                {"/nothing", 404},
                                                {"/healthz", 200},
                                                {"/metrics", 200},
                                                {"/v1/users/bo", 405},
                                                {"/v1/events", 405},
                                                {"/v1/jobs/1/log", 405}}) {
    Raw raw(port_);
    raw.send(request("HEAD " + target) + request("GET /v1/jobs/1", "Connection: close\r\n"));
    EXPECT_TRUE(raw.read_to_end());
    const std::string& text = raw.text();
    EXPECT_EQ(status_of(text), status) << target;
    const auto end = text.find("\r\n\r\n");
    ASSERT_NE(end, std::string::npos);
    EXPECT_EQ(status_of(text.substr(end + 4)), 200) << target << "\n" << text;
    EXPECT_EQ(count_of(text, "HTTP/1."), 2U);
  }
  // The length is that of the body that GET has.
  const std::string length = "Content-Length: " + std::to_string(get("/v1/jobs/1").body.size());
  Raw raw(port_);
  raw.send(request("HEAD /v1/jobs/1", "Connection: close\r\n"));
  EXPECT_TRUE(raw.read_to_end());
  EXPECT_NE(raw.text().find(length), std::string::npos) << raw.text();
}

TEST_F(HttpServerTest, TakesWholeAddresses) {
  start();
  const auto status = [&](const std::string& line) {
    Raw raw(port_);
    raw.send(request(line));
    return status_of(raw.take_answer());
  };
  EXPECT_EQ(status("GET http://localhost/v1/jobs/1"), 200);
  EXPECT_EQ(status("GET http://127.0.0.1:9/v1/jobs/1"), 200);
  EXPECT_EQ(status("GET http://localhost/nothing"), 404);
  EXPECT_EQ(status("GET http://evil.example/v1/jobs/1"), 403) << "its host counts, not the header";
  EXPECT_EQ(status("GET http://a@localhost/v1/jobs/1"), 403);
  EXPECT_EQ(status("GET http:///v1/jobs/1"), 400);
  EXPECT_EQ(status("GET https://localhost/v1/jobs/1"), 404);
}

TEST_F(HttpServerTest, BoundsHeadsAndBodies) {
  start();
  Raw head(port_);
  head.send(request("GET /v1/jobs", "X: " + std::string(20'000, 'x') + "\r\n"));
  EXPECT_TRUE(head.read_to_end());
  EXPECT_EQ(status_of(head.text()), 431);

  HttpCall call{
      "POST", "/v1/jobs", {}, std::string(std::size_t{2} << 20U, ' '), "application/json"};
  EXPECT_EQ(reply(call).status, 413);

  // Without a length, the limit is noticed while reading.
  Raw chunks(port_);
  chunks.send(
      request("POST /v1/jobs", "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"));
  const std::string piece = "10000\r\n" + std::string(0x10000, ' ') + "\r\n";
  for (int i = 0; i < 40 && chunks.send(piece); ++i) {
  }
  EXPECT_TRUE(chunks.read_to_end());
  EXPECT_EQ(status_of(chunks.text()), 413);
  EXPECT_EQ(loop_.submitted, 0);
}

TEST_F(HttpServerTest, ReadsBodiesHoweverTheyCome) {
  start();
  const std::string body = R"({"command":["train"],"name":"a"})";
  const std::string type = "Content-Type: application/json\r\n";
  Raw raw(port_);
  raw.send(request("POST /v1/jobs", type + "Transfer-Encoding: chunked\r\n"));
  raw.send("1\r\n{\r\n" + fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size() - 1, body.substr(1)));
  EXPECT_EQ(status_of(raw.take_answer()), 201);

  raw.send(
      request("POST /v1/jobs",
              type + fmt::format("Content-Length: {}\r\nExpect: 100-continue\r\n", body.size())));
  ASSERT_TRUE(raw.read_text("100 Continue\r\n\r\n"));
  raw.text().clear();
  raw.send(body);
  EXPECT_EQ(status_of(raw.take_answer()), 201);

  for (const char byte :
       request("POST /v1/jobs", type + fmt::format("Content-Length: {}\r\n", body.size())) + body) {
    raw.send({&byte, 1});
  }
  EXPECT_EQ(status_of(raw.take_answer()), 201);
  EXPECT_EQ(loop_.submitted, 3);

  // The body of a refused request does not become the next request.
  raw.send(request("POST /nothing", type + fmt::format("Content-Length: {}\r\n", body.size())) +
           body);
  EXPECT_EQ(status_of(raw.take_answer()), 404);
  raw.send(request("GET /v1/nodes"));
  EXPECT_EQ(status_of(raw.take_answer()), 200);
}

TEST_F(HttpServerTest, ClosesConnectionsThatTakeTooLong) {
  options_.head_time = 100ms;
  options_.body_time = 100ms;
  options_.idle_time = 100ms;
  start();
  Raw idle(port_);
  Raw head(port_);
  head.send("GET /v1/jobs HTTP/1.1\r\nHost: loc");
  Raw body(port_);
  body.send(request("POST /v1/jobs", "Content-Type: application/json\r\nContent-Length: 100\r\n") +
            "{");
  EXPECT_TRUE(idle.read_to_end());
  EXPECT_TRUE(head.read_to_end());
  EXPECT_TRUE(body.read_to_end());
  EXPECT_TRUE(eventually([&] { return server_->counts().connections == 0; }));
}

TEST_F(HttpServerTest, BoundsConnections) {
  options_.connections = 3;
  start();
  std::vector<std::unique_ptr<Raw>> few;
  for (int i = 0; i < 3; ++i) {
    few.push_back(std::make_unique<Raw>(connect_here()));
  }
  ASSERT_TRUE(eventually([&] { return server_->counts().connections == 3; }));
  Raw more(connect_here());
  EXPECT_TRUE(more.read_to_end());
  EXPECT_EQ(status_of(more.text()), 503);
  EXPECT_EQ(Json::parse(more.text().substr(more.text().find("\r\n\r\n")))["error"],
            "the daemon has too many open connections");
  few.clear();
  ASSERT_TRUE(eventually([&] { return server_->counts().connections == 0; }));
  expect_alive();
}

// One user has all connections, idle or in the middle of a request. Others can connect
// nevertheless.
TEST_F(HttpServerTest, NobodyCanKeepTheOthersOut) {
  options_.connections = 40;
  options_.unidentified_connections = 10;
  start();
  std::vector<std::unique_ptr<Raw>> hers;
  for (int i = 0; i < 40; ++i) {
    hers.push_back(std::make_unique<Raw>(port_));
    hers.back()->send(request("GET /v1/jobs/1"));
    ASSERT_EQ(status_of(hers.back()->take_answer()), 200);
    if (i % 2 == 0) hers.back()->send("GET /v1/jobs/1 HTTP/1.1\r\n");
  }
  ASSERT_EQ(server_->counts().connections, 40U);
  for (int i = 0; i < 5; ++i) {
    Raw his(port_);
    his.send(request("GET /v1/nodes", "", "rub_bo"));
    EXPECT_EQ(status_of(his.take_answer()), 200);
    Raw local(connect_here());
    local.send("GET /v1/nodes HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(status_of(local.take_answer()), 200);
  }
}

// Callers without an identity can neither fill the server nor keep out somebody who is about to
// identify themselves.
TEST_F(HttpServerTest, StrangersMakeRoomForEachOther) {
  options_.connections = 40;
  options_.unidentified_connections = 10;
  start();
  std::vector<std::unique_ptr<Raw>> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(std::make_unique<Raw>(port_));
    if (i % 2 == 0) strangers.back()->send("GET /v1/jobs/1 HTTP/1.1\r\nX: ");
  }
  ASSERT_TRUE(eventually([&] { return server_->counts().connections == 10; }));
  EXPECT_TRUE(strangers.front()->read_to_end()) << "the longest idle had to go";
  expect_alive();
}

TEST_F(HttpServerTest, BoundsTheRateOfEachCaller) {
  options_.requests_per_second = 0.001;
  options_.burst = 3;
  start();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(get("/v1/jobs/1").status, 200);
  const auto refused = get("/v1/jobs/1");
  EXPECT_EQ(refused.status, 429);
  EXPECT_GE(std::stod(refused.headers.at("retry-after")), 100);
  EXPECT_EQ(get("/v1/jobs/1", "rub_root").status, 200) << "another's is another's";
}

TEST_F(HttpServerTest, BoundsTheRateOfThoseWithoutAnIdentity) {
  options_.unidentified_per_second = 1;
  start();
  const auto refused = [&](const std::string& target, const std::string& token) {
    return eventually([&] { return get(target, token).status == 429; });
  };
  EXPECT_TRUE(refused("/v1/jobs", "rub_wrong"));
  EXPECT_EQ(get("/healthz", "").status, 200) << "which others cannot use up";
  EXPECT_TRUE(refused("/healthz", ""));
  expect_alive();
}

TEST_F(HttpServerTest, BoundsWhatTheLoopHasNotAnswered) {
  options_.in_flight = 4;
  start();
  loop_.hold(true);
  std::vector<std::unique_ptr<Raw>> asking;
  for (int i = 0; i < 4; ++i) {
    asking.push_back(std::make_unique<Raw>(port_));
    asking.back()->send(request("GET /v1/jobs/1"));
  }
  ASSERT_TRUE(eventually([&] { return loop_.waiting() == 4; }));
  EXPECT_EQ(server_->counts().in_flight, 4U);
  const auto refused = get("/v1/jobs/1");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  loop_.hold(false);
  for (const auto& one : asking) EXPECT_EQ(status_of(one->take_answer()), 200);
  expect_alive();
}

TEST_F(HttpServerTest, SaysSoWhenTheLoopDoesNotAnswer) {
  options_.answer_time = 100ms;
  start();
  loop_.hold(true);
  Raw raw(port_);
  raw.send(request("GET /v1/jobs/1"));
  EXPECT_EQ(status_of(raw.take_answer()), 503);
  EXPECT_EQ(server_->counts().in_flight, 1U) << "it still is";
  loop_.hold(false);
  ASSERT_TRUE(eventually([&] { return server_->counts().in_flight == 0; }));
  // A busy machine may be too slow again.
  std::string next;
  ASSERT_TRUE(eventually([&] {
    raw.send(request("GET /v1/nodes"));
    next = raw.take_answer();
    return status_of(next) != 503;
  }));
  EXPECT_NE(next.find("admin"), std::string::npos)
      << "the late answer is not that of the next question";
}

TEST_F(HttpServerTest, AnswersThatComeAfterTheEndAreDropped) {
  start();
  loop_.hold(true);
  Raw raw(port_);
  raw.send(request("GET /v1/jobs/1"));
  ASSERT_TRUE(eventually([&] { return loop_.waiting() == 1; }));
  server_.reset();
  EXPECT_TRUE(raw.read_to_end());
  loop_.hold(false);
  EXPECT_TRUE(eventually([&] { return loop_.waiting() == 0; }));
  feed_.publish(change("ada", 1, 1));
}

TEST_F(HttpServerTest, ShowsNewTokensOnceAndPassesOnTheirHashAlone) {
  start();
  const auto added =
      reply({"POST", "/v1/users", {}, R"({"name":"new"})", "application/json"}, "rub_root");
  EXPECT_EQ(added.status, 201);
  const std::string token = Json::parse(added.body)["token"];
  EXPECT_EQ(std::get<AddUser>(loop_.last().ask).token, token_hash(token));
  EXPECT_EQ(reply({"POST", "/v1/users", {}, R"({"name":"new"})", "application/json"}).status, 403);
}

TEST_F(HttpServerTest, SendsTheFilesOfThePageToEverybody) {
  options_.page = {{"/", "text/html; charset=utf-8", "<!doctype html>"},
                   {"/assets/page-01.js", "text/javascript", "run()"}};
  start();
  const auto page = get("/", "");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body, "<!doctype html>");
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.headers.at("content-security-policy"), kPagePolicy);
  EXPECT_EQ(page.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(page.headers.at("referrer-policy"), "no-referrer");
  const auto script = get("/assets/page-01.js", "");
  EXPECT_EQ(script.body, "run()");
  EXPECT_EQ(script.headers.at("cache-control"), "public, max-age=31536000, immutable");
  EXPECT_EQ(get("/assets/page-02.js", "").status, 404);
  EXPECT_EQ(get("/assets/..%2F..%2Fetc%2Fpasswd", "").status, 404);
  EXPECT_EQ(get("/assets/../v1/jobs/1", "").status, 404) << "not another way to a route";
  EXPECT_EQ(get("/?x=1", "").status, 400);
  EXPECT_EQ(get("/v1/jobs/1", "").status, 401);
}

TEST_F(HttpServerTest, ThereIsNoPageWithoutFiles) {
  start();
  EXPECT_EQ(get("/", "").status, 404);
}

TEST_F(HttpServerTest, OpensAPageWithACodeThatWorksOnce) {
  start();
  const auto exchange = [&](const std::string& body) {
    return reply({"POST", "/v1/page/session", {}, body, "application/json"}, "");
  };
  EXPECT_EQ(reply({"POST", "/v1/page/codes", {}, {}}, "").status, 401);
  const auto made = reply({"POST", "/v1/page/codes", {}, {}});
  EXPECT_EQ(made.status, 201);
  const std::string code = Json::parse(made.body)["code"];
  EXPECT_EQ(exchange("{}").status, 400);
  EXPECT_EQ(exchange(R"({"code":"rub_guess"})").status, 401);
  EXPECT_EQ(exchange(Json{{"code", std::string(1000, 'a')}}.dump()).status, 400);
  EXPECT_EQ(get("/v1/jobs/1", code).status, 401) << "a code is no token";
  const auto opened = exchange(Json{{"code", code}}.dump());
  EXPECT_EQ(opened.status, 201);
  EXPECT_EQ(Json::parse(opened.body)["user"], "ada");
  const std::string token = Json::parse(opened.body)["token"];
  EXPECT_EQ(std::get<OpenPage>(loop_.last().ask).token, token_hash(token));
  EXPECT_EQ(loop_.last().caller, (Caller{"ada", false}));
  EXPECT_EQ(exchange(Json{{"code", code}}.dump()).status, 401);
}

TEST_F(HttpServerTest, APageEndsItselfAndCannotMakeAnother) {
  Callers::Table table;
  table.tokens[token_hash("rub_page")] = {"ada", false};
  table.ends[token_hash("rub_page")] = Clock::now() + 1h;
  callers_.publish(table);
  start();
  EXPECT_EQ(Json::parse(get("/v1/page/session", "rub_page").body),
            (Json{{"user", "ada"}, {"role", "user"}}));
  EXPECT_EQ(reply({"POST", "/v1/page/codes", {}, {}}, "rub_page").status, 403);
  EXPECT_EQ(reply({"DELETE", "/v1/page/session", {}, {}}, "rub_page").status, 200);
  EXPECT_EQ(std::get<ClosePage>(loop_.last().ask).token, token_hash("rub_page"));
  table.ends[token_hash("rub_page")] = Clock::now();
  callers_.publish(table);
  EXPECT_EQ(get("/v1/page/session", "rub_page").status, 401);
}

TEST_F(HttpServerTest, AddsItsOwnMetrics) {
  start();
  EXPECT_EQ(get("/v1/jobs/1").status, 200);
  EXPECT_EQ(get("/v1/jobs/1", "rub_bo").status, 404);
  const auto reply = get("/metrics");
  EXPECT_EQ(reply.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_NE(reply.body.find("rubato_jobs{state=\"PENDING\"} 0\n"), std::string::npos);
  EXPECT_NE(reply.body.find(
                "rubato_http_requests_total{route=\"GET /v1/jobs/{job}\",status=\"404\"} 1\n"),
            std::string::npos)
      << reply.body;
  EXPECT_EQ(reply.body.find("ada"), std::string::npos) << "no names";
}

TEST_F(HttpServerTest, ListensOnLoopbackUnlessTold) {
  options_.host = "0.0.0.0";
  const auto refused = HttpServer::start(options_, loop_, callers_, feed_);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("loopback"), std::string::npos);
  options_.beyond_loopback = true;
  start();
  expect_alive();
}

TEST_F(HttpServerTest, TakesThePlaceOfADeadSocketAlone) {
  start();
  options_.tcp = false;
  EXPECT_FALSE(HttpServer::start(options_, loop_, callers_, feed_).ok()) << "somebody listens";
  server_.reset();
  { const auto dead = wire::listen_on("unix:" + options_.unix_path.string()); }
  EXPECT_TRUE(HttpServer::start(options_, loop_, callers_, feed_).ok());
  std::ofstream(options_.unix_path) << "precious";
  EXPECT_FALSE(HttpServer::start(options_, loop_, callers_, feed_).ok());
}

TEST_F(HttpServerTest, SixtyFourConnections) {
  start();
  constexpr int kThreads = 8;
  constexpr int kConnections = 8;
  constexpr int kRequests = 40;
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      std::vector<std::unique_ptr<Raw>> connections;
      for (int i = 0; i < kConnections; ++i) connections.push_back(std::make_unique<Raw>(port_));
      const std::string body = R"({"command":["train"]})";
      const auto text = request("POST /v1/jobs", fmt::format("Content-Type: application/json\r\n"
                                                             "Content-Length: {}\r\n",
                                                             body.size())) +
                        body;
      for (int i = 0; i < kRequests; ++i) {
        for (const auto& one : connections) one->send(text);
        for (const auto& one : connections) good += status_of(one->take_answer()) == 201 ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, kThreads * kConnections * kRequests);
  EXPECT_EQ(loop_.submitted, good);
}

// --- events ---

class HttpEventsTest : public HttpServerTest {
 protected:
  // A watcher whose stream has begun.
  std::unique_ptr<Raw> watch(const std::string& token = "rub_ada", const std::string& more = "") {
    auto raw = std::make_unique<Raw>(port_);
    raw->send(request("GET /v1/events", more, token));
    EXPECT_TRUE(raw->read_text(": changes\n\n")) << raw->text();
    raw->text().erase(0, raw->text().find(": changes\n\n") + 11);
    return raw;
  }
  static News large_change(const std::string& user) {
    return {user, "job", 77, Json{{"padding", std::string(std::size_t{1} << 20U, 'x')}}};
  }
};

TEST_F(HttpEventsTest, TellsWatchersWhatChanges) {
  start();
  const auto ada = watch();
  const auto bo = watch("rub_bo");
  const auto root = watch("rub_root");
  feed_.publish(change("ada", 1, 10));
  feed_.publish({"", "policy", 0, Json{{"policy", "srtf"}}});
  for (const auto* one : {&ada, &root}) {
    EXPECT_TRUE((*one)->read_text("event: policy\ndata: {\"policy\":\"srtf\"}\n\n"));
    EXPECT_EQ((*one)->text(),
              "id: e-1\nevent: job\ndata: {\"id\":1,\"value\":10}\n\n"
              "id: e-2\nevent: policy\ndata: {\"policy\":\"srtf\"}\n\n");
  }
  EXPECT_TRUE(bo->read_text("srtf"));
  EXPECT_EQ(bo->text().find("job"), std::string::npos) << "another's";
}

TEST_F(HttpEventsTest, SendsAFewASecondWithTheNewestLast) {
  start();
  const auto ada = watch();
  constexpr int kChanges = 20'000;
  const auto begun = Clock::now();
  for (int i = 1; i <= kChanges; ++i) feed_.publish(change("ada", 7, i));
  ASSERT_TRUE(ada->read_text(fmt::format("\"value\":{}}}", kChanges)));
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  EXPECT_LE(static_cast<double>(count_of(ada->text(), "event:")), 2 + seconds * 4);
}

TEST_F(HttpEventsTest, ResumesAndTellsThoseWhoComeTooLateToResync) {
  start();
  for (std::uint32_t i = 1; i <= 3; ++i) feed_.publish(change("ada", i, 0));
  const auto back = watch("rub_ada", "Last-Event-ID: e-1\r\n");
  EXPECT_TRUE(back->read_text("id: e-3"));
  EXPECT_EQ(back->text().find("id: e-1"), std::string::npos);
  EXPECT_NE(back->text().find("id: e-2"), std::string::npos);
  const auto old = watch("rub_ada", "Last-Event-ID: earlier-900\r\n");
  EXPECT_TRUE(old->read_text("id: e-3\nevent: resync\ndata: {}\n\n"));
  // It gets later changes like everybody else.
  feed_.publish(change("ada", 9, 1));
  EXPECT_TRUE(old->read_text("id: e-4\nevent: job"));
}

TEST_F(HttpEventsTest, TooMuchAtOnceIsAResync) {
  start();
  const auto ada = watch();
  const auto bo = watch("rub_bo");
  for (std::uint32_t i = 0; i < 5000; ++i) feed_.publish(change("ada", i, 0));
  EXPECT_TRUE(ada->read_text("event: resync"));
  EXPECT_LT(count_of(ada->text(), "event: job"), 100U);
  feed_.publish(change("bo", 7777, 0));
  EXPECT_TRUE(bo->read_text("7777"));
  EXPECT_EQ(count_of(bo->text(), "event:"), 1U) << "others' changes do not cost it its place";
}

TEST_F(HttpEventsTest, HeartbeatsMoveThePlaceToResumeFrom) {
  options_.heartbeat = 1s;
  start();
  const auto bo = watch("rub_bo");
  feed_.publish(change("ada", 1, 1));
  EXPECT_TRUE(bo->read_text(":\nid: e-1\n\n"));
  EXPECT_EQ(bo->text().find("data"), std::string::npos);
}

TEST_F(HttpEventsTest, ATokenThatIsTakenAwayEndsItsStreams) {
  options_.pace = 1ms;
  start();
  const auto quiet = watch("rub_bo");
  const auto busy = watch();
  callers_.publish({});
  int value = 0;
  EXPECT_TRUE(eventually([&] {
    feed_.publish(change("ada", 1, ++value));
    return server_->counts().watchers == 0;
  })) << "also those that are always sent something";
  EXPECT_TRUE(quiet->read_to_end());
  EXPECT_TRUE(busy->read_to_end());
}

TEST_F(HttpEventsTest, BoundsTheStreamsOfEachCaller) {
  options_.watchers_of_caller = 2;
  options_.logs_of_caller = 1;
  start();
  auto first = watch();
  const auto second = watch();
  EXPECT_EQ(get("/v1/events").status, 429);
  const auto another = watch("rub_bo");
  Raw reader(port_);
  reader.send(request("GET /v1/jobs/1/log?follow=1"));
  ASSERT_TRUE(reader.read_text("chunked"));
  EXPECT_EQ(get("/v1/jobs/1/log").status, 429);
  EXPECT_EQ(get("/v1/jobs/1").status, 200);
  first.reset();
  ASSERT_TRUE(eventually([&] { return server_->counts().watchers == 2; }));
  const auto third = watch();
  loop_.job_ended = true;
  ASSERT_TRUE(reader.read_text("0\r\n\r\n"));
  EXPECT_TRUE(eventually([&] { return get("/v1/jobs/1/log").status == 200; }))
      << "the connection is kept, its place is not";
}

TEST_F(HttpEventsTest, NoticesThatAWatcherLeaves) {
  start();
  auto ada = watch();
  EXPECT_EQ(server_->counts().watchers, 1U);
  ada.reset();
  EXPECT_TRUE(eventually([&] { return server_->counts().connections == 0; }));
}

// A watcher that does not read must cost neither memory nor the time of the others, and is
// disconnected in the end. Only this watcher is sent much. What the other one gets always fits into
// the kernel's buffers, so every machine reads it in time.
TEST_F(HttpEventsTest, ThoseWhoDoNotReadAreLeftBehind) {
  options_.write_time = 500ms;
  options_.pace = 1ms;
  start();
  const auto lazy = watch("rub_root");
  const auto ada = watch();
  // Until the kernel accepts no more for the slow reader and its time is over.
  int value = 0;
  ASSERT_TRUE(eventually([&] {
    feed_.publish(large_change("bo"));
    feed_.publish(change("ada", 2, ++value));
    const bool followed = ada->read_text(fmt::format("\"value\":{}}}", value));
    ada->text().clear();
    return !followed || server_->counts().watchers == 1;
  }));
  EXPECT_EQ(server_->counts().watchers, 1U) << "the one that reads is still there";
  feed_.publish(change("ada", 2, -42));
  EXPECT_TRUE(ada->read_text("-42"));
}

TEST_F(HttpEventsTest, OneThatStallsAndReadsOnIsToldToResyncAndMissesNothingAfterIt) {
  options_.write_time = 10min;
  options_.pace = 1ms;
  start();
  const auto slow = watch("rub_root");
  const auto ada = watch();
  // Far more than the kernel stores for a client that does not read. ada shows that each change was
  // delivered.
  for (int i = 1; i <= 40; ++i) {
    feed_.publish(large_change("bo"));
    feed_.publish(change("ada", 1, i));
    ASSERT_TRUE(ada->read_text(fmt::format("\"value\":{}}}", i)));
  }
  for (std::uint32_t id = 100; id < 120; ++id) feed_.publish(change("bo", id, 1));
  ASSERT_TRUE(slow->read_text("event: resync\ndata: {}\n\n"));
  EXPECT_EQ(slow->text().find("\"id\":100"), std::string::npos) << "it has to read the lists anew";
  slow->text().clear();
  for (std::uint32_t id = 200; id < 210; ++id) feed_.publish(change("bo", id, 2));
  ASSERT_TRUE(slow->read_text("\"id\":209,"));
  for (std::uint32_t id = 200; id < 210; ++id) {
    EXPECT_EQ(count_of(slow->text(), fmt::format("\"id\":{},", id)), 1U) << id;
  }
  EXPECT_EQ(slow->text().find("resync"), std::string::npos);
}

TEST_F(HttpEventsTest, AThousandWatchers) {
  constexpr std::size_t kWatchers = 1000;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < 2 * kWatchers + 300) GTEST_SKIP() << "too few descriptors allowed";
  options_.connections = 1100;
  start();
  std::vector<std::unique_ptr<Raw>> watchers;
  for (std::size_t i = 0; i < kWatchers; ++i) {
    watchers.push_back(std::make_unique<Raw>(port_));
    watchers.back()->send(request("GET /v1/events", "", i % 2 == 0 ? "rub_ada" : "rub_bo"));
  }
  ASSERT_TRUE(eventually([&] { return server_->counts().watchers == kWatchers; }));
  // Requests are answered at the same time.
  for (int i = 0; i < 50; ++i) {
    feed_.publish(change("ada", 1, i));
    expect_alive();
  }
  feed_.publish(change("ada", 1, 1000));
  feed_.publish({"", "policy", 0, Json{{"policy", "last"}}});
  std::size_t most = 0;
  for (std::size_t i = 0; i < kWatchers; ++i) {
    ASSERT_TRUE(watchers[i]->read_text("\"last\""));
    EXPECT_EQ(watchers[i]->text().find("\"value\":1000") != std::string::npos, i % 2 == 0);
    most = std::max(most, watchers[i]->text().size());
  }
  EXPECT_LT(most, 20'000U);
  watchers.clear();
  EXPECT_TRUE(eventually([&] { return server_->counts().watchers == 0; }));
}

// --- logs ---

TEST_F(HttpServerTest, ReadsLogs) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += fmt::format("line {}\n", i);
  std::ofstream(directory_ / "log") << text;
  start();
  EXPECT_EQ(get("/v1/jobs/1/log").body, text);
  EXPECT_EQ(get("/v1/jobs/1/log?from=100000").body, text.substr(100'000));
  EXPECT_EQ(get("/v1/jobs/1/log?from=-10").body, text.substr(text.size() - 10));
  EXPECT_EQ(get("/v1/jobs/1/log?from=99999999").body, "");
  EXPECT_EQ(get("/v1/jobs/1/log", "rub_bo").status, 404);
  EXPECT_EQ(get("/v1/jobs/1/log", "rub_bo").body, get("/v1/jobs/1", "rub_bo").body);

  Raw kept(port_);
  kept.send(request("GET /v1/jobs/1/log?from=-10") + request("GET /v1/nodes"));
  ASSERT_TRUE(kept.read_text("\r\n0\r\n\r\n"));
  kept.text().erase(0, kept.text().find("\r\n0\r\n\r\n") + 7);
  EXPECT_EQ(status_of(kept.take_answer()), 200) << "the connection is kept";

  Raw old(port_);
  old.send(
      "GET /v1/jobs/1/log?from=-10 HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer "
      "rub_ada\r\n\r\n");
  EXPECT_TRUE(old.read_to_end());
  EXPECT_EQ(old.text().substr(old.text().find("\r\n\r\n") + 4), text.substr(text.size() - 10));
}

TEST_F(HttpServerTest, FollowsALogUntilTheJobEnds) {
  start();
  std::mutex mutex;
  std::string seen;
  const auto has = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    return seen == text;
  };
  Result<HttpReply> reply = HttpReply();
  std::thread reader([&] {
    HttpCall call;
    call.target = "/v1/jobs/1/log?follow=1";
    reply = client("rub_ada").stream(call, [&](std::string_view bytes) {
      const std::lock_guard lock(mutex);
      seen += bytes;
      return true;
    });
  });
  std::ofstream(directory_ / "log") << "one\n";
  EXPECT_TRUE(eventually([&] { return has("one\n"); }));
  std::ofstream(directory_ / "log", std::ios::app) << "two\n";
  EXPECT_TRUE(eventually([&] { return has("one\ntwo\n"); }));
  loop_.job_ended = true;
  reader.join();
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->status, 200);
  EXPECT_TRUE(has("one\ntwo\n"));
}

TEST_F(HttpServerTest, ATokenThatIsTakenAwayEndsTheReadingOfLogs) {
  std::ofstream(directory_ / "log") << "one\n";
  start();
  Raw waiting(port_);
  waiting.send(request("GET /v1/jobs/1/log?follow=1"));
  ASSERT_TRUE(waiting.read_text("one\n"));
  callers_.publish({});
  EXPECT_TRUE(waiting.read_to_end());
  EXPECT_EQ(waiting.text().find("0\r\n\r\n"), std::string::npos) << "broken off, not ended";
  EXPECT_TRUE(eventually([&] { return server_->counts().connections == 0; }));
}

TEST_F(HttpServerTest, NoticesThatAFollowerLeaves) {
  start();
  {
    Raw follower(port_);
    follower.send(request("GET /v1/jobs/1/log?follow=1"));
    ASSERT_TRUE(follower.read_text("chunked\r\n"));
  }
  EXPECT_TRUE(eventually([&] { return server_->counts().connections == 0; }));
}

// --- the client ---

TEST_F(HttpServerTest, TheClientSaysWhatIsWrong) {
  start();
  HttpCall call;
  call.target = "/v1/nodes";
  HttpEndpoint nowhere;
  nowhere.unix_path = directory_ / "none.sock";
  EXPECT_EQ(HttpClient(nowhere).send(call).error().message,
            fmt::format("no daemon listens at {}; start one with `rubato up`", nowhere.unix_path));
  loop_.hold(true);
  HttpEndpoint here;
  here.port = port_;
  here.token = "rub_ada";
  const auto late = HttpClient(here, {1s, 50ms}).send(call);
  EXPECT_NE(late.error().message.find("does not answer"), std::string::npos);
  loop_.hold(false);
  here.token = "rub_ada\r\nX: y";
  EXPECT_FALSE(HttpClient(here).send(call).ok());
}

TEST_F(HttpEventsTest, TheClientWatches) {
  start();
  feed_.publish(change("ada", 1, 1));
  HttpCall call;
  call.target = "/v1/events";
  call.headers = {{"Last-Event-ID", "e-0"}};
  std::vector<std::string> seen;
  const auto reply = client("rub_ada").watch(call, [&](const ServerEvent& event) {
    seen.push_back(event.id);
    if (seen.size() == 1) feed_.publish(change("ada", 2, 1));
    return seen.size() < 2;
  });
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(seen, (std::vector<std::string>{"e-1", "e-2"}));
  EXPECT_EQ(client("wrong").watch(call, [](const ServerEvent&) { return true; })->status, 401);
}

TEST(HttpClient, ReadsAddresses) {
  EXPECT_EQ(parse_endpoint("127.0.0.1:80")->port, 80);
  EXPECT_EQ(parse_endpoint("http://localhost:8080/")->host, "localhost");
  EXPECT_EQ(parse_endpoint("[::1]:8080")->host, "::1");
  EXPECT_EQ(parse_endpoint("[::1]:8080")->text(), "[::1]:8080");
  EXPECT_EQ(parse_endpoint("https://host")->port, 443);
  EXPECT_EQ(parse_endpoint("https://[::1]")->host, "::1");
  EXPECT_TRUE(parse_endpoint("https://host:8443")->tls);
  EXPECT_FALSE(parse_endpoint("http://host:8443")->tls);
  EXPECT_EQ(parse_endpoint("unix:a.sock")->unix_path, "a.sock");
  EXPECT_EQ(parse_endpoint("/run/a.sock")->unix_path, "/run/a.sock");
  for (const char* bad :
       {"", "localhost", ":80", "host:0", "host:65536", "host:8x", "::1:80", "https://"}) {
    EXPECT_FALSE(parse_endpoint(bad).ok()) << bad;
  }
  EXPECT_EQ(escape("a b/c%"), "a%20b%2Fc%25");
}

TEST(HttpClient, ReadsEventsHoweverTheyAreCut) {
  const std::string text =
      "id: 1\nevent: a\ndata: x\ndata: y\n\n: comment\n\nid: 2\r\ndata:z\r\n\r\n";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    EventReader reader;
    std::string seen;
    for (std::size_t at = 0; at < text.size(); at += size) {
      reader.take(std::string_view(text).substr(at, size), [&](const ServerEvent& event) {
        seen += event.id + "," + event.event + "," + event.data + ";";
        return true;
      });
    }
    EXPECT_EQ(seen, "1,a,x\ny;2,,z;") << size;
  }
}

}  // namespace
}  // namespace rubato::http
