#include "rubato/wire/inode.h"

#include <cerrno>
#include <sys/stat.h>

namespace rubato::wire {

std::optional<Inode> inode_at(const std::string& path) {
  struct stat there {};
  if (stat(path.c_str(), &there) != 0) return std::nullopt;
  return Inode{there.st_dev, there.st_ino};
}

std::optional<Inode> inode_of(const Fd& file) {
  struct stat there {};
  if (!file.valid() || fstat(file.get(), &there) != 0) return std::nullopt;
  return Inode{there.st_dev, there.st_ino};
}

bool leads_elsewhere(const std::string& path, const Inode& inode) {
  const auto now = inode_at(path);
  return now ? *now != inode : errno == ENOENT || errno == ENOTDIR;
}

}  // namespace rubato::wire
