// Which state directory this is: the one that was here before, under this or another path, or a
// copy of one.
//
// identity.json in it has a random id and what tells the directory from its copies: its inode, when
// it was made (where the file system says so), and the path at which a daemon last used it. A
// directory that is moved keeps its inode, a copy has another. The processes of jobs belong to the
// original: a copy that took them for its own would stop them.
//
// A directory of an older version has no such file; it gets one at the next start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rubato/base/json.h"
#include "rubato/base/result.h"

namespace rubato::engine {

struct StateIdentity {
  std::string id;                    // 128 random bits in hex
  std::uint64_t inode = 0;           // of the directory
  std::optional<std::int64_t> born;  // when the directory was made, in nanoseconds
  std::string path;
  friend bool operator==(const StateIdentity&, const StateIdentity&) = default;
};
[[nodiscard]] Json to_json(const StateIdentity& identity);
[[nodiscard]] Result<StateIdentity> parse_state_identity(const Json& json);

// Whether a daemon may use the directory. `restored`: its user says that it is a copy, or was
// restored from one, so it must not be the original. Changes nothing.
[[nodiscard]] Result<void> check_identity(const std::string& directory, bool restored);

// For the daemon that holds the directory's lock. In a copy it removes everything by which
// processes of the original could be found: the names of processes, sockets and tokens. The jobs of
// the copy start again as if their nodes had been lost.
[[nodiscard]] Result<void> claim_identity(const std::string& directory, bool restored);

}  // namespace rubato::engine
