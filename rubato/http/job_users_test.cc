#include "rubato/http/job_users.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace rubato::http {
namespace {

std::optional<uid_t> look_up(const std::string& name) {
  if (name == "root" || name == "toor") return 0;
  if (name == "ada") return 1000;
  return std::nullopt;
}

TEST(JobUsers, OfRootRunAsWhoeverSubmits) {
  JobUsers users(0, "root", look_up);
  EXPECT_TRUE(users.may_run({"ada", false}).ok());
  EXPECT_TRUE(users.may_run({"ada", true}).ok());
  EXPECT_TRUE(users.may_run({"root", true}).ok());
  EXPECT_EQ(users.runs_as("ada"), "ada");
  EXPECT_EQ(users.runs_as("root"), "root");
}

TEST(JobUsers, NobodyWhoIsUnknownToTheMachine) {
  JobUsers users(0, "root", look_up);
  EXPECT_EQ(users.may_run({"bo", true}).error().message,
            "jobs run as the user who submits them, and this machine has no user \"bo\"");
  EXPECT_FALSE(users.may_run({"1234", false}).ok()) << "a peer without a name";
  EXPECT_FALSE(users.may_run({"", true}).ok());
}

TEST(JobUsers, RootIsForAdmins) {
  JobUsers users(0, "root", look_up);
  for (const char* name : {"root", "toor"}) {
    EXPECT_TRUE(users.may_run({name, true}).ok());
    EXPECT_EQ(users.may_run({name, false}).error().message,
              "a job of \"" + std::string(name) + "\" would run as root, which is for admins only");
  }
}

TEST(JobUsers, AnyOtherDaemonRunsItsOwnAlone) {
  JobUsers users(1000, "ada", look_up);
  EXPECT_TRUE(users.may_run({"ada", false}).ok());
  for (const char* name : {"root", "bo"}) EXPECT_FALSE(users.may_run({name, true}).ok());
  EXPECT_EQ(users.runs_as("ada"), "") << "as the daemon is";
  JobUsers unnamed(1234, "1234", look_up);
  EXPECT_TRUE(unnamed.may_run({"1234", true}).ok());
}

TEST(JobUsers, OfThisMachineAreAtLeastUs) {
  EXPECT_TRUE(JobUsers::of_this_machine().may_run({system_name(geteuid()), true}).ok());
  EXPECT_FALSE(JobUsers::of_this_machine().may_run({"no such user", true}).ok());
}

}  // namespace
}  // namespace rubato::http
