// Accepts connections on one listening socket.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>

namespace rubato::http {

class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  // Takes the descriptor of an accepted connection. It is non-blocking, and closed on exec.
  using Take = std::function<void(int)>;

  // Owns `fd`.
  Acceptor(boost::asio::io_context& context, int fd, Take take)
      : descriptor_(context, fd), pause_(context), take_(std::move(take)) {}

  void begin();
  void close();

 private:
  // False if the process cannot open more descriptors now.
  bool accept_all();

  boost::asio::posix::stream_descriptor descriptor_;
  boost::asio::steady_timer pause_;
  const Take take_;
};

}  // namespace rubato::http
