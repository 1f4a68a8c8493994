// Who asks: tokens and peers of unix sockets to Callers. The core publishes who there is, the HTTP
// server looks them up on its own thread.
//
// A token is "rub_" and 32 random bytes. Only its SHA-256 is kept anywhere, and looking it up by
// its hash tells a guesser's clock nothing about the token.
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

// From the kernel's randomness.
[[nodiscard]] std::string new_token();
[[nodiscard]] Digest token_hash(std::string_view token);
// By which people name a token that they cannot see: the first digits of its hash.
[[nodiscard]] std::string token_name(const Digest& hash);

// Thread-safe.
class Callers {
 public:
  using Clock = std::chrono::steady_clock;
  using LookUp = std::function<std::optional<std::string>(uid_t)>;
  using Now = std::function<Clock::time_point()>;

  // Names of peers by the system's table of users.
  Callers();
  Callers(LookUp look_up, Now now);

  struct Table {
    std::map<Digest, Caller> tokens;  // by token_hash()
    std::set<std::string> admins;     // users with that role, for those who come by unix socket
  };

  void publish(Table table);

  [[nodiscard]] std::optional<Caller> by_hash(const Digest& token) const;
  // The name that the system knows for the user id, or the id itself as text, which is no valid
  // name of a user and so nobody else's. Root and whoever runs the daemon are admins.
  [[nodiscard]] Caller by_peer(uid_t user) const;

 private:
  struct Name {
    std::string text;
    Clock::time_point until;
  };

  // Remembered for a minute, because looking it up may take a while. That there is none is not
  // remembered: a directory service that does not answer must not cost anybody their name.
  [[nodiscard]] std::string name_of(uid_t user) const;

  const LookUp look_up_;
  const Now now_;
  mutable std::mutex mutex_;
  Table table_;
  mutable std::map<uid_t, Name> names_;
};

}  // namespace rubato::http
