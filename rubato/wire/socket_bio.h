// A socket for OpenSSL.
#pragma once

#include <cstddef>
#include <openssl/types.h>
#include <string>

namespace rubato::wire {

// OpenSSL writes each record (at most 16 KiB) by a call of its own. While `gathered` is set,
// records are collected there instead, so that one call can send many. What the socket did not take
// is in `late`, and everything else waits behind it.
struct OutgoingRecords {
  int fd = -1;
  std::string* gathered = nullptr;
  std::string late{};
  // Sends `bytes`, and keeps what the socket does not take. False if the connection is broken.
  [[nodiscard]] bool send(std::string& bytes);
  [[nodiscard]] bool send_late();
};

// OpenSSL's own sockets write without MSG_NOSIGNAL: a peer that closes would end this process. The
// socket stays its owner's: freeing the BIO does not close it. `records` must outlive the BIO.
[[nodiscard]] BIO* socket_bio(OutgoingRecords& records);

}  // namespace rubato::wire
