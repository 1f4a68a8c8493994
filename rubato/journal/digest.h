// SHA-256 of a sequence of values. By OpenSSL: the daemon needs it for tokens anyway, it costs a
// thousandth of the fsync that follows, and nobody has to ask whether two rows might collide.
//
// Each value is hashed behind its length or at a fixed width, so no two sequences are the same
// bytes.
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
  // Of all that was added since the last one.
  [[nodiscard]] Digest finish();

 private:
  void add_bytes(const void* bytes, std::size_t size);

  struct Context;
  std::unique_ptr<Context> context_;
};

[[nodiscard]] std::string hex(std::string_view bytes);
[[nodiscard]] std::string hex(const Digest& digest);
// Of 64 digits; nullopt for anything else.
[[nodiscard]] std::optional<Digest> parse_digest(std::string_view digits);

}  // namespace rubato::journal
