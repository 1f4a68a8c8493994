// The keys that let two processes of one job find each other, and nobody else.
//
// A job has a secret. Every round of every start has a key of its own, derived from it (HKDF with
// SHA-256, RFC 5869). So a process of an earlier start, which still has its key, cannot join the
// next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "rubato/base/namespaces.h"

namespace rubato::wire {

constexpr std::size_t kLinkKeyBytes = 32;

struct LinkKey {
  // Says whose key it is, for example "job/start/round/uid". It is sent in the clear. 1 to 128
  // bytes.
  std::string identity;
  std::array<unsigned char, kLinkKeyBytes> secret{};
};

// The same secret and context give the same key on every machine.
[[nodiscard]] LinkKey derive_link_key(std::string identity, std::string_view secret,
                                      std::string_view context);

// Which key belongs to an identity; nullopt if the identity is unknown.
using FindLinkKey = std::function<std::optional<LinkKey>(std::string_view identity)>;

}  // namespace rubato::wire
