// A cgroup: a group of processes that can be killed together, whatever they do. It needs version 2
// and Linux 5.14 or newer.
//
// It is created below our own cgroup. Root can do this, and so can a user to whom systemd has
// delegated it. If no cgroup can be created, there is none, and this is not an error.
#pragma once

#include <optional>
#include <string>

#include "rubato/wire/socket.h"

namespace rubato::node {

// Its path; nullopt if it cannot be created.
[[nodiscard]] std::optional<std::string> make_cgroup(const std::string& name);
// A process that writes "0" there joins the group.
[[nodiscard]] wire::Fd entrance_of(const std::string& cgroup);
// Kills everything in it. True if nothing is left in it, or if it does not exist.
[[nodiscard]] bool empty_cgroup(const std::string& cgroup);
void remove_cgroup(const std::string& cgroup);

// The group below this mount of cgroups that a process is in, from the texts of /proc/PID/mountinfo
// and /proc/PID/cgroup; nullopt if it has none, or cannot see it.
[[nodiscard]] std::optional<std::string> cgroup_in(const std::string& mountinfo,
                                                   const std::string& cgroup);

}  // namespace rubato::node
