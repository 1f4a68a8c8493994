#include "rubato/elastic/transport.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <vector>

#include "rubato/base/check.h"

namespace rubato::elastic {

namespace {

// The most bytes per turn from one peer, so that the others need not wait.
constexpr std::size_t kTurn = std::size_t{4} << 20U;
constexpr int kReadsATurn = 16;
constexpr std::uint64_t kLargestPayload = std::uint64_t{1} << 36U;

bool again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Transport::~Transport() {
  while (!connections_.empty()) drop(connections_.begin()->first);
}

void Transport::connect(Uid peer, wire::Fd fd) {
  Connection& connection = connections_[peer];
  if (connection.fd.valid()) poller_.remove(connection.fd.get());
  connection.fd = std::move(fd);
  connection.header_bytes = 0;
  connection.into = nullptr;
  connection.waiting = false;
  poller_.add(
      connection.fd.get(),
      [this, peer](wire::Poller::Ready ready) {
        if (ready.out) write(peer);
        if (ready.in) read(peer);
      },
      true);
}

bool Transport::connected(Uid peer) const {
  const auto found = connections_.find(peer);
  return found != connections_.end() && found->second.fd.valid();
}

void Transport::drop(Uid peer) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  if (found->second.fd.valid()) poller_.remove(found->second.fd.get());
  connections_.erase(found);
}

void Transport::forget(Uid peer) {
  drop(peer);
  forgotten_.insert(peer);
}

void Transport::lose(Uid peer) {
  drop(peer);
  hooks_.lost(peer);
}

void Transport::send(Uid peer, const Header& header, std::span<const std::byte> payload,
                     std::shared_ptr<const void> owner) {
  if (forgotten_.contains(peer)) return;
  Connection& connection = connections_[peer];
  Header complete = header;
  complete.bytes = payload.size();
  connection.out.push_back({complete, payload, std::move(owner)});
  connection.unsent += payload.size();
  if (connection.fd.valid()) poller_.want_out(connection.fd.get(), true);
}

void Transport::send_text(Uid peer, Header header, const std::string& text) {
  auto copy = std::make_shared<const std::string>(text);
  send(peer, header, std::as_bytes(std::span(*copy)), copy);
}

std::size_t Transport::unsent(Uid peer) const {
  const auto found = connections_.find(peer);
  return found == connections_.end() ? 0 : found->second.unsent;
}

void Transport::write(Uid peer) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  std::size_t turn = 0;
  while (!connection.out.empty() && turn < kTurn) {
    Outgoing& item = connection.out.front();
    std::array<iovec, 2> parts{};
    int count = 0;
    const std::size_t of_header = std::min(item.sent, sizeof(Header));
    if (of_header < sizeof(Header)) {
      parts.at(0) = {reinterpret_cast<char*>(&item.header) + of_header, sizeof(Header) - of_header};
      count = 1;
    }
    const std::size_t of_payload = item.sent - of_header;
    if (of_payload < item.payload.size()) {
      // The kernel does not change the bytes, but its interface is older than const.
      parts.at(static_cast<std::size_t>(count++)) = {
          const_cast<std::byte*>(item.payload.data()) + of_payload,
          item.payload.size() - of_payload};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = static_cast<std::size_t>(count);
    const ssize_t sent = sendmsg(connection.fd.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (again(errno)) break;
      return lose(peer);
    }
    const std::size_t payload_before = item.sent - std::min(item.sent, sizeof(Header));
    item.sent += static_cast<std::size_t>(sent);
    const std::size_t payload_now = item.sent - std::min(item.sent, sizeof(Header));
    connection.unsent -= payload_now - payload_before;
    turn += static_cast<std::size_t>(sent);
    if (item.sent == sizeof(Header) + item.payload.size()) connection.out.pop_front();
  }
  poller_.want_out(connection.fd.get(), !connection.out.empty());
}

void Transport::read(Uid peer) {
  for (int turn = 0; turn < kReadsATurn; ++turn) {
    const auto found = connections_.find(peer);
    if (found == connections_.end() || !found->second.fd.valid()) return;
    if (found->second.waiting || !read_some(peer, found->second)) return;
  }
}

// False if there is nothing more to read now.
bool Transport::read_some(Uid peer, Connection& connection) {
  if (connection.header_bytes < sizeof(Header)) {
    const ssize_t size = recv(connection.fd.get(),
                              reinterpret_cast<char*>(&connection.header) + connection.header_bytes,
                              sizeof(Header) - connection.header_bytes, 0);
    if (size < 0 && again(errno)) return false;
    if (size <= 0) {
      lose(peer);
      return false;
    }
    connection.header_bytes += static_cast<std::size_t>(size);
    if (connection.header_bytes < sizeof(Header)) return true;
    if (connection.header.magic != Header::kMagic || connection.header.bytes > kLargestPayload) {
      lose(peer);
      return false;
    }
    connection.into = nullptr;
    connection.payload_bytes = 0;
  }
  if (connection.into == nullptr) {
    connection.into = hooks_.where(peer, connection.header);
    if (connection.into == nullptr) {
      connection.waiting = true;
      poller_.want_in(connection.fd.get(), false);
      return false;
    }
  }
  const std::size_t wanted = connection.header.bytes - connection.payload_bytes;
  if (wanted > 0) {
    const ssize_t size =
        recv(connection.fd.get(), connection.into + connection.payload_bytes, wanted, 0);
    if (size < 0 && again(errno)) return false;
    if (size <= 0) {
      lose(peer);
      return false;
    }
    connection.payload_bytes += static_cast<std::size_t>(size);
    if (connection.payload_bytes < connection.header.bytes) return true;
  }
  const Header header = connection.header;
  connection.header_bytes = 0;
  connection.payload_bytes = 0;
  connection.into = nullptr;
  hooks_.arrived(peer, header);  // may drop the connection
  return true;
}

void Transport::retry() {
  std::vector<Uid> waiting;
  for (auto& [peer, connection] : connections_) {
    if (connection.waiting) waiting.push_back(peer);
  }
  for (const Uid peer : waiting) {
    const auto found = connections_.find(peer);
    if (found == connections_.end()) continue;
    found->second.waiting = false;
    poller_.want_in(found->second.fd.get(), true);
    read(peer);
  }
}

void Transport::make_private(Outgoing& item) {
  auto copy = std::make_shared<std::vector<std::byte>>(item.payload.begin(), item.payload.end());
  item.payload = *copy;
  item.owner = copy;
}

void Transport::make_private(std::span<const std::byte> memory) {
  for (auto& [peer, connection] : connections_) {
    for (Outgoing& item : connection.out) {
      const std::byte* begin = item.payload.data();
      if (begin >= memory.data() && begin < memory.data() + memory.size()) make_private(item);
    }
  }
}

void Transport::make_private(Kind kind) {
  for (auto& [peer, connection] : connections_) {
    for (Outgoing& item : connection.out) {
      if (item.header.kind == kind && item.owner == nullptr) make_private(item);
    }
  }
}

void Transport::flush() {
  while (true) {
    std::vector<pollfd> waiting;
    std::vector<Uid> peers;
    for (const auto& [peer, connection] : connections_) {
      if (!connection.fd.valid() || connection.out.empty()) continue;
      waiting.push_back({connection.fd.get(), POLLOUT, 0});
      peers.push_back(peer);
    }
    if (waiting.empty() || poll(waiting.data(), waiting.size(), 1000) <= 0) return;
    for (std::size_t i = 0; i < peers.size(); ++i) {
      if (waiting[i].revents != 0) write(peers[i]);
    }
  }
}

}  // namespace rubato::elastic
