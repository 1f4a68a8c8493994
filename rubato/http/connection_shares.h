// Decides which connection is closed when there are too many. No user can keep the others out by
// opening all connections that the server accepts.
//
// A connection belongs to a user, or to nobody yet (over TCP, before its first good request). While
// there is room, users may open as many as they like. When there is no room, a new connection
// replaces the longest idle connection of the user who has the most, if that user has more than the
// newcomer. Otherwise it is refused. Connections that belong to nobody count together as one user.
// They also have a limit of their own; at this limit the newest replaces the longest idle one.
//
// Pure. For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace rubato::http {

class ConnectionShares {
 public:
  using Id = std::uint64_t;

  ConnectionShares(std::size_t most, std::size_t most_unidentified)
      : most_(most), most_unidentified_(most_unidentified) {}

  struct Verdict {
    bool admitted = false;
    std::optional<Id> evicted;  // the caller must close it; it is already removed here
  };
  // A connection opens, and is idle. `owner` is empty while the owner is unknown.
  [[nodiscard]] Verdict enter(Id id, const std::string& owner);
  void identify(Id id, const std::string& owner);
  // The loop is working on a request of this connection. It will not be closed for another one.
  void set_busy(Id id);
  // In all other cases, so that nobody can hold a place by being slow.
  void set_idle(Id id);
  void leave(Id id);

  [[nodiscard]] std::size_t count() const { return connections_.size(); }
  [[nodiscard]] std::size_t count_of(const std::string& owner) const;

 private:
  struct Connection {
    std::string owner;
    // Grows with each connection that becomes idle. 0: busy.
    std::uint64_t idle_since = 0;
  };
  struct Group {
    std::size_t count = 0;
    std::map<std::uint64_t, Id> idle;  // the longest idle one first
  };

  // There are already as many unidentified connections as allowed, and this one is unidentified,
  // too.
  [[nodiscard]] bool crowded(const std::string& owner) const;
  [[nodiscard]] std::optional<Id> whose_place(const std::string& owner) const;

  std::size_t most_;
  std::size_t most_unidentified_;
  std::uint64_t next_ = 0;
  std::map<Id, Connection> connections_;
  std::map<std::string, Group> groups_;  // by owner; none is empty
};

}  // namespace rubato::http
