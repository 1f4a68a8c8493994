// Tests the client with the real HTTP server. Only the loop behind it belongs to the test. Pauses
// do not wait: a test uses them to let things happen between two attempts.
#include "rubato/client/client.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "rubato/http/server.h"
#include "rubato/wire/socket.h"

namespace rubato::client {
namespace {

using std::chrono::milliseconds;

// A daemon that knows only jobs, by number and by key.
class TinyLoop : public Loop {
 public:
  void ask(Request request, std::function<void(Answer)> callback) override {
    const std::lock_guard lock(mutex_);
    callback(std::visit([&](const auto& ask) { return answer(ask); }, request.ask));
  }

  std::atomic<int> busy = 0;  // this many submissions are answered with 503 first
  std::atomic<int> looks_until_end = 0;
  std::string last_state = "COMPLETED";
  std::filesystem::path log_directory;
  std::atomic<bool> log_ended = true;
  JobFile file;  // of the last submission
  GpuLimits limits;
  bool dry_run = false;
  int pages = 0;

  [[nodiscard]] std::size_t jobs() {
    const std::lock_guard lock(mutex_);
    return jobs_.size();
  }
  void add(int count) {
    for (int i = 0; i < count; ++i) jobs_.push_back("RUNNING");
  }

 private:
  [[nodiscard]] Json job(std::size_t id) const {
    return {{"id", id}, {"name", "x"}, {"state", jobs_[id - 1]}, {"gpus", 2}};
  }
  [[nodiscard]] std::optional<std::size_t> find(const JobRef& ref) const {
    const auto* id = std::get_if<JobId>(&ref);
    if (id == nullptr)
      return std::get<std::string>(ref) == "x/é" ? std::optional(jobs_.size()) : std::nullopt;
    if (id->value() < 1 || id->value() > jobs_.size()) return std::nullopt;
    return id->value();
  }
  static Answer missing() { return refusal(404, "there is no such job"); }

  Answer answer(const SubmitJob& ask) {
    if (busy > 0) {
      --busy;
      return refusal(503, "the disk is full");
    }
    file = ask.file;
    dry_run = ask.dry_run;
    const auto known = keys_.find(ask.key);
    if (known != keys_.end()) return {200, job(known->second)};
    const bool refused = ask.file.name == "refused";
    jobs_.push_back(refused ? "REFUSED" : "PENDING");
    keys_[ask.key] = jobs_.size();
    Json body = job(jobs_.size());
    body["verdict"] = {{"admitted", refused ? Json(false) : Json()}, {"text", "as it is"}};
    return {refused ? 409 : 201, body};
  }
  Answer answer(const ShowJob& ask) {
    const auto id = find(ask.job);
    if (!id) return missing();
    if (looks_until_end-- <= 0) jobs_[*id - 1] = last_state;
    return {200, job(*id)};
  }
  Answer answer(const ListJobs& ask) {
    ++pages;
    Json list = Json::array();
    std::size_t id = ask.after ? ask.after->value() : 0;
    while (id < jobs_.size() && list.size() < static_cast<std::size_t>(ask.limit))
      list.push_back(job(++id));
    return {200, {{"jobs", list}, {"next", id < jobs_.size() ? Json(id) : Json()}}};
  }
  Answer answer(const FindLog& ask) {
    const auto id = find(ask.job);
    if (!id) return missing();
    return {200, {{"id", *id}, {"directory", log_directory.string()}, {"ended", log_ended.load()}}};
  }
  Answer answer(const ResizeJob& ask) {
    limits = ask.limits;
    return {200, job(1)};
  }
  template <class Other>
  Answer answer(const Other& /*ask*/) {
    return {200, Json::object()};
  }

