// A socket for OpenSSL.
#pragma once

#include <openssl/types.h>

namespace rubato::wire {

// OpenSSL's own sockets write without MSG_NOSIGNAL: a peer that closes would end this process. `fd`
// stays its owner's: freeing the BIO does not close it. The variable must outlive the BIO.
[[nodiscard]] BIO* socket_bio(int& fd);

}  // namespace rubato::wire
