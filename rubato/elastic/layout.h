// Where each parameter's gradient lies in the one flat vector that workers reduce.
//
//   bucket 0 | bucket 1 | ... | tail
//
// Buckets hold parameters in reverse order of registration, which is about the order in which the
// backward pass produces them, so the first bucket can travel while the rest is computed. The tail
// is a last bucket of its own: the loss, then the changes of the module's buffers (batch-norm
// statistics), known only when the pass is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rubato::elastic {

struct Piece {
  std::size_t offset = 0;  // in floats
  std::size_t count = 0;
};

struct Layout {
  std::vector<Piece> parameters;  // in order of registration
  std::vector<int> bucket_of;     // by parameter
  std::vector<Piece> buckets;     // in the order in which they are reduced; the last is the tail
  std::size_t total = 0;          // floats

  [[nodiscard]] int tail() const { return static_cast<int>(buckets.size()) - 1; }
};

// `counts` are the sizes of the parameters; a bucket is closed once it holds `bucket_floats`.
[[nodiscard]] Layout make_layout(const std::vector<std::size_t>& counts, std::size_t tail_floats,
                                 std::size_t bucket_floats);

}  // namespace rubato::elastic
