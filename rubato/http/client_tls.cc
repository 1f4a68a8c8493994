#include "rubato/http/client_tls.h"

#include <arpa/inet.h>
#include <array>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string>

#include "rubato/base/check.h"
#include "rubato/wire/socket_bio.h"

namespace rubato::http {
namespace {

using Context = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;

// False if the text has no certificate.
bool trust(SSL_CTX* context, const std::string& ca) {
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  BIO* const text = BIO_new_mem_buf(ca.data(), static_cast<int>(ca.size()));
  CHECK(text != nullptr);
  bool any = false;
  while (X509* const certificate = PEM_read_bio_X509(text, nullptr, nullptr, nullptr)) {
    any = X509_STORE_add_cert(store, certificate) == 1 || any;
    X509_free(certificate);
  }
  BIO_free(text);
  ERR_clear_error();
  return any;
}

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

// Whose certificate is accepted.
void expect(SSL* ssl, const std::string& host) {
  if (is_address(host)) {
    CHECK(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1);
    return;
  }
  SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  CHECK(SSL_set1_host(ssl, host.c_str()) == 1);
  SSL_set_tlsext_host_name(ssl, host.c_str());
}

std::string why_not_trusted(long verdict) {
  switch (verdict) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "its certificate is for another name; use the name for which it was made";
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "its certificate has expired; its administrator must renew it";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "its certificate is not valid yet; check the clocks of both machines";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:  // by one of the same name
      return "its certificate was not signed by an authority that is trusted here; give the file "
             "of its authority with --ca";
    default:
      return fmt::format("its certificate is refused: {}", X509_verify_cert_error_string(verdict));
  }
}

}  // namespace

struct ClientTls::Content {
  wire::OutgoingRecords records;
  HttpEndpoint endpoint;
  Context context{nullptr, SSL_CTX_free};
  SSL* ssl = nullptr;

  Content() = default;
  Content(const Content&) = delete;
  Content& operator=(const Content&) = delete;
  ~Content() { SSL_free(ssl); }
};

ClientTls::ClientTls(std::unique_ptr<Content> content) : content_(std::move(content)) {}
ClientTls::ClientTls(ClientTls&&) noexcept = default;
ClientTls& ClientTls::operator=(ClientTls&&) noexcept = default;
ClientTls::~ClientTls() = default;

Result<ClientTls> ClientTls::make(int fd, const HttpEndpoint& endpoint) {
  auto content = std::make_unique<Content>();
  content->records.fd = fd;
  content->endpoint = endpoint;
  content->context.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX* const context = content->context.get();
  CHECK(context != nullptr);
  CHECK(SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  if (endpoint.ca.empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else if (!trust(context, endpoint.ca)) {
    return Error{"the file of --ca has no certificate in PEM format"};
  }
  content->ssl = SSL_new(context);
  CHECK(content->ssl != nullptr);
  expect(content->ssl, endpoint.host);
  BIO* const bio = wire::socket_bio(content->records);
  SSL_set_bio(content->ssl, bio, bio);
  SSL_set_connect_state(content->ssl);
  return ClientTls(std::move(content));
}

Error ClientTls::refusal() const {
  const std::string where = content_->endpoint.text();
  const long verdict = SSL_get_verify_result(content_->ssl);
  if (verdict != X509_V_OK)
    return {fmt::format("{} is not trusted: {}", where, why_not_trusted(verdict))};
  const unsigned long error = ERR_peek_last_error();
  const int reason = ERR_GET_REASON(error);
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG) {
    return {fmt::format("{} does not speak TLS; write http:// if you trust the network between",
                        where)};
  }
  const char* words = ERR_reason_error_string(error);
  return {fmt::format("no TLS connection to {}: {}", where,
                      words == nullptr ? "it closed the connection" : words)};
}

Result<ClientTls::Wait> ClientTls::greet() {
  ERR_clear_error();
  const int status = SSL_do_handshake(content_->ssl);
  if (status == 1) return Wait::none;
  const Moved moved = moved_nothing(status);
  if (moved.wait == Wait::none) return refusal();
  return moved.wait;
}

ClientTls::Moved ClientTls::write(std::string_view text) {
  ERR_clear_error();
  std::size_t size = 0;
  const int status = SSL_write_ex(content_->ssl, text.data(), text.size(), &size);
  return status == 1 ? Moved{size, Wait::none} : moved_nothing(status);
}

ClientTls::Moved ClientTls::read(char* bytes, std::size_t size) {
  ERR_clear_error();
  std::size_t got = 0;
  const int status = SSL_read_ex(content_->ssl, bytes, size, &got);
  return status == 1 ? Moved{got, Wait::none} : moved_nothing(status);
}

ClientTls::Moved ClientTls::moved_nothing(int status) {
  const int error = SSL_get_error(content_->ssl, status);
  if (error == SSL_ERROR_WANT_READ) return {0, Wait::in};
  if (error == SSL_ERROR_WANT_WRITE) return {0, Wait::out};
  return {};
}

}  // namespace rubato::http
