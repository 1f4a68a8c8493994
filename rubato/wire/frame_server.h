// The server side of framed messages: accepts connections, reads and sends messages, and reports
// when a connection is gone. A connection is named by a key, which is never reused.
//
// For the thread of its Poller. Never blocks. A handler may send to, drop and read any connection,
// including its own.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "rubato/wire/frames.h"
#include "rubato/wire/poller.h"

namespace rubato::wire {

class FrameServer {
 public:
  struct Handlers {
    std::function<void(int key, const Json& message)> message;
    // The connection is already closed, and its key is no longer known.
    std::function<void(int key)> dropped;
    // Called after everything that was ready on one connection has been handled.
    std::function<void()> handled;
  };

  FrameServer(Poller& poller, Handlers handlers);
  FrameServer(const FrameServer&) = delete;
  FrameServer& operator=(const FrameServer&) = delete;
  // Closes all connections without calling the handlers.
  ~FrameServer();

  // Listens here from now on, and no longer at the old place. Open connections stay. With `find`,
  // only those who know a key may connect (link.h). Of those that have not proven one yet, only the
  // newest kMostStrangers are kept.
  void listen(Fd listener, FindLinkKey find = {});

  static constexpr std::size_t kMostStrangers = 256;

  [[nodiscard]] bool contains(int key) const { return connections_.contains(key); }
  // The identity whose key the other side has proven; empty if there is none.
  [[nodiscard]] std::string peer(int key) const;
  // Does nothing if the connection is gone.
  void send(int key, const Json& message);
  // Handles the messages that have arrived. Drops the connection if the other side has closed it.
  void read(int key);
  void drop(int key);
  // Whether the other side has not received everything yet. False if the connection is gone.
  [[nodiscard]] bool unsent(int key) const;
  [[nodiscard]] bool any_unsent() const;

 private:
  void accept_all();
  void drop_old_strangers();
  void ready(int key, Poller::Ready ready);
  void wait_for_room(const FrameStream& stream);

  Poller& poller_;
  Handlers handlers_;
  Fd listener_;
  FindLinkKey find_;
  std::map<int, FrameStream> connections_;
  std::set<int> strangers_;  // may hold keys of connections that have proven their key since
  int next_key_ = 0;
};

}  // namespace rubato::wire
