// Assigns items to a few bins of limited size at the least total cost: the transportation problem,
// by shortest augmenting paths over the bins. Items are added one at a time. The path says which
// items move to make room. O(items x bins^2), plus a scan of a bin's items when the bin changes.
//
// LEMON is not used: its min-cost flows take integer costs, ours are real numbers. Its graphs would
// need an arc for each pair of item and bin.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::math {

// A cost of +infinity means never. Returns the bin of each item; kNoBin if there is no room for it.
inline constexpr std::size_t kNoBin = static_cast<std::size_t>(-1);
[[nodiscard]] std::vector<std::size_t> assign(
    std::size_t items, const std::vector<std::size_t>& capacity,
    const std::function<double(std::size_t item, std::size_t bin)>& cost);

}  // namespace rubato::math
