#include "rubato/wire/link_key.h"

#include <openssl/evp.h>
#include <openssl/kdf.h>

#include "rubato/base/check.h"

namespace rubato::wire {

LinkKey derive_link_key(std::string identity, std::string_view secret, std::string_view context) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
  };
  LinkKey key;
  key.identity = std::move(identity);
  std::size_t size = key.secret.size();
  EVP_PKEY_CTX* derivation = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr);
  CHECK(derivation != nullptr);
  CHECK(EVP_PKEY_derive_init(derivation) == 1);
  CHECK(EVP_PKEY_CTX_set_hkdf_md(derivation, EVP_sha256()) == 1);
  CHECK(EVP_PKEY_CTX_set1_hkdf_key(derivation, bytes(secret), static_cast<int>(secret.size())) ==
        1);
  CHECK(EVP_PKEY_CTX_add1_hkdf_info(derivation, bytes(context), static_cast<int>(context.size())) ==
        1);
  CHECK(EVP_PKEY_derive(derivation, key.secret.data(), &size) == 1 && size == key.secret.size());
  EVP_PKEY_CTX_free(derivation);
  return key;
}

}  // namespace rubato::wire
