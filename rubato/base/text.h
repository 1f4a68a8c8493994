// Small text functions shared by parsers and reports.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::base {

[[nodiscard]] std::string_view trim(std::string_view text);
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

// The whole text as a number; nullopt if anything is left over, empty, or out of range.
[[nodiscard]] std::optional<double> parse_double(std::string_view text);
[[nodiscard]] std::optional<long long> parse_integer(std::string_view text);

// The shortest text that reads back as the same double: the one spelling of numbers in our files.
[[nodiscard]] std::string shortest(double value);

// For error sentences: control characters made visible, cut at `most` bytes.
[[nodiscard]] std::string quoted(std::string_view text, std::size_t most = 60);

// "1 job", "2 jobs": the number and what it counts, with an s where there is not just one.
[[nodiscard]] std::string plural(int number, std::string_view what);

// The candidate closest to `word` by edit distance, if close enough to be what was meant.
[[nodiscard]] std::optional<std::string> closest(std::string_view word,
                                                 const std::vector<std::string>& candidates);

}  // namespace rubato::base
