#include "cmd/report_page.h"

#include <string_view>

#include "cmd/pages.h"
#include "rubato/base/check.h"

namespace rubato::cmd {

namespace {

std::string filled(std::string_view page, const Json& data) {
  constexpr std::string_view kMarker = "@@RUBATO_REPORT_DATA@@";
  const auto at = page.find(kMarker);
  CHECK(at != std::string_view::npos);
  const std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string html(page.substr(0, at));
  html.reserve(page.size() + text.size() + text.size() / 50);
  for (const char ch : text) {  // so that no text of a trace can close the script element
    ch == '<' ? html += "\\u003c" : html += ch;
  }
  html += page.substr(at + kMarker.size());
  return html;
}

}  // namespace

std::string report_page(const Json& data) { return filled(report_template(), data); }
std::string study_page(const Json& data) { return filled(study_template(), data); }

}  // namespace rubato::cmd
