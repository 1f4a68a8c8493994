// One thread's wait for many descriptors (epoll), with a door for other threads.
//
// Everything but post() belongs to the thread that calls wait(). A callback may add and remove
// descriptors, its own included.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "rubato/wire/socket.h"

namespace rubato::wire {

class Poller {
 public:
  struct Ready {
    bool in = false;  // readable, ended or broken: a read will tell
    bool out = false;
  };
  using Callback = std::function<void(Ready)>;

  Poller();

  void add(int fd, Callback callback, bool want_out = false);
  void want_out(int fd, bool wanted);
  void want_in(int fd, bool wanted);
  // Before the descriptor is closed; unknown ones are ignored.
  void remove(int fd);

  // Runs what was posted and what is ready; waits at most `timeout` for it.
  void wait(std::chrono::milliseconds timeout);

  // From any thread: run this inside wait().
  void post(std::function<void()> task);

 private:
  struct Watch {
    Callback callback;
    std::uint32_t events;
  };
  void update(int fd, Watch& watch, std::uint32_t events);
  void run_posted();

  Fd epoll_;
  Fd wake_;
  std::map<int, std::shared_ptr<Watch>> watches_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
};

}  // namespace rubato::wire
