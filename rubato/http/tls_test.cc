// The server and the client speak TLS to each other, over real sockets.
#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>

#include "rubato/http/client.h"
#include "rubato/http/server.h"
#include "rubato/http/testing_certificate.h"

namespace rubato::http {
namespace {

using namespace std::chrono_literals;

class SameAnswer : public Loop {
 public:
  void ask(Request request, std::function<void(Answer)> callback) override {
    callback({200, Json{{"user", request.caller.user}, {"text", std::string(300'000, 'x')}}});
  }
};

class TlsTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("rubato-tls-" + std::to_string(::getpid()) + "-" +
                  testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(directory_);
    options_.tls = {directory_ / "server.pem", directory_ / "server.key"};
    options_.complain = [this](const std::string& problem) {
      const std::lock_guard lock(mutex_);
      complaints_.push_back(problem);
    };
    callers_.publish({{{token_hash("rub_ada"), {"ada", false}}}, {}});
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }

  void write_certificate(const std::string& names = "DNS:localhost,IP:127.0.0.1",
                         long seconds = 3600) {
    authority_.write(options_.tls.certificate, options_.tls.key, names, seconds);
  }
  void start() {
    auto server = HttpServer::start(options_, loop_, callers_, feed_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  [[nodiscard]] HttpEndpoint endpoint() const {
    HttpEndpoint endpoint;
    const std::string& address = server_->address();
    endpoint.port = std::stoi(address.substr(address.rfind(':') + 1));
    endpoint.tls = true;
    endpoint.ca = authority_.pem();
    endpoint.token = "rub_ada";
    return endpoint;
  }
  static std::string trouble(const HttpEndpoint& endpoint) {
    const auto reply = HttpClient(endpoint).send({"GET", "/v1/policy", {}, {}});
    return reply ? "it works" : reply.error().message;
  }
  [[nodiscard]] std::vector<std::string> complaints() {
    const std::lock_guard lock(mutex_);
    return complaints_;
  }

  std::filesystem::path directory_;
  TestAuthority authority_;
  HttpServerOptions options_;
  SameAnswer loop_;
  Callers callers_;
  ChangeFeed feed_;
  std::unique_ptr<HttpServer> server_;
  std::mutex mutex_;
  std::vector<std::string> complaints_;
};

TEST_F(TlsTest, AnswersRequestsWithLargeBodies) {
  write_certificate("DNS:cluster.example.org,DNS:*.example.org,DNS:localhost,IP:127.0.0.1,IP:::1");
  start();
  EXPECT_TRUE(server_->address().starts_with("https://cluster.example.org:")) << server_->address();
  for (const char* host : {"localhost", "127.0.0.1"}) {
    HttpEndpoint where = endpoint();
    where.host = host;
    const auto reply = HttpClient(where).send({"GET", "/v1/policy", {}, {}});
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->status, 200);
    EXPECT_GT(reply->body.size(), 300'000U);
  }
  // Its body fills many records.
  const auto reply =
      HttpClient(endpoint())
          .send({"POST", "/v1/users", {}, R"({"name":")" + std::string(200'000, 'y') + "\"}"});
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->status, 403);
}

TEST_F(TlsTest, ListensBeyondLoopback) {
  write_certificate();
  options_.host = "0.0.0.0";
  start();
  EXPECT_EQ(trouble(endpoint()), "it works");
}

TEST_F(TlsTest, StreamsEvents) {
  write_certificate();
  start();
  std::thread publisher([&] {
    for (int i = 0; i < 2000 && server_->counts().watchers == 0; ++i)
      std::this_thread::sleep_for(5ms);
    feed_.publish({"", "policy", 0, Json{{"policy", "srtf"}}});
  });
  std::string event;
  const auto reply =
      HttpClient(endpoint()).watch({"GET", "/v1/events", {}, {}}, [&](const ServerEvent& one) {
        event = one.event;
        return false;
      });
  publisher.join();
  EXPECT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(event, "policy");
}

TEST_F(TlsTest, RefusesAnAuthorityThatIsNotTrusted) {
  write_certificate();
  start();
  HttpEndpoint where = endpoint();
  where.ca = TestAuthority().pem();
  EXPECT_NE(trouble(where).find("not signed by an authority that is trusted"), std::string::npos)
      << trouble(where);
  where.ca = "";
  EXPECT_NE(trouble(where).find("not signed by an authority that is trusted"), std::string::npos);
  where.ca = "nothing";
  EXPECT_NE(trouble(where).find("no certificate in PEM"), std::string::npos);
}

TEST_F(TlsTest, RefusesAnotherName) {
  write_certificate("DNS:other.example.org");
  start();
  EXPECT_NE(trouble(endpoint()).find("for another name"), std::string::npos) << trouble(endpoint());
  HttpEndpoint where = endpoint();
  where.host = "localhost";
  EXPECT_NE(trouble(where).find("for another name"), std::string::npos) << trouble(where);
}

TEST_F(TlsTest, RefusesAnExpiredCertificate) {
  write_certificate("IP:127.0.0.1", -60);
  start();
  EXPECT_NE(trouble(endpoint()).find("has expired"), std::string::npos) << trouble(endpoint());
}

TEST_F(TlsTest, SaysWhenOneSideDoesNotSpeakTls) {
  write_certificate();
  start();
  HttpEndpoint where = endpoint();
  where.tls = false;
  const auto reply = HttpClient(where).send({"GET", "/v1/policy", {}, {}});
  ASSERT_TRUE(reply) << reply.error().message;
  EXPECT_EQ(reply->status, 400);
  EXPECT_NE(reply->body.find("speaks TLS"), std::string::npos) << reply->body;
  server_.reset();
  options_.tls = {};
  start();
  EXPECT_NE(trouble(endpoint()).find("does not speak TLS"), std::string::npos)
      << trouble(endpoint());
}

TEST_F(TlsTest, ReadsANewCertificateAndKeepsTheOldOneIfThatFails) {
  write_certificate("IP:127.0.0.1", -60);
  start();
  EXPECT_NE(trouble(endpoint()), "it works");
  write_certificate();
  const auto works = [&] { return trouble(endpoint()) == "it works"; };
  for (int i = 0; i < 3000 && !works(); ++i) std::this_thread::sleep_for(20ms);
  EXPECT_TRUE(works());
  // The files of one certificate with the key of another, for a moment.
  const auto before = complaints().size();
  std::filesystem::rename(options_.tls.certificate, options_.tls.certificate + ".old");
  for (int i = 0; i < 3000 && complaints().size() == before; ++i) std::this_thread::sleep_for(20ms);
  ASSERT_EQ(complaints().size(), before + 1);
  EXPECT_NE(complaints().back().find("stays in force"), std::string::npos);
  EXPECT_TRUE(works());
}

TEST_F(TlsTest, RefusesFilesThatCannotBeUsed) {
  const auto refused = [&] {
    const auto server = HttpServer::start(options_, loop_, callers_, feed_);
    return server ? "" : server.error().message;
  };
  EXPECT_NE(refused().find("cannot read the key"), std::string::npos) << refused();
  write_certificate();
  std::filesystem::permissions(options_.tls.key, std::filesystem::perms(0644));
  EXPECT_NE(refused().find("every user of this machine can read"), std::string::npos);
  std::filesystem::permissions(options_.tls.key, std::filesystem::perms(0600));
  EXPECT_EQ(refused(), "");
  std::filesystem::copy_file(directory_ / "server.key", directory_ / "kept");
  write_certificate();
  std::filesystem::rename(directory_ / "kept", options_.tls.key);
  EXPECT_NE(refused().find("cannot use the key"), std::string::npos) << refused();
  options_.tls.key = "";
  EXPECT_NE(refused().find("both"), std::string::npos);
}

}  // namespace
}  // namespace rubato::http
