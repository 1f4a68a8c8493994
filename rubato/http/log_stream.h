// One reader of a job's log: which bytes to send next. It reads the file and does no other I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "rubato/api/request.h"
#include "rubato/base/result.h"
#include "rubato/http/log_file.h"

namespace rubato::http {

class LogStream {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Options {
    bool follow = false;   // continue until the job has ended
    bool chunked = false;  // the encoding of the answer
    bool ended = false;    // whether the job has ended
  };
  // Begins at the position of the file. If the log is not followed, it ends where the log ends now.
  LogStream(JobRef job, LogFile file, Options options)
      : job_(std::move(job)),
        file_(std::move(file)),
        options_(options),
        left_(file_.size() - file_.position()) {}

  struct Piece {
    std::string text;
    bool last = false;
  };
  // The next piece, after the bytes of `before`. nullopt: there is nothing until the log grows. An
  // error: the file cannot be read.
  [[nodiscard]] Result<std::optional<Piece>> next(std::string before);
  // Whether next() found nothing.
  [[nodiscard]] bool waiting() const { return waiting_; }

  // Whether it is time to ask if the job has ended. If so, the next time is a second later.
  [[nodiscard]] bool ask_now(Time now);
  void job_has_ended() { options_.ended = true; }
  [[nodiscard]] const JobRef& job() const { return job_; }

 private:
  [[nodiscard]] Result<std::string> read();

  JobRef job_;
  LogFile file_;
  Options options_;
  std::int64_t left_;  // bytes left, if it is not followed
  bool waiting_ = false;
  Time asked_{};
};

}  // namespace rubato::http
