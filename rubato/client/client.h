// The daemon, as the command line uses it: a request, and the answer. Each kind of failure has one
// exit code, so that scripts can tell them apart (docs/command-line.md).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/http/client.h"

namespace rubato::client {

// Scripts rely on these codes. They must not change.
enum class Exit : int {
  ok = 0,
  refused = 1,    // the job failed or was refused, or its state does not allow this
  bad_input = 2,  // options, the job file, a name
  not_found = 3,
  no_daemon = 4,  // no daemon, or it cannot answer now
  not_allowed = 5,
  timed_out = 6,  // the timeout came first
};

struct Said {
  Exit exit = Exit::ok;
  Json body;          // of an answer with any status
  std::string error;  // one sentence, safe to print; empty if ok

  [[nodiscard]] bool ok() const { return exit == Exit::ok; }
};

// The exit code for an HTTP status.
[[nodiscard]] Exit exit_of_status(int status);

class Client {
 public:
  using Pause = std::function<void(std::chrono::milliseconds)>;

  // `pause` waits between two attempts.
  Client(HttpClient http, Pause pause) : http_(std::move(http)), pause_(std::move(pause)) {}

  [[nodiscard]] Said ask(const HttpCall& call) const;
  [[nodiscard]] Said get(const std::string& target) const;
  [[nodiscard]] Said post(const std::string& target, const Json& body) const;

  // With a key, the daemon accepts a job only once, however often it is sent. So after a connection
  // was made, the submission is repeated if the connection is lost or if the daemon cannot answer
  // now.
  [[nodiscard]] Said submit(const Json& job, const std::string& key, bool dry_run) const;

  // Reads all pages, at most `most` jobs (0: no limit).
  struct Filter {
    std::string states;  // separated by commas; empty: all
    std::string user;
    int most = 0;
  };
  [[nodiscard]] Said list(const Filter& filter) const;

  // Waits until the job has ended. `changed` is called whenever the job's state has changed. If the
  // daemon is down, this waits for it, at most `patience` at a time. If `late` is given, the wait
  // ends when it returns true.
  [[nodiscard]] Said wait_for(const std::string& job,
                              const std::function<void(const Json&)>& changed,
                              std::chrono::milliseconds patience,
                              const std::function<bool()>& late = nullptr) const;

  struct LogWish {
    std::int64_t from = 0;  // first byte; negative: so many bytes before the end
    bool follow = false;
  };
  // When following, a lost connection is opened again at the byte where it broke.
  [[nodiscard]] Said log(const std::string& job, const LogWish& wish,
                         const std::function<bool(std::string_view)>& each) const;

  [[nodiscard]] const HttpClient& http() const { return http_; }

 private:
  [[nodiscard]] Said said(const Result<HttpReply>& reply) const;

  HttpClient http_;
  Pause pause_;
};

// "/v1/jobs/REF" followed by `rest`.
[[nodiscard]] std::string job_target(const std::string& job, std::string_view rest = "");

}  // namespace rubato::client