  std::mutex mutex_;
  std::vector<std::string> jobs_;
  std::map<std::string, std::size_t> keys_;
};

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "rubato-client-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    loop_.log_directory = directory_;
    Callers::Table table;
    table.tokens[token_hash("rub_ada")] = {"ada", false};
    callers_.publish(table);
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(directory_);
  }
  void start() {
    HttpServerOptions options;
    options.unix_path = directory_ / "api.sock";
    auto started = HttpServer::start(options, loop_, callers_, feed_);
    ASSERT_TRUE(started.ok()) << started.error().message;
    server_ = std::move(*started);
  }
  [[nodiscard]] Client client(std::function<void()> between = [] {}) {
    HttpEndpoint endpoint;
    endpoint.unix_path = directory_ / "api.sock";
    return Client(HttpClient(endpoint), [this, between = std::move(between)](milliseconds span) {
      paused_ += span;
      ++pauses_;
      between();
    });
  }
  [[nodiscard]] Client over_tcp(const std::string& token) {
    auto endpoint = parse_endpoint(server_->address());
    EXPECT_TRUE(endpoint.ok());
    endpoint->token = token;
    return Client(HttpClient(*endpoint), [](milliseconds) {});
  }
  static Json job(const std::string& name = "x") { return {{"command", {"true"}}, {"name", name}}; }

  std::filesystem::path directory_;
  TinyLoop loop_;
  Callers callers_;
  ChangeFeed feed_;
  std::unique_ptr<HttpServer> server_;
  int pauses_ = 0;
  milliseconds paused_{0};
};

TEST_F(ClientTest, WithoutADaemonThereIsNothingToTryAgain) {
  const Said said = client().submit(job(), "k", false);
  EXPECT_EQ(said.exit, Exit::no_daemon);
  EXPECT_NE(said.error.find("no daemon listens at"), std::string::npos) << said.error;
  EXPECT_EQ(pauses_, 0);
}

TEST_F(ClientTest, SubmitsOnceForEachKey) {
  start();
  const Said first = client().submit(job(), "key", false);
  ASSERT_TRUE(first.ok()) << first.error;
  EXPECT_EQ(first.body["id"], 1);
  EXPECT_EQ(client().submit(job(), "key", false).body["id"], 1);
  EXPECT_EQ(client().submit(job(), "other", false).body["id"], 2);
  EXPECT_EQ(loop_.jobs(), 2U);
  EXPECT_EQ(loop_.file.command, std::vector<std::string>{"true"});
  EXPECT_FALSE(loop_.dry_run);
  EXPECT_TRUE(client().submit(job(), "third", true).ok());
  EXPECT_TRUE(loop_.dry_run);
}

TEST_F(ClientTest, TriesAgainWhileTheDaemonCannotAnswer) {
  start();
  loop_.busy = 3;
  const Said said = client().submit(job(), "key", false);
  EXPECT_TRUE(said.ok()) << said.error;
  EXPECT_EQ(pauses_, 3);
  EXPECT_EQ(paused_, milliseconds(700));
  loop_.busy = 1000;
  const Said full = client().submit(job(), "another", false);
  EXPECT_EQ(full.exit, Exit::no_daemon);
  EXPECT_EQ(full.error, "the disk is full");
}

TEST_F(ClientTest, AConnectionThatIsLostIsTriedAgainWithTheSameKey) {
  // The stub reads the submission and closes the connection.
  const std::string path = directory_ / "api.sock";
  const wire::Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 4), 0);
  std::thread stub([&] {
    const wire::Fd peer(::accept(listener.get(), nullptr, nullptr));
    std::array<char, 4096> bytes{};
    EXPECT_GT(::recv(peer.get(), bytes.data(), bytes.size(), 0), 0);
    ::unlink(path.c_str());
  });
  const Said said = client([&] {
                      // Otherwise the second attempt could still be queued at the stub's socket.
                      if (stub.joinable()) stub.join();
                      if (pauses_ == 1) return;  // nobody listens at the second attempt
                      if (!server_) start();
                    }).submit(job(), "key", false);
  if (stub.joinable()) stub.join();
  EXPECT_TRUE(said.ok()) << said.error;
  EXPECT_EQ(loop_.jobs(), 1U);
  EXPECT_EQ(client().submit(job(), "key", false).body["id"], 1);
}

