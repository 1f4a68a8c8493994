#include "rubato/http/callers.h"

#include <array>
#include <sys/random.h>
#include <unistd.h>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/http/job_users.h"

namespace rubato::http {
namespace {

constexpr std::chrono::minutes kNameHolds{1};

// base64url without padding.
std::string base64(const std::array<std::uint8_t, 32>& bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string text;
  std::uint32_t held = 0;
  int bits = 0;
  for (const std::uint8_t byte : bytes) {
    held = (held << 8U) | byte;
    bits += 8;
    while (bits >= 6) {
      bits -= 6;
      text += kDigits[(held >> static_cast<unsigned>(bits)) & 63U];
    }
  }
  if (bits > 0) text += kDigits[(held << static_cast<unsigned>(6 - bits)) & 63U];
  return text;
}

}  // namespace

std::string new_token() {
  std::array<std::uint8_t, 32> bytes{};
  CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return "rub_" + base64(bytes);
}

Digest token_hash(std::string_view token) { return Digester().add(token).finish(); }

std::string token_name(const Digest& hash) {
  return hex({reinterpret_cast<const char*>(hash.data()), hash.size()}).substr(0, kTokenNameDigits);
}

Callers::Callers() : Callers(known_name, [] { return Clock::now(); }) {}

Callers::Callers(LookUp look_up, Now now) : look_up_(std::move(look_up)), now_(std::move(now)) {}

void Callers::publish(Table table) {
  const std::lock_guard lock(mutex_);
  std::swap(table_, table);
}

std::optional<Caller> Callers::by_hash(const Digest& token) const {
  const std::lock_guard lock(mutex_);
  const auto found = table_.tokens.find(token);
  if (found == table_.tokens.end()) return std::nullopt;
  const auto end = table_.ends.find(token);
  if (end != table_.ends.end() && now_() >= end->second) return std::nullopt;
  return found->second;
}

bool Callers::ends(const Digest& token) const {
  const std::lock_guard lock(mutex_);
  return table_.ends.contains(token);
}

std::string Callers::name_of(uid_t user) const {
  const auto now = now_();
  {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(user);
    if (found != names_.end() && now < found->second.until) return found->second.text;
  }
  // Without the lock, so that the loop can publish at the same time.
  const auto name = look_up_(user);
  if (!name) return std::to_string(user);
  const std::lock_guard lock(mutex_);
  names_.insert_or_assign(user, Name{*name, now + kNameHolds});
  return *name;
}

Caller Callers::by_peer(uid_t user) const {
  std::string name = name_of(user);
  const std::lock_guard lock(mutex_);
  const bool admin = user == 0 || user == ::geteuid() || table_.admins.count(name) > 0;
  return {std::move(name), admin};
}

}  // namespace rubato::http
