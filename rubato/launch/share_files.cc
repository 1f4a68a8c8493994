#include "rubato/launch/share_files.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "rubato/launch/json_file.h"

namespace rubato::launch {

std::string share_file(const std::string& directory, const ShareName& share) {
  return fmt::format("{}/shares/{}.json", directory, share);
}

Result<std::optional<ShareConfig>> read_share_file(const std::string& path) {
  const auto json = read_json_file(path);
  if (!json) return json.error();
  if (!*json) return std::optional<ShareConfig>();
  struct stat there {};
  if (lstat(path.c_str(), &there) != 0 || there.st_uid != geteuid() ||
      (there.st_mode & 077U) != 0) {
    return Error{fmt::format("{} must belong to this user, and no other may read it", path)};
  }
  auto config = parse_share_config(**json);
  if (!config) return Error{fmt::format("{}: {}", path, config.error().message)};
  return std::optional<ShareConfig>(std::move(*config));
}

ShareFiles::ShareFiles(std::string directory, std::function<void(const std::string&)> say)
    : directory_(std::move(directory)), say_(std::move(say)) {
  const std::string shares = directory_ + "/shares";
  if (mkdir(shares.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    say_(fmt::format("cannot make {}: {}", shares, std::strerror(errno)));
  }
}

void ShareFiles::start(const ShareConfig& config) { write(config); }

void ShareFiles::end(const ShareName& share) {
  ShareConfig config;
  config.name = share;
  config.ended = true;
  write(config);
}

void ShareFiles::write(const ShareConfig& config) {
  const auto written = write_json_file(share_file(directory_, config.name), to_json(config));
  if (!written) say_(written.error().message);
}

}  // namespace rubato::launch
