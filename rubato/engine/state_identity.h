// Tells whether a state directory is the original, which may have been moved, or a copy.
//
// identity.json in the directory has a random id and what distinguishes the directory from its
// copies: its inode, its time of creation (if the file system has it), and the path at which a
// daemon last used it. A moved directory keeps its inode; a copy has another one. The processes of
// jobs belong to the original. A daemon on a copy must not take them for its own, because it would
// stop them.
//
// A directory of an older version has no such file. It gets one at the next start.
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

// Whether a daemon may use the directory. `restored`: the user says that it is a copy, or was
// restored from one, so it must not be the original. Changes nothing.
[[nodiscard]] Result<void> check_identity(const std::string& directory, bool restored);

// For the daemon that holds the directory's lock. In a copy it removes everything by which
// processes of the original could be found: the names of processes, sockets and tokens. The jobs of
// the copy start again as if their nodes had been lost.
[[nodiscard]] Result<StateIdentity> claim_identity(const std::string& directory, bool restored);

// With what the names of all its shares begin (share_table.h).
[[nodiscard]] std::string share_identity(const StateIdentity& identity);

}  // namespace rubato::engine
