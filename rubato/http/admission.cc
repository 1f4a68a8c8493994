#include "rubato/http/admission.h"

#include <fmt/format.h>
#include <string>
#include <utility>
#include <variant>

namespace rubato::http {
namespace {

// All callers who cannot be identified share one bucket. All health checks share another one, so
// that somebody who guesses tokens cannot hide from others that the daemon is alive. Browsers that
// load the page share a third. User names have no slash, so these names are free.
constexpr const char* kUnidentified = "/";
constexpr const char* kHealth = "/healthz";
constexpr const char* kPage = "/page";

}  // namespace

void Admission::forget() {
  caller_ = Caller();
  known_ = false;
}

std::optional<Admission::Refused> Admission::admit(const HttpHead& head, RateLimits::Time now) {
  const double few = options_.unidentified_per_second;
  if (is_health(head)) return check_rate(kHealth, few, few, now);
  // A page is a handful of files.
  if (is_for_page(head)) return check_rate(kPage, few, 10 * few, now);
  if (auto unknown = identify(head)) {
    auto too_often = check_rate(kUnidentified, few, few, now);
    return too_often ? too_often : Refused{std::move(*unknown)};
  }
  known_ = true;
  return check_rate(caller_.user, options_.requests_per_second, options_.burst, now);
}

std::optional<HttpRefusal> Admission::identify(const HttpHead& head) {
  auto given = bearer_token(head);
  if (auto* refused = std::get_if<HttpRefusal>(&given)) return std::move(*refused);
  const std::string& token = std::get<std::string>(given);
  token_.reset();
  if (token.empty() && peer_) {
    // Looked up for each request, because the user's role may have changed since they connected.
    caller_ = callers_.by_peer(*peer_);
    return std::nullopt;
  }
  if (token.empty()) {
    return HttpRefusal{401, "show who you are with the header \"Authorization: Bearer TOKEN\"", {}};
  }
  token_ = token_hash(token);
  const auto caller = callers_.by_hash(*token_);
  if (!caller) return HttpRefusal{401, "this token is not known; ask an admin for another", {}};
  caller_ = *caller;
  return std::nullopt;
}

std::optional<Admission::Refused> Admission::check_rate(const std::string& bucket, double rate,
                                                        double burst, RateLimits::Time now) {
  const double wait = rates_.take(bucket, rate, burst, now);
  if (wait <= 0) return std::nullopt;
  return Refused{
      {429, fmt::format("more than {} requests a second; slow down", rate), {}}, true, wait};
}

bool Admission::still_known() const {
  if (token_) return callers_.by_hash(*token_) == caller_;
  return peer_ && callers_.by_peer(*peer_) == caller_;
}

}  // namespace rubato::http
