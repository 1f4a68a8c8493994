// Takes any bytes as messages between workers. The result must be an exception of the JSON library,
// or a value that is written and read back unchanged. The first byte chooses the type.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "rubato/base/check.h"
#include "rubato/member/record.h"

namespace {

template <typename T>
void read(const rubato::base::Json& json) {
  T value;
  try {
    value = json.get<T>();
  } catch (const rubato::base::Json::exception&) {
    return;
  }
  const rubato::base::Json written = value;
  CHECK(rubato::base::Json(written.get<T>()) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::member;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto json = rubato::base::parse_json(text, "input");
  if (!json) return 0;
  constexpr void (*kReaders[])(const rubato::base::Json&) = {
      read<Record>, read<StepPlan>, read<Proposal>, read<Word>,
      read<Level>,  read<Report>,   read<Commit>};
  kReaders[data[0] % std::size(kReaders)](*json);
  return 0;
}
