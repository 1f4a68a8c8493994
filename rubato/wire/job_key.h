// The keys of a job that spans hosts, and the names under which its processes use them.
//
// A job has a secret that only its master knows. The workers of each round and each share get a
// secret of their own, derived from it. So a process of an earlier round, or of an earlier start,
// cannot join the next, and a share knows no more than its host needs.
//
// The identity of a worker is "job/start/round/uid". All workers of a round have one secret: within
// a round they trust each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rubato/base/json.h"
#include "rubato/wire/launch.h"
#include "rubato/wire/link_key.h"

namespace rubato::wire {

struct JobKey {
  std::string job;  // letters, digits, dots, hyphens and underscores; at most 64
  std::int64_t start = 0;
  std::int64_t round = 0;
  std::string secret;  // of the round, in hexadecimal digits
  friend bool operator==(const JobKey&, const JobKey&) = default;
};
[[nodiscard]] Json to_json(const JobKey& key);
[[nodiscard]] Result<JobKey> parse_job_key(const Json& json);
// From a file that no other user may read.
[[nodiscard]] Result<JobKey> read_job_key(const std::string& path);

// The key of a round, made of the job's secret.
[[nodiscard]] JobKey key_of_round(std::string_view job_secret, const std::string& job,
                                  std::int64_t start, std::int64_t round);
[[nodiscard]] LinkKey worker_key(const JobKey& key, Uid uid);
// The worker of this round that has the identity; nullopt if it is anybody else's.
[[nodiscard]] std::optional<Uid> worker_of(const JobKey& key, std::string_view identity);
[[nodiscard]] FindLinkKey find_worker_key(JobKey key);

// "job/start/share/name", and the secret of that share in hexadecimal digits.
[[nodiscard]] std::string share_identity(const std::string& job, std::int64_t start,
                                         const std::string& share);
[[nodiscard]] std::string secret_of_share(std::string_view job_secret, const std::string& identity);
[[nodiscard]] LinkKey share_key(const std::string& identity, std::string_view share_secret);

}  // namespace rubato::wire
