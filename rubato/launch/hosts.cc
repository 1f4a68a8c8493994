#include "rubato/launch/hosts.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fmt/format.h>
#include <netdb.h>
#include <set>
#include <sys/socket.h>

#include "rubato/base/text.h"
#include "rubato/wire/socket.h"

namespace rubato::launch {
namespace {

constexpr int kMostOnHost = 4096;
constexpr std::size_t kLongestHost = 64;

bool good_host(std::string_view name) {
  const auto good = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("._-@:[]%", c) != nullptr;
  };
  // Only an IPv6 address has colons, and it is in brackets.
  const bool plain = name.find(':') == std::string_view::npos;
  const bool brackets = name.find('[') != std::string_view::npos && name.ends_with(']');
  // A name that begins with a hyphen would be an option of the remote shell.
  return !name.empty() && name.size() <= kLongestHost && name.front() != '-' &&
         (plain || brackets) && std::all_of(name.begin(), name.end(), good);
}

// The address of this machine from which it would reach the host. Empty if that is not known.
std::string way_to(const std::string& host) {
  std::string name = host.substr(host.find('@') == std::string::npos ? 0 : host.find('@') + 1);
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), "9", &hints, &found) != 0) return "";
  std::string address;
  for (const addrinfo* one = found; one != nullptr && address.empty(); one = one->ai_next) {
    // Nothing is sent: this only asks for the route.
    const wire::Fd fd(socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd.valid() || connect(fd.get(), one->ai_addr, one->ai_addrlen) != 0) continue;
    const auto here = wire::address_of(fd);
    if (here) address = here->substr(4, here->rfind(':') - 4);
  }
  freeaddrinfo(found);
  return address;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "[::1]";
}

std::string in_brackets(const std::string& address) {
  const bool bare = address.find(':') != std::string::npos && !address.starts_with('[');
  return bare ? "[" + address + "]" : address;
}

}  // namespace

Result<std::vector<HostPlace>> parse_hosts(std::string_view text) {
  std::vector<HostPlace> hosts;
  std::set<std::string> names;
  for (const std::string_view word : split(text, ',')) {
    HostPlace host{std::string(word), 1};
    const auto colon = word.rfind(':');
    const auto bracket = word.rfind(']');
    if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
      const auto number = parse_integer(word.substr(colon + 1));
      if (!number || *number < 1 || *number > kMostOnHost) {
        return Error{fmt::format("--hosts {}: write HOST:WORKERS with 1 to {} workers",
                                 base::quoted(word), kMostOnHost)};
      }
      host = {std::string(word.substr(0, colon)), static_cast<int>(*number)};
    }
    if (!good_host(host.name)) {
      return Error{fmt::format("--hosts {}: {} is not the name of a host", base::quoted(text),
                               base::quoted(host.name))};
    }
    if (!names.insert(host.name).second) {
      return Error{fmt::format("--hosts {}: {} is named twice", base::quoted(text),
                               base::quoted(host.name))};
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

Result<void> check_remote_program(const std::string& program) {
  const auto good = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("._-+/=@%:,", c) != nullptr;
  };
  if (!program.empty() && program.front() != '-' &&
      std::all_of(program.begin(), program.end(), good)) {
    return {};
  }
  return Error{fmt::format(
      "--remote-program {}: a remote shell could change it; use letters, digits and ._-+/=@%:,",
      base::quoted(program))};
}

std::string address_for(const std::string& host, const std::string& given,
                        const std::vector<std::string>& others) {
  if (!given.empty()) return in_brackets(given);
  std::string address = way_to(host);
  for (const std::string& other : others) {
    if (!address.empty() && !is_loopback(address)) break;
    if (const std::string way = way_to(other); !way.empty()) address = way;
  }
  return address.empty() ? "127.0.0.1" : in_brackets(address);
}

}  // namespace rubato::launch
