// SHA-256 of a sequence of values, by OpenSSL. The daemon needs SHA-256 for tokens anyway. It costs
// a thousandth of the fsync that follows, and collisions of rows need no thought.
//
// Each value is hashed with its length or at a fixed width, so two different sequences never give
// the same bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace rubato::journal {

using Digest = std::array<std::uint8_t, 32>;

class Digester {
 public:
  Digester();
  ~Digester();
  Digester(const Digester&) = delete;
  Digester& operator=(const Digester&) = delete;

  Digester& add(std::int64_t value);
  Digester& add(std::string_view text);
  Digester& add(const Digest& digest);
  // The digest of everything that was added since the last call.
  [[nodiscard]] Digest finish();

 private:
  void add_bytes(const void* bytes, std::size_t size);

  struct Context;
  std::unique_ptr<Context> context_;
};

[[nodiscard]] std::string hex(std::string_view bytes);
[[nodiscard]] std::string hex(const Digest& digest);
// Reads 64 hexadecimal digits. nullopt for anything else.
[[nodiscard]] std::optional<Digest> parse_digest(std::string_view digits);

}  // namespace rubato::journal
