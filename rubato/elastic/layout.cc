#include "rubato/elastic/layout.h"

#include <algorithm>

namespace rubato::elastic {

Layout make_layout(const std::vector<std::size_t>& counts, std::size_t tail_floats,
                   std::size_t bucket_floats) {
  Layout layout;
  layout.parameters.resize(counts.size());
  layout.bucket_of.resize(counts.size());
  bool open = false;
  for (std::size_t i = counts.size(); i-- > 0;) {
    if (!open) layout.buckets.push_back({layout.total, 0});
    Piece& bucket = layout.buckets.back();
    layout.parameters[i] = {layout.total, counts[i]};
    layout.bucket_of[i] = static_cast<int>(layout.buckets.size()) - 1;
    bucket.count += counts[i];
    layout.total += counts[i];
    open = bucket.count < bucket_floats;
  }
  layout.buckets.push_back({layout.total, tail_floats});
  layout.total += tail_floats;
  return layout;
}

double largest_share(const Layout& layout) {
  std::size_t all = 0, largest = 0;
  for (const Piece& parameter : layout.parameters) {
    all += parameter.count;
    largest = std::max(largest, parameter.count);
  }
  return all == 0 ? 0 : static_cast<double>(largest) / static_cast<double>(all);
}

}  // namespace rubato::elastic
