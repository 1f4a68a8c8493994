// The certificate with which the HTTP server speaks TLS, and its files.
#pragma once

#include <memory>
#include <openssl/types.h>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <vector>

#include "rubato/base/result.h"

namespace rubato::http {

struct CertificateFiles {
  std::string certificate;  // PEM: the server's own, then those between it and its CA
  std::string key;          // PEM, without a password; strangers must not be able to read it

  [[nodiscard]] bool given() const { return !certificate.empty() || !key.empty(); }
};

class Certificate {
 public:
  [[nodiscard]] static Result<Certificate> open(const CertificateFiles& files);

  // Reads the files again if they have changed. If they cannot be used, the old ones stay in force,
  // and the error is returned once.
  [[nodiscard]] std::optional<Error> refresh();

  // TLS 1.2 and later. Connections keep what they began with.
  [[nodiscard]] SSL_CTX* context() const { return context_.get(); }
  // The names and addresses that it is for, as a client writes them: "[::1]". Without wildcards.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  struct Seen {
    ino_t inode = 0;
    timespec changed{};
    friend bool operator==(const Seen& a, const Seen& b) {
      return a.inode == b.inode && a.changed.tv_sec == b.changed.tv_sec &&
             a.changed.tv_nsec == b.changed.tv_nsec;
    }
  };
  [[nodiscard]] static Seen seen(const std::string& path);

  CertificateFiles files_;
  Seen certificate_seen_, key_seen_;
  std::shared_ptr<SSL_CTX> context_;
  std::vector<std::string> names_;
};

}  // namespace rubato::http
