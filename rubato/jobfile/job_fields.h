// The fields of a job file: one row each. Everything that must know a field takes it from its row:
//
//   the reader and the writer of job files (job_file.h)
//   the flags of `rubato submit` with their help (job_flags.h)
//   what the scheduler is told about the job (tell_scheduler)
//   the fields that answers about a job repeat (daemon/views.cc)
//   the tables in docs/job-file.md and the schema in docs/openapi.yaml, which test_jobfile writes
//
// To add a field: a member of JobFile (job_file.h), a row in job_fields.cc, and the code that uses
// it. Then write the pages again: RUBATO_WRITE_DOCS=1 build/test_jobfile, and
// tools/check_reference build/rubato --write
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "rubato/base/json.h"
#include "rubato/base/json_reader.h"
#include "rubato/core/job.h"
#include "rubato/jobfile/job_file.h"

namespace rubato::jobfile {

// The flag of `rubato submit` that gives a field.
struct JobFlag {
  enum class Kind : std::uint8_t {
    none,
    one,   // --weight 2
    many,  // --env A=1 --env B=2
    off,   // --no-elastic: the field is false
  };

  Kind kind = Kind::none;
  std::string_view name{};   // "--weight"
  std::string_view value{};  // what the help shows for its value: "NUMBER"
  std::string_view help{};
  // Its cell in the table of flags. Empty: it needs no explanation.
  std::string_view docs{};
  // Puts the value into the JSON of a job. nullptr: the field is the text of the value.
  Result<void> (*put)(Json& job, const std::string& value) = nullptr;
};

struct JobField {
  std::string_view name;
  std::string_view docs;     // its lines in the table of fields: name, type, default, meaning
  std::string_view schema;   // its value in the schema, in YAML
  std::string_view example;  // a value other than the default, in JSON
  JobFlag flag;

  // Reads the field if it is there. Values may be text, because YAML has no numbers.
  void (*read)(JsonFields& fields, std::string_view name, JobFile& job) = nullptr;
  // null: the field is left out.
  Json (*write)(const JobFile& job) = nullptr;
  // What a policy sees of it; nullptr: nothing.
  void (*tell)(const JobFile& job, JobSpec& spec) = nullptr;
  // Whether answers about a job have the field, as the file has it (null: the file does not have
  // it).
  bool shown = false;
};

// In the order in which files are written and fields are documented.
[[nodiscard]] std::span<const JobField> job_fields();

}  // namespace rubato::jobfile
