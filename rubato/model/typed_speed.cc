#include "rubato/model/typed_speed.h"

#include <set>

#include "rubato/base/check.h"

namespace rubato::model {

void ThroughputTable::set_alone(std::size_t row, GpuType type, int gpus, WorkRate rate) {
  CHECK(type.index() < types_ && gpus >= 1 && rate >= 0);
  alone_[row * types_ + type.index()][gpus] = rate;
}

void ThroughputTable::set_beside(std::size_t row, std::size_t other, GpuType type, int gpus,
                                 WorkRate rate) {
  CHECK(type.index() < types_ && gpus >= 1 && rate >= 0);
  beside_[{row, other, type, gpus}] = rate;
}

const ThroughputTable::ByCount* ThroughputTable::of(std::size_t row, GpuType type) const {
  return type.index() < types_ ? &alone_[row * types_ + type.index()] : nullptr;
}

WorkRate ThroughputTable::alone(std::size_t row, GpuType type, int gpus) const {
  const ByCount* counts = of(row, type);
  if (counts == nullptr || gpus < 1) return 0;
  const auto above = counts->lower_bound(gpus);
  if (above == counts->end()) return 0;
  if (above->first == gpus) return above->second;
  if (above == counts->begin()) return above->second * gpus / above->first;
  const auto& [fewer, slow] = *std::prev(above);
  if (slow == 0 || above->second == 0) return 0;
  return slow + (above->second - slow) * (gpus - fewer) / (above->first - fewer);
}

WorkRate ThroughputTable::beside(std::size_t row, std::size_t other, GpuType type, int gpus) const {
  const auto at = beside_.find({row, other, type, gpus});
  return at == beside_.end() ? 0 : at->second;
}

std::vector<int> ThroughputTable::counts(std::size_t row) const {
  std::set<int> counts;
  for (std::size_t type = 0; type < types_; ++type) {
    for (const auto& [gpus, rate] : alone_[row * types_ + type]) {
      if (rate > 0) counts.insert(gpus);
    }
  }
  return {counts.begin(), counts.end()};
}

std::vector<ThroughputTable::Measured> ThroughputTable::all_alone() const {
  std::vector<Measured> all;
  for (std::size_t at = 0; at < alone_.size(); ++at) {
    const GpuType type(static_cast<GpuType::rep>(at % types_));
    for (const auto& [gpus, rate] : alone_[at]) all.push_back({at / types_, 0, type, gpus, rate});
  }
  return all;
}

std::vector<ThroughputTable::Measured> ThroughputTable::all_beside() const {
  std::vector<Measured> all;
  all.reserve(beside_.size());
  for (const auto& [pair, rate] : beside_)
    all.push_back({pair.row, pair.other, pair.type, pair.gpus, rate});
  return all;
}

WorkRate TypedSpeed::beside(const Shape& shape, const SpeedModel& other) const {
  const auto* partner = dynamic_cast<const TypedSpeed*>(&other);
  if (partner == nullptr || partner->table_ != table_) return 0;
  // If one of the two cannot run in a pair, the pair is not possible.
  if (table_->beside(partner->row_, row_, shape.type, shape.gpus) == 0) return 0;
  return table_->beside(row_, partner->row_, shape.type, shape.gpus);
}

}  // namespace rubato::model
