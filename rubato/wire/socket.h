// File descriptors that close themselves, and stream sockets between processes.
//
// An address is text: "unix:PATH" or "tcp:HOST:PORT". The host is numeric, an IPv6 one in brackets:
// "tcp:[::1]:7000". Port 0 is any free port. A listener on [::] also accepts IPv4.
// Every socket is non-blocking and closed on exec. Names are never looked up, so nothing here
// waits.
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
// The address of a listening socket, with its actual port.
[[nodiscard]] Result<std::string> address_of(const Fd& listener);
// The connection may still have to be made. Until then the socket takes no bytes. If nobody listens
// on this machine, it fails at once; otherwise the first read says so.
[[nodiscard]] Result<Fd> connect_to(const std::string& address);
// An invalid Fd if no connection waits.
[[nodiscard]] Fd accept_from(const Fd& listener);

// The user of the process at the other end of this connection by a unix socket.
// nullopt if the kernel does not know.
[[nodiscard]] std::optional<uid_t> user_at(const Fd& connection);

// Readable when the process has ended, even if it is not a child. Invalid if there is no such
// process.
[[nodiscard]] Fd watch_process(int pid);
struct ProcessState {
  // Kernel ticks from boot to the start of the process. Together with the pid it is a unique name.
  // 0 if the process does not exist.
  long long start_time = 0;
  bool ended = false;  // and has not been collected
  int parent = 0;
};
// nullopt if there were no descriptors or memory to look: then it is not known whether it exists.
[[nodiscard]] std::optional<ProcessState> look_at_process(int pid);
// 0 also if it cannot be looked at.
[[nodiscard]] long long start_time_of(int pid);

}  // namespace rubato::wire
