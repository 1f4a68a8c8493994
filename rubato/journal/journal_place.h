// Keeps a state directory for one daemon, and knows whether its files are still where they were.
//
// Three locks say that the directory is taken: on the file `lock` (which older versions use alone),
// on the directory itself and on the journal's live file. The last two cannot be deleted: whoever
// removes a name does not remove the lock. The kernel lets all go when the process ends.
//
// A file that was deleted or moved can still be written through an open descriptor, but nobody will
// find it at the next start. So check() compares what is open with what the names lead to now.
//
// Of one thread.
#pragma once

#include <filesystem>
#include <optional>

#include "rubato/base/result.h"
#include "rubato/wire/inode.h"
#include "rubato/wire/socket.h"

namespace rubato::journal {

class JournalPlace {
 public:
  // The directory must be there. An error if a daemon has it.
  [[nodiscard]] static Result<JournalPlace> claim(const std::filesystem::path& directory);

  // Locks the live file, unless that very file is locked already. An error if another daemon has
  // it, which is so if it is the same file under another name. Not while SQLite has it open: to
  // close a descriptor of a file takes away SQLite's own locks.
  [[nodiscard]] Result<void> hold(const std::filesystem::path& live);
  // From now on the file's log is watched, too, once it is there: SQLite makes it when it writes.
  void watch_log(const std::filesystem::path& log);

  // One sentence if a name leads elsewhere by now. A few microseconds.
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
