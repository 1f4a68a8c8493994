#include "rubato/wire/link.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/wire/socket_bio.h"

namespace rubato::wire {

// What the callbacks of OpenSSL need to know about a connection.
struct LinkKeys {
  LinkKey own;       // of the side that dials
  FindLinkKey find;  // of the side that listens
  std::string peer;  // the identity that the other side has named
};

namespace {

constexpr std::size_t kLongestIdentity = 128;
// How much is encrypted before the socket is called, and how much is read from it at once. A record
// has at most 16 KiB, so this saves most of the calls.
constexpr std::size_t kGather = std::size_t{128} << 10U;
constexpr std::size_t kReadAhead = std::size_t{128} << 10U;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

LinkKeys& keys_of(SSL* ssl) { return *static_cast<LinkKeys*>(SSL_get_app_data(ssl)); }

// TLS takes a key from outside as the key of an earlier session.
SSL_SESSION* session_of(SSL* ssl, const LinkKey& key) {
  constexpr std::array<unsigned char, 2> kAes128GcmSha256{0x13, 0x01};
  SSL_SESSION* session = SSL_SESSION_new();
  CHECK(session != nullptr);
  CHECK(SSL_SESSION_set1_master_key(session, key.secret.data(), key.secret.size()) == 1);
  CHECK(SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, kAes128GcmSha256.data())) == 1);
  CHECK(SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1);
  return session;
}

int offer_key(SSL* ssl, const EVP_MD* hash, const unsigned char** identity, std::size_t* size,
              SSL_SESSION** session) {
  *session = nullptr;
  // After a request to try again, OpenSSL asks for a key that fits the hash of the chosen cipher.
  if (hash != nullptr && EVP_MD_get_type(hash) != NID_sha256) return 1;
  const LinkKey& key = keys_of(ssl).own;
  *identity = reinterpret_cast<const unsigned char*>(key.identity.data());
  *size = key.identity.size();
  *session = session_of(ssl, key);
  return 1;
}

int find_key(SSL* ssl, const unsigned char* identity, std::size_t size, SSL_SESSION** session) {
  *session =
      nullptr;  // without a key there is no certificate to go on with, so the handshake fails
  if (size == 0 || size > kLongestIdentity) return 1;
  LinkKeys& keys = keys_of(ssl);
  const std::string name(reinterpret_cast<const char*>(identity), size);
  const std::optional<LinkKey> key = keys.find(name);
  if (!key) return 1;
  keys.peer = name;
  *session = session_of(ssl, *key);
  return 1;
}

// One for each side, for the whole process: they hold nothing but settings.
SSL_CTX* make_context(const SSL_METHOD* method) {
  SSL_CTX* context = SSL_CTX_new(method);
  CHECK(context != nullptr);
  CHECK(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1);
  CHECK(SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1);
  CHECK(SSL_CTX_set_num_tickets(context, 0) == 1);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadAhead);
  return context;
}

SSL_CTX* dialling() {
  static SSL_CTX* const context = [] {
    SSL_CTX* made = make_context(TLS_client_method());
    SSL_CTX_set_psk_use_session_callback(made, offer_key);
    // Without the key, a listener could only come with a certificate. None is trusted.
    SSL_CTX_set_verify(made, SSL_VERIFY_PEER, nullptr);
    return made;
  }();
  return context;
}

SSL_CTX* listening() {
  static SSL_CTX* const context = [] {
    SSL_CTX* made = make_context(TLS_server_method());
    SSL_CTX_set_psk_find_session_callback(made, find_key);
    return made;
  }();
  return context;
}

}  // namespace

struct Link::Tls {
  Tls(SSL_CTX* context, int socket, LinkKeys with) : keys(std::move(with)), ssl(SSL_new(context)) {
    CHECK(ssl != nullptr);
    CHECK(SSL_set_app_data(ssl, &keys) == 1);
    out.fd = socket;
    BIO* bio = socket_bio(out);
    SSL_set_bio(ssl, bio, bio);
  }
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;
  ~Tls() { SSL_free(ssl); }

  OutgoingRecords out;
  std::size_t encrypted = 0;  // bytes of the owner that are in out.late
  LinkKeys keys;
  SSL* ssl;
};

Link::Link() = default;
Link::Link(Fd fd) : fd_(std::move(fd)) {}
Link::Link(Link&& other) noexcept = default;
Link& Link::operator=(Link&& other) noexcept = default;
Link::~Link() = default;

Link::Link(Fd fd, const LinkKey& key) : fd_(std::move(fd)) {
  CHECK(!key.identity.empty() && key.identity.size() <= kLongestIdentity);
  if (!fd_.valid()) return;
  tls_ = std::make_unique<Tls>(dialling(), fd_.get(), LinkKeys{key, {}, {}});
  SSL_set_connect_state(tls_->ssl);
  (void)tls_write({});  // the dialler speaks first, also if its owner has nothing to say
}

