// Policies in other processes (sim/foreign_policy.h), reached through a unix socket that keeps the
// boundaries of messages (SOCK_SEQPACKET). Each connection is one policy at its beginning.
//
//   this process                                  the other
//   {"columns": [...]}, the columns of jobs  ->
//                                            <-   {"name": NAME, "elastic": BOOL, "one_type": BOOL}
//   kMemory, bytes; with a descriptor to map ->   whenever there must be more memory
//   kDecide, 0: the question is in it        ->
//                                            <-   kDecide, 0: the answer is in it
//
// The last two are messages of two int64. The other process closes the connection if it cannot
// decide.
#pragma once

#include <memory>
#include <string>

#include "rubato/base/result.h"
#include "rubato/policy/policy.h"

namespace rubato::cmd {

// A row like those of the table of policies. Each policy that it makes has a connection of its own.
[[nodiscard]] Result<PolicyEntry> policy_at_socket(const std::string& path);

}  // namespace rubato::cmd
