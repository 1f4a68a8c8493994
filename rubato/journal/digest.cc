#include "rubato/journal/digest.h"

#include <charconv>
#include <fmt/format.h>
#include <openssl/evp.h>

#include "rubato/base/check.h"

namespace rubato::journal {

struct Digester::Context {
  // To look the algorithm up costs more than to hash a short row, so it is done only once.
  EVP_MD* algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  EVP_MD_CTX* context = EVP_MD_CTX_new();

  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    EVP_MD_CTX_free(context);
    EVP_MD_free(algorithm);
  }
  void begin() const { CHECK(EVP_DigestInit_ex2(context, algorithm, nullptr) == 1); }
};

Digester::Digester() : context_(std::make_unique<Context>()) {
  CHECK(context_->algorithm != nullptr && context_->context != nullptr);
  context_->begin();
}

Digester::~Digester() = default;

void Digester::add_bytes(const void* bytes, std::size_t size) {
  CHECK(EVP_DigestUpdate(context_->context, bytes, size) == 1);
}

Digester& Digester::add(std::int64_t value) {
  std::array<std::uint8_t, 8> bytes{};
  auto rest = static_cast<std::uint64_t>(value);
  for (auto& byte : bytes) {
    byte = static_cast<std::uint8_t>(rest & 0xFFU);
    rest >>= 8U;
  }
  add_bytes(bytes.data(), bytes.size());
  return *this;
}

Digester& Digester::add(std::string_view text) {
  add(static_cast<std::int64_t>(text.size()));
  add_bytes(text.data(), text.size());
  return *this;
}

Digester& Digester::add(const Digest& digest) {
  add_bytes(digest.data(), digest.size());
  return *this;
}

Digest Digester::finish() {
  Digest digest{};
  unsigned size = 0;
  CHECK(EVP_DigestFinal_ex(context_->context, digest.data(), &size) == 1 && size == digest.size());
  context_->begin();
  return digest;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string hex(const Digest& digest) {
  return hex({reinterpret_cast<const char*>(digest.data()), digest.size()});  // NOLINT
}

std::optional<Digest> parse_digest(std::string_view digits) {
  Digest digest{};
  if (digits.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const char* pair = digits.data() + 2 * i;
    const auto [end, error] = std::from_chars(pair, pair + 2, digest[i], 16);
    if (error != std::errc() || end != pair + 2) return std::nullopt;
  }
  return digest;
}

}  // namespace rubato::journal
