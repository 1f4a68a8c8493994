#include "rubato/wire/job_key.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"
#include "rubato/wire/socket.h"

namespace rubato::wire {
namespace {

constexpr std::size_t kLongestJob = 64;
constexpr std::size_t kLongestFile = 4096;

bool good_job(std::string_view job) {
  const auto good = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  };
  return !job.empty() && job.size() <= kLongestJob && std::all_of(job.begin(), job.end(), good);
}

bool is_hexadecimal(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string as_text(const LinkKey& key) {
  std::string text;
  for (const unsigned char byte : key.secret) text += fmt::format("{:02x}", byte);
  return text;
}

std::string prefix_of(const JobKey& key) {
  return fmt::format("{}/{}/{}/", key.job, key.start, key.round);
}

}  // namespace

Json to_json(const JobKey& key) {
  return {{"job", key.job}, {"start", key.start}, {"round", key.round}, {"secret", key.secret}};
}

Result<JobKey> parse_job_key(const Json& json) {
  JobKey key;
  JsonTrouble trouble;
  JsonFields fields(JsonValue(json, trouble));
  key.job = fields["job"].text();
  key.start = fields["start"].integer(0, base::kMostInt64);
  key.round = fields["round"].integer(0, base::kMostInt64);
  key.secret = fields["secret"].text();
  const bool good_secret = key.secret.size() == 2 * kLinkKeyBytes && is_hexadecimal(key.secret);
  // The secret itself must not be in an error sentence.
  (void)fields["secret"].must_be(good_secret, "64 hexadecimal digits");
  (void)fields["job"].must_be(good_job(key.job), "the name of a job");
  fields.finish();
  if (!trouble.ok()) return trouble.error("key");
  return key;
}

Result<JobKey> read_job_key(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat there {};
  if (!file.valid() || fstat(file.get(), &there) != 0) {
    return Error{fmt::format("cannot read the key of the job, {}: {}", base::quoted(path, 200),
                             std::strerror(errno))};
  }
  if (!S_ISREG(there.st_mode) || (there.st_mode & 077U) != 0) {
    return Error{fmt::format("the key of the job, {}, can be read by others; its mode must be 0600",
                             base::quoted(path, 200))};
  }
  std::array<char, kLongestFile> bytes{};
  const ssize_t size = read(file.get(), bytes.data(), bytes.size());
  const auto json = parse_json({bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))},
                               "the key of the job");
  if (!json) return json.error();
  return parse_job_key(*json);
}

JobKey key_of_round(std::string_view job_secret, const std::string& job, std::int64_t start,
                    std::int64_t round) {
  JobKey key{job, start, round, {}};
  key.secret = as_text(derive_link_key("round", job_secret, "round " + prefix_of(key)));
  return key;
}

LinkKey worker_key(const JobKey& key, Uid uid) {
  return derive_link_key(fmt::format("{}{}", prefix_of(key), uid), key.secret, "worker");
}

std::optional<Uid> worker_of(const JobKey& key, std::string_view identity) {
  const std::string prefix = prefix_of(key);
  if (!identity.starts_with(prefix)) return std::nullopt;
  const auto uid = parse_integer(identity.substr(prefix.size()));
  return uid && *uid >= 1 ? std::optional<Uid>(*uid) : std::nullopt;
}

FindLinkKey find_worker_key(JobKey key) {
  return [key = std::move(key)](std::string_view identity) -> std::optional<LinkKey> {
    const auto uid = worker_of(key, identity);
    if (!uid) return std::nullopt;
    return worker_key(key, *uid);
  };
}

std::string share_identity(const std::string& job, std::int64_t start, const std::string& share) {
  return fmt::format("{}/{}/share/{}", job, start, share);
}

std::string secret_of_share(std::string_view job_secret, const std::string& identity) {
  return as_text(derive_link_key("share", job_secret, "share " + identity));
}

LinkKey share_key(const std::string& identity, std::string_view share_secret) {
  return derive_link_key(identity, share_secret, "share");
}

}  // namespace rubato::wire
