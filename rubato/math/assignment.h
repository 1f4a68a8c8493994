// Items into a few bins of limited size, at the least total cost: the transportation problem by
// shortest augmenting paths over the bins. An item goes in at a time; the path says who makes room
// for whom. O(items x bins^2), plus the look at a bin's items when it changes.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::math {

// Costs are finite or +infinity (never). The bin of each item; kNoBin if it found no room.
inline constexpr std::size_t kNoBin = static_cast<std::size_t>(-1);
[[nodiscard]] std::vector<std::size_t> assign(
    std::size_t items, const std::vector<std::size_t>& capacity,
    const std::function<double(std::size_t item, std::size_t bin)>& cost);

}  // namespace rubato::math
