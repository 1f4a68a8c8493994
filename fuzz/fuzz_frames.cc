// Takes any bytes as the input of a launcher or a worker. The result must be an error, or messages
// that do not depend on how the stream is cut. The first byte says where it is cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/wire/frames.h"
#include "rubato/wire/launch.h"

namespace {

namespace wire = rubato::wire;
using rubato::base::Json;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A message that was understood is written and understood again.
void parse_both_ways(const Json& message) {
  if (const auto parsed = wire::parse_from_worker(message)) {
    const Json written = wire::to_json(*parsed);
    const auto again = wire::parse_from_worker(written);
    CHECK(again.ok() && text_of(wire::to_json(*again)) == text_of(written));
  }
  if (const auto parsed = wire::parse_from_launcher(message)) {
    const Json written = wire::to_json(*parsed);
    const auto again = wire::parse_from_launcher(written);
    CHECK(again.ok() && text_of(wire::to_json(*again)) == text_of(written));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t cut = std::min<std::size_t>(data[0], stream.size());

  wire::FrameReader whole;
  const auto messages = whole.feed(stream);
  wire::FrameReader parts;
  const auto first = parts.feed(stream.substr(0, cut));
  if (!first) {
    CHECK(!messages.ok());
    return 0;
  }
  const auto second = parts.feed(stream.substr(cut));
  CHECK(second.ok() == messages.ok());
  if (!messages) return 0;
  CHECK(first->size() + second->size() == messages->size());
  for (const Json& message : *messages) {
    parse_both_ways(message);
    wire::FrameReader reader;
    const auto again = reader.feed(wire::to_frame(message));
    CHECK(again.ok() && again->size() == 1);
  }
  return 0;
}
