// TLS for the HTTP client: proves that the server is who it says it is, and encrypts.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "rubato/base/result.h"
#include "rubato/http/endpoint.h"

namespace rubato::http {

class ClientTls {
 public:
  // What the socket must be ready for before the call can go on.
  enum class Wait : char { none, in, out };
  struct Moved {
    std::size_t bytes = 0;
    Wait wait = Wait::none;  // none and no bytes: the connection has ended
  };

  // `fd` stays the caller's, and must outlive this object.
  [[nodiscard]] static Result<ClientTls> make(int fd, const HttpEndpoint& endpoint);
  ClientTls(ClientTls&&) noexcept;
  ClientTls& operator=(ClientTls&&) noexcept;
  ~ClientTls();

  // Call it until it wants to wait for nothing. The error is a sentence for the user.
  [[nodiscard]] Result<Wait> greet();
  [[nodiscard]] Moved write(std::string_view text);
  [[nodiscard]] Moved read(char* bytes, std::size_t size);

 private:
  struct Content;
  explicit ClientTls(std::unique_ptr<Content> content);
  [[nodiscard]] Moved moved_nothing(int status);
  [[nodiscard]] Error refusal() const;

  std::unique_ptr<Content> content_;
};

}  // namespace rubato::http
