#include "rubato/launch/roster_files.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"
#include "rubato/launch/json_file.h"
#include "rubato/wire/random_hex.h"
#include "rubato/wire/socket.h"

namespace rubato::launch {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kSecretBytes = 32;
// A disk may be full for a moment. Shares wait longer than this.
constexpr int kTries = 20;
constexpr auto kBetweenTries = 100ms;
constexpr std::string_view kMaster = "master-";
constexpr std::string_view kRoster = "roster-";
constexpr std::string_view kEnding = ".json";

std::string master_file(const std::string& directory, std::int64_t epoch) {
  return fmt::format("{}/{}{}", directory, kMaster, epoch);
}

std::string roster_file(const std::string& directory, std::int64_t epoch) {
  return fmt::format("{}/{}{}{}", directory, kRoster, epoch, kEnding);
}

// The numbers of all files with such a name, in ascending order.
Result<std::vector<std::int64_t>> numbers_of(const std::string& directory, std::string_view begin,
                                             std::string_view end) {
  std::vector<std::int64_t> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), none; !error && at != none;
       at.increment(error)) {
    std::string name = at->path().filename().string();
    if (!name.starts_with(begin) || !name.ends_with(end)) continue;
    name = name.substr(begin.size(), name.size() - begin.size() - end.size());
    const auto number = parse_integer(name);
    if (number && *number > 0) numbers.push_back(*number);
  }
  if (error) return Error{fmt::format("cannot read {}: {}", directory, error.message())};
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// The epoch of this master, which nobody else can have.
Result<std::int64_t> claim(const std::string& directory) {
  for (;;) {
    const auto masters = numbers_of(directory, kMaster, "");
    if (!masters) return masters.error();
    const std::int64_t epoch = masters->empty() ? 1 : masters->back() + 1;
    const std::string path = master_file(directory, epoch);
    const wire::Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                           S_IRUSR | S_IWUSR));
    if (!fd.valid() && errno == EEXIST) continue;  // another master was quicker
    if (!fd.valid() || fsync(fd.get()) != 0 || !sync_directory(directory)) {
      return Error{fmt::format("cannot write {}: {}", path, std::strerror(errno))};
    }
    return epoch;
  }
}

Result<RosterVersion> read_newest(const std::string& directory) {
  const auto epochs = numbers_of(directory, kRoster, kEnding);
  if (!epochs) return epochs.error();
  if (epochs->empty()) return RosterVersion();
  const std::string path = roster_file(directory, epochs->back());
  const auto json = read_json_file(path);
  if (!json) return json.error();
  const std::optional<std::int64_t> number =
      *json ? look_for_integer(**json, "number") : std::nullopt;
  const Json* content = *json ? look_for(**json, "roster") : nullptr;
  if (!number || content == nullptr) return Error{fmt::format("{} is not a roster", path)};
  auto roster = parse_roster(*content);
  if (!roster) return Error{fmt::format("{}: {}", path, roster.error().message)};
  return RosterVersion{*number, std::move(*roster)};
}

Result<std::string> secret_in(const std::string& directory) {
  const std::string path = directory + "/secret.json";
  const auto json = read_json_file(path);
  if (!json) return json.error();
  if (*json && (*json)->is_string()) return (*json)->get<std::string>();
  std::string secret = wire::random_hex(kSecretBytes);
  if (auto written = write_json_file(path, Json(secret)); !written) return written.error();
  return secret;
}

}  // namespace

RosterFiles::RosterFiles(std::string directory, std::int64_t epoch, RosterVersion newest,
                         std::string secret)
    : directory_(std::move(directory)),
      epoch_(epoch),
      newest_(std::move(newest)),
      secret_(std::move(secret)) {
  // Masters may have ended between their claim and their first version.
  newest_.roster.epoch = epoch_ - 1;
}

Result<std::unique_ptr<RosterFiles>> RosterFiles::open(const std::string& directory) {
  if (mkdir(directory.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return Error{fmt::format("cannot make {}: {}", directory, std::strerror(errno))};
  }
  const auto epoch = claim(directory);
  if (!epoch) return epoch.error();
  auto newest = read_newest(directory);
  if (!newest) return newest.error();
  auto secret = secret_in(directory);
  if (!secret) return secret.error();
  return std::unique_ptr<RosterFiles>(
      new RosterFiles(directory, *epoch, std::move(*newest), std::move(*secret)));
}

bool RosterFiles::replaced() const {
  return access(master_file(directory_, epoch_ + 1).c_str(), F_OK) == 0;
}

RosterVersion RosterFiles::newest() const {
  RosterVersion version = newest_;
  if (replaced()) version.roster.epoch = epoch_ + 1;
  return version;
}

bool RosterFiles::create(std::int64_t number, const Roster& roster) {
  if (number != newest_.number + 1 || roster.epoch != epoch_) return false;
  const Json content = {{"number", number}, {"roster", to_json(roster)}};
  bool written = false;
  for (int i = 0; i < kTries && !written; ++i) {
    if (i > 0) std::this_thread::sleep_for(kBetweenTries);
    if (replaced()) return false;
    written = write_json_file(roster_file(directory_, epoch_), content).ok();
  }
  if (!written || replaced()) return false;
  const bool first = newest_.roster.epoch != epoch_;
  newest_ = {number, roster};
  if (first) remove_earlier();
  return true;
}

// What they say is in ours.
void RosterFiles::remove_earlier() const {
  const auto epochs = numbers_of(directory_, kRoster, kEnding);
  if (!epochs) return;
  for (const std::int64_t epoch : *epochs) {
    if (epoch < epoch_) unlink(roster_file(directory_, epoch).c_str());
  }
}

}  // namespace rubato::launch
