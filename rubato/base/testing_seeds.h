// How much a randomised or exhaustive test tries.
//
// The release tree tries everything. With sanitizers a test takes ten times as long, and tries a
// quarter: they look for wrong accesses to memory, which every seed can meet, and not for the rare
// seed that breaks a rule.
//
//   RUBATO_SEED=n          the seed n alone
//   RUBATO_SEEDS=n         that many seeds, in either tree
//   RUBATO_SEED_FACTOR=n   n times as many as the release tree usually tries, in either tree
//
// `./dev test --all` sets the factor. The seeds that a test usually tries take seconds, whatever it
// simulates, so the factor says how much longer the tests take.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>

#include "rubato/base/namespaces.h"

namespace rubato::base {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RUBATO_TESTS_ARE_SANITIZED
#endif
#endif
#ifdef RUBATO_TESTS_ARE_SANITIZED
inline constexpr int kTestPart = 4;
#else
inline constexpr int kTestPart = 1;
#endif

inline std::optional<std::uint64_t> number_from_environment(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

// The one seed that was asked for.
inline std::optional<std::uint64_t> only_seed() { return number_from_environment("RUBATO_SEED"); }

// How many of so many tries are made.
inline std::uint64_t tries(std::uint64_t usual) {
  const bool all = number_from_environment("RUBATO_SEEDS").has_value() ||
                   number_from_environment("RUBATO_SEED_FACTOR").has_value();
  return all ? usual : usual / kTestPart;
}

// How many seeds a simulation runs that can go on for ever.
inline std::uint64_t seeds(std::uint64_t usual) {
  if (const auto wanted = number_from_environment("RUBATO_SEEDS")) return *wanted;
  return tries(usual) * number_from_environment("RUBATO_SEED_FACTOR").value_or(1);
}

// A test that tries every place goes from one to the next in such steps.
inline std::size_t step_between_places() { return 4 / tries(4); }

}  // namespace rubato::base
