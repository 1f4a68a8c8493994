// Identifies callers by their token, or by the user at the other end of a unix socket. The core
// publishes the users; the HTTP server looks them up on its own thread.
//
// A token is "rub_" and 32 random bytes. Only its SHA-256 hash is stored. Tokens are looked up by
// their hash, so the time of a look-up tells an attacker nothing about the token.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <sys/types.h>

#include "rubato/api/request.h"
#include "rubato/journal/digest.h"

namespace rubato::http {

// Made from the kernel's random numbers.
[[nodiscard]] std::string new_token();
[[nodiscard]] Digest token_hash(std::string_view token);
// The name of a token, for people who cannot see the token itself: the first digits of its hash.
[[nodiscard]] std::string token_name(const Digest& hash);

// Thread-safe.
class Callers {
 public:
  using Clock = std::chrono::steady_clock;
  using LookUp = std::function<std::optional<std::string>(uid_t)>;
  using Now = std::function<Clock::time_point()>;

  // Takes the names of peers from the system's table of users.
  Callers();
  Callers(LookUp look_up, Now now);

  struct Table {
    std::map<Digest, Caller> tokens;                // by token_hash()
    std::set<std::string> admins;                   // for callers on a unix socket
    std::map<Digest, Clock::time_point> ends = {};  // of tokens that end by themselves
  };

  void publish(Table table);

  [[nodiscard]] std::optional<Caller> by_hash(const Digest& token) const;
  // Whether the token ends by itself, as those of the page do.
  [[nodiscard]] bool ends(const Digest& token) const;
  // The name that the system has for the user id. If there is none, the id itself as text; this is
  // not a valid user name, so it belongs to nobody else. Root and the user who runs the daemon are
  // admins.
  [[nodiscard]] Caller by_peer(uid_t user) const;

 private:
  struct Name {
    std::string text;
    Clock::time_point until;
  };

  // The name is cached for a minute, because looking it up may take a while. A missing name is not
  // cached: if a directory service does not answer once, no user may lose their name.
  [[nodiscard]] std::string name_of(uid_t user) const;

  const LookUp look_up_;
  const Now now_;
  mutable std::mutex mutex_;
  Table table_;
  mutable std::map<uid_t, Name> names_;
};

}  // namespace rubato::http
