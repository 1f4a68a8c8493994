// The routes of the daemon's HTTP API. Turns the head and the body of a request into a request to
// the daemon (request.h), or into an HTTP status and one sentence that say why it is refused. Pure,
// so that it can be fuzzed. server.h has the sockets and the clock.
//
// Strict: unknown parameters and fields, repeated headers, and bodies where none is expected are
// errors. A misspelt limit that is ignored would be worse than one that is refused.
//
// docs/openapi.yaml describes the same routes. tools/check_api compares the two.
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
#include "rubato/api/what_if.h"

namespace rubato::api {

// The limits of what is read.
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

// Tasks that the server carries out itself.
struct WatchEvents {
  std::string last_event_id;  // empty: from now on
};
struct ReadLog {
  JobRef job;
  std::int64_t from = 0;  // first byte; negative: so many bytes before the end
  bool follow = false;
};
struct ReadMetrics {};
struct ReadHealth {};
struct ReadPageFile {
  std::string path;  // "/", or "/assets/page-0f3a.js"
};
// Makes a one-time code for the page, for the caller.
struct MakePageCode {};
// Opens a page with such a code. Whoever has the code acts for the user who made it.
struct UsePageCode {
  std::string code;
};
// Says who the caller is.
struct ShowCaller {};

using HttpTask = std::variant<Ask, WhatIfAsk, WatchEvents, ReadLog, ReadMetrics, ReadHealth,
                              ReadPageFile, MakePageCode, UsePageCode, ShowCaller>;

struct Route;

// A request whose head was accepted: the route exists, and the caller may use it.
class RoutedRequest {
 public:
  [[nodiscard]] bool wants_body() const;
  // "GET /v1/jobs/{job}". There are few of them, so metrics can have them as labels.
  [[nodiscard]] std::string label() const;
  [[nodiscard]] std::variant<HttpTask, HttpRefusal> with_body(std::string_view body) const;

 private:
  friend std::variant<RoutedRequest, HttpRefusal> route(const HttpHead& head, const Caller& caller);
  const Route* route_ = nullptr;
  std::vector<std::string> parts_;                            // the values of the names in braces
  std::vector<std::pair<std::string, std::string>> queries_;  // decoded
  std::string content_type_;
  std::string key_;
  std::string last_event_id_;
};

[[nodiscard]] std::variant<RoutedRequest, HttpRefusal> route(const HttpHead& head,
                                                             const Caller& caller);

// --- the framing of a request: an error here ends the connection. Otherwise two programs that read
// the request differently could take a part of it for another request (request smuggling) ---

// Checks the bytes of a head, with the empty line at its end: no header may be folded over two
// lines.
[[nodiscard]] std::optional<HttpRefusal> check_raw_head(std::string_view head);
// Checks that at most one header gives the length of the body, in a known form. `version`: 10 or
// 11.
[[nodiscard]] std::optional<HttpRefusal> check_framing(const HttpHead& head, unsigned version);
// For "GET http://localhost/v1/jobs": the target becomes the path, and the host replaces the Host.
[[nodiscard]] std::optional<HttpRefusal> take_absolute_form(HttpHead& head);

// Everybody may ask this without a token. The answer says only that the daemon is alive.
[[nodiscard]] bool is_health(const HttpHead& head);
// Everybody may ask this without a token, too: the files of the page, which are the same for all,
// and the exchange of a one-time code.
[[nodiscard]] bool is_for_page(const HttpHead& head);

// Refuses requests that other web pages make through a browser on this machine. The Host must be
// one of `hosts` ("localhost"; any port, because ports may be forwarded). An Origin must be equal
// to `scheme` and the Host.
[[nodiscard]] std::optional<HttpRefusal> check_origin(const HttpHead& head,
                                                      const std::vector<std::string>& hosts,
                                                      std::string_view scheme = "http://");

// The token of "Authorization: Bearer TOKEN"; empty if there is none.
[[nodiscard]] std::variant<std::string, HttpRefusal> bearer_token(const HttpHead& head);

// The value of a header that may occur only once; nullopt if it is absent.
[[nodiscard]] std::variant<std::optional<std::string>, HttpRefusal> single_header(
    const HttpHead& head, std::string_view name);

// All routes, as "GET /v1/jobs/{job}".
[[nodiscard]] std::vector<std::string> api_routes();

// Letters, digits, '-', '_' and '.', beginning with a letter or '_'.
[[nodiscard]] bool valid_user_name(std::string_view name);

}  // namespace rubato::api
