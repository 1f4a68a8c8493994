// Certificates for tests: an authority, and what it signs.
#pragma once

#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string>
#include <sys/stat.h>

namespace rubato::http {

class TestAuthority {
 public:
  TestAuthority() : key_(new_key()) {
    certificate_ = unsigned_certificate("Test Authority", key_.get(), 3600);
    extend(certificate_.get(), NID_basic_constraints, "critical,CA:TRUE");
    X509_set_issuer_name(certificate_.get(), X509_get_subject_name(certificate_.get()));
    X509_sign(certificate_.get(), key_.get(), EVP_sha256());
  }

  // Writes a certificate for `names` ("DNS:localhost,IP:127.0.0.1") that ends after so many
  // seconds, and its key. Each file appears whole.
  void write(const std::string& certificate_path, const std::string& key_path,
             const std::string& names, long seconds = 3600) const {
    const Key key = new_key();
    const Certificate made = unsigned_certificate("Test Server", key.get(), seconds);
    extend(made.get(), NID_subject_alt_name, names.c_str());
    X509_set_issuer_name(made.get(), X509_get_subject_name(certificate_.get()));
    X509_sign(made.get(), key_.get(), EVP_sha256());
    put(key_path, text([&](BIO* to) {
          PEM_write_bio_PrivateKey(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
        }));
    put(certificate_path, text([&](BIO* to) { PEM_write_bio_X509(to, made.get()); }));
  }
  [[nodiscard]] std::string pem() const {
    return text([&](BIO* to) { PEM_write_bio_X509(to, certificate_.get()); });
  }

 private:
  using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
  using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

  static Key new_key() { return {EVP_EC_gen("P-256"), EVP_PKEY_free}; }
  static Certificate unsigned_certificate(const char* name, EVP_PKEY* key, long seconds) {
    Certificate made{X509_new(), X509_free};
    static long serial = 0;
    X509_set_version(made.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -7200);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), seconds);
    X509_set_pubkey(made.get(), key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
    return made;
  }
  static void extend(X509* certificate, int what, const char* value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value);
    ASSERT_NE(extension, nullptr);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  template <class Write>
  static std::string text(const Write& write) {
    BIO* to = BIO_new(BIO_s_mem());
    write(to);
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(to, &bytes);
    std::string result(bytes, static_cast<std::size_t>(size));
    BIO_free(to);
    return result;
  }
  static void put(const std::string& path, const std::string& content) {
    const std::string part = path + ".part";
    std::ofstream(part) << content;
    ::chmod(part.c_str(), 0600);
    ASSERT_EQ(::rename(part.c_str(), path.c_str()), 0);
  }

  Key key_;
  Certificate certificate_{nullptr, X509_free};
};

}  // namespace rubato::http
