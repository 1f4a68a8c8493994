// The listening side of framed messages: accepts connections, reads and sends messages, and says
// when a connection is gone. A connection is named by a key, which is never used again.
//
// Belongs to the thread of its Poller; never blocks. A handler may send to, drop and read any
// connection, its own included.
#pragma once

#include <functional>
#include <map>

#include "rubato/wire/frames.h"
#include "rubato/wire/poller.h"

namespace rubato::wire {

class FrameServer {
 public:
  struct Handlers {
    std::function<void(int key, const Json& message)> message;
    // The connection is closed and its key unknown by then.
    std::function<void(int key)> dropped;
    // After all that was ready on one connection was handled.
    std::function<void()> handled;
  };

  FrameServer(Poller& poller, Handlers handlers);
  FrameServer(const FrameServer&) = delete;
  FrameServer& operator=(const FrameServer&) = delete;
  // Closes all without a word to the handlers.
  ~FrameServer();

  // From now on here, and no longer where it was before. Connections stay.
  void listen(Fd listener);

  [[nodiscard]] bool contains(int key) const { return connections_.contains(key); }
  // Nothing happens if the connection is gone.
  void send(int key, const Json& message);
  // Handles what has arrived; drops the connection if the other side has closed it.
  void read(int key);
  void drop(int key);
  // Whether the other side has not taken all yet; false if the connection is gone.
  [[nodiscard]] bool unsent(int key) const;
  [[nodiscard]] bool any_unsent() const;

 private:
  void accept_all();
  void ready(int key, Poller::Ready ready);

  Poller& poller_;
  Handlers handlers_;
  Fd listener_;
  std::map<int, FrameStream> connections_;
  int next_key_ = 0;
};

}  // namespace rubato::wire
