#include "rubato/engine/state_identity.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <initializer_list>
#include <sys/stat.h>
#include <unistd.h>

#include "rubato/base/json_reader.h"
#include "rubato/node/job_files.h"
#include "rubato/wire/inode.h"
#include "rubato/wire/random_hex.h"

namespace rubato::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kIdDigits = 32;
constexpr std::size_t kShareDigits = 9;
constexpr std::size_t kLongestPath = 4096;

// The files of a daemon, its agents and masters that name processes or lead to them.
constexpr std::initializer_list<const char*> kOfTheDaemon = {"agent.token", "jobs.secret",
                                                             "agents.sock", "api.sock"};
constexpr std::initializer_list<const char*> kOfANode = {"agent.json", "lock"};
constexpr std::initializer_list<const char*> kOfAJob = {
    "launch.json", "master.json",    "workers.json", "exit.json",
    "fence.json",  "forgotten.json", "m.sock"};

Error failed(const char* verb, const std::string& path) {
  return {fmt::format("cannot {} {}: {}", verb, path, std::strerror(errno))};
}

std::string file_in(const std::string& directory) { return directory + "/identity.json"; }

Result<std::optional<StateIdentity>> read_identity(const std::string& directory) {
  const auto advised = [](const std::string& problem) {
    return Error{
        fmt::format("{}; remove that file if its directory is no copy of another one", problem)};
  };
  const auto json = read_json_file(file_in(directory));
  if (!json) return advised(json.error().message);
  if (!*json) return std::optional<StateIdentity>();
  auto identity = parse_state_identity(**json);
  if (!identity) {
    return advised(fmt::format("{}: {}", file_in(directory), identity.error().message));
  }
  return std::optional(std::move(*identity));
}

// The directory as it is now, without an id.
Result<StateIdentity> look_at(const std::string& directory) {
  struct statx there {};
  if (statx(AT_FDCWD, directory.c_str(), 0, STATX_INO | STATX_BTIME, &there) != 0)
    return failed("look at", directory);
  StateIdentity identity;
  identity.inode = there.stx_ino;
  constexpr std::int64_t kNanosecondsOfASecond = 1'000'000'000;
  if ((there.stx_mask & STATX_BTIME) != 0)
    identity.born = there.stx_btime.tv_sec * kNanosecondsOfASecond + there.stx_btime.tv_nsec;
  identity.path = directory;
  return identity;
}

// Some file systems give a copy the same inode. Then the original tells them apart, if it is still
// at its path.
bool original_is_elsewhere(const StateIdentity& known, const std::string& directory) {
  if (known.path == directory) return false;
  const auto there = wire::inode_at(known.path);
  if (!there || there == wire::inode_at(directory)) return false;
  const auto other = read_identity(known.path);
  return other && *other && (*other)->id == known.id;
}

Result<bool> is_copy(const StateIdentity& known, const std::string& directory) {
  const auto now = look_at(directory);
  if (!now) return now.error();
  if (now->inode != known.inode) return true;
  if (now->born && known.born && *now->born != *known.born) return true;
  return original_is_elsewhere(known, directory);
}

Result<void> remove_from(const std::string& directory, std::initializer_list<const char*> names) {
  const wire::Fd fd(open(directory.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return errno == ENOTDIR ? Result<void>() : failed("open", directory);
  for (const char* name : names) {
    if (unlinkat(fd.get(), name, 0) != 0 && errno != ENOENT)
      return failed("remove", directory + "/" + name);
  }
  // A link to the copies of secrets that the original's workers use. A directory in its place is
  // the job's own, and is emptied at its next start.
  unlinkat(fd.get(), "secrets", 0);
  return {};
}

Result<void> remove_from_each(const std::string& above, std::initializer_list<const char*> names) {
  std::error_code error;
  for (fs::directory_iterator at(above, error), end; !error && at != end; at.increment(error)) {
    if (auto removed = remove_from(at->path().string(), names); !removed) return removed;
  }
  if (error) return Error{fmt::format("cannot look into {}: {}", above, error.message())};
  return {};
}

Result<void> forget_original(const std::string& directory) {
  if (auto done = remove_from_each(directory + "/jobs", kOfAJob); !done) return done;
  if (auto done = remove_from_each(directory + "/nodes", kOfANode); !done) return done;
  return remove_from(directory, kOfTheDaemon);
}

}  // namespace

Json to_json(const StateIdentity& identity) {
  Json json = {{"id", identity.id}, {"inode", identity.inode}, {"path", identity.path}};
  if (identity.born) json["born"] = *identity.born;
  return json;
}

Result<StateIdentity> parse_state_identity(const Json& json) {
  JsonTrouble trouble;
  JsonFields fields(JsonValue(json, trouble));
  StateIdentity identity;
  const JsonValue id = fields["id"];
  identity.id = id.text();
  id.must_be(identity.id.size() == kIdDigits, fmt::format("text of {} digits", kIdDigits));
  identity.inode = fields["inode"].natural();
  identity.path = fields["path"].text(kLongestPath);
  if (const auto born = fields.find("born")) identity.born = born->whole<std::int64_t>();
  fields.finish();
  if (!trouble.ok()) return trouble.error("identity");
  return identity;
}

Result<void> check_identity(const std::string& directory, bool restored) {
  const auto known = read_identity(directory);
  if (!known) return known.error();
  if (!*known) return {};
  const auto copy = is_copy(**known, directory);
  if (!copy) return copy.error();
  if (*copy == restored) return {};
  if (restored) {
    return Error{
        fmt::format("{} is not a copy: its own jobs may be running, so start it without --restored",
                    directory)};
  }
  return Error{fmt::format(
      "{} is a copy of a state directory that was at {}: jobs of the original may still be "
      "running. Use the original; or, if this copy should continue by itself (a backup that you "
      "have "
      "restored), add --restored: the jobs that were running start again here, and nothing of the "
      "original is touched",
      directory, (*known)->path)};
}

Result<StateIdentity> claim_identity(const std::string& directory, bool restored) {
  const auto known = read_identity(directory);
  if (!known) return known.error();
  auto now = look_at(directory);
  if (!now) return now.error();
  if (restored) {
    if (auto forgotten = forget_original(directory); !forgotten) return forgotten.error();
  }
  // Written last: a daemon that is stopped before this is told again that it is a copy.
  now->id = *known && !restored ? (*known)->id : wire::random_hex(kIdDigits / 2);
  if (*known == *now) return now;
  if (auto written = write_json_file(file_in(directory), to_json(*now)); !written)
    return written.error();
  return now;
}

std::string share_identity(const StateIdentity& identity) {
  return "rub" + identity.id.substr(0, kShareDigits);
}

}  // namespace rubato::engine
