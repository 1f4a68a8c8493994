// The runs of this user on this machine: where their sockets are, and how to send requests to them.
//
// Each run listens on NAME.sock in a directory that only its user may enter. So everybody who can
// connect may give commands. A request is a JSON object with "type": "info", "resize" (to: "4",
// "+1", "-1") or "kill" (worker). The answer has "error" or the result. These functions block for a
// few seconds at most.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/wire/inode.h"
#include "rubato/wire/socket.h"

namespace rubato::launch {

// Creates the directory if it is missing. An error if other users can enter it.
[[nodiscard]] Result<void> make_private(const std::string& directory);

struct RunSocket {
  wire::Fd listener;
  std::string path;
  wire::Inode inode = {};
};
// Claims the socket of a new run. An error if a run of that name exists.
[[nodiscard]] Result<RunSocket> claim_run(const std::string& directory, const std::string& name);

// Listens at exactly this absolute path. A socket that a dead process left there is removed. If a
// living process listens there, the error is `taken`.
[[nodiscard]] Result<RunSocket> claim_socket(const std::string& path, const std::string& taken);

struct LiveRunInfo {
  std::string path;
  Json info;
};
// All runs that answer, by name. Sockets of dead runs are removed.
[[nodiscard]] Result<std::vector<LiveRunInfo>> live_runs(const std::string& directory);

// The path of the run of that name. Without a name, that of the only run.
[[nodiscard]] Result<std::string> find_run(const std::string& directory,
                                           const std::optional<std::string>& name);

[[nodiscard]] Result<Json> ask_run(const std::string& path, const Json& request);

}  // namespace rubato::launch
