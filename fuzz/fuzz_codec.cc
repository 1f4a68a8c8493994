// Takes any bytes as a row of the journal, with its type on the first line. The result must be one
// line of error, or a value that is written and read back as the same text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rubato/base/check.h"
#include "rubato/journal/codec.h"

namespace {

using rubato::base::Result;
using rubato::journal::Coded;

template <class T>
void check_error(const Result<T>& decoded) {
  const std::string& message = decoded.error().message;
  CHECK(!message.empty() && message.size() < 2000);
  CHECK(std::all_of(message.begin(), message.end(),
                    [](unsigned char c) { return c >= 0x20 && c < 0x7F; }));
}

template <class Decode, class Encode>
void check(const Coded& coded, const Decode& decode, const Encode& encode) {
  const auto value = decode(coded);
  if (!value) return check_error(value);
  const auto text = encode(*value);
  CHECK(text.ok());
  const auto again = decode(*text);
  CHECK(again.ok());
  CHECK(encode(*again).value() == *text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto line = std::min(input.find('\n'), input.size());
  const Coded coded{std::string(input.substr(0, line)), 1,
                    std::string(input.substr(std::min(line + 1, input.size())))};
  const auto plain = [](const auto& value) { return encode(value); };
  const auto event = [](const Coded& row) {
    SpeedPool pool;
    return decode_event(row, pool);
  };
  const auto speed = [](const Coded& row) {
    SpeedPool pool;
    return decode_speed(row, pool);
  };
  const auto state = [](const Coded& row) {
    SpeedPool pool;
    return decode_state(row, pool);
  };
  if (coded.type == "state") {
    check(coded, state, plain);
  } else if (coded.type == "speed") {
    check(coded, speed, [](const auto& value) { return encode(*value); });
  } else if (coded.type == "cluster") {
    check(coded, decode_cluster, plain);
  } else if (coded.type == "job-spec") {
    check(coded, decode_job_spec, plain);
  } else if (coded.type == "allocation") {
    check(coded, decode_allocation, plain);
  } else if (coded.type == "progress") {
    check(coded, decode_progress, plain);
  } else if (coded.type == "start" || coded.type == "resize" || coded.type == "stop") {
    check(coded, decode_command, plain);
  } else {
    check(coded, event, plain);
  }
  return 0;
}
