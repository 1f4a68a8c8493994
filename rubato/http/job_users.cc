#include "rubato/http/job_users.h"

#include <cerrno>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rubato/base/text.h"
#include "rubato/launch/process.h"

namespace rubato::http {

std::optional<std::string> known_name(uid_t user) {
  std::vector<char> space(1024);
  passwd entry{};
  passwd* found = nullptr;
  int problem = 0;
  while ((problem = ::getpwuid_r(user, &entry, space.data(), space.size(), &found)) == ERANGE) {
    space.resize(space.size() * 2);
  }
  if (problem != 0 || found == nullptr) return std::nullopt;
  return entry.pw_name;
}

std::string system_name(uid_t user) { return known_name(user).value_or(std::to_string(user)); }

JobUsers::JobUsers(uid_t own, std::string own_name, LookUp look_up)
    : own_(own), own_name_(std::move(own_name)), look_up_(std::move(look_up)) {}

JobUsers JobUsers::of_this_machine() {
  return {::geteuid(), system_name(::geteuid()), [](const std::string& name) {
            const auto user = look_up_user(name);
            return user ? std::optional(user->uid) : std::nullopt;
          }};
}

Result<void> JobUsers::may_run(const Caller& caller) {
  if (own_ != 0) {
    if (caller.user == own_name_) return {};
    return Error{
        fmt::format("this daemon runs jobs of {0} alone, because {0} has started it; for jobs of "
                    "others, as {1}, it must be started by root",
                    base::quoted(own_name_), base::quoted(caller.user))};
  }
  if (plain_.contains(caller.user)) return {};
  const auto user = look_up_(caller.user);
  if (!user) {
    return Error{
        fmt::format("jobs run as the user who submits them, and this machine has no user {}",
                    base::quoted(caller.user))};
  }
  if (*user != 0) {
    plain_.insert(caller.user);
    return {};
  }
  if (caller.admin) return {};
  return Error{fmt::format("a job of {} would run as root, which is for admins only",
                           base::quoted(caller.user))};
}

std::string JobUsers::runs_as(const std::string& user) const { return own_ == 0 ? user : ""; }

}  // namespace rubato::http
