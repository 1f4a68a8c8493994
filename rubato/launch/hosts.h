// The hosts of `rubato run --hosts`, and how to reach them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"

namespace rubato::launch {

struct HostPlace {
  std::string name;  // as the remote shell knows it
  int workers = 1;   // at most
  friend bool operator==(const HostPlace&, const HostPlace&) = default;
};
// "a:4,b:2": at most 4 workers on a, and 2 on b. Without a number: 1. An IPv6 address is in
// brackets.
[[nodiscard]] Result<std::vector<HostPlace>> parse_hosts(std::string_view text);

struct HostsSpec {
  std::vector<HostPlace> hosts;
  // A program and its first arguments. The host and the words of a command follow.
  std::vector<std::string> remote_shell{"ssh", "-o", "BatchMode=yes"};
  std::string program = "rubato";  // on each host
  std::string address{};           // of the master, for its hosts; empty: what leads to them
};
// A remote shell may give the words to a shell, so they must mean the same with and without one.
[[nodiscard]] Result<void> check_remote_program(const std::string& program);

// Where a host finds this machine, without a port: `given`; else the address from which this
// machine reaches the host; else, because that may lead nowhere on other hosts, the one from which
// it reaches one of `others`.
[[nodiscard]] std::string address_for(const std::string& host, const std::string& given,
                                      const std::vector<std::string>& others);

}  // namespace rubato::launch
