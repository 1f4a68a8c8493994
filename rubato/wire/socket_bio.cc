#include "rubato/wire/socket_bio.h"

#include <cerrno>
#include <openssl/bio.h>
#include <optional>
#include <string_view>
#include <sys/socket.h>

#include "rubato/base/check.h"

namespace rubato::wire {
namespace {

bool may_retry(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

OutgoingRecords& records_of(BIO* bio) { return *static_cast<OutgoingRecords*>(BIO_get_data(bio)); }

int send_bytes(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  OutgoingRecords& records = records_of(bio);
  if (records.gathered != nullptr || !records.late.empty()) {
    std::string& waiting = records.gathered != nullptr ? *records.gathered : records.late;
    waiting.append(bytes, static_cast<std::size_t>(size));
    return size;
  }
  const ssize_t sent = ::send(records.fd, bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && may_retry(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int receive_bytes(BIO* bio, char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t received = recv(records_of(bio).fd, bytes, static_cast<std::size_t>(size), 0);
  if (received < 0 && may_retry(errno)) BIO_set_retry_read(bio);
  if (received == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(received);
}

long control_socket(BIO* bio, int command, long /*number*/, void* /*pointer*/) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// How many bytes the socket took; nothing if the connection is broken.
std::optional<std::size_t> send_some(int fd, std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t sent = ::send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (sent < 0 && may_retry(errno)) break;
    if (sent < 0) return std::nullopt;
    at += static_cast<std::size_t>(sent);
  }
  return at;
}

}  // namespace

bool OutgoingRecords::send(std::string& bytes) {
  const auto sent = send_some(fd, bytes);
  if (sent) late.assign(bytes, *sent);
  bytes.clear();
  return sent.has_value();
}

bool OutgoingRecords::send_late() {
  const auto sent = send_some(fd, late);
  if (!sent) return false;
  late.erase(0, *sent);
  if (late.empty()) std::string().swap(late);
  return true;
}

BIO* socket_bio(OutgoingRecords& records) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "rubato socket");
    CHECK(made != nullptr);
    BIO_meth_set_write(made, send_bytes);
    BIO_meth_set_read(made, receive_bytes);
    BIO_meth_set_ctrl(made, control_socket);
    return made;
  }();
  BIO* bio = BIO_new(method);
  CHECK(bio != nullptr);
  BIO_set_data(bio, &records);
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace rubato::wire
