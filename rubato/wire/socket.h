// Descriptors that close themselves, and the stream sockets between processes.
//
// An address is text: "unix:PATH" or "tcp:HOST:PORT" (a numeric host; port 0 = any free one). Every
// socket is non-blocking and closed on exec; names are never looked up, so nothing here waits.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>

#include "rubato/base/result.h"

namespace rubato::wire {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { close(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

[[nodiscard]] Result<Fd> listen_on(const std::string& address);
// Where a listening socket can be reached: with its port, if any was asked for.
[[nodiscard]] Result<std::string> address_of(const Fd& listener);
// Fails at once where nobody listens; a connection that needs time is completed by the kernel while
// the first bytes wait.
[[nodiscard]] Result<Fd> connect_to(const std::string& address);
// nullopt-like: an invalid Fd if nobody waits.
[[nodiscard]] Fd accept_from(const Fd& listener);

// Whose process it was that listens at the other end of this connection to a unix socket; nullopt
// if the kernel does not know.
[[nodiscard]] std::optional<uid_t> listener_of(const Fd& connection);

// Readable once the process has ended, even if it is not a child. Invalid if there is no such
// process.
[[nodiscard]] Fd watch_process(int pid);
struct ProcessState {
  // Kernel ticks between boot and the start of the process: with the pid, its name for ever. 0 if
  // it does not exist.
  long long start_time = 0;
  bool ended = false;  // and waits to be collected
  int parent = 0;
};
// nullopt if it cannot be looked at now, for want of descriptors or memory: whether it exists is
// not known then.
[[nodiscard]] std::optional<ProcessState> look_at_process(int pid);
// 0 also if it cannot be looked at.
[[nodiscard]] long long start_time_of(int pid);

}  // namespace rubato::wire
