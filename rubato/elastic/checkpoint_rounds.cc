#include "rubato/elastic/checkpoint_rounds.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"
#include "rubato/elastic/checkpoint_files.h"
#include "rubato/wire/random_hex.h"

namespace rubato::elastic {
namespace {

using member::CheckpointName;

constexpr std::string_view kClaim = "claim-";
constexpr std::string_view kEndOfClaim = ".json";
constexpr std::string_view kRound = "round-";
constexpr std::string_view kEndOfName = ".ckpt";
constexpr std::string_view kEndOfTemporary = ".new";
constexpr std::int64_t kBase = -1;  // instead of a number of recoveries

struct RoundClaim {
  std::int64_t number = 0;
  std::int64_t job = 0;  // digest
  std::int64_t start = 0;
  std::int64_t round = 0;

  [[nodiscard]] bool is_of(const CheckpointRound& other) const {
    return job == digest_of(other.job) && start == other.start && round == other.round;
  }
  [[nodiscard]] bool is_later_than(const CheckpointRound& other) const {
    return job == digest_of(other.job) &&
           std::pair(start, round) > std::pair(other.start, other.round);
  }
};

std::string claim_name(std::int64_t number) {
  return fmt::format("{}{:012}{}", kClaim, number, kEndOfClaim);
}

// "abc" of "PREFIXabcREST", and what is behind `until`.
std::optional<std::string_view> take(std::string_view& text, std::string_view prefix,
                                     std::string_view until) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  const auto end = text.find(until);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

std::optional<std::int64_t> take_number(std::string_view& text, std::string_view prefix,
                                        std::string_view until) {
  const auto word = take(text, prefix, until);
  return word ? parse_integer(*word) : std::nullopt;
}

std::int64_t number_of_claim(std::string_view name) {
  const auto number = take_number(name, kClaim, kEndOfClaim);
  return number && name == kEndOfClaim ? std::max<std::int64_t>(*number, 0) : 0;
}

std::string name_of_temporary(const std::string& name) {
  return fmt::format(".{}.{}{}", name, wire::random_hex(8), kEndOfTemporary);
}

Result<RoundClaim> read_claim(const std::string& directory, std::int64_t number) {
  const std::string path = inside(directory, claim_name(number));
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto json = parse_json(text, path);
  if (!json) return json.error();
  const auto field = [&](const char* name) { return look_for_integer(*json, name).value_or(-1); };
  return RoundClaim{number, field("job"), field("start"), field("round")};
}

// Creates a file once, complete and durable. False: it is there already.
Result<bool> create_once(const std::string& directory, const std::string& name,
                         const std::string& text) {
  const std::string aside = inside(directory, name_of_temporary(name));
  const std::string path = inside(directory, name);
  const wire::Fd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.valid()) return file_error(aside, "cannot be made", errno);
  const bool written =
      ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(file.get()) == 0;
  const int trouble = errno;
  const bool linked = written && ::link(aside.c_str(), path.c_str()) == 0;
  const int refused = errno;
  ::unlink(aside.c_str());
  if (!written) return file_error(aside, "cannot be written", trouble);
  if (!linked && refused != EEXIST) return file_error(path, "cannot be made", refused);
  if (!linked) return false;
  if (auto synced = sync_directory(directory); !synced) return synced.error();
  return true;
}

// A worker of an earlier round may remove the old name. A file system without links gets a copy.
Result<void> keep_under(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0 || errno == EEXIST) return {};
  std::error_code error;
  std::filesystem::copy_file(from, to, error);
  if (error) return file_error(to, "cannot be made", error.value());
  return {};
}

// The one of this round, if no later one has come since.
Result<RoundClaim> own_claim(const std::string& directory, const CheckpointRound& round) {
  const auto claim = read_claim(directory, newest_claim(directory));
  if (!claim) return claim.error();
  if (claim->is_of(round)) return *claim;
  return Error{fmt::format(
      "{}: the checkpoint is refused: its writer belongs to round {}, which has been replaced",
      directory, round.round)};
}

// The claim in the name of a file that was never finished; 0: it is no such name.
std::int64_t claim_of_temporary(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(kEndOfTemporary)) return 0;
  name.remove_prefix(1);
  return take_number(name, kRound, ".").value_or(0);
}

// The files of earlier claims are not needed any more: the base has a name of this one.
void remove_old(const std::string& directory, std::int64_t claim, std::size_t keep) {
  const auto names = names_in(directory);
  if (!names) return;
  std::vector<CheckpointName> present;
  for (const std::string& name : *names) {
    const auto parsed = parse_checkpoint_name(name);
    const std::int64_t number = parsed ? parsed->round : claim_of_temporary(name);
    if (number > 0 && number < claim) ::unlink(inside(directory, name).c_str());
    if (parsed) present.push_back(*parsed);
  }
  for (const CheckpointName& name : member::removable(claim, keep, present)) {
    ::unlink(inside(directory, to_text(name)).c_str());
  }
}

}  // namespace

