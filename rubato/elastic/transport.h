// The data connections between workers: tagged messages, read straight to where they belong.
//
// Sending takes a pointer and no copy; receiving asks, once a header has arrived, where its payload
// should go. The answer may be "later": the connection is then not read any further (and the
// sender, sooner or later, not served), until retry() asks again. That is all the flow control
// there is: a peer that is a step ahead waits in its socket.
//
// A connection may be used before it exists: what is sent waits for it. Belongs to one thread, that
// of its Poller.
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
#include "rubato/wire/poller.h"

namespace rubato::elastic {

using member::Uid;

enum class Kind : std::uint8_t { partial, result, word, adopt, chunk, fed, catch_up };

struct Header {
  std::uint32_t magic = kMagic;
  Kind kind = Kind::partial;
  std::uint8_t finite = 1;   // of a result: no value is infinite or not a number
  std::uint16_t part = 0;    // of a partial: which subtree of the sender's range
  std::uint64_t bucket = 0;  // of a partial, a result or a chunk: which
  std::int64_t step = 0;
  std::uint64_t bytes = 0;  // of the payload
  double sqr_norm = 0;      // of a result

  static constexpr std::uint32_t kMagic = 0x52424131;
};

class Transport {
 public:
  struct Hooks {
    // Where the payload goes: nullptr = not now. Called again after retry().
    std::function<std::byte*(Uid, const Header&)> where;
    std::function<void(Uid, const Header&)> arrived;
    std::function<void(Uid)> lost;
  };

  Transport(wire::Poller& poller, Hooks hooks) : poller_(poller), hooks_(std::move(hooks)) {}
  ~Transport();

  // Replaces the connection there was; what was sent without any goes out now.
  void connect(Uid peer, wire::Fd fd);
  [[nodiscard]] bool connected(Uid peer) const;
  // Forgets the connection and what waits to be sent.
  void drop(Uid peer);
  // For good: what is sent to it from now on goes nowhere.
  void forget(Uid peer);

  // The payload must stay as it is until it is sent; `owner` keeps it alive.
  void send(Uid peer, const Header& header, std::span<const std::byte> payload,
            std::shared_ptr<const void> owner = {});
  void send_text(Uid peer, Header header, const std::string& text);

  // Asks again about payloads that had to wait.
  void retry();

  [[nodiscard]] std::size_t unsent(Uid peer) const;
  // The memory [from, from + bytes) is about to change: copies what of it is still to be sent.
  void make_private(std::span<const std::byte> memory);
  // The same for everything of this kind.
  void make_private(Kind kind);
  // Waits until everything is sent or cannot be.
  void flush();

 private:
  struct Outgoing {
    Header header;
    std::span<const std::byte> payload;
    std::shared_ptr<const void> owner;
    std::size_t sent = 0;  // of header and payload
  };
  struct Connection {
    wire::Fd fd;
    std::deque<Outgoing> out;
    std::size_t unsent = 0;
    Header header;
    std::size_t header_bytes = 0;
    std::byte* into = nullptr;
    std::size_t payload_bytes = 0;
    bool waiting = false;  // for retry()
  };

  static void make_private(Outgoing& item);
  void write(Uid peer);
  void read(Uid peer);
  [[nodiscard]] bool read_some(Uid peer, Connection& connection);
  void lose(Uid peer);

  wire::Poller& poller_;
  Hooks hooks_;
  std::map<Uid, Connection> connections_;
  std::set<Uid> forgotten_;
};

}  // namespace rubato::elastic
