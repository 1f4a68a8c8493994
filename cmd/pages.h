// The web pages that the program carries: the report of the simulator, the page about
// what was learned, and the page of the daemon.
#pragma once

#include <string_view>
#include <vector>

#include "rubato/http/page_file.h"

namespace rubato::cmd {

// Without its data (report_page.h).
[[nodiscard]] std::string_view report_template();
[[nodiscard]] std::string_view study_template();
[[nodiscard]] std::vector<PageFile> daemon_page();

}  // namespace rubato::cmd
