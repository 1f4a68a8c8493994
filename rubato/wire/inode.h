// Which file a name leads to. A name may be deleted, or lead to another file, while the file itself
// is still open and in use.
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

// nullopt if there is none, or if it cannot be looked at (errno says which).
[[nodiscard]] std::optional<Inode> inode_at(const std::string& path);
[[nodiscard]] std::optional<Inode> inode_of(const Fd& file);

// Whether the name is gone or leads to another file. What cannot be looked at just now is not known
// to be elsewhere.
[[nodiscard]] bool leads_elsewhere(const std::string& path, const Inode& inode);

}  // namespace rubato::wire
