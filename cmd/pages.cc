#include "cmd/pages.h"

#include <fmt/format.h>
#include <string>

#include "rubato/base/text.h"
#include "rubato/journal/digest.h"

// NOLINTBEGIN(readability-identifier-naming): in pages.S
extern "C" const char rubato_report[];
extern "C" const char rubato_report_end[];
extern "C" const char rubato_study[];
extern "C" const char rubato_study_end[];
extern "C" const char rubato_page[];
extern "C" const char rubato_page_end[];
extern "C" const char rubato_page_script[];
extern "C" const char rubato_page_script_end[];
extern "C" const char rubato_page_style[];
extern "C" const char rubato_page_style_end[];
extern "C" const char rubato_page_worker[];
extern "C" const char rubato_page_worker_end[];
// NOLINTEND(readability-identifier-naming)

namespace rubato::cmd {
namespace {

std::string_view bytes(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

// build.mjs gives the same name: "page-0f3a5b6c7d8e.js".
PageFile asset(const char* stem, const char* extension, const char* type, std::string_view bytes) {
  constexpr std::size_t kDigits = 12;
  const std::string digits = hex(Digester().add(bytes).finish()).substr(0, kDigits);
  return {fmt::format("/assets/{}-{}.{}", stem, digits, extension), type, bytes};
}

}  // namespace

std::string_view report_template() { return bytes(rubato_report, rubato_report_end); }

std::string_view study_template() { return bytes(rubato_study, rubato_study_end); }

std::vector<PageFile> daemon_page() {
  constexpr const char* kScript = "text/javascript; charset=utf-8";
  return {
      {"/", "text/html; charset=utf-8", bytes(rubato_page, rubato_page_end)},
      asset("page", "js", kScript, bytes(rubato_page_script, rubato_page_script_end)),
      asset("page", "css", "text/css; charset=utf-8",
            bytes(rubato_page_style, rubato_page_style_end)),
      asset("worker", "js", kScript, bytes(rubato_page_worker, rubato_page_worker_end)),
  };
}

}  // namespace rubato::cmd
