// Which user of this machine runs a caller's jobs.
//
// The name of a caller, from the kernel or from a token, is the name of a user of this machine. A
// daemon that runs as root runs a job as the user who submitted it. A user whom the system does not
// know cannot run processes, so such a job is refused when it is submitted. Only jobs of admins run
// as root, so that the token of a plain user never gives more rights than it says. A daemon that
// does not run as root can run jobs only as its own user, and accepts only that user's jobs.
//
// For one thread.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>

#include "rubato/api/request.h"
#include "rubato/base/result.h"

namespace rubato::http {

// The name that the system has for a user id.
[[nodiscard]] std::optional<std::string> known_name(uid_t user);
// The same. If there is none, the id as text.
[[nodiscard]] std::string system_name(uid_t user);

class JobUsers {
 public:
  using LookUp = std::function<std::optional<uid_t>(const std::string& name)>;

  // `own` is the user that the daemon runs as.
  JobUsers(uid_t own, std::string own_name, LookUp look_up);
  // For this process, with the system's table of users.
  [[nodiscard]] static JobUsers of_this_machine();

  // Ok, or an error that says why not.
  [[nodiscard]] Result<void> may_run(const Caller& caller);
  // For JobLaunch. Empty: as the daemon's user.
  [[nodiscard]] std::string runs_as(const std::string& user) const;

 private:
  uid_t own_;
  std::string own_name_;
  LookUp look_up_;
  // Names that are known to be users other than root, because looking up may take a while.
  std::set<std::string> plain_;
};

}  // namespace rubato::http
