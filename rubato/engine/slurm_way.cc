#include "rubato/engine/slurm_way.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "rubato/base/text.h"
#include "rubato/engine/slurm_commands.h"
#include "rubato/engine/slurm_rest.h"

namespace rubato::engine {

Result<void> check(const SlurmOptions& options) {
  if (!plain_slurm_name(options.prefix)) return Error{"the names of shares need a prefix"};
  for (const auto& [what, name] :
       {std::pair("partition", options.partition), std::pair("account", options.account)}) {
    if (!name.empty() && !plain_slurm_name(name)) {
      return Error{fmt::format("--{} {}: write the name of one {} of Slurm", what,
                               base::quoted(name), what)};
    }
  }
  if (options.rest.starts_with("tcp:") && options.token.empty()) {
    return Error{
        "--slurm-rest: over TCP, slurmrestd needs a token; write it to a file and give "
        "--slurm-token FILE"};
  }
  if (options.rest.empty() && !options.token.empty())
    return Error{"--slurm-token: add --slurm-rest, which is what needs the token"};
  return {};
}

Result<std::string> slurm_rest_address(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  if (text.starts_with('/')) {
    if (text.size() < sizeof(sockaddr_un::sun_path)) return "unix:" + text;
    return Error{fmt::format("--slurm-rest {}: the path of a socket has at most {} characters",
                             base::quoted(text), sizeof(sockaddr_un::sun_path) - 1)};
  }
  if (text.starts_with(kScheme)) {
    const std::string_view all = text;
    const std::string_view place = trim(all.substr(kScheme.size()));
    const auto colon = place.rfind(':');
    const auto port =
        colon == std::string_view::npos ? std::nullopt : parse_integer(place.substr(colon + 1));
    const std::string_view host = place.substr(0, colon);
    if (port && *port > 0 && *port < 65536 && (host.starts_with("127.") || host == "[::1]") &&
        host.find_first_not_of("0123456789.[:]") == std::string_view::npos)
      return fmt::format("tcp:{}", place);
  }
  return Error{
      fmt::format("--slurm-rest {}: write the path of its socket, such as /run/slurmrestd.sock, or "
                  "an address of this machine, such as http://127.0.0.1:6820; slurmrestd does not "
                  "encrypt",
                  base::quoted(text))};
}

std::unique_ptr<SlurmWay> way_to_slurm(const SlurmOptions& options) {
  if (options.rest.empty()) return std::make_unique<SlurmCommands>(options);
  return std::make_unique<SlurmRest>(options);
}

std::string own_slurm_user() {
  const passwd* user = ::getpwuid(::geteuid());
  return user == nullptr ? std::to_string(::geteuid()) : user->pw_name;
}

launch::Environment slurm_environment(const std::optional<launch::RunAs>& user,
                                      const std::string& configuration) {
  const auto itself = user ? Result<launch::RunAs>(*user) : launch::look_up_user(own_slurm_user());
  launch::Environment environment =
      itself ? launch::clean_environment(*itself)
             : launch::Environment{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/"};
  environment.emplace_back("LC_ALL=C.UTF-8");
  if (!configuration.empty()) environment.push_back("SLURM_CONF=" + configuration);
  return environment;
}

std::string slurm_comment(std::string comment) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; };
  std::replace_if(comment.begin(), comment.end(), is_control, ' ');
  return comment;
}

}  // namespace rubato::engine
