// One end of a stream connection between two processes: plain, or TLS 1.3 with a pre-shared key.
//
// With a key, each side proves to the other that it knows it, and all bytes are encrypted and
// protected against changes. There are no certificates, no tickets and no early data, so recorded
// bytes are worthless. Each connection has its own Diffie-Hellman exchange.
//
// A new link may still be connecting, or exchanging keys. Its owner need not know: read() and
// write() move nothing until that is done, and wants_out() says what to wait for.
//
// For one thread. Never blocks.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "rubato/wire/link_key.h"
#include "rubato/wire/socket.h"

namespace rubato::wire {

class Link {
 public:
  // What a call has moved. No bytes and not over: nothing can be moved now.
  struct Moved {
    std::size_t bytes = 0;
    bool over = false;  // the other side has closed, or the connection is broken
  };

  Link();
  explicit Link(Fd fd);  // plain
  // TLS, for the side that dials. It accepts only a listener that knows the key.
  Link(Fd fd, const LinkKey& key);
  // TLS, for the side that listens. It accepts only a dialler that knows the key of its identity.
  Link(Fd fd, FindLinkKey find);
  Link(Link&& other) noexcept;
  Link& operator=(Link&& other) noexcept;
  ~Link();

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool open() const { return fd_.valid(); }
  // Announces the end if that is possible at once. Bytes that the kernel holds are still sent.
  void close();
  // The plain socket. Only for a link without a key.
  [[nodiscard]] Fd release();

  [[nodiscard]] Moved read(std::span<std::byte> into);
  // Takes as much as possible from the front of `first`, then of `second`. A call that moved
  // nothing must be repeated with the same bytes, which may be at another place.
  [[nodiscard]] Moved write(std::span<const std::byte> first,
                            std::span<const std::byte> second = {});

  // Whether the owner should call write() (also with no bytes) when the socket takes bytes again.
  // `unsent`: whether the owner has bytes to send.
  [[nodiscard]] bool wants_out(bool unsent) const;
  // Whether read() may return bytes although the socket has none: they have been read already. The
  // poller cannot see them. An owner that stops reading early must look here.
  [[nodiscard]] bool buffered() const;

  // Who the other side is, once its key is proven: its identity if it dialled us, else empty.
  [[nodiscard]] const std::string& peer() const;
  // Why the connection broke, or empty.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }

 private:
  struct Tls;
  Moved tls_read(std::span<std::byte> into);
  Moved tls_write(std::span<const std::byte> first, std::span<const std::byte> second = {});
  // What OpenSSL said to a call that moved nothing.
  Moved moved_nothing(int status);

  Fd fd_;
  std::unique_ptr<Tls> tls_;
  std::string trouble_;
};

}  // namespace rubato::wire
