// The identity of a file behind a name. A name may be deleted, or belong to another file, while the
// file itself is still open and in use.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "rubato/wire/socket.h"

namespace rubato::wire {

struct Inode {
  dev_t device = 0;
  ino_t number = 0;
  friend bool operator==(const Inode&, const Inode&) = default;
};

// nullopt if there is no file, or if it cannot be looked at (errno says which).
[[nodiscard]] std::optional<Inode> inode_at(const std::string& path);
[[nodiscard]] std::optional<Inode> inode_of(const Fd& file);

// Whether the name is gone or belongs to another file. If it cannot be looked at now, this is
// false.
[[nodiscard]] bool leads_elsewhere(const std::string& path, const Inode& inode);

}  // namespace rubato::wire
