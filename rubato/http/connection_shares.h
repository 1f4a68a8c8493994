// Whose connections there are, and which has to go when there are too many: nobody can keep the
// others out by opening all that the server takes.
//
// A connection belongs to a user, or to nobody yet (over TCP, before its first good request). While
// there is room, everybody may have as many as they like. When there is none, whoever comes takes
// the place of the longest idle connection of the user who has the most, if that is more than they
// have themselves; else they are refused. Those that belong to nobody yet are together like one
// user, have a bound of their own, and there the newest takes the place of the longest idle.
//
// Pure; of one thread.
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
    std::optional<Id> evicted;  // to be closed: it has left already
  };
  // One comes and is idle. `owner` is empty while nobody knows whose it is.
  [[nodiscard]] Verdict enter(Id id, const std::string& owner);
  void identify(Id id, const std::string& owner);
  // The loop is asked something for it: it is not closed for another.
  void set_busy(Id id);
  // All else, from now on: nobody may hold a place by being slow.
  void set_idle(Id id);
  void leave(Id id);

  [[nodiscard]] std::size_t count() const { return connections_.size(); }
  [[nodiscard]] std::size_t count_of(const std::string& owner) const;

 private:
  struct Connection {
    std::string owner;
    std::uint64_t idle_since = 0;  // in the order of all that became idle; 0: busy
  };
  struct Group {
    std::size_t count = 0;
    std::map<std::uint64_t, Id> idle;  // the longest idle first
  };

  // As many as there may be have shown no identity, and this one has not either.
  [[nodiscard]] bool crowded(const std::string& owner) const;
  [[nodiscard]] std::optional<Id> whose_place(const std::string& owner) const;

  std::size_t most_;
  std::size_t most_unidentified_;
  std::uint64_t next_ = 0;
  std::map<Id, Connection> connections_;
  std::map<std::string, Group> groups_;  // by owner; none is empty
};

}  // namespace rubato::http
