// The daemon as the command line knows it: a question, and what it said. Every way in which that
// can go wrong has one exit code, so that scripts can tell them apart (docs/live.md).
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

// Stable: scripts rely on them.
enum class Exit : int {
  ok = 0,
  refused = 1,    // the job failed or was refused, or its state does not allow this
  bad_input = 2,  // flags, the job file, a name
  not_found = 3,
  no_daemon = 4,  // none there, or none that can answer now
  not_allowed = 5,
  timed_out = 6,  // what was waited for has not happened in time
};

struct Said {
  Exit exit = Exit::ok;
  Json body;          // of an answer, whatever its status
  std::string error;  // one sentence, safe to print, unless ok

  [[nodiscard]] bool ok() const { return exit == Exit::ok; }
};

// The exit code for a status of HTTP.
[[nodiscard]] Exit exit_of_status(int status);

class Client {
 public:
  using Pause = std::function<void(std::chrono::milliseconds)>;

  // `pause` waits between two attempts.
  Client(HttpClient http, Pause pause) : http_(std::move(http)), pause_(std::move(pause)) {}

  [[nodiscard]] Said ask(const HttpCall& call) const;
  [[nodiscard]] Said get(const std::string& target) const;
  [[nodiscard]] Said post(const std::string& target, const Json& body) const;

  // With a key the daemon accepts a job once, however often it is sent. So once a connection has
  // been made, the submission is tried again after a lost connection and when the daemon cannot
  // answer now.
  [[nodiscard]] Said submit(const Json& job, const std::string& key, bool dry_run) const;

  // All pages of them, `most` at most (0: no limit).
  struct Filter {
    std::string states;  // with commas between; empty: all
    std::string user;
    int most = 0;
  };
  [[nodiscard]] Said list(const Filter& filter) const;

  // Waits until the job has ended; `changed` sees it whenever its state is another. A daemon that
  // is away is waited for, up to `patience` in a row. With `late`, until that says so.
  [[nodiscard]] Said wait_for(const std::string& job,
                              const std::function<void(const Json&)>& changed,
                              std::chrono::milliseconds patience,
                              const std::function<bool()>& late = nullptr) const;

  struct LogWish {
    std::int64_t from = 0;  // a byte; negative: so many before the end
    bool follow = false;
  };
  // While following, a lost connection is taken up again where it broke.
  [[nodiscard]] Said log(const std::string& job, const LogWish& wish,
                         const std::function<bool(std::string_view)>& each) const;

  [[nodiscard]] const HttpClient& http() const { return http_; }

 private:
  [[nodiscard]] Said said(const Result<HttpReply>& reply) const;

  HttpClient http_;
  Pause pause_;
};

// "/v1/jobs/REF" and what follows.
[[nodiscard]] std::string job_target(const std::string& job, std::string_view rest = "");

}  // namespace rubato::client
