// Whose jobs can run on this machine: callers to users of the system.
//
// A caller's name is the user's on this machine, whether the kernel said it or a token. A daemon of
// root runs a job as the user who submitted it; one who is unknown to the system could run as
// nobody, so such a job is refused when it is submitted. Jobs run as root for admins alone, so that
// a token for a plain user can never be worth more than it says. Every other daemon can run jobs
// only as itself, and so takes those of its own user alone.
//
// Belongs to one thread.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>

#include "rubato/api/request.h"
#include "rubato/base/result.h"

namespace rubato::http {

// The name that the system knows for a user id.
[[nodiscard]] std::optional<std::string> known_name(uid_t user);
// The same, or the id itself as text.
[[nodiscard]] std::string system_name(uid_t user);

class JobUsers {
 public:
  using LookUp = std::function<std::optional<uid_t>(const std::string& name)>;

  // `own`: what the daemon runs as.
  JobUsers(uid_t own, std::string own_name, LookUp look_up);
  // As this process, by the system's table of users.
  [[nodiscard]] static JobUsers of_this_machine();

  // An error that says why not.
  [[nodiscard]] Result<void> may_run(const Caller& caller);
  // As JobLaunch has it; empty: as the daemon.
  [[nodiscard]] std::string runs_as(const std::string& user) const;

 private:
  uid_t own_;
  std::string own_name_;
  LookUp look_up_;
  std::set<std::string> plain_;  // known to be users other than root: looking up may take a while
};

}  // namespace rubato::http
