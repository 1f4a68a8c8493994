// Strong identifiers: a JobId cannot be passed where a NodeId is meant. Values are dense and
// start at 0, so tables may be indexed by them.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "rubato/base/namespaces.h"

namespace rubato::base {

template <class Tag, class Rep = std::uint32_t>
class Id {
 public:
  using rep = Rep;

  constexpr Id() = default;
  constexpr explicit Id(Rep value) : value_(value) {}

  [[nodiscard]] constexpr Rep value() const { return value_; }
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }
  [[nodiscard]] constexpr Id next() const { return Id(value_ + 1); }

  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  Rep value_ = 0;
};

}  // namespace rubato::base

template <class Tag, class Rep>
struct std::hash<rubato::base::Id<Tag, Rep>> {
  std::size_t operator()(rubato::base::Id<Tag, Rep> id) const {
    return std::hash<Rep>()(id.value());
  }
};
