// Looks into the write-ahead log of a SQLite database before SQLite does. When SQLite recovers, it
// takes what lies before the first broken frame and says nothing about the rest; this finds the
// rest, so that it can be kept and reported.
//
// The log is a header of 32 bytes and frames of 24 bytes and a page each
// (sqlite.org/fileformat2.html, section 4). A frame belongs to the present log if it has the salts
// of the header, and is good if the checksum over all frames up to it agrees. What follows with
// other salts was left by an older log and has been in the database for long.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rubato/base/result.h"

namespace rubato::journal {

struct WalTail {
  std::uint64_t from = 0;  // byte where the last whole transaction ends
  std::uint64_t to = 0;    // end of the last frame that belongs to this log
};

// nullopt if everything in the log is part of a whole transaction, or if there is no log.
[[nodiscard]] Result<std::optional<WalTail>> unfinished_wal(const std::string& path);

}  // namespace rubato::journal