Link::Link(Fd fd, FindLinkKey find) : fd_(std::move(fd)) {
  if (!fd_.valid()) return;
  tls_ = std::make_unique<Tls>(listening(), fd_.get(), LinkKeys{{}, std::move(find), {}});
  SSL_set_accept_state(tls_->ssl);
}

void Link::close() {
  if (tls_ && fd_.valid() && SSL_is_init_finished(tls_->ssl) == 1 && trouble_.empty()) {
    ERR_clear_error();
    SSL_shutdown(tls_->ssl);
  }
  tls_.reset();
  fd_.close();
}

Fd Link::release() {
  CHECK(!tls_);
  return std::move(fd_);
}

const std::string& Link::peer() const {
  static const std::string nobody;
  return tls_ && SSL_is_init_finished(tls_->ssl) == 1 ? tls_->keys.peer : nobody;
}

Link::Moved Link::read(std::span<std::byte> into) {
  if (!open() || !trouble_.empty()) return {0, true};
  if (tls_) return tls_read(into);
  const ssize_t size = recv(fd_.get(), into.data(), into.size(), 0);
  if (size > 0) return {static_cast<std::size_t>(size), false};
  if (size < 0 && would_block(errno)) return {};
  if (size < 0) trouble_ = std::strerror(errno);
  return {0, true};
}

Link::Moved Link::write(std::span<const std::byte> first, std::span<const std::byte> second) {
  if (!open() || !trouble_.empty()) return {0, true};
  if (tls_) return tls_write(first, second);
  // The kernel does not change the bytes, but its interface is older than const.
  std::array<iovec, 2> parts{iovec{const_cast<std::byte*>(first.data()), first.size()},
                             iovec{const_cast<std::byte*>(second.data()), second.size()}};
  if (first.empty() && second.empty()) return {};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t size = sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  if (size >= 0) return {static_cast<std::size_t>(size), false};
  // The other side may have sent something before it closed, so reading goes on.
  return {0, !would_block(errno)};
}

bool Link::wants_out(bool unsent) const {
  if (!open()) return false;
  if (!tls_) return unsent;
  if (SSL_want_write(tls_->ssl) == 1 || !tls_->out.late.empty()) return true;
  return unsent && SSL_is_init_finished(tls_->ssl) == 1;
}

bool Link::buffered() const { return tls_ && open() && SSL_has_pending(tls_->ssl) == 1; }

Link::Moved Link::tls_read(std::span<std::byte> into) {
  ERR_clear_error();
  std::size_t size = 0;
  const int status = SSL_read_ex(tls_->ssl, into.data(), into.size(), &size);
  return status == 1 ? Moved{size, false} : moved_nothing(status);
}

// Encrypts many records, and sends them by one call. Bytes count as moved when the socket has taken
// all of them. Until then the owner repeats its call, and the records are not made again.
Link::Moved Link::tls_write(std::span<const std::byte> first, std::span<const std::byte> second) {
  ERR_clear_error();
  if (SSL_is_init_finished(tls_->ssl) == 0) {
    const int status = SSL_do_handshake(tls_->ssl);
    if (status != 1) return moved_nothing(status);
  }
  if (!tls_->out.late.empty()) {
    if (!tls_->out.send_late()) return {0, true};
    if (!tls_->out.late.empty()) return {};
    if (tls_->encrypted > 0) return {std::exchange(tls_->encrypted, 0), false};
  }
  static thread_local std::string records;  // of no link between two calls
  std::size_t moved = 0;
  int status = 1;
  tls_->out.gathered = &records;
  for (std::span<const std::byte> bytes : {first, second}) {
    while (status == 1 && !bytes.empty() && records.size() < kGather) {
      std::size_t size = 0;
      status = SSL_write_ex(tls_->ssl, bytes.data(), bytes.size(), &size);
      if (status != 1) break;
      bytes = bytes.subspan(size);
      moved += size;
    }
    if (!bytes.empty()) break;
  }
  tls_->out.gathered = nullptr;
  if (!tls_->out.send(records)) return {0, true};
  if (status != 1 && moved == 0) return moved_nothing(status);
  if (tls_->out.late.empty()) return {moved, false};
  tls_->encrypted = moved;
  return {};
}

Link::Moved Link::moved_nothing(int status) {
  switch (SSL_get_error(tls_->ssl, status)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return {};
    case SSL_ERROR_ZERO_RETURN:
      return {0, true};  // the other side has said that this is the end
    case SSL_ERROR_SYSCALL:
      trouble_ = errno == 0 ? "the connection ended without notice" : std::strerror(errno);
      return {0, true};
    default: {
      std::array<char, 256> text{};
      const unsigned long error = ERR_peek_last_error();
      const char* reason = ERR_reason_error_string(error);
      if (reason == nullptr) ERR_error_string_n(error, text.data(), text.size());
      trouble_ = reason == nullptr ? text.data() : reason;
      return {0, true};
    }
  }
}

}  // namespace rubato::wire
