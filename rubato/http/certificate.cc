#include "rubato/http/certificate.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "rubato/base/check.h"

namespace rubato::http {
namespace {

std::string last_reason() {
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  std::string text = reason == nullptr ? "unknown reason" : reason;
  ERR_clear_error();
  return text;
}

// Never ask for a password on a terminal.
int no_password(char* /*into*/, int /*size*/, int /*writing*/, void* /*data*/) { return 0; }

std::shared_ptr<SSL_CTX> new_context() {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  CHECK(context != nullptr);
  CHECK(SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1);
  CHECK(SSL_CTX_set_num_tickets(context.get(), 0) == 1);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context.get(),
                      SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(context.get(), no_password);
  return context;
}

std::string address_text(const ASN1_OCTET_STRING* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool long_one = ASN1_STRING_length(address) == 16;
  if (!long_one && ASN1_STRING_length(address) != 4) return "";
  ::inet_ntop(long_one ? AF_INET6 : AF_INET, ASN1_STRING_get0_data(address), text.data(),
              text.size());
  return long_one ? fmt::format("[{}]", text.data()) : std::string(text.data());
}

std::vector<std::string> names_of(const X509* certificate) {
  std::vector<std::string> names;
  auto* const all = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(all); ++i) {
    const GENERAL_NAME* const one = sk_GENERAL_NAME_value(all, i);
    std::string name;
    if (one->type == GEN_IPADD) name = address_text(one->d.iPAddress);
    if (one->type == GEN_DNS) {
      name.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(one->d.dNSName)),
                  static_cast<std::size_t>(ASN1_STRING_length(one->d.dNSName)));
      for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    if (!name.empty() && name.find('*') == std::string::npos) names.push_back(std::move(name));
  }
  GENERAL_NAMES_free(all);
  return names;
}

Result<void> check_key_file(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0)
    return Error{fmt::format("cannot read the key {}: {}", path, std::strerror(errno))};
  if ((about.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    return Error{
        fmt::format("every user of this machine can read the key {}: run chmod 600 on it", path)};
  }
  return {};
}

}  // namespace

Certificate::Seen Certificate::seen(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return {};
  return {about.st_ino, about.st_mtim};
}

Result<Certificate> Certificate::open(const CertificateFiles& files) {
  if (files.certificate.empty() || files.key.empty())
    return Error{"TLS needs both a certificate and its key"};
  Certificate made;
  made.files_ = files;
  // Before they are read: if they change meanwhile, they are read again.
  made.certificate_seen_ = seen(files.certificate);
  made.key_seen_ = seen(files.key);
  if (auto checked = check_key_file(files.key); !checked) return checked.error();
  made.context_ = new_context();
  SSL_CTX* const context = made.context_.get();
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1) {
    return Error{fmt::format("cannot use the certificate {}: {}; it must be a file in PEM format",
                             files.certificate, last_reason())};
  }
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return Error{
        fmt::format("cannot use the key {}: {}; it must be the certificate's key in PEM format, "
                    "without a password",
                    files.key, last_reason())};
  }
  made.names_ = names_of(SSL_CTX_get0_certificate(context));
  return made;
}

std::optional<Error> Certificate::refresh() {
  const Seen certificate = seen(files_.certificate);
  const Seen key = seen(files_.key);
  if (certificate == certificate_seen_ && key == key_seen_) return std::nullopt;
  auto again = open(files_);
  if (again) {
    *this = std::move(*again);
    return std::nullopt;
  }
  certificate_seen_ = certificate;
  key_seen_ = key;
  return Error{fmt::format("{}; the certificate that was read before stays in force",
                           again.error().message)};
}

}  // namespace rubato::http
