// A job that is described on a command line. Flags replace fields of a job file, or add to them
// (env, secrets). The result is then read like any job file, so the same rules and error sentences
// apply.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"

namespace rubato::jobfile {

struct JobFlags {
  std::vector<std::string> command;
  // The values of each flag in job_fields.h: "--env" -> {"A=1", "B=2"}. A flag without a value has
  // one empty text.
  std::map<std::string, std::vector<std::string>, std::less<>> given;
};

// `file` is null if there is none.
[[nodiscard]] Result<Json> with_flags(Json file, const JobFlags& flags);

// Reads "4" (exactly), "1:8" (from, to), "2:" (at least) or "1,2,4,8" (one of these). The result is
// the field gpus of a job file.
[[nodiscard]] Result<Json> parse_gpus(std::string_view text);

}  // namespace rubato::jobfile
