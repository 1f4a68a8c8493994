// Takes any bytes as a contention file, as weights of the policy learned, and as a checkpoint of
// its search. The result must be an error, or a model under which jobs keep a share of their speed
// above 0 and at most 1, and which is read back as it was written.
#include <cstddef>
#include <cstdint>

#include "rubato/base/check.h"
#include "rubato/sim/contention.h"
#include "rubato/sim/learn.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto weights = parse_weights(text, "input"); weights)
    CHECK(parse_weights(to_text(*weights), "again").value() == *weights);
  if (const auto state = LearnState::parse(text, "input"); state)
    CHECK(LearnState::parse(state->to_text(), "again")->to_text() == state->to_text());
  const auto read = parse_contention(text, "input");
  if (!read) return 0;
  Allocation wide, beside;
  wide.add({NodeId(0), 0b1111});
  wide.add({NodeId(1), 0b1});
  beside.add({NodeId(1), 0b110});
  beside.add({NodeId(2), 0b1});
  std::vector<std::string> models = {"m"};
  if (const auto* table = dynamic_cast<const ContentionTable*>(read->get())) {
    for (const auto& shape : table->shapes()) models.push_back(shape.model);
    if (models.size() < 20) CHECK(error_of(PairLoss(fit_pairs(*table)), *table).worst <= 1);
  }
  if (const auto* pairs = dynamic_cast<const PairLoss*>(read->get())) {
    for (const auto& [model, numbers] : pairs->numbers()) models.push_back(model);
  }
  if (const auto* links = dynamic_cast<const LinkContention*>(read->get())) {
    for (const auto& [model, use] : links->uses()) models.push_back(model);
  }
  for (const auto& model : models) {
    const Tenant other{models.back(), &beside};
    const double kept = (*read)->kept({model, &wide}, {&other, 1});
    CHECK(kept > 0 && kept <= 1);
  }
  return 0;
}
