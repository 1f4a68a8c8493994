// A job said on a command line instead of in a file. Flags stand in the place of the file's fields,
// or beside them (env, secrets); the whole is then read as any file is, so there is one set of
// rules and one set of sentences.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"

namespace rubato::jobfile {

struct JobFlags {
  std::vector<std::string> command;
  std::string name;
  std::string profile;
  std::string directory;
  std::string deadline;     // as in the file; "none" takes the file's away
  std::string work;         // "epochs=3"
  std::string gpus;         // see parse_gpus()
  bool no_elastic = false;  // elastic: false
  std::string batch;        // "adaptive", "adaptive:64", "adaptive:64:4096"
  std::string learning_rate;
  std::vector<std::string> env;      // "NAME=value"
  std::vector<std::string> secrets;  // "NAME=/path"
  std::string weight;
  std::string max_failures;
  std::string notice;
  std::string cooldown;
  std::string stop_after;
};

// `file` is null where there is none.
[[nodiscard]] Result<Json> with_flags(Json file, const JobFlags& flags);

// "4": these, no more and no fewer; "1:8": from, to; "2:": at least; "1,2,4,8": one of them. As the
// field gpus of a job file.
[[nodiscard]] Result<Json> parse_gpus(std::string_view text);

}  // namespace rubato::jobfile