TEST_F(ClientTest, WhatIsNoDaemonIsNotTriedAgain) {
  const std::string path = directory_ / "api.sock";
  auto listener = wire::listen_on("unix:" + path);
  ASSERT_TRUE(listener.ok());
  ASSERT_EQ(::fcntl(listener->get(), F_SETFL, 0), 0);
  std::thread stub([&] {
    const wire::Fd peer(::accept(listener->get(), nullptr, nullptr));
    std::array<char, 4096> bytes{};
    EXPECT_GT(::recv(peer.get(), bytes.data(), bytes.size(), 0), 0);
    EXPECT_EQ(::send(peer.get(), "SSH-2.0-x\r\n", 11, MSG_NOSIGNAL), 11);
  });
  const Said said = client().submit(job(), "key", false);
  stub.join();
  EXPECT_EQ(said.exit, Exit::no_daemon);
  EXPECT_NE(said.error.find("is not what a daemon of Rubato sends"), std::string::npos)
      << said.error;
  EXPECT_EQ(pauses_, 0);
}

TEST_F(ClientTest, ARefusalIsAnAnswerWithItsVerdict) {
  start();
  const Said said = client().submit(job("refused"), "key", false);
  EXPECT_EQ(said.exit, Exit::refused);
  EXPECT_EQ(said.body["verdict"]["admitted"], false);
  EXPECT_EQ(pauses_, 0);
}

TEST_F(ClientTest, ExitCodesAreStable) {
  start();
  loop_.add(1);
  EXPECT_EQ(client().get("/v1/jobs/1").exit, Exit::ok);
  EXPECT_EQ(client().get("/v1/jobs/99").exit, Exit::not_found);
  EXPECT_EQ(client().get("/v1/jobs/99").error, "there is no such job");
  EXPECT_EQ(client().get("/v1/jobs?limit=x").exit, Exit::bad_input);
  EXPECT_EQ(client().submit({{"command", "text"}}, "k", false).exit, Exit::bad_input);
  EXPECT_EQ(over_tcp("").get("/v1/jobs").exit, Exit::not_allowed);
  EXPECT_EQ(over_tcp("rub_wrong").get("/v1/jobs").exit, Exit::not_allowed);
  EXPECT_EQ(over_tcp("rub_ada").get("/v1/jobs").exit, Exit::ok);
  EXPECT_EQ(over_tcp("rub_ada").post("/v1/nodes/0", {{"state", "drain"}}).exit, Exit::not_allowed);
  const std::pair<int, Exit> statuses[] = {
      {201, Exit::ok},          {400, Exit::bad_input}, {401, Exit::not_allowed},
      {403, Exit::not_allowed}, {404, Exit::not_found}, {409, Exit::refused},
      {413, Exit::bad_input},   {422, Exit::bad_input}, {429, Exit::no_daemon},
      {500, Exit::no_daemon},   {503, Exit::no_daemon}};
  for (const auto& [status, code] : statuses) EXPECT_EQ(exit_of_status(status), code) << status;
}

TEST_F(ClientTest, NamesAreEscaped) {
  start();
  loop_.add(3);
  EXPECT_EQ(client().get(job_target("x/é")).body["id"], 3);
  EXPECT_EQ(client().get(job_target("x y")).exit, Exit::not_found);
  EXPECT_TRUE(client().post(job_target("1", "/resize"), {{"min", 1}, {"max", 4}}).ok());
  EXPECT_EQ(loop_.limits.max, 4);
}

TEST_F(ClientTest, ListsAllPages) {
  start();
  loop_.add(1203);
  const Said said = client().list({});
  ASSERT_TRUE(said.ok()) << said.error;
  EXPECT_EQ(said.body["jobs"].size(), 1203U);
  EXPECT_EQ(said.body["jobs"].back()["id"], 1203);
  EXPECT_EQ(loop_.pages, 3);
  const Said some = client().list({"running", "ada", 700});
  EXPECT_EQ(some.exit, Exit::bad_input) << "states are in capitals";
  EXPECT_EQ(client().list({"RUNNING", "ada", 700}).body["jobs"].size(), 700U);
}