std::string to_text(const CheckpointName& name) {
  const std::string recovery = name.recovery == kBase ? "base" : fmt::format("{}", name.recovery);
  return fmt::format("{}{:012}.{}-step-{:012}-g{}.{}-u{}{}", kRound, name.round, recovery,
                     name.step, name.generation.plan, name.generation.revision, name.uid,
                     kEndOfName);
}

std::optional<CheckpointName> parse_checkpoint_name(std::string_view name) {
  std::string_view rest = name;
  const auto round = take_number(rest, kRound, ".");
  const auto recovery = take(rest, ".", "-step-");
  const auto step = take_number(rest, "-step-", "-g");
  const auto plan = take_number(rest, "-g", ".");
  const auto revision = take_number(rest, ".", "-u");
  const auto uid = take_number(rest, "-u", kEndOfName);
  if (!round || !recovery || !step || !plan || !revision || !uid) return std::nullopt;
  const auto recoveries =
      *recovery == "base" ? kBase : parse_integer(*recovery).value_or(kBase - 1);
  if (recoveries < kBase) return std::nullopt;
  const CheckpointName parsed{*round, recoveries, *step, {*plan, *revision}, *uid};
  // Nobody else writes such names, so only those count that are spelled as here.
  return to_text(parsed) == name ? std::optional(parsed) : std::nullopt;
}

std::int64_t newest_claim(const std::string& directory) {
  std::int64_t newest = 0;
  const auto names = names_in(directory);
  if (!names) return newest;
  for (const std::string& name : *names) newest = std::max(newest, number_of_claim(name));
  return newest;
}

Result<std::optional<ClaimedCheckpoints>> claim_checkpoints(const std::string& directory,
                                                            const CheckpointRound& round,
                                                            member::Uid uid) {
  if (auto made = make_directory(directory); !made) return made.error();
  for (;;) {
    const std::int64_t last = newest_claim(directory);
    if (last > 0) {
      const auto claim = read_claim(directory, last);
      if (!claim) return claim.error();
      if (claim->is_later_than(round)) return std::optional<ClaimedCheckpoints>();
    }
    const std::int64_t next = std::max(last, newest_start(directory)) + 1;
    auto loaded = load_newest(directory);
    if (!loaded) return loaded.error();
    Json content = {{"job", digest_of(round.job)}, {"start", round.start}, {"round", round.round}};
    if (*loaded) {
      const CheckpointAge& age = (*loaded)->age;
      const CheckpointName from{0, 0, age.step, {age.plan, age.revision}, uid};
      const CheckpointName base = member::base_of_round(from, next, uid);
      const std::string name = to_text(base);
      if (auto kept = keep_under((*loaded)->path, inside(directory, name)); !kept)
        return kept.error();
      content["base"] = name;
    }
    const auto created = create_once(directory, claim_name(next), content.dump() + "\n");
    if (!created) return created.error();
    if (*created) return std::optional(ClaimedCheckpoints{next, std::move(*loaded)});
    // Another founder was quicker. Either it is later, or it has come too late like us.
  }
}

Result<std::string> write_checkpoint(const std::string& directory, const CheckpointRound& round,
                                     member::Uid uid, const CheckpointContent& content, int keep) {
  const auto age = age_of(content.about);
  const auto recovery = look_for_integer(content.about, "recovery");
  CHECK(age.has_value() && recovery.has_value() && keep >= 1);
  const auto claim = own_claim(directory, round);
  if (!claim) return claim.error();
  const CheckpointName name{claim->number, *recovery, age->step, {age->plan, age->revision}, uid};
  const std::string path = inside(directory, to_text(name));
  const std::string aside = inside(directory, name_of_temporary(to_text(name)));
  const wire::Fd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.valid()) return file_error(aside, "cannot be made", errno);
  const CheckpointImage image(content);
  if (const int error = write_all(file, image); error != 0) {
    ::unlink(aside.c_str());
    return no_room(path, image.bytes, error);
  }
  if (const auto still = own_claim(directory, round); !still) {
    ::unlink(aside.c_str());
    return still.error();
  }
  if (::rename(aside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(aside.c_str());
    return file_error(path, "cannot be made", error);
  }
  if (auto synced = sync_directory(directory); !synced) return synced.error();
  remove_old(directory, claim->number, static_cast<std::size_t>(keep));
  return path;
}

}  // namespace rubato::elastic
