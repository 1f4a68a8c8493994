// share: runs the workers of one host for a run that spans hosts. `rubato run --hosts` starts it.
#include "rubato/launch/share.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <unistd.h>

#include "cmd/command_line.h"

namespace rubato::cmd {
namespace {

constexpr std::size_t kLongestConfig = 4096;

// One line. What follows it is not for us.
Result<std::string> first_line() {
  std::string line;
  std::array<char, kLongestConfig> buffer{};
  while (line.find('\n') == std::string::npos) {
    const ssize_t size = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0 || line.size() > kLongestConfig) {
      return Error{
          "rubato share reads from standard input where its master is; `rubato run --hosts` starts "
          "it"};
    }
    line.append(buffer.data(), static_cast<std::size_t>(size));
  }
  return line.substr(0, line.find('\n'));
}

Result<std::string> private_directory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const bool usable = runtime != nullptr && access(runtime, W_OK | X_OK) == 0;
  std::string path = std::string(usable ? runtime : "/tmp") + "/rubato-share-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return Error{fmt::format("cannot make the directory {}: {}", path, std::strerror(errno))};
  }
  return path;
}

int run() {
  const auto line = first_line();
  if (!line) return bad_input(line.error());
  const auto json = parse_json(*line, "standard input");
  if (!json) return bad_input(json.error());
  auto config = parse_share_config(*json);
  if (!config) return bad_input(config.error());
  auto directory = private_directory();
  if (!directory) return bad_input(directory.error());
  return Share(std::move(*config), std::move(*directory), own_environment()).run();
}

}  // namespace

void add_share(CLI::App& app, Action& chosen) {
  auto* command =
      app.add_subcommand("share", "Run the workers of one host; for `rubato run --hosts`.");
  command->group("");  // hidden: `rubato run` starts it
  command->callback([&chosen] { chosen = [] { return run(); }; });
}

}  // namespace rubato::cmd
