#include "rubato/http/endpoint.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

#include "rubato/base/text.h"

namespace rubato::http {
namespace {

constexpr long long kHttpsPort = 443;

bool needs_no_escape(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ||
         c == '~';
}

}  // namespace

std::string HttpEndpoint::text() const {
  if (!unix_path.empty()) return unix_path;
  const bool colons = host.find(':') != std::string::npos;
  return colons ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<HttpEndpoint> parse_endpoint(std::string_view text) {
  HttpEndpoint endpoint;
  const std::string_view whole = text;
  if (text.substr(0, 5) == "unix:") {
    endpoint.unix_path = text.substr(5);
  } else if (text.starts_with("http://") || text.starts_with("https://")) {
    endpoint.tls = text.starts_with("https://");
    text.remove_prefix(text.find("//") + 2);
    if (!text.empty() && text.back() == '/') text.remove_suffix(1);
  } else if (text.find('/') != std::string_view::npos) {
    endpoint.unix_path = text;
  }
  if (!endpoint.unix_path.empty()) return endpoint;
  auto colon = text.rfind(':');
  if (colon != std::string_view::npos && text.ends_with(']')) colon = std::string_view::npos;
  const auto usual = endpoint.tls ? std::optional<long long>(kHttpsPort) : std::nullopt;
  const auto port = colon == std::string_view::npos ? usual : parse_integer(text.substr(colon + 1));
  endpoint.host = text.substr(0, std::min(colon, text.size()));
  // Brackets are only part of the text. The address inside them contains colons.
  if (endpoint.host.size() > 2 && endpoint.host.front() == '[' && endpoint.host.back() == ']') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  } else if (endpoint.host.find(':') != std::string::npos) {
    endpoint.host.clear();
  }
  if (endpoint.host.empty() || !port || *port < 1 || *port > 65535) {
    return Error{
        fmt::format("{} is no address of a daemon; write HOST:PORT, or the path of a "
                    "unix socket",
                    base::quoted(whole))};
  }
  endpoint.port = static_cast<int>(*port);
  return endpoint;
}

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (needs_no_escape(c)) {
      result += c;
    } else {
      result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return result;
}

}  // namespace rubato::http
