// One thread waits for many descriptors (epoll). Other threads can give it tasks.
//
// Everything except post() is for the thread that calls wait(). A callback may add and remove
// descriptors, including its own.
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
    bool in = false;  // readable, ended or broken: a read will show which
    bool out = false;
  };
  using Callback = std::function<void(Ready)>;

  Poller();

  void add(int fd, Callback callback, bool want_out = false);
  void want_out(int fd, bool wanted);
  void want_in(int fd, bool wanted);
  // Call it before the descriptor is closed. Unknown descriptors are ignored.
  void remove(int fd);

  // Runs the posted tasks and the callbacks that are ready. Waits at most `timeout` for them.
  void wait(std::chrono::milliseconds timeout);

  // Runs `task` inside wait(). May be called from any thread.
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
