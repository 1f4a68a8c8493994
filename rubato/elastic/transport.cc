#include "rubato/elastic/transport.h"

#include <algorithm>
#include <poll.h>
#include <vector>

#include "rubato/base/check.h"

namespace rubato::elastic {

namespace {

// The most bytes per turn from one peer, so that the others need not wait.
constexpr std::size_t kTurn = std::size_t{4} << 20U;
constexpr int kReadsATurn = 16;
constexpr std::uint64_t kLargestPayload = std::uint64_t{1} << 36U;

}  // namespace

Transport::~Transport() {
  while (!connections_.empty()) drop(connections_.begin()->first);
}

void Transport::connect(Uid peer, wire::Link link, std::string greeting) {
  Connection& connection = connections_[peer];
  if (connection.link.open()) poller_.remove(connection.link.fd());
  connection.link = std::move(link);
  connection.greeting = std::move(greeting);
  connection.header_bytes = 0;
  connection.into = nullptr;
  connection.waiting = false;
  poller_.add(
      connection.link.fd(),
      [this, peer](wire::Poller::Ready ready) {
        if (ready.out) write(peer);
        // A link that was handed over may hold bytes that the poller cannot see.
        const auto found = connections_.find(peer);
        if (found == connections_.end()) return;
        if (ready.in || (found->second.link.buffered() && !found->second.waiting)) read(peer);
      },
      true);
}

bool Transport::connected(Uid peer) const {
  const auto found = connections_.find(peer);
  return found != connections_.end() && found->second.link.open();
}

void Transport::drop(Uid peer) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  if (found->second.link.open()) poller_.remove(found->second.link.fd());
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
  wait_for_room(connection);
}

void Transport::send_text(Uid peer, Header header, const std::string& text) {
  auto copy = std::make_shared<const std::string>(text);
  send(peer, header, std::as_bytes(std::span(*copy)), copy);
}

std::size_t Transport::unsent(Uid peer) const {
  const auto found = connections_.find(peer);
  return found == connections_.end() ? 0 : found->second.unsent;
}

void Transport::wait_for_room(const Connection& connection) {
  if (!connection.link.open()) return;
  poller_.want_out(connection.link.fd(), connection.link.wants_out(connection.anything_unsent()));
}

void Transport::write(Uid peer) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  if (!write_out(found->second)) return lose(peer);
  wait_for_room(found->second);
}

bool Transport::write_out(Connection& connection) {
  // Also without bytes: a link that is exchanging keys goes on.
  if (!connection.greeting.empty() || connection.out.empty()) {
    const wire::Link::Moved moved =
        connection.link.write(std::as_bytes(std::span(connection.greeting)));
    if (moved.over) return false;
    connection.greeting.erase(0, moved.bytes);
    if (!connection.greeting.empty()) return true;
  }
  std::size_t turn = 0;
  while (!connection.out.empty() && turn < kTurn) {
    Outgoing& item = connection.out.front();
    const std::size_t of_header = std::min(item.sent, sizeof(Header));
    const std::size_t of_payload = item.sent - of_header;
    const wire::Link::Moved moved =
        connection.link.write(std::as_bytes(std::span(&item.header, 1)).subspan(of_header),
                              item.payload.subspan(of_payload));
    if (moved.over) return false;
    if (moved.bytes == 0) return true;
    item.sent += moved.bytes;
    connection.unsent -= item.sent - std::min(item.sent, sizeof(Header)) - of_payload;
    turn += moved.bytes;
    if (item.sent == sizeof(Header) + item.payload.size()) connection.out.pop_front();
  }
  return true;
}

void Transport::read(Uid peer) {
  for (int turn = 0;; ++turn) {
    const auto found = connections_.find(peer);
    if (found == connections_.end() || !found->second.link.open()) return;
    // The poller does not see what is decrypted already, so the turn does not end before it.
    if (turn >= kReadsATurn && !found->second.link.buffered()) break;
    if (found->second.waiting || !read_some(peer, found->second)) break;
  }
  // Reading may have completed the exchange of keys that unsent messages wait for.
  const auto found = connections_.find(peer);
  if (found != connections_.end()) wait_for_room(found->second);
}

// False if there is nothing more to read now.
bool Transport::read_some(Uid peer, Connection& connection) {
  if (connection.header_bytes < sizeof(Header)) {
    const wire::Link::Moved moved = connection.link.read(
        std::as_writable_bytes(std::span(&connection.header, 1)).subspan(connection.header_bytes));
    if (moved.over) lose(peer);
    if (moved.over || moved.bytes == 0) return false;
    connection.header_bytes += moved.bytes;
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
      poller_.want_in(connection.link.fd(), false);
      return false;
    }
  }
  const std::size_t wanted = connection.header.bytes - connection.payload_bytes;
  if (wanted > 0) {
    const wire::Link::Moved moved =
        connection.link.read({connection.into + connection.payload_bytes, wanted});
    if (moved.over) lose(peer);
    if (moved.over || moved.bytes == 0) return false;
    connection.payload_bytes += moved.bytes;
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
    poller_.want_in(found->second.link.fd(), true);
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
      if (!connection.link.open() || !connection.anything_unsent()) continue;
      // A link that exchanges keys may first have to hear the other side.
      const short event = connection.link.wants_out(true) ? POLLOUT : POLLIN;
      waiting.push_back({connection.link.fd(), event, 0});
      peers.push_back(peer);
    }
    if (waiting.empty() || poll(waiting.data(), waiting.size(), 1000) <= 0) return;
    for (std::size_t i = 0; i < peers.size(); ++i) {
      if (waiting[i].revents != 0) write(peers[i]);
    }
  }
}

}  // namespace rubato::elastic
