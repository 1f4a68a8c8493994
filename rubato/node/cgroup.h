// A group of processes that are killed together whatever they do: a cgroup (version 2, Linux 5.14
// or newer).
//
// It is made below our own one, which root may do, or a user to whom that was delegated, as systemd
// does for its services and sessions. Where it cannot be had there is none, and nothing is said.
#pragma once

#include <optional>
#include <string>

#include "rubato/wire/socket.h"

namespace rubato::node {

// Its path; nullopt if there can be none.
[[nodiscard]] std::optional<std::string> make_cgroup(const std::string& name);
// Whoever writes "0" there is in it from then on.
[[nodiscard]] wire::Fd entrance_of(const std::string& cgroup);
// Kills all that is in it. Whether nothing is, or it does not exist.
[[nodiscard]] bool empty_cgroup(const std::string& cgroup);
void remove_cgroup(const std::string& cgroup);

// The group below this mount of cgroups that a process is in, from the texts of /proc/PID/mountinfo
// and /proc/PID/cgroup; nullopt if it has none, or cannot see it.
[[nodiscard]] std::optional<std::string> cgroup_in(const std::string& mountinfo,
                                                   const std::string& cgroup);

}  // namespace rubato::node
