// The samples of a training program, with random access by index. The samples of a step are a slice
// of a permutation, and any worker may have to compute any of them.
//
// batch() is const and may be called from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rubato/train/torch.h"

namespace rubato::train {

struct Batch {
  torch::Tensor data;
  torch::Tensor target;
};

class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  [[nodiscard]] virtual std::size_t size() const = 0;
  // The samples with these indices, each below size(), in this order. The first dimension counts
  // them. The same indices must always give the same bits.
  [[nodiscard]] virtual Batch batch(std::span<const std::int64_t> indices) const = 0;
};

}  // namespace rubato::train
