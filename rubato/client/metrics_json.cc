#include "rubato/client/metrics_json.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "rubato/base/text.h"

namespace rubato::client {
namespace {

// Parses name="value",... with \\, \" and \n in values. Stops at the first text that does not fit.
Json labels_of(std::string_view text) {
  Json labels = Json::object();
  while (!text.empty()) {
    const auto quote = text.find("=\"");
    if (quote == std::string_view::npos) break;
    const std::string name(trim(text.substr(0, quote)));
    std::string value;
    std::size_t at = quote + 2;
    for (; at < text.size() && text[at] != '"'; ++at) {
      const bool escaped = text[at] == '\\' && at + 1 < text.size();
      if (escaped) ++at;
      value += escaped && text[at] == 'n' ? '\n' : text[at];
    }
    labels[name] = value;
    text.remove_prefix(std::min(at + 1, text.size()));
    if (text.starts_with(',')) text.remove_prefix(1);
  }
  return labels;
}

}  // namespace

Json metrics_json(std::string_view text) {
  Json all = Json::array();
  for (const std::string_view line : split(text, '\n')) {
    const auto space = line.rfind(' ');
    if (line.starts_with('#') || space == std::string_view::npos) continue;
    const std::string_view series = line.substr(0, space);
    const auto brace = series.find('{');
    const auto value = parse_double(line.substr(space + 1));
    Json one = {{"name", std::string(series.substr(0, brace))}};
    one["labels"] = brace == std::string_view::npos || !series.ends_with('}')
                        ? Json::object()
                        : labels_of(series.substr(brace + 1, series.size() - brace - 2));
    one["value"] = value && std::isfinite(*value) ? Json(*value) : Json();
    all.push_back(std::move(one));
  }
  return {{"metrics", std::move(all)}};
}

}  // namespace rubato::client
