#include "rubato/wire/socket_bio.h"

#include <cerrno>
#include <openssl/bio.h>
#include <sys/socket.h>

#include "rubato/base/check.h"

namespace rubato::wire {
namespace {

bool may_retry(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

int send_bytes(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const int fd = *static_cast<const int*>(BIO_get_data(bio));
  const ssize_t sent = send(fd, bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && may_retry(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int receive_bytes(BIO* bio, char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const int fd = *static_cast<const int*>(BIO_get_data(bio));
  const ssize_t received = recv(fd, bytes, static_cast<std::size_t>(size), 0);
  if (received < 0 && may_retry(errno)) BIO_set_retry_read(bio);
  if (received == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(received);
}

long control_socket(BIO* bio, int command, long /*number*/, void* /*pointer*/) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

}  // namespace

BIO* socket_bio(int& fd) {
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
  BIO_set_data(bio, &fd);
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace rubato::wire
