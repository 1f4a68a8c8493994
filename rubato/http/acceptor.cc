#include "rubato/http/acceptor.h"

#include <cerrno>
#include <chrono>
#include <sys/socket.h>

namespace rubato::http {
namespace {

using boost::system::error_code;

constexpr std::chrono::milliseconds kPause{100};
// At most this many are accepted in a row, so that open connections need not wait.
constexpr int kMostAtOnce = 64;

}  // namespace

void Acceptor::begin() {
  descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [me = shared_from_this()](error_code error) {
                           if (error) return;
                           if (me->accept_all()) return me->begin();
                           // Without a pause the descriptor would be ready again at once.
                           me->pause_.expires_after(kPause);
                           me->pause_.async_wait([me](error_code cancelled) {
                             if (!cancelled) me->begin();
                           });
                         });
}

void Acceptor::close() {
  error_code ignored;
  descriptor_.close(ignored);
  pause_.cancel();
}

bool Acceptor::accept_all() {
  for (int i = 0; i < kMostAtOnce; ++i) {
    const int fd =
        ::accept4(descriptor_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      take_(fd);
    } else if (errno == EAGAIN) {
      return true;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace rubato::http
