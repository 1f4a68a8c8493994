// The data connections between workers. They carry tagged messages, and read each payload directly
// to its destination.
//
// Sending takes a pointer and makes no copy. When a header has arrived, the receiver asks the owner
// where the payload should go. The owner may answer "later". Then the connection is not read any
// further until retry() asks again, and sooner or later the sender's socket is full. This is the
// whole flow control: a peer that is one step ahead waits in its socket.
//
// A connection may be used before it exists: messages wait for it. All calls must be on one thread,
// that of its Poller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "rubato/member/record.h"
#include "rubato/wire/link.h"
#include "rubato/wire/poller.h"

namespace rubato::elastic {

using member::Uid;

enum class Kind : std::uint8_t { partial, result, word, adopt, chunk, fed, catch_up, dropped };

struct Header {
  std::uint32_t magic = kMagic;
  Kind kind = Kind::partial;
  std::uint8_t finite = 1;   // for a result: no value is infinite or not a number
  std::uint16_t part = 0;    // for a partial: its element (elastic/reduction_plan.h)
  std::uint32_t bucket = 0;  // for a partial, a result or a chunk: its index
  std::uint32_t shard = 0;   // for a partial or a result
  std::int64_t step = 0;
  std::uint64_t bytes = 0;  // size of the payload
  double sqr_norm = 0;      // for a result

  static constexpr std::uint32_t kMagic = 0x52424131;
};

class Transport {
 public:
  struct Hooks {
    // Where the payload goes. nullptr means not now; asked again after retry().
    std::function<std::byte*(Uid, const Header&)> where;
    std::function<void(Uid, const Header&)> arrived;
    std::function<void(Uid)> lost;
  };

  Transport(wire::Poller& poller, Hooks hooks) : poller_(poller), hooks_(std::move(hooks)) {}
  ~Transport();

  // Replaces the connection to this peer. Sends `greeting` first, then the messages that were
  // waiting for a connection. The link may still be connecting.
  void connect(Uid peer, wire::Link link, std::string greeting = {});
  [[nodiscard]] bool connected(Uid peer) const;
  // Drops the connection and the messages that wait to be sent.
  void drop(Uid peer);
  // Drops the peer for good. Messages to it are ignored from now on.
  void forget(Uid peer);

  // The payload must not change until it is sent. `owner` keeps it alive.
  void send(Uid peer, const Header& header, std::span<const std::byte> payload,
            std::shared_ptr<const void> owner = {});
  void send_text(Uid peer, Header header, const std::string& text);

  // Asks again where the waiting payloads should go.
  void retry();

  [[nodiscard]] std::size_t unsent(Uid peer) const;
  // The memory [from, from + bytes) is about to change. Copies the parts of it that are still to be
  // sent.
  void make_private(std::span<const std::byte> memory);
  // The same for all messages of this kind.
  void make_private(Kind kind);
  // Waits until everything is sent or can no longer be sent.
  void flush();

 private:
  struct Outgoing {
    Header header;
    std::span<const std::byte> payload;
    std::shared_ptr<const void> owner;
    std::size_t sent = 0;  // bytes of header and payload
  };
  struct Connection {
    [[nodiscard]] bool anything_unsent() const { return !greeting.empty() || !out.empty(); }

    wire::Link link;
    std::string greeting;
    std::deque<Outgoing> out;
    std::size_t unsent = 0;
    Header header;
    std::size_t header_bytes = 0;
    std::byte* into = nullptr;
    std::size_t payload_bytes = 0;
    bool waiting = false;  // until retry()
  };

  static void make_private(Outgoing& item);
  void write(Uid peer);
  // Whether everything that the link takes now is sent. False if it is broken.
  [[nodiscard]] static bool write_out(Connection& connection);
  void wait_for_room(const Connection& connection);
  void read(Uid peer);
  [[nodiscard]] bool read_some(Uid peer, Connection& connection);
  void lose(Uid peer);

  wire::Poller& poller_;
  Hooks hooks_;
  std::map<Uid, Connection> connections_;
  std::set<Uid> forgotten_;
};

}  // namespace rubato::elastic
