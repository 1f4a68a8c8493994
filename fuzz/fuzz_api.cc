// Takes any bytes as an HTTP request: "VERB TARGET", headers, an empty line, the body. The result
// must be a request to the daemon, or a refusal with a status and one line of text. A second time
// it must be the same.
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "rubato/api/routes.h"
#include "rubato/base/check.h"
#include "rubato/base/json.h"

namespace {

using namespace rubato::fuzz;

std::string_view take_line(std::string_view& rest) {
  const auto end = std::min(rest.find('\n'), rest.size());
  const auto line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

HttpHead read_head(std::string_view& rest) {
  HttpHead head;
  const auto first = take_line(rest);
  const auto space = std::min(first.find(' '), first.size());
  head.verb = first.substr(0, space);
  head.target = first.substr(std::min(space + 1, first.size()));
  while (!rest.empty()) {
    const auto line = take_line(rest);
    if (line.empty()) break;
    const auto colon = std::min(line.find(':'), line.size());
    std::string name(line.substr(0, colon));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    head.headers.emplace_back(name, line.substr(std::min(colon + 1, line.size())));
  }
  return head;
}

void check_refusal(const HttpRefusal& refusal) {
  CHECK(refusal.status >= 400 && refusal.status < 500);
  CHECK(!refusal.sentence.empty() && refusal.sentence.size() < 4000);
  CHECK(std::none_of(refusal.sentence.begin(), refusal.sentence.end(),
                     [](unsigned char c) { return c < 0x20 || c == 0x7F; }));
  CHECK((refusal.status == 405) == !refusal.allow.empty());
}

void check(const HttpHead& head, std::string_view body, const Caller& caller) {
  const auto routed = route(head, caller);
  if (const auto* refused = std::get_if<HttpRefusal>(&routed)) return check_refusal(*refused);
  const auto task = std::get<RoutedRequest>(routed).with_body(body);
  if (const auto* refused = std::get_if<HttpRefusal>(&task)) return check_refusal(*refused);
  if (const auto* ask = std::get_if<Ask>(&std::get<HttpTask>(task))) {
    CHECK(caller.admin || !needs_admin(*ask));
    if (const auto* submit = std::get_if<SubmitJob>(ask)) {
      // An accepted job can be written as text, and reads back as the same job.
      const auto text = canonical_json(to_json(submit->file));
      CHECK(text.ok());
      const auto again = read_job(*parse_json(*text, "again"), "again");
      CHECK(again.ok() && canonical_json(to_json(*again)).value() == *text);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (const auto refused = check_raw_head(rest)) check_refusal(*refused);
  HttpHead head = read_head(rest);
  if (const auto refused = check_framing(head, 11)) check_refusal(*refused);
  if (const auto refused = take_absolute_form(head)) check_refusal(*refused);
  if (const auto refused = check_origin(head, {"localhost", "[::1]"})) check_refusal(*refused);
  const auto token = bearer_token(head);
  if (const auto* refused = std::get_if<HttpRefusal>(&token)) check_refusal(*refused);
  check(head, rest, {"ada", false});
  check(head, rest, {"root", true});
  return 0;
}
