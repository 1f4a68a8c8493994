// The report page, which the program carries (page.S), with its data.
#pragma once

#include <string>

#include "rubato/base/json.h"

namespace rubato::cmd {

[[nodiscard]] std::string report_page(const Json& data);

}  // namespace rubato::cmd
