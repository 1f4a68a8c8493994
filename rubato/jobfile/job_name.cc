#include "rubato/jobfile/job_name.h"

#include <algorithm>

#include "rubato/base/unicode.h"

namespace rubato::jobfile {
namespace {

bool fits_a_name(char32_t c) { return visible(c) && c != ' ' && c != '/' && c != 0xA0; }

}  // namespace

bool has_name_characters(std::string_view name) {
  if (!is_utf8(name) || name.size() > kLongestName || name == "." || name == "..") return false;
  while (!name.empty()) {
    const CodePoint c = *first_code_point(name);
    if (!fits_a_name(c.value)) return false;
    name.remove_prefix(c.bytes);
  }
  return true;
}

bool is_number(std::string_view name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string name_after(std::string_view program) {
  std::string name;
  for (std::string_view rest = program.substr(program.find_last_of('/') + 1); !rest.empty();) {
    const auto c = first_code_point(rest);
    const std::string_view bytes = rest.substr(0, c ? c->bytes : 1);
    const std::string_view part = c && fits_a_name(c->value) ? bytes : "_";
    if (name.size() + part.size() > kLongestName) break;
    name += part;
    rest.remove_prefix(bytes.size());
  }
  if (name.empty() || name == "." || name == "..") return "job";
  return is_number(name) ? "job-" + name.substr(0, kLongestName - 4) : name;
}

}  // namespace rubato::jobfile
