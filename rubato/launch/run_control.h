// The runs of this user on this machine: where their sockets are, and how to speak to one.
//
// Each run listens on NAME.sock in a directory that only its user may enter, so whoever can connect
// may command. A request is one JSON object with "type": "info", "resize" (to: "4", "+1", "-1") or
// "kill" (worker); the answer has "error" or what was asked for. These functions block, for a few
// seconds at most.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/wire/inode.h"
#include "rubato/wire/socket.h"

namespace rubato::launch {

// Makes the directory if it is not there; an error if it is not ours alone.
[[nodiscard]] Result<void> make_private(const std::string& directory);

struct RunSocket {
  wire::Fd listener;
  std::string path;
  wire::Inode inode = {};
};
// The place of a new run; an error if one of that name lives.
[[nodiscard]] Result<RunSocket> claim_run(const std::string& directory, const std::string& name);

// A listener at exactly this path, an absolute one; what one that died left there is removed. If
// one lives there the error is `taken`.
[[nodiscard]] Result<RunSocket> claim_socket(const std::string& path, const std::string& taken);

struct LiveRunInfo {
  std::string path;
  Json info;
};
// All runs that answer, by name. Sockets that dead runs left behind are removed.
[[nodiscard]] Result<std::vector<LiveRunInfo>> live_runs(const std::string& directory);

// The path of the run of that name, or of the only one.
[[nodiscard]] Result<std::string> find_run(const std::string& directory,
                                           const std::optional<std::string>& name);

[[nodiscard]] Result<Json> ask_run(const std::string& path, const Json& request);

}  // namespace rubato::launch
