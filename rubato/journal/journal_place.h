// Reserves a state directory for one daemon, and notices if its files are no longer where they
// were.
//
// Three locks show that the directory is in use: on the file `lock` (the only one that older
// versions use), on the directory itself, and on the journal's live file. The last two cannot be
// lost by deleting a file: a lock belongs to the inode, not to the name. The kernel releases all of
// them when the process ends.
//
// A file that was deleted or moved can still be written through an open descriptor, but the next
// start will not find it. So check() compares the open files with the files that the paths name
// now.
//
// Belongs to one thread.
#pragma once

#include <filesystem>
#include <optional>

#include "rubato/base/result.h"
#include "rubato/wire/inode.h"
#include "rubato/wire/socket.h"

namespace rubato::journal {

class JournalPlace {
 public:
  // The directory must exist. An error if another daemon uses it.
  [[nodiscard]] static Result<JournalPlace> claim(const std::filesystem::path& directory);

  // Locks the live file, unless this file is locked already. An error if another daemon has locked
  // it, perhaps under another name. Do not call it while SQLite has the file open: closing a
  // descriptor of a file also drops SQLite's locks on it.
  [[nodiscard]] Result<void> hold(const std::filesystem::path& live);
  // From now on the file's log is watched, too, as soon as it exists. SQLite creates it when it
  // writes.
  void watch_log(const std::filesystem::path& log);

  // One sentence if a path names another file now; else empty. It takes a few microseconds.
  [[nodiscard]] Result<void> check() const;
  [[nodiscard]] bool directory_moved() const;

 private:
  struct Watched {
    std::filesystem::path path;
    wire::Inode inode;
  };

  wire::Fd lock_;
  wire::Fd directory_fd_;
  wire::Fd live_fd_;
  Watched directory_;
  std::optional<Watched> live_;
  std::optional<Watched> log_;
};

}  // namespace rubato::journal
