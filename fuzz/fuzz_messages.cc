// Takes any bytes as a message of a worker, a launcher, a share, a master or an agent, or as one of
// their files. The result must be one line of error, or a value that is written and read back as
// the same text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rubato/base/check.h"
#include "rubato/engine/state_identity.h"
#include "rubato/launch/master_messages.h"
#include "rubato/launch/roster.h"
#include "rubato/launch/share_messages.h"
#include "rubato/node/agent_messages.h"
#include "rubato/wire/job_key.h"
#include "rubato/wire/launch.h"
#include "rubato/wire/worker_messages.h"

namespace {

using rubato::base::Json;
using rubato::base::Result;

void check_sentence(const std::string& message) {
  CHECK(!message.empty() && message.size() < 2000);
  CHECK(std::all_of(message.begin(), message.end(),
                    [](unsigned char c) { return c >= 0x20 && c < 0x7F; }));
}

// For messages that cannot be compared, and that may have fields which are not read.
template <class T>
void check_text(const Json& json, Result<T> (*parse)(const Json&)) {
  const Result<T> value = parse(json);
  if (!value) return check_sentence(value.error().message);
  const Json written = to_json(*value);
  const Result<T> again = parse(written);
  CHECK(again.ok() && to_json(*again) == written);
}

// The content of a worker's messages is read field by field.
void check_content(const Json& json) {
  using namespace rubato::wire;
  if (const auto report = read_step_report(json)) {
    CHECK(read_step_report(to_json(*report)) == report);
  }
  if (const auto straggler = read_straggler(json)) {
    CHECK(read_straggler(to_json(*straggler)) == straggler);
  }
  const MembersNotice members = read_members(json);
  CHECK(to_json(read_members(to_json(members))) == to_json(members));
}

template <class T>
void check(const Json& json, Result<T> (*parse)(const Json&)) {
  const Result<T> value = parse(json);
  if (!value) return check_sentence(value.error().message);
  const Json written = to_json(*value);
  const Result<T> again = parse(written);
  CHECK(again.ok() && *again == *value);
  CHECK(to_json(*again) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = parse_json(text, "input", {std::size_t{1} << 16U, 16});
  if (!json) return 0;
  check(*json, parse_job_launch);
  check(*json, parse_job_progress);
  check(*json, parse_job_end);
  check(*json, parse_job_status);
  check(*json, parse_process_name);
  check(*json, parse_worker_records);
  check(*json, parse_job_exit);
  check(*json, parse_to_master);
  check(*json, rubato::launch::parse_roster);
  check(*json, parse_from_agent);
  check(*json, parse_to_agent);
  check(*json, parse_state_identity);
  check(*json, rubato::wire::parse_job_key);
  check(*json, rubato::launch::parse_share_config);
  check_text(*json, rubato::launch::parse_to_share);
  check_text(*json, rubato::launch::parse_from_share);
  check_text(*json, rubato::wire::parse_from_worker);
  check_text(*json, rubato::wire::parse_from_launcher);
  check_content(*json);
  return 0;
}
