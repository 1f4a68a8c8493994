// share: runs the workers of one host for a run that spans hosts. `rubato run --hosts` starts it,
// or a cluster manager.
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
#include "rubato/launch/share_files.h"

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

// In memory if possible: the secrets of a job are there.
Result<std::string> private_directory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::string tried;
  for (const char* parent : {runtime, "/dev/shm", "/tmp"}) {
    if (parent == nullptr || access(parent, W_OK | X_OK) != 0) continue;
    tried = std::string(parent) + "/rubato-share-XXXXXX";
    if (mkdtemp(tried.data()) != nullptr) return tried;
  }
  return Error{fmt::format("cannot make the directory {}: {}", tried, std::strerror(errno))};
}

struct ShareFlags {
  std::string config_file, native_variable;
};

Result<ShareConfig> config_from_input() {
  const auto line = first_line();
  if (!line) return line.error();
  const auto json = parse_json(*line, "standard input");
  if (!json) return json.error();
  return parse_share_config(*json);
}

// What is wrong with a file that is there is said now, not after minutes. A file that is not there
// yet comes later.
Result<void> check_config_file(const std::string& path) {
  const auto config = read_share_file(path);
  if (!config) return config.error();
  return {};
}

int run(const ShareFlags& flags) {
  ShareProcess process;
  process.config_file = flags.config_file;
  if (flags.config_file.empty()) {
    auto config = config_from_input();
    if (!config) return bad_input(config.error());
    process.config = std::move(*config);
  } else if (const auto checked = check_config_file(flags.config_file); !checked) {
    return bad_input(checked.error());
  }
  auto directory = private_directory();
  if (!directory) return bad_input(directory.error());
  process.directory = std::move(*directory);
  process.environment = own_environment();
  if (!flags.native_variable.empty()) {
    const char* native = std::getenv(flags.native_variable.c_str());
    if (native != nullptr) process.native = native;
  }
  return Share(std::move(process)).run();
}

}  // namespace

void add_share(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "share", "Run the workers of one host; for `rubato run --hosts` and cluster managers.");
  command->group("");  // hidden: `rubato run` or a cluster manager starts it
  auto flags = std::make_shared<ShareFlags>();
  command
      ->add_option("--config", flags->config_file,
                   "a file that says where the master is; it may come later and change (default: "
                   "one line of standard input)")
      ->type_name("FILE");
  command
      ->add_option("--native-env", flags->native_variable,
                   "the variable that holds the cluster manager's own id of this process")
      ->type_name("NAME");
  command->callback([flags, &chosen] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace rubato::cmd
