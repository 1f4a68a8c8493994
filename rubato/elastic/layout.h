// The position of each parameter's gradient in the one flat vector that workers reduce.
//
//   bucket 0 | bucket 1 | ... | tail
//
// Buckets hold parameters in reverse order of registration. The backward pass produces gradients in
// about this order, so the first bucket can be sent while the rest is computed. The tail is a
// bucket of its own. It holds the loss and the changes of the module's buffers (batch-norm
// statistics), which are known only after the backward pass.
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
  std::vector<Piece> buckets;     // in the order of reduction; the last one is the tail
  std::size_t total = 0;          // floats

  [[nodiscard]] int tail() const { return static_cast<int>(buckets.size()) - 1; }
};

// `counts` are the sizes of the parameters. A bucket is full when it has at least `bucket_floats`.
[[nodiscard]] Layout make_layout(const std::vector<std::size_t>& counts, std::size_t tail_floats,
                                 std::size_t bucket_floats);

// The part of all parameters that is in the largest one (Tiresias calls it skew). 0: there are
// none.
[[nodiscard]] double largest_share(const Layout& layout);

}  // namespace rubato::elastic
