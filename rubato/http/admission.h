// Decides who sends a request, and whether they may send one now. One object per connection. No
// I/O. The clock is an input.
#pragma once

#include <optional>
#include <sys/types.h>
#include <utility>

#include "rubato/api/routes.h"
#include "rubato/http/callers.h"
#include "rubato/http/limits.h"
#include "rubato/http/server.h"

namespace rubato::http {

class Admission {
 public:
  // `peer` is the user at the other end of a unix socket.
  Admission(const HttpServerOptions& options, const Callers& callers, RateLimits& rates,
            std::optional<uid_t> peer)
      : options_(options), callers_(callers), rates_(rates), peer_(peer) {}

  struct Refused {
    HttpRefusal refusal;
    bool too_often = false;
    double retry_after = 1;  // seconds
  };
  // Begins a new request. Its sender is unknown until admit() has identified them.
  void forget();
  // Identifies the caller. The caller may be refused nevertheless; see known().
  [[nodiscard]] std::optional<Refused> admit(const HttpHead& head, RateLimits::Time now);

  // Whether the sender of this request is known.
  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] const Caller& caller() const { return caller_; }
  // The token of this request, if it has one.
  [[nodiscard]] const std::optional<Digest>& token() const { return token_; }
  // The request acts for this user, who has given a one-time code.
  void act_for(Caller caller) { caller_ = std::move(caller); }
  // Whether the caller still exists and has the same role, for streams that stay open.
  [[nodiscard]] bool still_known() const;

 private:
  [[nodiscard]] std::optional<HttpRefusal> identify(const HttpHead& head);
  [[nodiscard]] std::optional<Refused> check_rate(const std::string& bucket, double rate,
                                                  double burst, RateLimits::Time now);

  const HttpServerOptions& options_;
  const Callers& callers_;
  RateLimits& rates_;
  const std::optional<uid_t> peer_;
  Caller caller_;
  std::optional<Digest> token_;
  bool known_ = false;
};

}  // namespace rubato::http
