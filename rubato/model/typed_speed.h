// Speeds measured on each GPU type, alone and in pairs that share their GPUs: the structure of
// Gavel's throughput measurements. There is one table per cluster. A job's speed is a row of it.
// Jobs of the same row share one object, so code that groups equal jobs may compare addresses.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "rubato/core/speed.h"

namespace rubato::model {

class ThroughputTable {
 public:
  ThroughputTable(std::size_t rows, std::size_t types) : types_(types), alone_(rows * types) {}

  // A rate of 0 means that it was tried and cannot run.
  void set_alone(std::size_t row, GpuType type, int gpus, WorkRate rate);
  // The rate of `row` while a job of `other` shares its GPUs.
  void set_beside(std::size_t row, std::size_t other, GpuType type, int gpus, WorkRate rate);

  // Linear between measured counts, proportional below the first, 0 above the last and beside a
  // count at which the job cannot run.
  [[nodiscard]] WorkRate alone(std::size_t row, GpuType type, int gpus) const;
  [[nodiscard]] WorkRate beside(std::size_t row, std::size_t other, GpuType type, int gpus) const;

  // All entries, in order of row, other, type and count. Only pairs have `other`.
  struct Measured {
    std::size_t row = 0;
    std::size_t other = 0;
    GpuType type;
    int gpus = 0;
    WorkRate rate = 0;
  };
  [[nodiscard]] std::vector<Measured> all_alone() const;
  [[nodiscard]] std::vector<Measured> all_beside() const;
  [[nodiscard]] std::size_t rows() const { return types_ == 0 ? 0 : alone_.size() / types_; }
  [[nodiscard]] std::size_t types() const { return types_; }

  // Counts at which the row runs on some type, ascending.
  [[nodiscard]] std::vector<int> counts(std::size_t row) const;

 private:
  struct Pair {
    std::size_t row, other;
    GpuType type;
    int gpus;
    friend auto operator<=>(const Pair&, const Pair&) = default;
  };
  using ByCount = std::map<int, WorkRate>;

  [[nodiscard]] const ByCount* of(std::size_t row, GpuType type) const;

  std::size_t types_;
  std::vector<ByCount> alone_;  // by row and type
  std::map<Pair, WorkRate> beside_;
};

class TypedSpeed final : public SpeedModel {
 public:
  TypedSpeed(std::shared_ptr<const ThroughputTable> table, std::size_t row)
      : table_(std::move(table)), row_(row), measured_(table_->counts(row)) {}

  [[nodiscard]] WorkRate rate(const Shape& shape) const override {
    return table_->alone(row_, shape.type, shape.gpus);
  }
  [[nodiscard]] WorkRate beside(const Shape& shape, const SpeedModel& other) const override;
  [[nodiscard]] std::span<const int> measured() const override { return measured_; }

  [[nodiscard]] const std::shared_ptr<const ThroughputTable>& table() const { return table_; }
  [[nodiscard]] std::size_t row() const { return row_; }

 private:
  std::shared_ptr<const ThroughputTable> table_;
  std::size_t row_;
  std::vector<int> measured_;
};

}  // namespace rubato::model
