// A file of the page that the server sends to browsers. The program carries these files.
#pragma once

#include <string>
#include <string_view>

#include "rubato/base/namespaces.h"

namespace rubato::http {

struct PageFile {
  std::string path;  // "/", or "/assets/NAME"
  std::string type;
  std::string_view bytes;  // live as long as the program
};

// What a browser may do with the page: run its own scripts and styles, ask its own daemon, and
// nothing else. It may not be shown inside of another page.
inline constexpr const char* kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace rubato::http