TEST_F(ClientTest, WaitsForTheEnd) {
  start();
  loop_.add(1);
  loop_.looks_until_end = 3;
  std::vector<std::string> states;
  const auto note = [&](const Json& one) { states.push_back(one["state"]); };
  EXPECT_TRUE(client().wait_for("1", note, milliseconds(1000)).ok());
  EXPECT_EQ(states, (std::vector<std::string>{"RUNNING", "COMPLETED"}));
  loop_.last_state = "FAILED";
  loop_.looks_until_end = 0;
  const Said failed = client().wait_for("1", note, milliseconds(1000));
  EXPECT_EQ(failed.exit, Exit::refused);
  EXPECT_EQ(failed.error, "job 1: FAILED");
  EXPECT_EQ(client().wait_for("9", note, milliseconds(1000)).exit, Exit::not_found);
}

TEST_F(ClientTest, WaitsUntilItIsTooLate) {
  start();
  loop_.add(1);
  loop_.looks_until_end = 1000;
  int looks = 0;
  const auto ignore = [](const Json&) {};
  const Said late =
      client().wait_for("1", ignore, milliseconds(1000), [&] { return ++looks == 3; });
  EXPECT_EQ(late.exit, Exit::timed_out);
  EXPECT_EQ(late.error, "job 1: has not ended in time");
  EXPECT_EQ(looks, 3);
  loop_.looks_until_end = 0;
  EXPECT_TRUE(client().wait_for("1", ignore, milliseconds(1000), [] { return true; }).ok())
      << "one that has ended is never late";
}

TEST_F(ClientTest, WaitsForADaemonThatIsAwayButNotForEver) {
  start();
  loop_.add(1);
  loop_.looks_until_end = 1;
  const Said said = client([&] {
                      if (server_) {
                        server_.reset();
                      } else {
                        start();
                      }
                    })
                        .wait_for(
                            "1", [](const Json&) {}, milliseconds(5000));
  EXPECT_TRUE(said.ok()) << said.error;
  server_.reset();
  pauses_ = 0;
  EXPECT_EQ(client()
                .wait_for(
                    "1", [](const Json&) {}, milliseconds(2000))
                .exit,
            Exit::no_daemon);
  EXPECT_EQ(pauses_, 4);
}

TEST_F(ClientTest, ReadsAndFollowsLogs) {
  start();
  loop_.add(1);
  std::ofstream(directory_ / "log") << "one\ntwo\n";
  std::string text;
  const auto keep = [&](std::string_view bytes) {
    text += bytes;
    return true;
  };
  EXPECT_TRUE(client().log("1", {}, keep).ok());
  EXPECT_EQ(text, "one\ntwo\n");
  text.clear();
  EXPECT_TRUE(client().log("1", {-4, false}, keep).ok());
  EXPECT_EQ(text, "two\n");
  text.clear();
  EXPECT_TRUE(client().log("1", {4, true}, keep).ok());
  EXPECT_EQ(text, "two\n");
  EXPECT_EQ(client().log("7", {}, keep).exit, Exit::not_found);
}

TEST_F(ClientTest, FollowingGoesOnWhereTheConnectionBroke) {
  start();
  loop_.add(1);
  loop_.log_ended = false;
  std::ofstream(directory_ / "log") << "one\n";
  std::string text;
  std::thread killer;
  const Said said = client([&] {
                      if (killer.joinable()) killer.join();
                      if (server_) return;
                      std::ofstream(directory_ / "log", std::ios::app) << "two\n";
                      loop_.log_ended = true;
                      start();
                    }).log("1", {0, true}, [&](std::string_view bytes) {
    text += bytes;
    // Not on this thread, because it is inside the stream that will be cut.
    if (text == "one\n") killer = std::thread([&] { server_.reset(); });
    return true;
  });
  if (killer.joinable()) killer.join();
  EXPECT_TRUE(said.ok()) << said.error;
  EXPECT_EQ(text, "one\ntwo\n");
}

}  // namespace
}  // namespace rubato::client
