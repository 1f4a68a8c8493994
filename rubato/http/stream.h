// The socket of a connection: plain, or with TLS. Beast and Asio read and write it as one type.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <cstddef>
#include <openssl/ssl.h>
#include <optional>
#include <sys/socket.h>
#include <utility>

namespace rubato::http {

class HttpStream {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using executor_type = Socket::executor_type;
  using error_code = boost::system::error_code;

  // `tls` may be null. The connection keeps it alive.
  HttpStream(Socket socket, SSL_CTX* tls) : socket_(std::move(socket)) {
    if (tls == nullptr) return;
    SSL_CTX_up_ref(tls);
    boost::asio::ssl::context context(tls);  // takes over the count
    tls_.emplace(socket_, context);
  }
  HttpStream(const HttpStream&) = delete;
  HttpStream& operator=(const HttpStream&) = delete;

  [[nodiscard]] executor_type get_executor() { return socket_.get_executor(); }
  [[nodiscard]] bool encrypted() const { return tls_.has_value(); }
  // What is below TLS.
  [[nodiscard]] Socket& socket() { return socket_; }

  template <class Buffers, class Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) {
      tls_->async_read_some(buffers, std::forward<Handler>(handler));
    } else {
      socket_.async_read_some(buffers, std::forward<Handler>(handler));
    }
  }
  template <class Buffers, class Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (tls_) {
      tls_->async_write_some(buffers, std::forward<Handler>(handler));
    } else {
      socket_.async_write_some(buffers, std::forward<Handler>(handler));
    }
  }

  // Only if it is encrypted.
  template <class Handler>
  void async_handshake(Handler&& handler) {
    tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Handler>(handler));
  }
  template <class Handler>
  void async_shutdown(Handler&& handler) {
    tls_->async_shutdown(std::forward<Handler>(handler));
  }

  // For a client that has nothing to send. A byte of TLS means that it says goodbye.
  [[nodiscard]] bool peer_left() {
    char byte = 0;
    const auto got = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got > 0 && tls_);
  }

 private:
  Socket socket_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
};

}  // namespace rubato::http
