// The daemon's HTTP API without any HTTP: from the head and the body of a request to what it asks
// of the daemon, or to the one sentence and the status that say why not. Pure, so that it can be
// fuzzed; sockets and time are server.h's.
//
// Strict: unknown parameters and fields, repeated headers, bodies where none belongs are errors,
// because a misspelt limit that is ignored is worse than one that is refused.
//
// docs/openapi.yaml describes the same routes; tools/check_api compares the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/api/request.h"

namespace rubato::api {

// Sizes beyond which nothing is read.
inline constexpr std::size_t kLargestHttpHead = std::size_t{16} << 10U;
inline constexpr std::size_t kLargestHttpBody = std::size_t{1} << 20U;
inline constexpr int kDeepestHttpBody = 16;
inline constexpr int kLongestList = 1000;

struct HttpHead {
  std::string verb;
  std::string target;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
};

struct HttpRefusal {
  int status = 400;
  std::string sentence;
  std::string allow;  // for 405
};

// What the server does itself, with a Request's help or without.
struct WatchEvents {
  std::string last_event_id;  // empty: from now on
};
struct ReadLog {
  JobRef job;
  std::int64_t from = 0;  // a byte of the file; negative = so many before its end
  bool follow = false;
};
struct ReadMetrics {};
struct ReadHealth {};

using HttpTask = std::variant<Ask, WatchEvents, ReadLog, ReadMetrics, ReadHealth>;

struct Route;

// A request whose head is good: there is such a route, and the caller may take it.
class RoutedRequest {
 public:
  [[nodiscard]] bool wants_body() const;
  // "GET /v1/jobs/{job}": few, so it can label a metric.
  [[nodiscard]] std::string label() const;
  [[nodiscard]] std::variant<HttpTask, HttpRefusal> with_body(std::string_view body) const;

 private:
  friend std::variant<RoutedRequest, HttpRefusal> route(const HttpHead& head, const Caller& caller);
  const Route* route_ = nullptr;
  std::vector<std::string> parts_;                            // what stands for the names in braces
  std::vector<std::pair<std::string, std::string>> queries_;  // decoded
  std::string content_type_;
  std::string key_;
  std::string last_event_id_;
};

[[nodiscard]] std::variant<RoutedRequest, HttpRefusal> route(const HttpHead& head,
                                                             const Caller& caller);

// --- how a request is framed: what is wrong here ends its connection, because two who read it
// differently could take a part of it for another request ---

// The bytes of a head, with the empty line at its end: no line may go on in the next one.
[[nodiscard]] std::optional<HttpRefusal> check_raw_head(std::string_view head);
// At most one header says how long the body is, and in a way that is known. `version`: 10 or 11.
[[nodiscard]] std::optional<HttpRefusal> check_framing(const HttpHead& head, unsigned version);
// "GET http://localhost/v1/jobs": the target becomes its path, and its host counts as the Host.
[[nodiscard]] std::optional<HttpRefusal> take_absolute_form(HttpHead& head);

// Open to everybody, whoever they are: it says nothing but that the daemon lives.
[[nodiscard]] bool is_health(const HttpHead& head);

// Against pages in a browser that reach for what listens on this machine: the Host must be one of
// `hosts` ("localhost"; with any port, as ports may be forwarded), and an Origin must be that Host.
[[nodiscard]] std::optional<HttpRefusal> check_origin(const HttpHead& head,
                                                      const std::vector<std::string>& hosts);

// The token of "Authorization: Bearer TOKEN"; empty if there is none.
[[nodiscard]] std::variant<std::string, HttpRefusal> bearer_token(const HttpHead& head);

// The value of a header that may stand once; nullopt where it is absent.
[[nodiscard]] std::variant<std::optional<std::string>, HttpRefusal> single_header(
    const HttpHead& head, std::string_view name);

// All routes, as "GET /v1/jobs/{job}".
[[nodiscard]] std::vector<std::string> api_routes();

// Letters, digits, '-', '_' and '.', beginning with a letter or '_'.
[[nodiscard]] bool valid_user_name(std::string_view name);

}  // namespace rubato::api
