// Reads the write-ahead log of a SQLite database before SQLite does. When SQLite recovers, it uses
// the frames before the first broken one and reports nothing about the rest. This code finds the
// rest, so that it can be kept and reported.
//
// The log is a header of 32 bytes, followed by frames of 24 bytes and a page each
// (sqlite.org/fileformat2.html, section 4). A frame belongs to the present log if it has the salts
// of the header. It is good if the checksum over all frames up to it is right. Frames with other
// salts are left over from an older log, whose content is in the database already.
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
